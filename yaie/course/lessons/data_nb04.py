"""Real text for notebook 04: readers at a help desk, and chats of several turns.

The questions were written for the course. The answers are the model's own, SmolLM2-135M-Instruct
at temperature 0 with a repetition penalty of 1.1, cut after 90 tokens. Many of their facts are
wrong; their tokens are what counts here.
"""

from yaie.course.core import paths

_KEPT = paths.kept("04_chats")
LIBRARY_QUESTIONS, CHATS = _KEPT["library"], _KEPT["chats"]  # name → (question, answer) in turn

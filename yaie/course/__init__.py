"""The course: exercises, their checks, hints, and putting a learner's code into the engine.

from yaie.course import card, check, hint, solution, use
"""

from yaie.course.notebook import card, check, hint, solution, use

__all__ = ["card", "check", "hint", "solution", "use"]

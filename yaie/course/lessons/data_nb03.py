"""Forty-eight requests, for notebook 03: real prompts, and how long real answers to them were.

The prompts are text that the course owns: the 32 questions of the benchmark alone, and 16 tasks
("Shorten this by half.") with one to six paragraphs of the benchmark's house rules of a library
pasted in. They are tokenized afresh. The lengths of the answers were measured once, with
SmolLM2-135M-Instruct at temperature 0.7, and are kept here as numbers:

    python -m yaie.course.lessons.data_nb03     measures them again; minutes of computing
"""

import random
from dataclasses import dataclass
from itertools import cycle

from yaie.bench.workloads import LIBRARY_RULES, QUESTIONS, Message
from yaie.model.tokenizer import Tokenizer

INSTRUCTIONS = (
    "Summarize this in one sentence.",
    "Rewrite this as a list of rules.",
    "What would a visitor want to know most? Answer from the text.",
    "Translate this into French.",
    "Write three questions that this text answers.",
    "Explain this to a child of eight.",
    "Shorten this by half.",
    "Find everything that costs money, and say how much.",
)
# Which paragraphs of the rules each task is about, from the first to before the last.
PASSAGES = (
    *((i, i + 1) for i in range(6)),
    *((i, i + 2) for i in range(5)),
    (0, 4),
    (0, 6),
    (2, 6),
    (1, 4),
    (3, 6),
)

MAX_TOKENS = 1024  # where an answer was cut off
# Tokens of the answer to each of `conversations`, the token that ends it included.
_ANSWERS = """
97 511 276 243 62 378 236 25 348 299 213 111
424 240 410 6 123 155 264 164 63 268 234 37
383 270 385 18 226 128 77 141 11 19 78 78
225 1024 77 1024 78 1024 73 1024 849 1024 1024 501
"""
ANSWER_TOKENS = tuple(map(int, _ANSWERS.split()))


@dataclass(frozen=True)
class Served:
    """What a request asked for and what it came to, in tokens."""

    name: str
    prompt: int
    answer: int

    @property
    def total(self) -> int:
        return self.prompt + self.answer


def conversations() -> list[list[Message]]:
    """The 48 prompts, each a conversation of one message: questions first, then tasks."""
    paragraphs = LIBRARY_RULES.split("\n\n")[1:-1]
    texts = list(QUESTIONS)
    for (first, end), instruction in zip(PASSAGES, cycle(INSTRUCTIONS), strict=False):
        texts.append("\n\n".join([instruction, *paragraphs[first:end]]))
    return [[{"role": "user", "content": text}] for text in texts]


def requests(tokenizer: Tokenizer) -> list[Served]:
    """The requests in order of arrival: the same shuffle each time."""
    prompts = [len(tokenizer.apply_chat_template(chat)) for chat in conversations()]
    pairs = list(zip(prompts, ANSWER_TOKENS, strict=True))
    random.Random(3).shuffle(pairs)
    return [Served(f"r{i}", prompt, answer) for i, (prompt, answer) in enumerate(pairs)]


def measure() -> list[int]:
    """Let the model answer, and count the tokens of each answer."""
    from yaie import LLM, SamplingParams

    chats = conversations()
    params = [
        SamplingParams(temperature=0.7, seed=seed, max_tokens=MAX_TOKENS)
        for seed in range(len(chats))
    ]
    llm = LLM("SmolLM2-135M-Instruct")
    return [len(output.token_ids) for output in llm.chat(chats, params)]


if __name__ == "__main__":
    print(measure())

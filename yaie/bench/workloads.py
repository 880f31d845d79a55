"""What the benchmarks ask the engine: real text, the same in every run."""

import math
import random
from collections.abc import Callable

Message = dict[str, str]

QUESTIONS = (
    "What is the difference between a virus and a bacterium?",
    "Write a short poem about the sea in winter.",
    "How do I reverse a linked list in Python?",
    "Explain in two sentences why the sky is blue.",
    "Give me a recipe for a simple tomato soup.",
    "Who was Ada Lovelace, and what is she known for?",
    "What are three good questions to ask in a job interview?",
    "Translate 'good morning, my friend' into French and Spanish.",
    "Why do cats purr?",
    "Describe how a bicycle stays upright.",
    "What should I see in Lisbon if I have one day?",
    "Summarize the story of Romeo and Juliet.",
    "How does compound interest work? Show a small example.",
    "List five animals that live in the desert.",
    "What is a binary search, and when can it be used?",
    "Suggest a name for a small bakery by the river.",
    "How far away is the Moon, and how long does light take to get there?",
    "What does the word 'serendipity' mean?",
    "Give me three tips for learning to touch-type.",
    "Why is bread dough left to rise?",
    "What is the largest ocean on Earth?",
    "Explain what a hash table is to a child.",
    "How do vaccines work?",
    "Write the first line of a detective novel.",
    "What is the boiling point of water on a high mountain, and why?",
    "Name four instruments of a string quartet.",
    "How do I remove a coffee stain from a shirt?",
    "What is the capital of Australia?",
    "Why do leaves change color in autumn?",
    "How many sides does a dodecahedron have?",
    "What is the purpose of a semicolon?",
    "Tell me a fact about octopuses.",
)

FURTHER = (
    "Can you say that in one sentence?",
    "What would a child ask about it?",
    "Give me an example.",
    "Which part of that is the most important, and why?",
)

EXAMPLES = (
    (
        "Why does ice float on water?",
        "Water takes up more room when it freezes, since its molecules then keep a distance that "
        "the lattice demands. Ice is therefore lighter than the water it displaces, and floats.",
    ),
    (
        "What is a leap year for?",
        "The Earth needs about a quarter of a day more than 365 days to go around the Sun. A day "
        "added every fourth year, with few exceptions, keeps the calendar in step with seasons.",
    ),
    (
        "Why do we see lightning before we hear thunder?",
        "Light arrives almost at once, while sound needs about three seconds for each kilometer. "
        "Counting the seconds between them and dividing by three gives the distance.",
    ),
)

LIBRARY_RULES = """\
You are the help desk of the public library of Northfield, a town of nineteen thousand people \
between a river and a railway. You answer in the name of the library, politely and briefly. You \
never invent a rule: where these instructions are silent, you say that you will ask a librarian.

Opening hours. The main building in Mill Street is open from nine to seven on Monday, Tuesday, \
Thursday and Friday, from noon to nine on Wednesday, and from ten to four on Saturday. It is \
closed on Sunday and on public holidays. The branch at the station opens at six thirty in the \
morning on working days, for commuters, and closes at six in the evening. The reading room of the \
main building may be used without a card; the branch has no reading room.

Cards. A card is free for everyone who lives, works or goes to school in Northfield, and costs \
fifteen dollars a year for everyone else. To get one, a person shows a document with a name and an \
address. Children under fourteen need the signature of a parent. A lost card is replaced for two \
dollars, and is blocked from the moment the loss is reported. Nobody may borrow with the card of \
another person, not even within a family, because the library cannot know who has the book.

Borrowing. Books are lent for four weeks, films and music for one week, magazines for two weeks, \
and tools from the tool shelf for three days. A loan can be extended twice if nobody is waiting \
for the item: at the desk, by telephone or on the web page. At most thirty items may be out on one \
card at a time, of which at most five may be films and at most two may be tools. Reference works, \
local newspapers and maps made before nineteen hundred are not lent; copies may be made of them \
for ten cents a page, if the binding allows it.

Late items. For each day that an item is late, the library charges twenty cents, and never more \
than the price of the item. Children pay nothing. Whoever owes more than ten dollars cannot borrow \
until it is paid; in hardship a librarian may reduce the sum, and you may say so, but you may not \
promise it. A lost item is paid for at the price of a new one, with nothing added for the work.

Reservations. An item that is out can be reserved without charge. When it comes back, it is kept \
for seven days at the desk, and a message is sent by post or by electronic mail. Items of other \
libraries in the county are brought for one dollar each, usually within five working days. The \
library buys books that readers suggest, if two readers suggest the same book within one year.

Rooms and machines. The two group rooms can be booked for up to two hours a day. The eight public \
computers need no booking; a session lasts one hour, and longer if nobody waits. Printing costs \
ten cents a page in black and forty cents in color. The sewing machine and the scanner stand in \
the workshop on the first floor, where somebody helps every Wednesday evening.

Answer the question that follows in at most three sentences."""


def _questions(count: int) -> list[str]:
    """`count` different questions. After the last of QUESTIONS they repeat, each after a number."""
    size = len(QUESTIONS)
    return [("" if n < size else f"{n}. ") + QUESTIONS[n % size] for n in range(count)]


def different_chats(count: int) -> list[list[Message]]:
    """Conversations of one question each, with nothing in common but the template's beginning."""
    return [[{"role": "user", "content": question}] for question in _questions(count)]


def shared_system_chats(
    count: int, num_tokens: int, tokenize: Callable[[str], list[int]]
) -> list[list[Message]]:
    """Conversations that share a system prompt of `num_tokens` tokens, one question each."""
    words = LIBRARY_RULES.split(" ")
    system = LIBRARY_RULES
    while len(tokenize(system)) > num_tokens:
        words.pop()
        system = " ".join(words)
    if len(tokenize(LIBRARY_RULES)) < num_tokens:
        raise ValueError(f"num_tokens must be at most {len(tokenize(LIBRARY_RULES))}")
    return [
        [{"role": "system", "content": system}, {"role": "user", "content": question}]
        for question in _questions(count)
    ]


def long_prompts(
    count: int, num_tokens: int, tokenize: Callable[[str], list[int]]
) -> list[list[int]]:
    """Prompts of exactly `num_tokens` tokens, with nothing in common beyond the first tokens.

    Each begins with its number and a question; the sentences of the library's rules follow, in an
    order of its own, again and again.
    """
    sentences = [s.strip() for s in LIBRARY_RULES.replace("\n\n", " ").split(". ")]
    prompts = []
    for number in range(count):
        rng = random.Random(number)
        tokens = tokenize(f"{number}. {QUESTIONS[number % len(QUESTIONS)]}")
        while len(tokens) < num_tokens:
            order = rng.sample(sentences, len(sentences))
            tokens += tokenize(" " + ". ".join(order) + ".")
        prompts.append(tokens[:num_tokens])
    return prompts


def mixed_lengths(count: int, at_once: int, mean: float, seed: int) -> list[int]:
    """Lengths that differ as those of real requests do: many short ones and a few long ones.

    They are quantiles of an exponential distribution. Every `at_once` of them are the same lengths
    in another order, so that batches of so many are equally long.
    """
    rng = random.Random(seed)
    ranks = [(n + 0.5) / at_once for n in range(at_once)]
    lengths = [max(1, round(-mean * math.log(1 - rank))) for rank in ranks]
    groups = [rng.sample(lengths, at_once) for _ in range(-(-count // at_once))]
    return [length for group in groups for length in group][:count]


def shared_prompts(
    count: int, shared: int, num_tokens: int, tokenize: Callable[[str], list[int]]
) -> list[list[int]]:
    """Prompts of exactly `num_tokens` tokens of which all begin with the same `shared` ones.

    Raises:
        ValueError: `shared` is not below `num_tokens`.
    """
    if not 0 <= shared < num_tokens:
        raise ValueError(f"shared must be at least 0 and below {num_tokens}, got {shared}")
    head = long_prompts(1, shared, tokenize)[0]
    return [head + tail for tail in long_prompts(count, num_tokens - shared, tokenize)]


def few_shot_chats(count: int) -> list[list[Message]]:
    """Conversations that begin with the same three questions and answers, as examples of how."""
    shown = []
    for question, answer in EXAMPLES:
        shown.append({"role": "user", "content": question})
        shown.append({"role": "assistant", "content": answer})
    return [[*shown, {"role": "user", "content": question}] for question in _questions(count)]


def next_turn(chat: list[Message], answer: str, number: int) -> list[Message]:
    """A conversation with its answer and a further question, the `number`-th."""
    question = FURTHER[number % len(FURTHER)]
    return [*chat, {"role": "assistant", "content": answer}, {"role": "user", "content": question}]

"""29.4: what csrc/vllm_style/paged_attention.cu does, said by a learner who has read it."""

import random
from collections.abc import Iterator
from typing import Any

import torch

from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.reading import BLOCK_SIZE, HEAD_SIZE, NUM_THREADS, PARTITION_SIZE, X

BATCHES = (([1100], 8), ([512], 1), ([513], 1), ([3, 1100, 512], 4), ([0, 700], 2), ([40] * 6, 32))
NAMES = {
    "maximum": ("qk_max", "A register of each thread, updated by fmaxf with every score."),
    "block": ("physical_block_number", "What stands in block_table[block_idx], and nothing else."),
    "weights": ("logits", "Scores are stored there; exp and the division replace them in place."),
    "warps": ("red_smem", "Lane 0 of each warp writes its maximum there; all warps read them."),
    "partitions": (
        "max_logits",
        "Version 2's first kernel writes it, and its second one reads it.",
    ),
}


def cases() -> Iterator[Case]:
    for length in (100, 16, 17, 1, 0, 1100):
        yield Case(f"version 1, a sequence of {length:,} tokens", look=at_tokens, length=length)
    for length, partition in ((1100, 0), (1100, 1), (1100, 2), (513, 1), (512, 0), (300, 1)):
        name = f"version 2, a sequence of {length:,} tokens, partition {partition}"
        yield Case(name, look=at_tokens, length=length, partition=partition)
    yield Case("a cache of 2 KV heads, block table [7, 2, 9]", look=at_places, table=[7, 2, 9])
    for lengths, heads in BATCHES:
        name = f"sequences of {lengths} tokens, {heads} head{'s' * (heads > 1)}"
        yield Case(name, look=at_batch, lengths=lengths, heads=heads, most=max(lengths))
    for question in NAMES:
        yield Case(f'the name for "{question}"', look=at_name, question=question)
    generator = random.Random(0)
    for _ in range(28):
        length, partition = generator.randrange(1, 2000), generator.choice([None, 0, 1, 2, 3])
        where = "version 1" if partition is None else f"version 2, partition {partition}"
        name = f"{where}, a sequence of {length:,} tokens"
        yield Case(name, look=at_tokens, length=length, partition=partition)
    for kv_heads in (1, 3, 8):
        table = generator.sample(range(12), 5)
        name = f"a cache of {kv_heads} KV head{'s' * (kv_heads > 1)}, block table {table}"
        yield Case(name, look=at_places, table=table, kv_heads=kv_heads)
    for _ in range(54):
        lengths = [generator.randrange(2100) for _ in range(generator.randint(1, 5))]
        heads, most = generator.choice([1, 4, 32]), max(lengths) + generator.randrange(1, 900)
        name = f"sequences of {lengths} tokens, max_seq_len {most}, {heads} heads"
        yield Case(name, look=at_batch, lengths=lengths, heads=heads, most=most)


def observe(learner: Any, case: Case, see: Observer) -> None:
    case.look(learner, case, see)


def at_tokens(learner: Any, case: Case, see: Observer) -> None:
    """From the tokens to the threads: which of them score each one."""
    partition, of_thread = getattr(case, "partition", None), {t: [] for t in range(NUM_THREADS)}
    first = 0 if partition is None else partition * PARTITION_SIZE
    last = case.length if partition is None else min(case.length, first + PARTITION_SIZE)
    for token in range(first, last):
        warp, pair = (token - first) // BLOCK_SIZE % 4, token % BLOCK_SIZE
        for thread in (32 * warp + 2 * pair, 32 * warp + 2 * pair + 1):
            of_thread[thread].append(token)
    for thread in (0, 1, 2, 37, 127, *range(3, 127, 5)):
        call = f"tokens_of({thread}, {case.length}{'' if partition is None else f', {partition}'})"
        with see.call(call):
            got = learner.tokens_of(thread, case.length, partition)
        warp, lane = divmod(thread, 32)
        who = f"Thread {thread} is lane {lane} of warp {warp}; two lanes share a token's key."
        see.equal(
            call, list(got) if isinstance(got, (tuple, range)) else got, of_thread[thread], who
        )


def at_places(learner: Any, case: Case, see: Observer) -> None:
    """Every place of a cache numbered, and then indexed as the layout says."""
    kv_heads = getattr(case, "kv_heads", 2)
    layout = (12, kv_heads, HEAD_SIZE // X, BLOCK_SIZE, X)
    places = torch.arange(torch.Size(layout).numel()).view(layout)
    generator = random.Random(1)
    first = [(0, 0, 0), (1, 0, 0), (0, 0, 1), (0, 0, 4), (16, 0, 0), (37, kv_heads - 1, 63)]
    drawn = [
        (generator.randrange(16 * len(case.table)), generator.randrange(kv_heads),
         generator.randrange(64)) for _ in range(94)
    ]  # fmt: skip
    for token, head, element in first + drawn:
        call = f"key_place({case.table}, {token}, {head}, {element}, {kv_heads})"
        with see.call(call):
            got = learner.key_place(list(case.table), token, head, element, kv_heads)
        block, offset = case.table[token // 16], token % 16
        want = int(places[block, head, element // X, offset, element % X])
        where = f"Token {token} is token {offset} of block {block}, element {element} is in chunk "
        see.equal(call, got, want, f"{where}{element // X} of 4 elements.")


def at_batch(learner: Any, case: Case, see: Observer) -> None:
    call = f"version_two({case.lengths}, {case.heads}, {case.most})"
    with see.call(call):
        got = learner.version_two(list(case.lengths), case.heads, case.most)
    parts = see.parts(call, got, "busy", "launched", "numbers")
    columns = len(range(0, case.most, PARTITION_SIZE))
    begins = range(0, columns * PARTITION_SIZE, PARTITION_SIZE)
    busy = sum(begin < length for length in case.lengths for begin in begins) * case.heads
    launched = case.heads * len(case.lengths) * columns
    axes = ((case.heads, "head"), (len(case.lengths), "sequence"), (columns, "partition"))
    grid = ", ".join(f"{number} {word}{'s' * (number != 1)}" for number, word in axes)
    grid = f"The grid is ({grid})"
    see.equal("thread blocks that compute", parts[0], busy, f"{grid}; the rest return immediately.")
    see.equal("thread blocks that are launched", parts[1], launched, f"{grid}.")
    each = f"{HEAD_SIZE} of tmp_out, one of exp_sums and one of max_logits"
    see.equal("numbers kept", parts[2], launched * 66, f"Each thread block of the grid has {each}.")


def at_name(learner: Any, case: Case, see: Observer) -> None:
    """The right name is not told: it is to be read."""
    with see.call("names()"):
        got = learner.names()
    see.kind("names()", got, dict)
    right, hint = NAMES[case.question]
    came = got.get(case.question)
    problem = "" if came == right else f"is {came!r}: look again"
    see.note(f"names()[{case.question!r}]", came, problem, hint)

"""21.2: the draw of every row, from its own seed and step and from its tokens alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from yaie.course.core import cuda
from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer
from yaie.course.exercises.nb21.rows import MERGE
from yaie.course.exercises.nb21.sample import operator_by
from yaie.course.lessons.ops.reference.sampling import gumbel_sample

fit = operator_by("gumbel_sample")
# Tokens, thread blocks, threads of each.
SIZES = ((300, 2, 96), (1, 1, 32), (20, 1, 32), (64, 1, 64), (90, 3, 64))
# With these seeds, step 0 has almost the least and the largest random bits at this token.
LEAST, LARGEST, TOKEN = 12_513_068, 25_875_730, 7
SHARES = (0.5, 0.3, 0.15, 0.05)
FORMULA = "It is the token with the largest logit - temperature[row] × log(-log(u))."
FIRST = "Of equal scores the first token wins."
SHARED = "The threads share the tokens of a row: each token belongs to one thread."
LEAST_TOLD = (
    f"Token {TOKEN} of row 0 is e^40 times as likely as the others together, and token {TOKEN} of "
    "row 1 has a probability of e^-60; the noise is finite."
)
NOTHING = "Row 0 has no token above -inf, and row 1 a single one, token 39."


def cases() -> Iterator[KernelCase]:
    large = case(2, 1100, 1, 1024, make=two)  # slow if each thread reads all tokens
    yield from cuda.in_every_order(*(case(12, *size, make=twelve) for size in SIZES), large)
    for threads in (32, 64, 96):
        equal = f"temperature 0 and equal logits, {threads} threads"
        yield case(3, 130, 1, threads, name=equal, make=ties, want=[5, 33, 96], because=FIRST)
    ends = f"seeds whose random bits at token {TOKEN} are 0x00000017 and 0xffffffec"
    yield case(2, 16, 1, 32, name=ends, make=least_and_largest)
    alone = "a row of -inf alone, and one with a single token"
    yield case(2, 40, 1, 64, name=alone, make=nothing, want=[-1, 39], because=NOTHING)
    for suffix in ("f32", "f16", "bf16"):
        yield case(12, 500, 2, 128, make=twelve, suffix=suffix, costs=True)
    close = "logits of 64 in bf16, temperature 0.01"
    finer = f"{FORMULA} The scores differ by less than bfloat16 can tell: compute them in float."
    yield case(12, 100, 1, 32, "bf16", name=close, make=nearly_equal, because=finer)
    shares = "3,000 seeds, probabilities 0.5, 0.3, 0.15 and 0.05"
    yield case(3000, 4, 4, 32, name=shares, make=thousands, how={"checked": False})


def case(
    rows: int, size: int, blocks: int, threads: int, suffix: str = "f32", **data: Any
) -> KernelCase:
    name = f"{rows} rows of {size} tokens of {suffix}, {threads} threads"
    usual = {"name": name, "want": None, "because": FORMULA}
    return KernelCase(**{**usual, **data}, shape=(rows, size, blocks, threads), suffix=suffix)


def twelve(size: int) -> tuple[Any, ...]:
    """Twelve rows: seeds and steps apart, four temperatures."""
    logits = torch.randn(12, size, generator=torch.Generator().manual_seed(size)) * 1.5
    temperature = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.0, 1.5] * 2)
    seed = torch.tensor([3, 3, 7, 7, -1, 12, 12, 12, 2**40, 5, 6, 2**62])
    step = torch.tensor([0, 1, 0, 1, 0, 4, 5, 2**35, 0, 9, 9, 9])
    return logits, temperature, seed, step


def two(size: int) -> tuple[Any, ...]:
    """The first two of these rows."""
    return tuple(column[:2] for column in twelve(size))


def nearly_equal(size: int) -> tuple[Any, ...]:
    """Equal logits, and noise that is small beside them."""
    logits, temperature, *stream = twelve(size)
    return torch.full_like(logits, 64.0), torch.full_like(temperature, 0.01), *stream


def ties(size: int) -> tuple[Any, ...]:
    """With temperature 0, equal logits decide by their ids."""
    logits = torch.zeros(3, size)
    logits[0, [69, 5, 129]] = logits[1, [64, 33]] = logits[2, [96, 128]] = 2.0
    zeros = torch.zeros(3, dtype=torch.int64)
    return logits, torch.zeros(3), zeros, zeros


def least_and_largest(size: int) -> tuple[Any, ...]:
    """The noise of the least and of the largest random number has to be finite."""
    logits = torch.zeros(2, size)
    logits[0, TOKEN], logits[1, TOKEN] = 40.0, -60.0
    seed, step = torch.tensor([LEAST, LARGEST]), torch.zeros(2, dtype=torch.int64)
    return logits, torch.ones(2), seed, step


def nothing(size: int) -> tuple[Any, ...]:
    logits = torch.full((2, size), -torch.inf)
    logits[1, 39] = -500.0
    zeros = torch.zeros(2, dtype=torch.int64)
    return logits, torch.ones(2), zeros, zeros


def thousands(size: int) -> tuple[Any, ...]:
    """3,000 draws of four tokens."""
    logits = torch.tensor(SHARES).log().expand(3000, -1).contiguous()
    return logits, torch.ones(3000), torch.arange(3000), torch.full((3000,), 3)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    rows, size, *_ = case.shape
    logits, *rest = case.make(size)
    logits = logits.to(cuda.dtype_of(case.suffix))
    tokens = cuda.poisoned(rows, dtype=torch.int64)
    name = f"gumbel_sample_{case.suffix}"
    given = (logits, *rest, tokens, *case.shape)
    report = cuda.run(see, path, name, *given, explain=MERGE, **case.how)
    if case.make is least_and_largest:
        sure, never = tokens.tolist()
        see.equal("the token of row 0", sure, TOKEN, LEAST_TOLD)
        see.true("the token of row 1", never != TOKEN, f"is {TOKEN}", LEAST_TOLD)
        return
    if case.make is thousands:
        counts = torch.bincount(tokens.clamp(0, 3), minlength=4).double()
        expected = rows * torch.tensor(SHARES, dtype=torch.float64)
        statistic = round(((counts - expected) ** 2 / expected).sum().item(), 1)
        shares = [round(count / rows, 3) for count in counts.tolist()]
        came = f"The shares are {shares}; chance alone exceeds this once in 1,000."
        see.at_most("the chi-square of the tokens' shares", statistic, 16.3, came)
        return
    want = case.want or gumbel_sample(logits, *rest).tolist()
    see.equal("tokens", tokens.tolist(), want, cuda.unwritten(tokens, case.because))
    if case.costs:
        read = sum(n * times for a in cuda.accesses(report, name="logits")
                   for n, times in a.by_lanes.items())  # fmt: skip
        twice = 2 * rows * size  # a thread may look at its token again
        see.at_most("the number of logits that were read", read, twice, SHARED)


def draw(path: Path) -> Any:
    """How often each of 12 tokens came in 2,000 draws, beside how often it should."""
    from yaie.course.viz.draws import draw_shares

    rows = 2000
    logits = torch.linspace(1.5, -2.0, 12)
    arguments = (
        logits.expand(rows, -1).contiguous(), torch.ones(rows), torch.arange(rows),
        torch.zeros(rows, dtype=torch.int64),
    )  # fmt: skip
    tokens = cuda.poisoned(rows, dtype=torch.int64)
    cuda.compiled(path).gumbel_sample_f32(*arguments, tokens, rows, 12, 8, 32)
    counts = torch.bincount(tokens.clamp(0, 11), minlength=12).tolist()
    return draw_shares(counts, logits.softmax(0).tolist())

"""The check of 20.2: the draw of every row, from its own seed, step and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.course.checks.nb14.common import (
    dtypes,
    element_of,
    on_every_schedule,
    race_in_words,
)
from yaie.course.core.cuda import Explain, launch, poisoned
from yaie.course.core.expect import equal, given

if TYPE_CHECKING:
    from yaie.emulator.checks import Finding

SIZES = ((300, 2, 96), (1, 1, 32), (20, 1, 32), (64, 1, 64), (90, 3, 64), (1100, 1, 1024))
# With these seeds, step 0 has almost the least and the largest random bits there are at token 7.
LEAST, LARGEST = 12_513_068, 25_875_730
TOKEN = 7


def check_gumbel(path: Path) -> None:
    explain = explanations(path)

    def values(order: str) -> None:
        for size, blocks, threads in SIZES:
            run(path, size, blocks, threads, order, explain)

    on_every_schedule(values)
    ties(path, explain)
    ends(path, explain)
    nothing(path, explain)
    for suffix in dtypes():
        run(path, 500, 2, 128, "forward", explain, suffix)
    distribution(path, explain)


def call(
    path: Path, arguments: tuple, blocks: int, threads: int, explain: Explain,
    order: str = "forward", suffix: str = "f32", checked: bool = True,
) -> Any:  # fmt: skip
    import torch

    rows, size = arguments[0].shape
    tokens = poisoned(rows, dtype=torch.int64)
    launch(
        path, f"gumbel_sample_{suffix}", *arguments, tokens, rows, size, blocks, threads,
        explain=explain, order=order, checked=checked,
    )  # fmt: skip
    return tokens


def inputs(size: int, suffix: str = "f32") -> tuple:
    """Twelve rows: seeds and steps apart, three temperatures."""
    import torch

    logits = torch.randn(12, size, generator=torch.Generator().manual_seed(size)) * 1.5
    temperature = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.0, 1.5] * 2)
    seed = torch.tensor([3, 3, 7, 7, -1, 12, 12, 12, 2**40, 5, 6, 2**62])
    step = torch.tensor([0, 1, 0, 1, 0, 4, 5, 2**35, 0, 9, 9, 9])
    return logits.to(dtypes()[suffix]), temperature, seed, step


def run(
    path: Path, size: int, blocks: int, threads: int, order: str, explain: Explain,
    suffix: str = "f32",
) -> None:  # fmt: skip
    arguments = inputs(size, suffix)
    with given(f"12 rows of {size} tokens, {threads} threads, in {order} order"):
        tokens = call(path, arguments, blocks, threads, explain, order, suffix)
        compare(tokens, arguments, threads)


def compare(tokens: Any, arguments: tuple, threads: int) -> None:
    import torch

    from yaie.ops.reference.sampling import gumbel_sample, uniforms

    logits, temperature, seed, step = arguments
    size = logits.shape[1]
    unwritten = "That was there before: nobody wrote it." if (tokens < -1).any() else ""
    ids = torch.arange(size)
    u = uniforms(seed.unsqueeze(1), step.unsqueeze(1), ids)
    hot, wide = temperature.unsqueeze(1), logits.float()
    owner = ids % threads

    def seen(mask: Any) -> Any:
        return gumbel_sample(wide.masked_fill(~mask, -torch.inf), temperature, seed, step)

    mistakes = [
        (wide.argmax(1), "Those are the largest logits: no noise came to them, or the same to "
         "every token of a row. Each token's random bits come from its own id."),
        (gumbel_sample(logits, temperature, torch.arange(len(seed)), step), "The random numbers "
         "belong to the row's place in the batch, not to its seed: beside other requests, the "
         "same request would get other tokens."),
        (gumbel_sample(logits, temperature, torch.zeros_like(seed), step), "Every row got the same "
         "random numbers, as if its seed were 0."),
        (gumbel_sample(logits, temperature, seed[:1].expand_as(seed), step), "Every row got the "
         "random numbers of row 0's seed: take seed[row]."),
        (gumbel_sample(logits, temperature, seed, torch.zeros_like(step)), "The step does not "
         "matter: a request would draw with the same noise at every step."),
        (gumbel_sample(logits, torch.ones_like(temperature), seed, step), "The temperature does "
         "not matter: multiply the noise by it."),
        ((wide - hot * u.log()).argmax(1), "That is one logarithm only: noise is -log(-log(u))."),
        ((wide + hot * (-u.log()).log()).argmax(1), "The noise has the wrong sign: it is "
         "-log(-log(u)), and is added."),
        ((wide + hot * u).argmax(1), "Uniform noise was added: it takes -log(-log(u)) to draw from "
         "the softmax."),
        (seen(owner < 32), "Those are the best of warp 0's tokens: the other warps' best have to "
         "come to them, through of_warp."),
        (seen(owner == 0), "Those are the best of thread 0's tokens."),
        (seen(ids < size // 32 * 32), f"The tokens from {size // 32 * 32} on, where not "
         "every lane of a warp has one, never win."),
    ]  # fmt: skip
    wanted = gumbel_sample(logits, temperature, seed, step)
    wrong = tokens != wanted
    if wrong.any() and not wrong[temperature > 0].any():
        unwritten = (
            "Only rows with temperature 0 are wrong: multiply the noise by the temperature, rather "
            "than divide the logit by it. The order is the same, and nothing is divided by 0."
        )
    equal(tokens, wanted, "tokens", because=unwritten, mistakes=mistakes)


def ties(path: Path, explain: Explain) -> None:
    """With temperature 0, equal logits decide by their ids."""
    import torch

    logits = torch.zeros(3, 130)
    logits[0, [69, 5, 129]] = logits[1, [64, 33]] = logits[2, [96, 128]] = 2.0
    zeros = torch.zeros(3, dtype=torch.int64)
    with given("temperature 0 and equal logits"):
        arguments = logits, torch.zeros(3), zeros, zeros
        for threads in (32, 64, 96):
            tokens = call(path, arguments, 1, threads, explain)
            because = (
                "Of equals the first wins. Within a thread that is `>` and not `>=`; between "
                "threads, whose columns alternate, better(a, b) sees to it."
            )
            equal(tokens.tolist(), [5, 33, 96], "tokens", because=because)


def ends(path: Path, explain: Explain) -> None:
    """The noise of the least and of the largest random number must be finite."""
    import torch

    logits = torch.zeros(2, 16)
    logits[0, TOKEN], logits[1, TOKEN] = 40.0, -60.0
    seed, step = torch.tensor([LEAST, LARGEST]), torch.zeros(2, dtype=torch.int64)
    arguments = logits, torch.ones(2), seed, step
    with given(f"seeds whose random bits at token {TOKEN} are 0x00000017 and 0xffffffec"):
        sure, never = call(path, arguments, 1, 32, explain).tolist()
        equal(
            sure, TOKEN, f"the token of row 0, in which token {TOKEN} is e^40 times as likely",
            because="u became 0, and so log(u) and the noise -inf. Keep u above 0: add a half to "
            "the bits before you scale them.",
        )  # fmt: skip
        if never == TOKEN:
            equal(
                never, "another", f"the token of row 1, in which token {TOKEN} has a probability "
                "of e^-60",
                because="u became 1, so -log(u) is 0 and the noise infinite. A float has 24 bits: "
                "(bits >> 9) + 0.5f fits, one bit more is rounded up to 2^24 at the end.",
            )  # fmt: skip


def nothing(path: Path, explain: Explain) -> None:
    import torch

    logits = torch.full((2, 40), -torch.inf)
    logits[1, 39] = -500.0
    zeros = torch.zeros(2, dtype=torch.int64)
    with given("a row of -inf alone, and one with a single token"):
        tokens = call(path, (logits, torch.ones(2), zeros, zeros), 1, 64, explain)
        because = "Begin with {-INFINITY, -1}: a token takes over if its score is larger."
        equal(tokens.tolist(), [-1, 39], "tokens", because=because)


def distribution(path: Path, explain: Explain) -> None:
    """Whatever the formula: 3,000 draws of four tokens must come as often as they should."""
    import torch

    rows, share = 3000, [0.5, 0.3, 0.15, 0.05]
    logits = torch.tensor(share).log().expand(rows, -1).contiguous()
    seed, step = torch.arange(rows), torch.full((rows,), 3)
    with given("3,000 seeds, probabilities 0.5, 0.3, 0.15 and 0.05"):
        arguments = logits, torch.ones(rows), seed, step
        tokens = call(path, arguments, 4, 32, explain, checked=False)
        counts = torch.bincount(tokens.clamp(0, 3), minlength=4).double()
        expected = rows * torch.tensor(share, dtype=torch.float64)
        statistic = ((counts - expected) ** 2 / expected).sum().item()
        if statistic > 16.3:  # 3 degrees of freedom: once in a thousand
            equal(
                [round(c / rows, 3) for c in counts.tolist()], share, "the shares of the tokens",
                because=f"Chi-square is {statistic:.0f}; chance alone passes 16.3 once in 1,000.",
            )  # fmt: skip


def explanations(path: Path) -> Explain:
    def race(found: Finding) -> str:
        words = race_in_words(found, element_of(found, path, {}, 8))
        if found.memory == "global":
            return "Several threads write the token: one is enough, once all have compared."
        if found.access == found.other_access == "store":
            return f"{words} One lane of each warp writes, into a place of its warp's own."
        return f"{words} of_warp may be read when every warp has written its best."

    return {
        "race": race,
        "inactive_lane": "All 32 lanes come to a shuffle: one without a token brings -inf and -1.",
        "deadlock": "A shuffle waits for all lanes in its mask: keep it out of every `if`.",
        "divergent_barrier": "Every thread comes to every __syncthreads(), with a token or not.",
        "uninitialized": "Only as many places of of_warp are written as there are warps.",
        "out_of_bounds": "A row has `size` logits, the last one at size - 1.",
    }


def draw_gumbel(path: Path) -> Any:
    """How often each of 12 tokens came in 2,000 draws, beside how often it should."""
    import torch

    from yaie.course.viz.draws import draw_shares

    rows = 2000
    logits = torch.linspace(1.5, -2.0, 12)
    arguments = (
        logits.expand(rows, -1).contiguous(),
        torch.ones(rows),
        torch.arange(rows),
        torch.zeros(rows, dtype=torch.int64),
    )
    tokens = call(path, arguments, 8, 32, {}, checked=False)
    counts = torch.bincount(tokens.clamp(0, 11), minlength=12).tolist()
    return draw_shares(counts, logits.softmax(0).tolist())

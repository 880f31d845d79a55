"""The check of the online softmax in a kernel: one tile of scores, and the end."""

from __future__ import annotations

import math
import random
from typing import Any

from yaie.course.checks.nb10.common import spaced
from yaie.course.core.expect import close, fail, given

LOWEST = -3.0e38
LOG2_E = math.log2(math.e)

RETURNS = {
    ValueError: "It returns four blocks: weights, maximum, total, out. A block of [rows] meets "
    "one of [rows, keys] as `x[:, None]`.",
    TypeError: "It returns four blocks: weights, maximum, total, out.",
}
TWO_RETURNED = {
    ValueError: "It returns two blocks: out, lse. A block of [rows] meets one of [rows, head_dim] "
    "as `x[:, None]`.",
    TypeError: "It returns two blocks: out, lse.",
}


def check_online(kernels: Any) -> None:
    first_tile(kernels)
    second_tile(kernels)
    hidden_keys(kernels)
    large_scores(kernels)
    the_end(kernels)
    nothing_seen(kernels)
    any_tiles(kernels)


def empty(rows: int, dim: int) -> tuple[Any, Any, Any]:
    import torch

    return torch.full((rows,), LOWEST), torch.zeros(rows), torch.zeros(rows, dim)


def step(kernels: Any, scores: Any, scale: float, state: Any) -> tuple[Any, Any, Any, Any]:
    """Run the learner's `online_step` once: weights and the new state."""
    import torch

    from yaie.course.checks.nb12.kernels import step_kernel
    from yaie.course.core.triton import launch

    rows, keys = scores.shape
    before = [spaced(x) for x in state]
    results = [spaced(torch.full_like(x, torch.nan)) for x in (scores, *state)]
    names = ["scores", "maximum", "total", "out", "weights", "new maximum", "new total", "new out"]
    arguments = dict(zip(names, [spaced(scores), *before, *results], strict=True))
    launch(
        step_kernel, (1,), {**arguments, "scale": scale},
        STEP=kernels.online_step, ROWS=rows, KEYS=keys, DIM=state[2].shape[1],
    )  # fmt: skip
    return tuple(results)


def end(kernels: Any, state: Any) -> tuple[Any, Any]:
    """Run the learner's `finish` once."""
    import torch

    from yaie.course.checks.nb12.kernels import finish_kernel
    from yaie.course.core.triton import launch

    maximum, total, out = (spaced(x) for x in state)
    results = [spaced(torch.full_like(x, torch.nan)) for x in (out, total)]
    arguments = {
        "maximum": maximum, "total": total, "state": out, "out": results[0], "lse": results[1]
    }  # fmt: skip
    rows, dim = out.shape
    launch(finish_kernel, (1,), arguments, FINISH=kernels.finish, ROWS=rows, DIM=dim)
    return tuple(results)


def compare(got: Any, scores: Any, scale: float, state: Any) -> None:
    """One step against float64, by its text."""
    weights, maximum, total, out = got
    raw, (old, old_total, old_out) = scores.double(), (x.double() for x in state)
    scaled = raw * scale
    top = scaled.amax(dim=1)
    new = old.maximum(top)
    factor = (old - new).exp2()
    close(
        maximum,
        new.float(),
        "the new maximum",
        because="It is the largest of the old maximum and of the scores times `scale`.",
        mistakes=[
            (
                old.maximum(raw.amax(dim=1)).float(),
                "The scores were not scaled: maximum and total are those of score × scale.",
            ),
            (
                top.float(),
                "That is the largest score of this tile. Those before count as well: "
                "`tl.maximum(a, b)`.",
            ),
            (
                old.maximum(scaled.max()).float(),
                "That is the largest score of all rows. Each row has its own: `tl.max(x, 1)`.",
            ),
            (old.float(), "The old maximum was returned."),
        ],
    )
    wrong_weights = [
        ((raw - new[:, None]).exp2(), "The scores were not scaled before the maximum came off."),
        (
            ((raw - new[:, None]) * scale).exp2(),
            "The maximum has the scale in it already: 2^(score × scale - maximum).",
        ),
        (
            (scaled - new[:, None]).exp(),
            "These are powers of e. The scale has log2(e) in it, so that `tl.exp2` can be used.",
        ),
        ((scaled - old[:, None]).exp2(), "The old maximum was taken off, not the new one."),
        ((scaled - top[:, None]).exp2(), "This tile's own maximum was taken off, not the new one."),
        (scaled.exp2(), "The maximum was not taken off."),
    ]
    nan = ""
    if bool(weights.isnan().any()):
        nan = " -inf minus -inf is NaN: the new maximum is never less than the old one, LOWEST."
    want = (scaled - new[:, None]).exp2()
    close(
        weights,
        want.float(),
        "the block of weights",
        because=f"They are 2^(score × scale - new maximum).{nan}",
        mistakes=[(x.float(), text) for x, text in wrong_weights],
    )
    added = want.sum(dim=1)
    forgotten = "What was summed before is relative to the old maximum: times 2^(old - new)."
    upside_down = "The factor is upside down: 2^(old - new) is at most 1."
    natural = "The factor is a power of e, and the weights are powers of 2."
    inverse = (new - old).exp2()
    close(
        total,
        (old_total * factor + added).float(),
        "the new total",
        because="It is the old total, moved to the new maximum, plus the weights of this tile.",
        mistakes=[
            ((old_total + added).float(), forgotten),
            (added.float(), "That is the sum of this tile alone."),
            ((old_total * factor + added.sum()).float(), "The weights of all rows were summed. "
             "Each row has its own total: `tl.sum(x, 1)`."),
            ((old_total * factor).float(), "The weights of this tile were not added."),
            (((old_total + added) * factor).float(), "The weights of this tile are relative to "
             "the new maximum already: only the old total is moved."),
            ((old_total * inverse + added).float(), upside_down),
            ((old_total * (old - new).exp() + added).float(), natural),
        ],
    )  # fmt: skip
    by_total = (old_out / (old_total * factor + added)[:, None]).float()
    close(
        out,
        (old_out * factor[:, None]).float(),
        "out",
        because="It is the old `out`, moved to the new maximum.",
        mistakes=[
            (old_out.float(), f"The accumulator was not moved. {forgotten}"),
            ((old_out * inverse[:, None]).float(), upside_down),
            ((old_out * (old - new).exp()[:, None]).float(), natural),
            (by_total, "Nothing is divided before the end: that is what `finish` is for."),
        ],
    )


def first_tile(kernels: Any) -> None:
    import torch

    scores = torch.tensor([[1.0, 3.0, 2.0, 0.0], [-5.0, -1.0, -2.0, -4.0]])
    with given("a first tile, scores [1, 3, 2, 0] and [-5, -1, -2, -4], scale 0.5", RETURNS):
        state = empty(2, 2)
        compare(step(kernels, scores, 0.5, state), scores, 0.5, state)


def second_tile(kernels: Any) -> None:
    """A row whose maximum rises, and one whose maximum stays."""
    import torch

    scores = torch.tensor([[4.0, 10.0], [1.0, 2.0]])
    state = torch.tensor([2.0, 3.0]), torch.tensor([1.5, 1.25]), torch.tensor([[8.0], [6.0]])
    with given(
        "a second tile, scores [4, 10] and [1, 2], scale 0.5, after maxima 2 and 3, totals 1.5 "
        "and 1.25",
        RETURNS,
    ):
        compare(step(kernels, scores, 0.5, state), scores, 0.5, state)


def hidden_keys(kernels: Any) -> None:
    import torch

    inf = -math.inf
    scores = torch.tensor([[inf, inf], [inf, 6.0], [inf, inf], [1.0, 2.0]])
    state = [x.clone() for x in empty(4, 2)]
    state[0][2], state[1][2], state[2][2] = 1.0, 2.0, 3.0
    with given("a tile whose rows 0 and 2 are -inf alone, row 0 having seen nothing yet", RETURNS):
        compare(step(kernels, scores, 1.0, state), scores, 1.0, state)


def large_scores(kernels: Any) -> None:
    import torch

    scores = torch.tensor([[800.0, 801.0], [-900.0, -901.0]])
    state = empty(2, 2)
    with given("scores of 800 and of -900, scale 1", RETURNS):
        got = step(kernels, scores, 1.0, state)
        if not all(bool(x.isfinite().all()) for x in got):
            fail("something overflowed. Take exponentials of differences from the maximum only.")
        compare(got, scores, 1.0, state)


def the_end(kernels: Any) -> None:
    import torch

    state = torch.tensor([3.0, -2.0]), torch.tensor([8.0, 2.0]), torch.tensor([[4.0], [5.0]])
    with given("finish with maxima 3 and -2, totals 8 and 2", TWO_RETURNED):
        compare_end(end(kernels, state), state)


def compare_end(got: Any, state: Any) -> None:
    maximum, total, out = (x.double() for x in state)
    seen = total > 0
    divisor = total.where(seen, total.new_ones(()))[:, None]
    want = ((maximum + total.log2()) * math.log(2)).float()
    if bool(got[0].isnan().any()):
        fail(
            "the output has a NaN. A row that saw nothing has a total of 0, and 0 / 0 is NaN: "
            "divide it by something else."
        )
    close(
        got[0],
        (out / divisor).float(),
        "the output",
        because="It is the accumulator divided by the total.",
        mistakes=[(out.float(), "It was not divided by the total.")],
    )
    close(
        got[1],
        want,
        "the log-sum-exp",
        because="It is (maximum + log2(total)) × ln 2, the natural logarithm of the whole sum.",
        mistakes=[
            ((maximum + total.log2()).float(), "That is its logarithm to base 2, since the "
             "maximum has log2(e) in it and total sums powers of 2. Times ln 2 it is natural."),
            ((maximum + total.log()).float(), "Two bases are mixed here: the maximum is a power "
             "of 2, tl.log natural. Use tl.log2, and multiply the sum by ln 2."),
            ((maximum * math.log(2) + total.log2()).float(), "ln 2 belongs to both terms."),
            (total.log().float(), "The maximum, which was taken off every score, is missing."),
            ((total.log2() * math.log(2)).float(), "The maximum, which was taken off every "
             "score, is missing."),
            ((maximum * math.log(2)).float(), "The logarithm of the total is missing."),
        ],
    )  # fmt: skip


def nothing_seen(kernels: Any) -> None:
    import torch

    state = torch.tensor([LOWEST, 1.0]), torch.tensor([0.0, 1.0]), torch.tensor([[0.0], [2.0]])
    with given("finish where row 0 saw nothing: maximum LOWEST, total 0", TWO_RETURNED):
        out, lse = end(kernels, state)
        if not bool(lse[0].isneginf()):
            fail(
                f"the log-sum-exp of row 0 is {lse[0].item():.6g}, expected -inf: the sum of no "
                "exponentials is 0, and its logarithm -inf. That tells a merge that there is "
                "nothing in this part."
            )
        compare_end((out, lse), state)


def any_tiles(kernels: Any) -> None:
    """Whole rows, in tiles, from the empty state to the end."""
    import torch

    generator, drawn = torch.Generator().manual_seed(0), random.Random(0)
    for _ in range(6):
        rows, keys, tiles = (drawn.choice(sizes) for sizes in ((1, 4, 16), (2, 16), (1, 3, 5)))
        scores = torch.randn(rows, tiles * keys, generator=generator) * drawn.choice([1, 30])
        scores[torch.rand(scores.shape, generator=generator) < drawn.choice([0.0, 0.5])] = -math.inf
        values = torch.randn(tiles * keys, 4, generator=generator)
        factor = drawn.choice([0.125, 1.0])
        state = empty(rows, 4)
        with given(f"{tiles} tiles of {keys} keys, {rows} rows, scale {factor} × log2(e)", RETURNS):
            for tile in range(tiles):
                columns = slice(tile * keys, (tile + 1) * keys)
                weights, *state = step(kernels, scores[:, columns], factor * LOG2_E, state)
                state[2] = state[2] + weights @ values[columns]
            out, lse = end(kernels, state)
            exact = scores.double() * factor
            want = exact.softmax(dim=1).nan_to_num(0.0) @ values.double()
            close(out, want.float(), "the output", rtol=1e-4, atol=1e-4)
            close(lse, exact.logsumexp(dim=1).float(), "the log-sum-exp", rtol=1e-4, atol=1e-4)


def draw_row(kernels: Any) -> Any:
    """A row of sixteen scores in four tiles, through the learner's step."""
    import torch

    from yaie.course.viz import film_strip
    from yaie.course.viz.online import OnlineStep, draw_online

    scores = torch.randn(1, 16, generator=torch.Generator().manual_seed(5)) * 1.5
    state = empty(1, 1)
    steps = []
    for start in range(0, 16, 4):
        before = state[0].item()
        _, *state = step(kernels, scores[:, start : start + 4], LOG2_E, state)
        natural = [-math.inf if x <= LOWEST / 2 else x / LOG2_E for x in (state[0].item(), before)]
        steps.append(
            OnlineStep(
                tuple(scores[0].tolist()), start, start + 4, natural[0], state[1].item(), natural[1]
            )
        )
    titles = [f"keys {s.start} to {s.end - 1}" for s in steps]
    return film_strip(steps, draw_online, titles)

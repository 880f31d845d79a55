"""The check of column_parallel and row_parallel."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.core.expect import close, given, true

SHAPES = {
    RuntimeError: (
        "The shapes do not fit. A weight is [out, in]: column_parallel takes rows of it, "
        "row_parallel columns. A bias has a number for each output. x of row_parallel is this "
        "rank's columns already."
    )
}
IN_ORDER = "Parts are contiguous: rank 0 has the first ones, rank 1 the next."


def check_linear(learner: Any) -> None:
    columns_by_hand(learner.column_parallel)
    rows_by_hand(learner.row_parallel)
    rng = random.Random(0)
    for _ in range(12):
        size = rng.choice([1, 2, 3, 4])
        a_layer_of_two(learner, rng, size)


def integers(rng: random.Random, *shape: int) -> Any:
    """Small whole numbers, of which every sum is exact, in float64."""
    import torch

    count = 1
    for n in shape:
        count *= n
    return torch.tensor([float(rng.randint(-9, 9)) for _ in range(count)]).double().view(shape)


def columns_by_hand(column_parallel: Any) -> None:
    rng = random.Random(1)
    x, weight, bias = integers(rng, 2, 3), integers(rng, 8, 3), integers(rng, 8)
    whole = x @ weight.T + bias
    for size in (1, 2, 4):
        each = 8 // size
        for rank in range(size):
            what = f"column_parallel of weight [8, 3] and a bias, rank {rank} of {size}"
            own = slice(rank * each, (rank + 1) * each)
            got = multiplied(what, lambda s=size, r=rank: column_parallel(x, weight, bias, r, s),
                             2 * 2 * 3 * each)  # fmt: skip
            close(
                got,
                whole[:, own],
                what,
                because=f"These are columns {own.start} to {own.stop - 1} of x @ weight.T + bias.",
                mistakes=[
                    (whole, "That is the whole layer: a rank computes its own columns only."),
                    (whole[:, rank::size], f"That is every {size}th column. {IN_ORDER}"),
                    ((x @ weight.T)[:, own], "The bias is missing: a rank adds its part of it."),
                    (x @ weight[own].T + size * bias[own], "The bias is added more than once."),
                ],
            )
    what = "column_parallel without a bias"
    with given(what, errors=SHAPES | {TypeError: "bias may be None."}):
        got = column_parallel(x, weight, None, 1, 2)
    close(got, (x @ weight.T)[:, 4:], what)


def rows_by_hand(row_parallel: Any) -> None:
    rng = random.Random(2)
    x, weight, bias = integers(rng, 2, 6), integers(rng, 5, 6), integers(rng, 5)
    for size in (3, 2):
        all_ranks(row_parallel, x, weight, bias, size)
    all_ranks(row_parallel, x, weight, None, 2)
    all_ranks(row_parallel, x, weight, bias, 1)


def all_ranks(row_parallel: Any, x: Any, weight: Any, bias: Any, size: int) -> None:
    """Every rank in turn: first to hear its summand, then with the sum of all."""
    import torch

    each = weight.shape[1] // size
    zero = torch.zeros(len(weight), dtype=weight.dtype)
    offset = zero if bias is None else bias
    want = x @ weight.T + offset
    parts = [x[:, r * each : (r + 1) * each] for r in range(size)]
    name = f"row_parallel of weight {list(weight.shape)}{', no bias' * (bias is None)}"
    summands = []
    for rank in range(size):
        what = f"{name}, rank {rank} of {size}"
        sent: list[Any] = []

        def listen(tensor: Any, sent: list[Any] = sent) -> Any:
            sent.append(tensor.clone())
            return tensor

        def call(rank: int = rank, listen: Any = listen) -> Any:
            return row_parallel(parts[rank], weight, bias, rank, size, listen)

        multiplied(what, call, 2 * len(x) * weight.shape[0] * each)
        true(
            len(sent) > 0,
            f"{what}: all_reduce was not called. What this rank has is a summand; the layer's "
            "result is the sum over all ranks.",
        )
        true(
            len(sent) == 1,
            f"{what}: all_reduce was called {len(sent)} times. Once is enough, and each call "
            "makes all ranks wait for each other.",
        )
        true(
            sent[0].shape == want.shape,
            f"{what}: all_reduce got a tensor of shape {list(sent[0].shape)}, expected "
            f"{list(want.shape)}. What is added up are the ranks' results; their inputs are "
            "different columns, which have nothing to do with each other.",
        )
        summands.append(sent[0])
    total = sum(summands)
    for rank in range(size):
        what = f"{name}, rank {rank} of {size}"
        with given(what, errors=SHAPES):
            got = row_parallel(parts[rank], weight, bias, rank, size, lambda _: total.clone())
        one = summands[rank]
        strided = sum(parts[r] @ weight[:, r::size].T for r in range(size)) + offset
        close(
            got,
            want,
            what,
            because="On every rank it is x @ weight.T + bias of the whole layer.",
            mistakes=[
                (
                    one,
                    "That is this rank's summand: all_reduce returns the sum, and leaves what it "
                    "was given as it is.",
                ),
                (one + offset, "That is this rank's summand: use what all_reduce returns."),
                (
                    want + (size - 1) * offset,
                    f"The bias was added {size} times, once by each rank. Add it behind the "
                    "all-reduce, or let one rank add it.",
                ),
                (
                    want + offset,
                    "The bias was added twice, before the all-reduce and behind it.",
                ),
                (want - offset, "The bias is missing."),
                (want / size, "That is the mean of the summands, not their sum."),
                (total / size + offset, "That is the mean of the summands, not their sum."),
                (strided, f"The weight's columns were taken in steps of {size}. {IN_ORDER}"),
            ],
        )


def multiplied(what: str, call: Any, most: int) -> Any:
    """Call, and refuse more operations than a rank's part takes."""
    from torch.utils.flop_counter import FlopCounterMode

    with given(what, errors=SHAPES), FlopCounterMode(display=False) as counter:
        got = call()
    flops = counter.get_total_flops()
    true(
        flops <= most,
        f"{what} took {flops} operations in products, expected {most}. A rank multiplies with its "
        "part of the weight only: a real rank has nothing else, and nothing would be saved.",
    )
    return got


def a_layer_of_two(learner: Any, rng: random.Random, size: int) -> None:
    """Up, ReLU, down: the shares of the first are what the second takes."""
    tokens, width, hidden, out = rng.randint(1, 5), rng.randint(1, 6), size * rng.randint(1, 4), 3
    x, up, down = integers(rng, tokens, width), integers(rng, hidden, width), None
    down = integers(rng, out, hidden)
    first, second = integers(rng, hidden), integers(rng, out)
    want = (x @ up.T + first).relu() @ down.T + second
    what = f"a column-parallel layer, ReLU, a row-parallel layer on {size} ranks"
    with given(what, errors=SHAPES):
        inner = [learner.column_parallel(x, up, first, r, size).relu() for r in range(size)]
        summands: list[Any] = []
        for rank in range(size):
            learner.row_parallel(
                inner[rank], down, second, rank, size, lambda t: summands.append(t.clone()) or t
            )
        total = sum(summands)
        for rank in range(size):
            got = learner.row_parallel(inner[rank], down, second, rank, size, lambda _: total)
            close(got, want, f"{what}: the result of rank {rank}")


def draw_linear(learner: Any) -> Any:
    """An MLP on two ranks: what each has in between, and what is added up."""
    import torch
    from torch.nn.functional import silu

    from yaie.course.viz.parallel import Matrix, draw_matrices

    draw = torch.Generator().manual_seed(3)
    x, up, down = (torch.randn(*shape, generator=draw) for shape in ((4, 8), (12, 8), (10, 12)))
    inner = [silu(learner.column_parallel(x, up, None, r, 2)) for r in range(2)]
    summands: list[Any] = []
    for rank in range(2):
        learner.row_parallel(
            inner[rank], down, None, rank, 2, lambda t: summands.append(t.clone()) or t
        )
    total = learner.row_parallel(inner[0], down, None, 0, 2, lambda _: sum(summands))
    return draw_matrices(
        [
            (
                "column-parallel, then silu: each rank has other columns, and nothing is sent",
                [Matrix(f"rank {r}", inner[r], r) for r in range(2)],
            ),
            (
                "row-parallel: each rank has a summand of everything, and the all-reduce adds",
                [
                    Matrix("rank 0", summands[0], 0),
                    "+",
                    Matrix("rank 1", summands[1], 1),
                    "=",
                    Matrix("all_reduce", total),
                ],
            ),
        ]
    )

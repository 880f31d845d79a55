"""29.1: a rank's part of a linear layer, split by its outputs and split by its inputs."""

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.nn.functional import silu

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.costs import cost_of


def cases() -> Iterator[Case]:
    for size in (1, 2, 4):
        for rank in range(size):
            name = f"column_parallel of weight [8, 3] and a bias, rank {rank} of {size}"
            yield Case(name, look=at_columns, rank=rank, size=size, bias=True)
    no_bias = "column_parallel without a bias, rank 1 of 2"
    yield Case(no_bias, look=at_columns, rank=1, size=2, bias=False)
    for size, bias in ((3, True), (2, True), (2, False), (1, True)):
        name = f"row_parallel of weight [5, 6]{'' if bias else ', no bias'}, on {size} ranks"
        yield Case(name, look=at_rows, size=size, bias=bias)
    generator = random.Random(0)
    for _ in range(12):
        size = generator.choice([1, 2, 3, 4])
        sizes = generator.randint(1, 5), generator.randint(1, 6), size * generator.randint(1, 4)
        name = f"column_parallel, ReLU, row_parallel, on {size} ranks, {sizes[2]} hidden columns"
        yield Case(name, look=at_two_layers, size=size, sizes=sizes, seed=generator.random())


def observe(learner: Any, case: Case, see: Observer) -> None:
    case.look(learner, case, see)


def integers(generator: random.Random, *shape: int) -> Any:
    """Small whole numbers, of which every sum is exact, in float64."""
    numbers = [float(generator.randint(-9, 9)) for _ in range(math.prod(shape))]
    return torch.tensor(numbers).double().view(shape)


def multiplied(see: Observer, call: Callable[[], Any], most: int, who: str) -> Any:
    """Call, and count the multiplications and additions of matrix products."""
    got, _, operations = cost_of(call)
    share = f"A rank holds only its part of the weight, so it does at most {most} of them."
    see.at_most(f"the number of multiplications and additions {who}", operations, most, share)
    return got


def recorder(heard: list[Any]) -> Callable[[Any], Any]:
    """An all_reduce that records what it is given, and has no other rank to add."""

    def all_reduce(tensor: Any) -> Any:
        heard.append(tensor.clone())
        return tensor

    return all_reduce


def at_columns(learner: Any, case: Case, see: Observer) -> None:
    generator = random.Random(1)
    x, weight = integers(generator, 2, 3), integers(generator, 8, 3)
    bias = integers(generator, 8) if case.bias else None
    each = 8 // case.size
    own = slice(case.rank * each, (case.rank + 1) * each)
    whole = x @ weight.T + (bias if case.bias else 0)
    with see.call("column_parallel"):
        got = multiplied(
            see, lambda: learner.column_parallel(x, weight, bias, case.rank, case.size),
            2 * 2 * 3 * each, "of this rank",
        )  # fmt: skip
    columns = f"These are columns {own.start} to {own.stop - 1} of the whole layer's result."
    see.close("the result", got, whole[:, own], columns)


def at_rows(learner: Any, case: Case, see: Observer) -> None:
    """Every rank in turn: first to record its summand, then with the sum of all."""
    generator = random.Random(2)
    x, weight = integers(generator, 2, 6), integers(generator, 5, 6)
    bias = integers(generator, 5) if case.bias else None
    want = x @ weight.T + (bias if case.bias else 0)
    each = 6 // case.size
    parts = [x[:, rank * each : (rank + 1) * each] for rank in range(case.size)]
    sent: list[list[Any]] = [[] for _ in parts]

    def run(rank: int, all_reduce: Callable[[Any], Any]) -> Any:
        with see.call(f"row_parallel on rank {rank}"):
            return learner.row_parallel(parts[rank], weight, bias, rank, case.size, all_reduce)

    for rank, heard in enumerate(sent):
        call = partial(run, rank, recorder(heard))
        multiplied(see, call, 2 * 2 * 5 * each, f"of rank {rank}")
    once = "A rank has a summand of the result, and every call makes all ranks wait."
    calls = [len(heard) for heard in sent]
    see.equal("the number of calls of all_reduce on each rank", calls, [1] * case.size, once)
    if not all(calls):
        see.stop()
    shapes = [tuple(heard[0].shape) for heard in sent]
    results = "The ranks' results are added up; their inputs are different columns of x."
    what = "the shapes that all_reduce was given"
    if not see.equal(what, shapes, [(2, 5)] * case.size, results):
        see.stop()
    total = sum(heard[0] for heard in sent)
    for rank in range(case.size):
        got = run(rank, lambda _: total.clone())
        same = "On every rank it is the whole layer's result, x @ weight.T + bias."
        see.close(f"the result of rank {rank}", got, want, same)


def at_two_layers(learner: Any, case: Case, see: Observer) -> None:
    """Up, ReLU, down: the shares of the first layer are what the second takes."""
    generator = random.Random(case.seed)
    tokens, width, hidden = case.sizes
    x, up = integers(generator, tokens, width), integers(generator, hidden, width)
    down, first = integers(generator, 3, hidden), integers(generator, hidden)
    second = integers(generator, 3)
    want = (x @ up.T + first).relu() @ down.T + second
    ranks = range(case.size)
    summands: list[Any] = []
    with see.call("column_parallel"):
        inner = [learner.column_parallel(x, up, first, rank, case.size).relu() for rank in ranks]
    for rank in ranks:
        with see.call("row_parallel"):
            learner.row_parallel(inner[rank], down, second, rank, case.size, recorder(summands))
    for rank in ranks:
        with see.call("row_parallel"):
            got = learner.row_parallel(
                inner[rank], down, second, rank, case.size, lambda _: sum(summands)
            )
        see.close(f"the result of rank {rank}", got, want, "It is the result of one rank alone.")


def draw(learner: Any) -> Any:
    """An MLP on two ranks: what each has in between, and what is added up."""
    generator = torch.Generator().manual_seed(3)
    x, up, down = (
        torch.randn(*shape, generator=generator) for shape in ((4, 8), (12, 8), (10, 12))
    )
    inner = [silu(learner.column_parallel(x, up, None, rank, 2)) for rank in range(2)]
    summands: list[Any] = []
    for rank in range(2):
        learner.row_parallel(inner[rank], down, None, rank, 2, recorder(summands))
    total = learner.row_parallel(inner[0], down, None, 0, 2, lambda _: sum(summands))
    columns = [viz.Matrix(f"rank {rank}", inner[rank], rank) for rank in range(2)]
    first, second = (viz.Matrix(f"rank {rank}", summands[rank], rank) for rank in range(2))
    return viz.draw_matrices(
        [
            ("column-parallel, then silu: each rank has other columns, nothing is sent", columns),
            (
                "row-parallel: each rank has a summand of everything, and the all-reduce adds",
                [first, "+", second, "=", viz.Matrix("all_reduce", total)],
            ),
        ]
    )  # fmt: skip

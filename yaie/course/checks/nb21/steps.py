"""Exercise 21.3: a step for any batch, out of captures for a few sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yaie.course.core.expect import close, equal, fail, given, raises, true

SLOTS, WIDTH = 12, 3
FITS = "Not every number of rows is captured: take the smallest size that they fit in."


class Toy:
    """A step that looks up each row's token, writes it into a cache, and returns twice of it."""

    def __init__(self) -> None:
        import torch

        self.table = torch.arange(1.0, 31.0).view(10, WIDTH)
        self.cache = torch.zeros(SLOTS + 1, WIDTH)  # the last place is for padding
        self.calls: list[int] = []  # rows of each call
        self.captured: list[int] = []
        self.replayed: list[int] = []
        self.result: Any = None  # of the last capture
        self.padding = {"token_ids": torch.tensor(0), "slots": torch.tensor(SLOTS)}

    def step(self, inputs: dict[str, Any]) -> Any:
        self.calls.append(len(inputs["token_ids"]))
        found = self.table[inputs["token_ids"]]
        self.cache.index_copy_(0, inputs["slots"], found)
        return found * 2

    def capture(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        from yaie.course.lessons.capture import capture_on_cpu

        seen = list(self.calls)
        result, replay = capture_on_cpu(function)
        size = self.calls[-1]
        true(
            size in seen,
            f"add({size}) captured a step that had never run. What a kernel needs at its first "
            "call, compiling and loading, may not be captured: call the step once before.",
        )
        self.captured.append(size)
        self.result = result

        def counted() -> None:
            self.replayed.append(size)
            replay()

        return result, counted

    def batch(self, tokens: list[int], slots: list[int]) -> dict[str, Any]:
        import torch

        return {"token_ids": torch.tensor(tokens), "slots": torch.tensor(slots)}


def check_steps(GraphedSteps: Any) -> None:
    """Captures, then replays: what they read, what they write, and whose the results are."""
    toy = Toy()
    steps = GraphedSteps(toy.step, toy.padding, toy.capture)
    check_add(steps, toy)
    check_results(steps, toy)
    check_padding(GraphedSteps)
    check_sizes(GraphedSteps)


def check_add(steps: Any, toy: Toy) -> None:
    with given("add(4)"):
        steps.add(4)
    equal(toy.captured, [4], "the sizes captured by add(4)")
    for name in ("inputs", "outputs", "replays"):
        equal(list(getattr(steps, name)), [4], f"the sizes in {name} after add(4)")
    true(
        steps.outputs[4] is toy.result,
        "outputs[4] is not the tensor that capture returned. A replay writes into that one alone; "
        "what an earlier call of the step returned stays as it is.",
    )
    inputs = steps.inputs[4]
    equal(sorted(inputs), sorted(toy.padding), "the names of inputs[4]")
    for name, tensor in inputs.items():
        wanted = toy.padding[name].expand(4)
        equal(tensor, wanted, f"inputs[4][{name!r}] after add(4)", "All rows are padding.")
        true(
            tensor.stride(0) > 0,
            f"inputs[4][{name!r}] is one row, shown 4 times: expand copies nothing. Rows that are "
            "to hold different numbers need memory of their own.",
        )


def check_results(steps: Any, toy: Toy) -> None:
    """Three batches of one size, one after the other."""
    batches = [([3, 1, 4], [0, 5, 7]), ([1, 5, 9], [1, 2, 3]), ([2, 6, 5], [4, 6, 8])]
    results, places = [], {k: v.data_ptr() for k, v in steps.inputs[4].items()}
    first = None
    for tokens, slots in batches:
        what = f"run with token_ids {tokens} after add(4)"
        with given(what, errors={KeyError: FITS, RuntimeError: FITS}):
            out = steps.run(toy.batch(tokens, slots))
        wanted = toy.table[tokens] * 2
        if tuple(out.shape) == (4, WIDTH):
            fail(f"{what} returned 4 rows: the last one is padding, which nobody asked for.")
        first = wanted if first is None else first
        close(
            out, wanted, f"the result of {what}",
            mistakes=[
                (toy.table[[0, 0, 0]] * 2, "That is the step of a row of padding. A replay reads "
                 "the tensors that it was captured with: the batch has to be copied into them."),
                (first, "That is the result of the first batch once more. Was the step replayed?"),
            ],
        )  # fmt: skip
        close(toy.cache[slots], toy.table[tokens], f"the cache's rows {slots} after {what}")
        results.append((tokens, out, wanted))
    for tokens, out, wanted in results:
        close(
            out, wanted, f"the result for token_ids {tokens}, looked at after later replays",
            "Every replay writes its result into the same tensor. Return a copy of it.",
        )  # fmt: skip
    equal(toy.captured, [4], "the sizes captured in all", "`run` captures nothing; it replays.")
    equal(toy.calls, [4, 4], "the rows of each call of the step's Python",
          "It is called twice in `add`, and in `run` never.")  # fmt: skip
    for name, tensor in steps.inputs[4].items():
        true(
            tensor.data_ptr() == places[name],
            f"inputs[4][{name!r}] is another tensor than the one that was captured.",
        )


def check_padding(GraphedSteps: Any) -> None:
    """A short batch after a long one must leave the long one's memory alone."""
    toy = Toy()
    steps = GraphedSteps(toy.step, toy.padding, toy.capture)
    steps.add(4)
    with given("run with slots [0, 1, 2], then with slots [3]"):
        steps.run(toy.batch([1, 2, 3], [0, 1, 2]))
        toy.cache.zero_()  # those requests have ended, and their memory is somebody else's
        steps.run(toy.batch([4], [3]))
        written = [slot for slot in range(SLOTS) if bool(toy.cache[slot].any())]
        equal(
            written, [3], "the cache's rows written by the second run",
            mistakes=[([1, 2, 3], "The rows of the batch before were still in the places behind "
                       "the new one, and wrote to its memory, which may be another request's by "
                       "now. Those places need padding in every run.")],
        )  # fmt: skip


def check_sizes(GraphedSteps: Any) -> None:
    toy = Toy()
    steps = GraphedSteps(toy.step, toy.padding, toy.capture)
    for size in (8, 1, 4, 2):
        with given(f"add({size})"):
            steps.add(size)
    for rows, size in ((1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8)):
        toy.replayed.clear()
        tokens, slots = list(range(1, rows + 1)), list(range(rows))
        what = f"run with {rows} rows after add(8), add(1), add(4), add(2)"
        with given(what, errors={KeyError: FITS, RuntimeError: FITS}):
            out = steps.run(toy.batch(tokens, slots))
        equal(
            toy.replayed, [size], f"the sizes replayed by {what}",
            "The smallest size that the rows fit in has the least padding to compute.",
            mistakes=[([8], "That is the largest. The smallest size that the rows fit in has the "
                       "least padding to compute.")] if size != 8 else (),
        )  # fmt: skip
        close(out, toy.table[tokens] * 2, f"the result of {what}")
        equal(
            {name: row.item() for name, row in steps.padding.items()},
            {"token_ids": 0, "slots": SLOTS}, f"padding after {what}",
            "An input tensor shares memory with it, and what was copied into one is padding for "
            "all now. row.expand(size).contiguous() copies nothing where the size is 1.",
        )  # fmt: skip
    raises(
        ValueError, lambda: steps.run(toy.batch([0] * 9, [0] * 9)), "run with 9 rows",
        "8 is the largest size captured.",
    )  # fmt: skip

"""22.5: one step for batches of any size, made of captures for a few sizes."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.capture import capture_on_cpu

SLOTS, WIDTH = 12, 3


def cases() -> Iterator[Case]:
    yield Case("add(4)", look=at_add, sizes=[4])
    yield Case("three batches after add(4)", look=at_results, sizes=[4])
    yield Case("slots [0, 1, 2], then slots [3]", look=at_padding, sizes=[4])
    for sizes in ([8, 1, 4, 2], [2, 8, 1, 4]):
        added = ", ".join(f"add({size})" for size in sizes)
        yield Case(f"after {added}", look=at_sizes, sizes=sizes)


def observe(GraphedSteps: Any, case: Case, see: Observer) -> None:
    toy = Toy()
    steps = GraphedSteps(toy.step, toy.padding, toy.capture)
    for size in case.sizes:
        with see.call(f"add({size})"):
            steps.add(size)
    case.look(steps, toy, see)


class Toy:
    """A step that looks up each row's token, writes it into a cache, and returns twice of it."""

    def __init__(self) -> None:
        self.table = torch.arange(1.0, 31.0).view(10, WIDTH)
        self.cache = torch.zeros(SLOTS + 1, WIDTH)  # the last place is for padding
        self.calls: list[int] = []  # rows of each call
        self.captured: list[int] = []
        self.ran_before = True  # every step that was captured
        self.replayed: list[int] = []
        self.result: Any = None  # of the last capture
        self.padding = {"token_ids": torch.tensor(0), "slots": torch.tensor(SLOTS)}

    def step(self, inputs: dict[str, Any]) -> Any:
        self.calls.append(len(inputs["token_ids"]))
        found = self.table[inputs["token_ids"]]
        self.cache.index_copy_(0, inputs["slots"], found)
        return found * 2

    def capture(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        seen = list(self.calls)
        self.result, replay = capture_on_cpu(function)
        size = self.calls[-1]
        self.ran_before = self.ran_before and size in seen
        self.captured.append(size)

        def counted() -> None:
            self.replayed.append(size)
            replay()

        return self.result, counted

    def batch(self, tokens: list[int], slots: list[int]) -> dict[str, Any]:
        return {"token_ids": torch.tensor(tokens), "slots": torch.tensor(slots)}


def at_add(steps: Any, toy: Toy, see: Observer) -> None:
    """What is captured, and what is kept of it."""
    see.equal("the sizes captured", toy.captured, [4], "`add` captures the step once.")
    ready = "Compiling and loading, which a kernel needs at its first call, may not be captured."
    see.true("the step", toy.ran_before, "had never run before it was captured", ready)
    for name in ("inputs", "outputs", "replays"):
        see.equal(f"the sizes in {name}", list(getattr(steps, name)), [4], "It is the only one.")
    written = "It is the tensor that capture returned: a replay writes into that one alone."
    kept = steps.outputs.get(4) is toy.result
    see.true("outputs[4]", kept, "is not the tensor that capture returned", written)
    inputs = steps.inputs.get(4, {})
    see.equal("the names in inputs[4]", sorted(inputs), sorted(toy.padding), "Those of padding.")
    for name, tensor in inputs.items():
        want = toy.padding[name].expand(4)
        see.equal(f"inputs[4][{name!r}]", tensor, want, "All rows are padding.")
        own = "Rows that are to hold different numbers need memory of their own."
        see.true(f"inputs[4][{name!r}]", tensor.stride(0) > 0, "is one row, shown 4 times", own)


def at_results(steps: Any, toy: Toy, see: Observer) -> None:
    """Three batches of one size, one after the other."""
    places = {name: tensor.data_ptr() for name, tensor in steps.inputs[4].items()}
    results = []
    for tokens, slots in (([3, 1, 4], [0, 5, 7]), ([1, 5, 9], [1, 2, 3]), ([2, 6, 5], [4, 6, 8])):
        call = f"run with token_ids {tokens}"
        with see.call(call):
            out = steps.run(toy.batch(tokens, slots))
        want = toy.table[tokens] * 2
        see.close(f"the result of {call}", out, want, "The step returns twice a token's row.")
        wrote = toy.table[tokens]
        see.close(
            f"the cache's rows {slots} after {call}",
            toy.cache[slots],
            wrote,
            "The step writes them.",
        )
        results.append((tokens, out, want))
    for tokens, out, want in results:
        late = f"the result for token_ids {tokens}, looked at after later replays"
        see.close(late, out, want, "The result is the caller's own: no later replay changes it.")
    see.equal("the sizes captured in all", toy.captured, [4], "`run` replays what `add` captured.")
    python = "`add` calls it twice, `run` never: a replay runs no Python."
    see.equal("the rows of each call of the step's Python", toy.calls, [4, 4], python)
    same = {name: tensor.data_ptr() == places[name] for name, tensor in steps.inputs[4].items()}
    reads = "A replay reads the tensors that it was captured with."
    see.true("inputs[4]", all(same.values()), "has other tensors than at the capture", reads)


def at_padding(steps: Any, toy: Toy, see: Observer) -> None:
    """A short batch after a long one must not touch the long one's memory."""
    with see.call("run with slots [0, 1, 2]"):
        steps.run(toy.batch([1, 2, 3], [0, 1, 2]))
    toy.cache.zero_()  # those requests have ended, and their memory belongs to others by now
    with see.call("run with slots [3]"):
        steps.run(toy.batch([4], [3]))
    written = [slot for slot in range(SLOTS) if bool(toy.cache[slot].any())]
    ended = "Slots 0, 1 and 2 may belong to other requests by now."
    see.equal("the cache's rows written by the second run", written, [3], ended)


def at_sizes(steps: Any, toy: Toy, see: Observer) -> None:
    for rows, size in ((1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8)):
        toy.replayed.clear()
        tokens, slots = list(range(1, rows + 1)), list(range(rows))
        call = f"run with {rows} rows"
        with see.call(call):
            out = steps.run(toy.batch(tokens, slots))
        least = "The smallest size that the rows fit in has the least padding to compute."
        see.equal(f"the sizes replayed by {call}", toy.replayed, [size], least)
        see.close(f"the result of {call}", out, toy.table[tokens] * 2, "Twice each token's row.")
        padding = {name: row.item() for name, row in steps.padding.items()}
        unchanged = "Rows of a batch are copied into inputs, whose memory is not padding's."
        see.equal(f"padding after {call}", padding, {"token_ids": 0, "slots": SLOTS}, unchanged)
    nine = toy.batch([0] * 9, [0] * 9)
    see.raises("run with 9 rows", ValueError, lambda: steps.run(nine), "The largest size is 8.")

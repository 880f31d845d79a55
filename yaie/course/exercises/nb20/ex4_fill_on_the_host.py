"""20.4: what surrounds a kernel: the count, the sizes of the outputs, and no hidden copy."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from yaie.course.core.cuda import poisoned
from yaie.course.core.observe import Case, Observer, Raised
from yaie.course.exercises.nb20.metadata import in_words, ints, keys_seen, random_batch

# New tokens, keys, topk.
EXAMPLES = (
    ([3, 2], [10, 4], 9),
    ([0, 3, 0, 0, 2, 0], [7, 10, 1, 5, 4, 8], 9),
    ([4, 3], [2, 9], 6),
    ([1], [1], 1),
    ([], [], 9),
    ([0, 0], [5, 6], 9),
)
TAIL = 3  # elements of an output beyond the tokens
UNWRITTEN = poisoned(1, dtype=torch.int32).item()


def cases() -> Iterator[Case]:
    for lengths, keys, topk in (
        *EXAMPLES,
        (*random_batch(40, 60), 40),
        (*random_batch(1025, 60), 40),
    ):
        for given in (sum(lengths), None):
            name = f"{in_words(lengths, keys)}, topk {topk}, num_tokens={given}"
            yield case(name, lengths, keys, topk, given)
    yield case("5 tokens, outputs of 5 elements", sizes=(5, 5))
    yield case("5 tokens, the inputs on another device than new tensors", elsewhere=True)
    for sizes in ((4, 5), (5, 4)):
        for given in (5, None):
            name = f"5 tokens, outputs of {sizes[0]} and {sizes[1]} elements, num_tokens={given}"
            yield case(name, given=given, sizes=sizes)


def case(
    name: str, lengths: Sequence[int] = (3, 2), keys: Sequence[int] = (10, 4), topk: int = 9,
    given: int | None = 5, sizes: tuple[int, int] | None = None, elsewhere: bool = False,
) -> Case:  # fmt: skip
    """`sizes`: of the outputs, if not `TAIL` elements more than there are tokens."""
    sizes = sizes or (sum(lengths) + TAIL,) * 2
    data = {"lengths": list(lengths), "keys": list(keys), "topk": topk, "given": given}
    return Case(name, **data, sizes=sizes, elsewhere=elsewhere)


def observe(fill: Callable[..., Any], case: Case, see: Observer) -> None:
    n = sum(case.lengths)
    q, kv = ints(case.lengths), ints(case.keys)
    expanded, cached = (poisoned(size, dtype=torch.int32) for size in case.sizes)
    arguments = q, kv, case.topk, expanded, cached, case.given
    if min(case.sizes) < n:
        refuse = "A kernel would write beyond the end of a tensor without any error."
        see.raises("fill_draft_extend_metadata", ValueError, lambda: fill(*arguments), refuse)
        written = [out.ne(UNWRITTEN).sum().item() for out in (expanded, cached)]
        first = "It was refused, so nothing is written: check both outputs first."
        see.equal("how many elements of each output were written", written, [0, 0], first)
        return
    if case.elsewhere:
        with see.call("fill_draft_extend_metadata"), torch.device("meta"):
            fill(*arguments)
        return
    with see.call("fill_draft_extend_metadata"), watched() as copies:
        try:
            got = fill(*arguments)
        except ValueError as error:
            if max(case.sizes) > n and fits(fill, q, kv, case.topk, n, case.given):
                refused = Raised("ValueError", str(error))
                what = f"a call for {n} tokens and outputs of {case.sizes[0]} elements"
                because = "Outputs may be longer than needed: refuse only those that are shorter."
                see.note(what, refused, f"raised ValueError: {error}".rstrip(": "), because)
                see.stop()
            raise
    see.equal("the returned number", got, n, "It is the number of tokens.")
    only_read = "They belong to the caller."
    see.equal("extend_seq_lens afterwards", q.tolist(), case.lengths, only_read)
    see.equal("seq_lens afterwards", kv.tolist(), case.keys, only_read)
    tail = [UNWRITTEN] * (len(expanded) - n)
    kept = f"{n} elements belong to tokens; what lies beyond them is left as it is."
    outputs = ("out_seqlens_expanded", expanded), ("out_nsa_cache_seqlens", cached)
    for name, out in outputs:
        see.equal(f"{name} from element {n} on", out[n:].tolist(), tail, kept)
    seen = keys_seen(case.lengths, case.keys)
    formula = "Token i of a request that has q new tokens and kv keys sees kv - q + 1 + i of them."
    most = f"It is the number of keys seen, but at most topk = {case.topk}."
    see.equal(outputs[0][0], expanded[:n].tolist(), seen, formula)
    see.equal(outputs[1][0], cached[:n].tolist(), [min(v, case.topk) for v in seen], most)
    names = [f"{count} × {name}" for name, count in sorted(copies.items())]
    allowed = int(case.given is None)
    problem = f"are {', '.join(names)}, expected {allowed or 'none'}"
    waits = "Each copy waits until all that was queued before it has run."
    right = sum(copies.values()) <= allowed
    see.note("the copies from the device to the host", names, "" if right else problem, waits)


def fits(fill: Callable[..., Any], q: Any, kv: Any, topk: int, n: int, given: int | None) -> bool:
    """Whether outputs of exactly `n` elements are accepted."""
    try:
        fill(q, kv, topk, *(poisoned(n, dtype=torch.int32) for _ in range(2)), given)
    except ValueError:
        return False
    return True


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """How often each thing that brings numbers from a device to the host was done."""
    seen: dict[str, int] = {}
    waits = {  # operators whose result has a size that only the device knows, and the copy itself
        torch.ops.aten._local_scalar_dense: "a number read from a tensor",
        torch.ops.aten.nonzero: "nonzero",
        torch.ops.aten.masked_select: "a choice by a mask",
    }

    def count(name: str) -> None:
        seen[name] = seen.get(name, 0) + 1

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            packet = function.overloadpacket
            if packet in waits:
                count(waits[packet])
            elif packet is torch.ops.aten.index and any(
                index is not None and index.dtype == torch.bool for index in args[1]
            ):
                count("a choice by a mask")
            elif packet is torch.ops.aten.repeat_interleave and kwargs.get("output_size") is None:
                count("repeat_interleave without output_size")
            return function(*args, **kwargs)

    originals = {name: getattr(torch.Tensor, name) for name in ("tolist", "cpu", "numpy")}

    def counting(name: str) -> Callable[..., Any]:
        def method(tensor: Any, *rest: Any, **named: Any) -> Any:
            count(f".{name}()")
            with _disable_current_modes():
                return originals[name](tensor, *rest, **named)

        return method

    for name in originals:
        setattr(torch.Tensor, name, counting(name))
    try:
        with Watch():
            yield seen
    finally:
        for name, method in originals.items():
            setattr(torch.Tensor, name, method)

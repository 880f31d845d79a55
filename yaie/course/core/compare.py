"""How two values differ, in words: numbers, containers, and tensors, without importing torch."""

import math
import re
import reprlib
from typing import Any


def dtype_name(value: Any) -> str:
    """ "float16", of a torch dtype or of a tensor."""
    return str(getattr(value, "dtype", value)).removeprefix("torch.")


def is_tensor(value: Any) -> bool:
    """Whether `value` is a torch tensor, without importing torch to find out."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "dtype")


_repr = reprlib.Repr()
_repr.maxlist = _repr.maxtuple = _repr.maxset = _repr.maxfrozenset = _repr.maxdeque = 12
_repr.maxdict = 8
_repr.maxstring = _repr.maxother = 80


def short(value: Any) -> str:
    """One line for a message: a tensor by its shape and dtype, everything else cut short."""
    if is_tensor(value):
        size = "×".join(map(str, value.shape)) or "scalar"
        values = f" {value.tolist()}" if 0 < value.numel() <= 8 else ""
        return f"a tensor {size} {dtype_name(value)}{values}"
    return " ".join(_repr.repr(value).split())


def difference(got: Any, want: Any, rtol: float = 0.0, atol: float = 0.0) -> str:
    """How `got` differs from `want`, as the rest of a sentence; "" if it does not."""
    if is_tensor(want) or ((rtol or atol) and isinstance(want, float)):
        return tensor_difference(got, want, rtol, atol)
    if is_tensor(got):
        return f"is {short(got)}, expected {short(want)}"
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        if type(got) is not type(want):
            return f"is a {type(got).__name__} {short(got)}, expected a {type(want).__name__}"
        whole = f"is {short(got)}, expected {short(want)}"
        seen = len(whole) <= 60 and "..." not in whole and "tensor(" not in whole  # all of both
        for index, (a, b) in enumerate(zip(got, want, strict=False)):
            if inner := difference(a, b, rtol, atol):
                alone = seen and len(got) == len(want) == 1
                return whole if alone else f"{whole}: index {index} {inner}"
        if len(got) != len(want):
            return whole if seen else f"{whole}: {len(got)} entries, expected {len(want)}"
        return ""
    nan = isinstance(got, float) and isinstance(want, float) and got != got and want != want
    return "" if nan or _is_equal(got, want) else f"is {short(got)}, expected {short(want)}"


def _is_equal(got: Any, want: Any) -> bool:
    alike = isinstance(got, bool) == isinstance(want, bool)
    try:
        return got is want or (alike and bool(got == want))
    except Exception:  # from a learner's value: a NumPy array is neither true nor false
        return False


def sentence(what: str, problem: str) -> str:
    """Join a subject and a problem, with "are" or "have" for "is" or "has" if it is plural."""
    head = _HEAD.match(what)
    if head and _PLURAL.search(head[0]):
        problem = _VERB.sub(lambda verb: {"is": "are", "has": "have"}[verb[0]], problem)
    return f"{what} {problem}".strip()


_AFTER = "of|in|to|after|at|for|from|up|on|per|that|captured|replayed|written"
_HEAD = re.compile(rf"(?:the|bytes|requests) [a-z' -]*?(?=,| (?:{_AFTER})\b|$)")
_PLURAL = re.compile(r"^(?:bytes|requests)\b|(?<![aisu])s$|children$")
_VERB = re.compile(r"^(?:is|has)\b")


def number_difference(got: Any, want: Any, rtol: float, atol: float) -> str:
    """How a Python number differs from `want`, without torch."""
    numbers = [isinstance(x, (int, float)) and not isinstance(x, bool) for x in (got, want)]
    if not all(numbers):
        return difference(got, want)
    if got == want or (got != got and want != want):
        return ""
    if math.isfinite(want) and abs(got - want) <= atol + rtol * abs(want):
        return ""
    first, other = _apart(float(got), float(want))
    return f"is {first}, expected {other}"


def tensor_difference(got: Any, want: Any, rtol: float, atol: float) -> str:
    """How a tensor or float differs from `want` in kind, shape, dtype or any element."""
    if not is_tensor(want) and not is_tensor(got):
        return number_difference(got, want, rtol, atol)
    import torch

    if not is_tensor(want):  # a Python number: how the other one is stored does not matter
        if not isinstance(want, (int, float)):
            return difference(got, want)
        want = torch.tensor(want, dtype=torch.float64)
        if got.numel() == 1:
            got = torch.tensor(float(got), dtype=torch.float64)
    if not is_tensor(got):
        return f"is {short(got)}, expected {short(want)}"
    if got.shape != want.shape:
        return f"has shape {list(got.shape)}, expected {list(want.shape)}"
    if got.dtype != want.dtype:
        return f"has dtype {got.dtype}, expected {want.dtype}"
    if want.is_floating_point() or rtol or atol:
        wrong = ~torch.isclose(got.double(), want.double(), rtol=rtol, atol=atol, equal_nan=True)
    else:  # a double would round integers above 2^53
        wrong = got != want
    if not bool(wrong.any()):
        return ""
    nan = got.isnan() & wrong
    if bool(nan.any()):
        value = _number(want[nan][0].item())
        return f"is NaN{_index(nan)}, expected {value} ({int(nan.sum())} NaN in all)"
    count = "" if wrong.numel() == 1 else f" ({int(wrong.sum())} of {wrong.numel()} differ)"
    first, other = _apart(*(tensor[wrong][0].item() for tensor in (got, want)))
    return f"is {first}{_index(wrong)}, expected {other}{count}"


def _index(mask: Any) -> str:
    return f" at index {mask.nonzero()[0].tolist()}" if mask.ndim else ""


def _apart(got: Any, want: Any) -> tuple[str, str]:
    """Two numbers in a few digits, or in all of them where they would look the same."""
    few = _number(got), _number(want)
    return few if few[0] != few[1] else (str(got), str(want))


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

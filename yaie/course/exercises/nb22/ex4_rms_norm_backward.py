"""22.4: the gradients of RMSNorm, beside autograd's, and where two large terms cancel."""

from collections.abc import Iterator
from typing import Any

import torch

from yaie.course.core.observe import Case, Observer

EPS = 1e-2
FORM = {  # that of what `backward` itself returns
    "x": "The gradient of x has the shape and dtype of x: compute in the dtype of scale, then "
    "convert. (Autograd would convert it silently; another caller would not.)",
    "weight": "The gradient of weight has weight's shape and dtype: sum over all rows in the dtype "
    "of scale, then convert. (Autograd would sum and convert silently, but numbers that you have "
    "rounded before stay rounded.)",
}


def cases() -> Iterator[Case]:
    for shape in ((3, 8), (1, 1), (2, 3, 5), (0, 4), (40, 33)):
        yield Case(f"float64 {list(shape)}", look=at_gradients, shape=shape)
    terms = "bfloat16 [8, 256], where the two terms of the gradient of x nearly cancel"
    yield Case(terms, look=at_rounding, place=0)
    rows = "bfloat16 [8, 256], where rows nearly cancel in the gradient of weight"
    yield Case(rows, look=at_rounding, place=1)
    yield Case("gradcheck, float64 [2, 5]", look=at_differences)


def observe(RMSNorm: Any, case: Case, see: Observer) -> None:
    case.look(RMSNorm, case, see)


def drawn(shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Any]:
    """x, weight and the gradient of the result."""
    generator = torch.Generator().manual_seed(1)
    x, gradient = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    weight = 1.0 + 0.5 * torch.randn(shape[-1], generator=generator, dtype=torch.float64)
    return x.to(dtype), weight.to(dtype), gradient.to(dtype)


def at_gradients(RMSNorm: Any, case: Case, see: Observer) -> None:
    x, weight, gradient = drawn(case.shape, torch.float64)
    got = gradients(see, RMSNorm, x, weight, gradient)
    want = autograd(x, weight, gradient)
    formula = "It is scale × (g w − x × scale² × mean of g w x over the row)."
    see.close("the gradient of x", got[0], want[0], formula)
    rows = x.numel() // x.shape[-1]
    see.close(
        "the gradient of weight", got[1], want[1], f"The sum of g × x × scale over {rows} rows."
    )  # fmt: skip
    off = max((abs(a - b).max().item() for a, b in zip(got, want, strict=True) if a.numel()))
    see.true(
        "the gradients of a float64 x", off < 1e-11,
        f"are {off:.0e} off, as if they were computed in float32",
        "Compute in the dtype of scale, which is float64 here.",
    )  # fmt: skip


def gradients(see: Observer, RMSNorm: Any, x: Any, weight: Any, gradient: Any) -> tuple[Any, Any]:
    """What the learner's function gives for x and weight; `gradient` stays what it was."""
    returned: list[Any] = []

    class Watched(RMSNorm):
        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            result = RMSNorm.backward(ctx, gradient)
            returned[:] = result if isinstance(result, tuple) else ()
            return result

    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    incoming = gradient.clone()
    with see.call("backward"):
        Watched.apply(x, weight, EPS).backward(incoming)
    shared = "Autograd gives the same tensor to every operator that needs it."
    see.equal("the incoming gradient afterwards", incoming, gradient, shared)
    for name, tensor in (("x", x), ("weight", weight)):
        forward = "forward has the arguments x, weight and eps, and backward a gradient for each."
        see.true(f"the gradient of {name}", tensor.grad is not None, "is None", forward)
    for result, name, tensor in zip(returned, ("x", "weight"), (x, weight), strict=False):
        if isinstance(result, torch.Tensor):
            form, what = (
                (list(result.shape), str(result.dtype)),
                f"the gradient of {name} that backward returns",
            )
            see.note(what, form, other_form(result, tensor), FORM[name])
    return x.grad, weight.grad


def other_form(result: torch.Tensor, like: torch.Tensor) -> str:
    """How a tensor's shape or dtype differs from those of another; "" if neither does."""
    if result.shape != like.shape:
        return f"has shape {list(result.shape)}, expected {list(like.shape)}"
    return "" if result.dtype == like.dtype else f"has dtype {result.dtype}, expected {like.dtype}"


def autograd(x: Any, weight: Any, gradient: Any) -> tuple[Any, Any]:
    """What autograd makes of the formula."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    (x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight).backward(gradient)
    return x.grad, weight.grad


def at_rounding(RMSNorm: Any, case: Case, see: Observer) -> None:
    x, weight, noise = drawn((8, 256), torch.bfloat16)
    gradient = x.float() / weight.float()
    if case.place:
        x[4:] = x[:4]
        gradient[4:] = -gradient[:4]
    gradient = (gradient + 0.02 * noise.float()).bfloat16()
    want = autograd(*(tensor.double() for tensor in (x, weight, gradient)))[case.place]
    got = gradients(see, RMSNorm, x, weight, gradient)[case.place]
    if got is None:
        see.stop()
    error = float((got.double() - want).norm() / want.norm())
    once = "It is below 0.01 if everything is computed in float32 and rounded once."
    name = ("x", "weight")[case.place]
    see.at_most(f"the relative error of the gradient of {name}", round(error, 3), 0.01, once)


def at_differences(RMSNorm: Any, case: Case, see: Observer) -> None:
    x, weight, _ = drawn((2, 5), torch.float64)
    with see.call("gradcheck"):
        torch.autograd.gradcheck(
            lambda x, weight: RMSNorm.apply(x, weight, EPS),
            (x.requires_grad_(), weight.requires_grad_()),
        )

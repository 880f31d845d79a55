"""Exercise 21.2: the gradients of RMSNorm."""

from __future__ import annotations

from typing import Any

from yaie.course.core.expect import close, equal, fail, given

EPS = 1e-2
SHAPES = [(3, 8), (1, 1), (2, 3, 5), (0, 4), (40, 33)]


def check_norm(RMSNorm: Any) -> None:
    """Against autograd on the plain function, in float64 and in bfloat16; then gradcheck."""
    import torch

    for shape in SHAPES:
        x, weight, gradient = draw(shape, torch.float64)
        with given(f"the backward pass for float64 {list(shape)}"):
            got = gradients(RMSNorm, x, weight, gradient)
            wanted = autograd(x, weight, gradient)
            compare(got, wanted, x, weight, gradient)
    check_precision(RMSNorm)
    x, weight, _ = draw((2, 5), torch.float64)
    with given("gradcheck, float64 [2, 5]"):
        torch.autograd.gradcheck(
            lambda x, weight: RMSNorm.apply(x, weight, EPS),
            (x.requires_grad_(), weight.requires_grad_()),
        )


def draw(shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Any]:
    """x, weight and the gradient of the result."""
    import torch

    generator = torch.Generator().manual_seed(1)
    x, gradient = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    weight = 1.0 + 0.5 * torch.randn(shape[-1], generator=generator, dtype=torch.float64)
    return x.to(dtype), weight.to(dtype), gradient.to(dtype)


def gradients(RMSNorm: Any, x: Any, weight: Any, gradient: Any) -> tuple[Any, Any]:
    """What the learner's function hands back, and that it took nothing in exchange."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    given_gradient = gradient.clone()
    try:
        RMSNorm.apply(x, weight, EPS).backward(given_gradient)
    except RuntimeError as error:
        if "incorrect number of gradients" in str(error):
            fail(
                f"{str(error).split(' (')[0]}. Return one for each argument of forward behind ctx: "
                "x, weight and eps, which is a number and gets None."
            )
        if "invalid gradient at index" in str(error):
            fail(f"{error}. A gradient has the shape of what it is the gradient of.")
        raise
    equal(
        given_gradient, gradient, "the incoming gradient afterwards",
        "It is not yours: autograd hands the same tensor to everybody who needs it, for instance "
        "to the other side of a residual addition.",
    )  # fmt: skip
    for name, tensor in (("x", x), ("weight", weight)):
        if tensor.grad is None:
            fail(f"{name} got no gradient: backward returned None in its place.")
    return x.grad, weight.grad


def autograd(x: Any, weight: Any, gradient: Any) -> tuple[Any, Any]:
    """What autograd makes of the plain function."""
    from yaie.ops.reference.norm import rms_norm

    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    rms_norm(x, weight, EPS).backward(gradient)
    return x.grad, weight.grad


def compare(got: tuple, wanted: tuple, x: Any, weight: Any, gradient: Any) -> None:
    """Each gradient, with what known mistakes would give."""
    scale = (x.square().mean(-1, keepdim=True) + EPS).rsqrt()
    weighted = gradient * weight
    mean = (weighted * x).mean(-1, keepdim=True)
    total = (weighted * x).sum(-1, keepdim=True)
    unweighted = (gradient * x).mean(-1, keepdim=True)
    close(
        got[0], wanted[0], "the gradient of x",
        mistakes=[
            (scale * weighted, "The second term is missing. Each element of x also changes the "
             "scale of its row, and with it all other elements."),
            (scale * (gradient - x * scale**2 * unweighted), "The weight is missing."),
            (scale * (weighted + x * scale**2 * mean), "The second term has the wrong sign."),
            (scale * (weighted - x * scale**2 * total), "The second term has the sum over the row "
             "in place of the mean."),
            (scale * (weighted - x * scale * mean), "In the second term the scale stands squared, "
             "besides the one in front: the derivative of u^(-1/2) is -u^(-3/2) / 2."),
            (scale * (weighted - x * mean), "In the second term the scale stands squared, besides "
             "the one in front: the derivative of u^(-1/2) is -u^(-3/2) / 2."),
            (scale * (weighted - x * scale**2 * unweighted), "The mean of the second term is that "
             "of g × w × x: the weight is missing in it."),
        ],
    )  # fmt: skip
    rows = (gradient * x * scale).flatten(0, -2)
    close(
        got[1], wanted[1], "the gradient of weight",
        mistakes=[
            ((gradient * x).flatten(0, -2).sum(0), "The scale is missing: what the weight is "
             "multiplied by is x × scale."),
            (rows.mean(0), "All rows are multiplied by the same weight, so their parts add up: "
             "the sum, not the mean."),
            (rows[-1] if len(rows) else rows, "Only the last row counted. All rows are multiplied "
             "by the same weight, so their parts add up."),
        ],
    )  # fmt: skip


def check_precision(RMSNorm: Any) -> None:
    """In bfloat16, where the two terms nearly cancel."""
    import torch

    x, weight, noise = draw((8, 256), torch.bfloat16)
    gradient = (x.float() / weight.float() + 0.02 * noise.float()).bfloat16()
    wanted = autograd(*(tensor.double() for tensor in (x, weight, gradient)))[0]
    with given("the backward pass for bfloat16 [8, 256]"):
        got = gradients(RMSNorm, x, weight, gradient)[0].double()
        error = float((got - wanted).norm() / wanted.norm())
        if error > 0.01:
            fail(
                f"the gradient of x is off by {error:.0%} of itself. The two terms nearly cancel "
                "here, so what each was rounded by remains. Compute in the dtype of scale, "
                "float32, and round once, at the end."
            )

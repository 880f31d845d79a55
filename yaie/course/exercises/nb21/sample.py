"""The operator `sample`, one step of which is computed by a kernel of these exercises."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

UNIT = 2**24  # the mass of the largest logit, in top_p.cu
MOST_BLOCKS, THREADS = 1024, 256


def operator_by(kernel: str) -> Callable[[Path], Callable[..., Any]]:
    """For `fit`: `sample` with this step by a learner's file, and the others in torch."""

    def fit(file: Path) -> Callable[..., Any]:
        from yaie.ops.cuda.launching import forget_sources, launch

        forget_sources()
        return partial(sample, kernel, partial(launch, file, kernel, torch.float32))

    return fit


def sample(
    kernel: str,
    run: Callable[..., None],
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniform: torch.Tensor,
) -> torch.Tensor:
    """A token for each row, -1 where the logits allow none; see `reference.sampling.sample`.

    All ties with the last token that is kept stay, and the tokens' order is that of their ids.

    Args:
        kernel, run: the step that the kernel computes, and its launch on float32.
    """
    x = logits.float()
    best = x.amax(dim=1, keepdim=True)
    sound = best.isfinite()  # the maximum of a row with a NaN is NaN
    x = torch.where(sound, x - best, 0.0)
    drawn = temperature.unsqueeze(1) > 0
    likeliest = torch.full_like(x, -torch.inf).scatter_(1, x.argmax(dim=1, keepdim=True), 0.0)
    x = torch.where(drawn, x / temperature.unsqueeze(1), likeliest)

    ordered = x.sort(dim=1, descending=True).values
    limited = (top_k > 0) & (top_k < x.shape[1])
    last = torch.where(limited, top_k, x.shape[1]).long().unsqueeze(1) - 1
    x = x.masked_fill(x < ordered.gather(1, last), -torch.inf)
    least = by_kernel(run, x, top_p) if kernel == "top_p_threshold" else nucleus(x, top_p)
    x = x.masked_fill((x < least.unsqueeze(1)) & (top_p < 1).unsqueeze(1), -torch.inf)
    x = x.masked_fill(x < min_p.log().unsqueeze(1), -torch.inf).contiguous()

    if kernel == "gumbel_sample":
        tokens = torch.empty(len(x), dtype=torch.int64, device=x.device)
        ones, seed = torch.ones_like(temperature), uniform.view(torch.int64)
        sizes = (*x.shape, min(len(x), MOST_BLOCKS), THREADS)
        run(x, ones, seed, torch.zeros_like(seed), tokens, *sizes)
    else:
        tokens = inverted(x, uniform, run if kernel == "softmax_stats" else None)
    return torch.where(sound.squeeze(1), tokens, -1)


def nucleus(x: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The smallest logit that top-p keeps of each row, by a sort."""
    ordered = x.sort(dim=1, descending=True).values
    mass = ordered.softmax(dim=1)
    before = mass.cumsum(dim=1) - mass
    dropped = before >= top_p.unsqueeze(1)
    dropped[:, 0] = False
    return ordered.masked_fill(dropped, torch.inf).amin(dim=1)


def by_kernel(run: Callable[..., None], x: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The same by the learner's kernel, in whole units of mass."""
    mass = (x.exp() * UNIT + 0.5).long().sum(dim=1)
    # The kernel may round exp otherwise, by a unit per token: never ask for more than there is.
    wanted = torch.minimum((top_p.double() * mass).ceil().long(), mass - x.shape[1])
    threshold, above = torch.empty_like(top_p), torch.empty_like(wanted)
    given = (x, torch.zeros_like(top_p), wanted.clamp(min=1), threshold, above)
    run(*given, *x.shape, min(len(x), MOST_BLOCKS))
    return threshold


def inverted(
    x: torch.Tensor, uniform: torch.Tensor, run: Callable[..., None] | None
) -> torch.Tensor:
    """The token at which the cumulative probability exceeds `uniform`; maximum and sum of the
    softmax by the learner's kernel if there is one."""
    if run is None:
        best, total = x.amax(dim=1), x.exp().sum(dim=1)
    else:
        best, total = torch.empty(2, len(x), device=x.device)
        run(x, best, total, *x.shape, min(len(x), MOST_BLOCKS), THREADS)
    cumulative = (x - best.unsqueeze(1)).exp().double().cumsum(dim=1)
    end = cumulative[:, -1:].nextafter(torch.zeros_like(cumulative[:, -1:]))
    target = torch.minimum((uniform * total).unsqueeze(1), end)
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)

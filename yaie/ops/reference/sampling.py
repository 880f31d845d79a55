"""Tokens from random numbers that the caller has drawn, in plain PyTorch, for all rows together.

`yaie.engine.sampling` draws from generators, on the processor. On a GPU that would mean waiting.
Here a row comes with its random number, or with a seed from which any number can be computed when
it is needed; nothing is read back, so a CUDA graph can hold it. These are what the kernels are
compared with.
"""

import torch


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniform: torch.Tensor,
) -> torch.Tensor:
    """A token for each row: temperature, top-k, top-p, min-p, then the inverse of the cumulative.

    A row's tokens are taken in descending order, equals in that of their ids. Each filter keeps
    the head of this order: top-k the first k and all that tie with the last of them, top-p the
    fewest whose probabilities, among those that top-k left, sum to p, min-p those at least min_p
    times as likely as the first. The token is the one at which the sum of the probabilities of
    what is left exceeds `uniform` times the whole.

    Args:
        logits: `[rows, size]`.
        temperature, top_p, min_p: float32 `[rows]`. Temperature 0 takes the first of the largest;
            top_p 1 and min_p 0 keep all.
        top_k: int32 `[rows]`; 0 and -1 keep all.
        uniform: float64 `[rows]`, from 0 to below 1.

    Returns:
        int64 `[rows]`; -1 where a row has a NaN, +inf or nothing but -inf.
    """
    size = logits.shape[1]
    ordered, ids = logits.float().sort(dim=1, descending=True, stable=True)
    best = ordered[:, :1]  # a NaN comes first
    mass = ((ordered - best).double() / temperature.double().unsqueeze(1)).exp()
    place = torch.arange(size, device=logits.device)
    mass = torch.where(temperature.unsqueeze(1) > 0, mass, (place == 0).double())

    limited = (top_k > 0) & (top_k < size)
    last = torch.where(limited, top_k, size).long().unsqueeze(1) - 1
    mass = mass * (ordered >= ordered.gather(1, last))
    before = mass.cumsum(dim=1) - mass
    enough = top_p.double().unsqueeze(1) * mass.sum(dim=1, keepdim=True)
    mass = mass * ((before < enough) | (top_p.unsqueeze(1) >= 1) | (place == 0))
    mass = mass * (mass >= min_p.double().unsqueeze(1))

    cumulative = mass.cumsum(dim=1)
    target = uniform.unsqueeze(1) * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, target, right=True).clamp(max=size - 1)
    tokens = ids.gather(1, chosen).squeeze(1)
    return torch.where(best.squeeze(1).isfinite(), tokens, -1)

"""From logits to a token: penalties, temperature, filters, and a draw that a seed repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from yaie.engine.params import check_penalty


class SamplingKernel:
    """Chooses the next token of every request of a batch: temperature, top-k, top-p, min-p, draw.

    Each filter sets the logits it drops to -inf, so that the next one sees what is left.

    Logits are `[batch, vocabulary]`, in any float dtype; they are computed in float32. Wherever a
    parameter may differ by request, give one number for all or a sequence with one for each.

    Attributes:
        samples_on_device: whether the operator `sample` may choose in the sampler's place on a
            GPU. A subclass may choose other tokens, so it has to declare that it does not:
            `class Mine(SamplingKernel, samples_on_device=True)`.
    """

    samples_on_device = False

    def __init_subclass__(cls, samples_on_device: bool = False) -> None:
        cls.samples_on_device = samples_on_device

    def sample(
        self,
        logits: torch.Tensor,
        temperature: float | Sequence[float] = 1.0,
        top_p: float | Sequence[float] = 1.0,
        top_k: int | Sequence[int] = 0,
        min_p: float | Sequence[float] = 0.0,
        generators: Sequence[torch.Generator | None] | None = None,
    ) -> torch.Tensor:
        """Choose a token for each row of `logits`.

        The order is: temperature, top-k, top-p, min-p, draw. What a row draws depends on its own
        logits, parameters and generator only, not on the rows beside it. However small a
        temperature above 0 is, nothing overflows.

        Args:
            logits: `[batch, vocabulary]`, in any float dtype; computed in float32, not changed.
            temperature, top_p, top_k, min_p: as in `SamplingParams`, each one number for all rows
                or a sequence with one for each. Rows with temperature 0 take their most likely
                token, the first of equals.
            generators: the random stream of each row; torch's global one where None.

        Returns:
            Token ids, int64 `[batch]`.

        Raises:
            ValueError: a row has a NaN, +inf, or only -inf; there is not one generator per row; a
                parameter is out of range (in greedy rows only the temperature must be checked).
        """
        check_logits(logits)
        generators = [None] * len(logits) if generators is None else generators
        if len(generators) != len(logits):
            raise ValueError(
                f"generators must be {len(logits)}, one per row, got {len(generators)}"
            )
        temperature = _column("temperature", temperature, logits)
        tokens = logits.argmax(dim=-1)
        drawn = (temperature.squeeze(1) > 0).nonzero().squeeze(1)
        if len(drawn) == 0:
            return tokens
        top_p, top_k, min_p = (
            _column(name, value, logits)[drawn]
            for name, value in (("top_p", top_p), ("top_k", top_k), ("min_p", min_p))
        )
        # Relative to the maximum, so that a tiny temperature cannot overflow.
        scaled = logits[drawn].float()
        scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / temperature[drawn]
        scaled = self.min_p(self.top_p(self.top_k(scaled, top_k), top_p), min_p)
        tokens[drawn] = self.draw(scaled.softmax(dim=-1), [generators[i] for i in drawn.tolist()])
        return tokens

    def repetition_penalty(
        self, logits: torch.Tensor, penalty: float, token_ids: torch.Tensor
    ) -> torch.Tensor:
        """Make tokens that were there before less likely, in one row of logits `[vocabulary]`.

        A positive logit is divided by `penalty`, a negative one multiplied by it. Each token
        counts once, however often it occurred. Source: Keskar et al., "CTRL", 2019.
        """
        check_penalty(penalty)
        seen = token_ids.unique()  # in ascending order
        if len(seen) and not 0 <= seen[0] <= seen[-1] < len(logits):
            raise ValueError(f"token_ids must be from 0 to {len(logits) - 1}, got {seen.tolist()}")
        values = logits[seen]
        penalized = logits.clone()
        penalized[seen] = torch.where(values > 0, values / penalty, values * penalty)
        return penalized

    def top_k(self, logits: torch.Tensor, k: int | torch.Tensor) -> torch.Tensor:
        """Keep the `k` most likely tokens of each row; 0, -1 or more than there are keeps all.

        Tokens that tie with the last one kept are kept too.

        Args:
            logits: `[batch, vocabulary]`; not changed.
            k: one number for all rows, or a tensor with one for each, `[batch]` or `[batch, 1]`.

        Returns:
            Logits of the same shape and dtype: as they were where kept, -inf where dropped.

        Raises:
            ValueError: `k` is below -1, or neither one nor one for each row.
        """
        vocabulary = logits.shape[-1]
        k = _column("top_k", k, logits)
        limited = (k > 0) & (k < vocabulary)
        if not limited.any():
            return logits
        k = torch.where(limited, k, 1).long()
        largest = logits.topk(int(k.max()), dim=-1).values
        threshold = largest.gather(-1, k - 1).masked_fill(~limited, float("-inf"))
        return logits.masked_fill(logits < threshold, float("-inf"))

    def top_p(self, logits: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        """Keep the smallest set of most likely tokens whose probabilities sum to at least `p`.

        The token that crosses the threshold is kept: of (0.5, 0.4, 0.1), 0.8 keeps two. So at
        least one token always stays. Of tokens with equal logits the first come first. A `p` of 1
        keeps all. Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019.

        Args:
            logits: `[batch, vocabulary]`, in any float dtype; summed in float32, not changed.
            p: one number for all rows, or a tensor with one for each, `[batch]` or `[batch, 1]`.

        Returns:
            Logits of the same shape and dtype: as they were where kept, -inf where dropped.

        Raises:
            ValueError: `p` is not from 0 to 1, or neither one nor one for each row.
        """
        p = _column("top_p", p, logits)
        if (p >= 1).all():
            return logits
        # Stable, so that of equals the first stay, whatever else is in the batch.
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        reached = ordered.softmax(dim=-1, dtype=torch.float32).cumsum(dim=-1)
        drop = torch.zeros_like(order, dtype=torch.bool)
        drop[..., 1:] = (reached[..., :-1] >= p) & (p < 1)
        return logits.masked_fill(drop.scatter(-1, order, drop), float("-inf"))

    def min_p(self, logits: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        """Keep tokens at least `p` times as likely as the most likely one of their row."""
        p = _column("min_p", p, logits)
        if not p.any():
            return logits
        threshold = logits.amax(dim=-1, keepdim=True) + p.log()
        return logits.masked_fill(logits < threshold, float("-inf"))

    def draw(
        self, probabilities: torch.Tensor, generators: Sequence[torch.Generator | None]
    ) -> torch.Tensor:
        """Draw a token from each row of `probabilities`, each with its own random stream.

        One uniform number per row, looked up in the cumulative distribution. What a row draws does
        not depend on the other rows.
        """
        uniform = torch.stack([torch.rand(1, generator=g, dtype=torch.float64) for g in generators])
        cumulative = probabilities.double().cumsum(dim=-1)
        # The largest uniform number is 1 - 2**-53, so the target stays below the total, and the
        # first token whose cumulative exceeds it has a probability.
        target = uniform.to(probabilities.device) * cumulative[..., -1:]
        return torch.searchsorted(cumulative, target, right=True).squeeze(-1)


class FastSampler(SamplingKernel, samples_on_device=True):
    """Chooses the same tokens, but top-p sorts the whole vocabulary only where it has to.

    Usually a few hundred tokens hold a mass of `p`; finding 512 is faster than a sort.
    """

    def top_p(self, logits: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        """See `SamplingKernel.top_p`, which decides every row that needs more than the head."""
        p = _column("top_p", p, logits)
        if logits.shape[-1] <= HEAD:
            return super().top_p(logits, p)
        limited = (p < 1).squeeze(1).nonzero().squeeze(1)
        rows = logits[limited].float()
        head = rows.topk(HEAD, dim=-1).values
        reached = (head - rows.logsumexp(dim=-1, keepdim=True)).exp().cumsum(dim=-1)
        last = (reached < p[limited]).sum(dim=-1, keepdim=True)  # the token that crosses p
        decided = last < HEAD - 1
        last = last.clamp(max=HEAD - 2)
        smallest = head.gather(-1, last)
        decided &= head.gather(-1, last + 1) < smallest  # of equals, only the first are kept
        kept = logits.clone()
        kept[limited] = logits[limited].masked_fill(rows < smallest, float("-inf"))
        hard = limited[~decided.squeeze(1)]
        kept[hard] = super().top_p(logits[hard], p[hard])
        return kept


def check_logits(logits: torch.Tensor) -> None:
    """Raise a ValueError if a row has a NaN or no finite entry to choose."""
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise ValueError(f"logits must have shape [batch, vocabulary], got {list(logits.shape)}")
    bad = ~logits.amax(dim=-1).isfinite()  # the maximum of a row with a NaN is NaN
    if bad.any():
        raise ValueError(f"logits of row {bad.nonzero()[0].item()} have a NaN, +inf or only -inf")


HEAD = 512  # tokens among which `FastSampler` looks for the mass of top-p
LARGEST = {"temperature": 1e38, "top_k": math.inf, "top_p": 1.0, "min_p": 1.0}


def _column(
    name: str, value: float | Sequence[float] | torch.Tensor, logits: torch.Tensor
) -> torch.Tensor:
    """One value for each row of `logits`, float32 `[batch, 1]`, from 0 to `LARGEST[name]`."""
    column = torch.as_tensor(value, dtype=torch.float32, device=logits.device).reshape(-1, 1)
    if len(column) not in (1, len(logits)):
        raise ValueError(f"{name} must be one number or {len(logits)}, got {len(column)}")
    fits = (column >= 0) & (column <= LARGEST[name])
    wanted = f"0 or more, at most {LARGEST[name]:g}"
    if name == "top_k":
        fits = (column >= -1) & (column == column.floor())
        wanted = "a whole number, 0 or -1 (off) or more"
    if not fits.all():  # nor does a NaN fit
        raise ValueError(f"{name} must be {wanted}, got {column[~fits][0].item():g}")
    return column.clamp(min=0).expand(len(logits), 1)

"""What the engine computes, in the most obvious way: for the exercises' checks and for the tests.

Everything is float64, and nothing is shared with the code that is checked.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

Path = tuple[str, tuple[int, ...]]  # namespace, tokens from the root in whole blocks


def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = True, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Attention with every score in memory: output, and log-sum-exp `[queries, heads]`.

    The last query sees all keys, each one before it one key less. A query that sees no key has
    0 and -inf. Differentiable.
    """
    scale = q.shape[2] ** -0.5 if scale is None else scale
    q, k, v = q.double(), k.double(), v.double()
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    seen = torch.ones(len(q), len(k), dtype=torch.bool, device=q.device)
    if causal:
        seen = seen.tril(len(k) - len(q))
    scores = scores.masked_fill(~seen, -1e300)  # finite, so that its gradient is 0
    weights = scores.softmax(-1) * seen
    lse = scores.logsumexp(-1).masked_fill(~seen.any(-1), -math.inf)
    return torch.einsum("hqk,khd->qhd", weights, v), lse.T


def rotary(
    x: Tensor,
    positions: Iterable[int],
    base: float = 10000.0,
    frequencies: Tensor | None = None,
) -> Tensor:
    """Rotation of `[tokens, heads, head_dim]` as a product with complex numbers of modulus 1.

    Args:
        frequencies: the angle of each pair at position 1, instead of those that follow from `base`.
    """
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half].double(), x[..., half:].double())
    if frequencies is None:
        frequencies = base ** (-torch.arange(half).double() / half)
    angles = torch.tensor(list(positions)).double().unsqueeze(1) * frequencies
    turned = pairs * torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
    return torch.cat((turned.real, turned.imag), dim=-1)


def chi_square(counts: Sequence[int], weights: Sequence[float]) -> float:
    """How likely counts at least this far from the relative weights are (Pearson's test).

    0 if something came that has no weight.
    """
    if any(count and not weight for count, weight in zip(counts, weights, strict=True)):
        return 0.0
    each = sum(counts) / sum(weights)
    kept = [(c, each * weight) for c, weight in zip(counts, weights, strict=True) if weight]
    statistic = sum((count - expected) ** 2 / expected for count, expected in kept)
    if len(kept) == 1:
        return float(statistic == 0)
    freedom = torch.tensor((len(kept) - 1) / 2).double()
    return torch.special.gammaincc(freedom, torch.tensor(statistic / 2).double()).item()


class PrefixOracle:
    """What a radix tree holds, as a flat dict: an entry for every block of every prefix.

    There are no nodes here, so nothing to split: a lock counts on every prefix of what it locks,
    and eviction removes one block at a time.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.value: dict[Path, Any] = {}
        self.last_access: dict[Path, int] = {}
        self.locks: dict[Path, int] = {}
        self.clock = 0

    def prefixes(self, tokens: Sequence[int], namespace: str = "") -> list[Path]:
        size = self.block_size
        return [(namespace, tuple(tokens[:end])) for end in range(size, len(tokens) + 1, size)]

    def held(self, tokens: Sequence[int], namespace: str = "") -> list[Path]:
        """The prefixes held, shortest first."""
        return list(takewhile(self.value.__contains__, self.prefixes(tokens, namespace)))

    def match(self, tokens: Sequence[int], namespace: str = "") -> list[Any]:
        """The values of the longest prefix held; all of it counts as used now."""
        self.clock += 1
        found = self.held(tokens, namespace)
        self.last_access |= dict.fromkeys(found, self.clock)
        return [self.value[path] for path in found]

    def insert(self, tokens: Sequence[int], values: Sequence[Any], namespace: str = "") -> int:
        """Keep what is new; return how many tokens were there before."""
        before = len(self.match(tokens, namespace))
        paths = self.prefixes(tokens, namespace)
        for path, value in list(zip(paths, values, strict=False))[before:]:
            self.value[path], self.last_access[path], self.locks[path] = value, self.clock, 0
        return before * self.block_size

    def lock(self, path: Path, change: int = 1) -> None:
        for prefix in self.held(path[1], path[0]):
            self.locks[prefix] += change

    @property
    def evictable(self) -> int:
        return sum(count == 0 for count in self.locks.values())

    def evict(self, number: int) -> list[Any]:
        """Remove the values of blocks that nothing extends, least recently used first."""
        removed = []
        while len(removed) < number:
            inner = {(space, tokens[: -self.block_size]) for space, tokens in self.value}
            leaves = [p for p in self.value if p not in inner and self.locks[p] == 0]
            if not leaves:
                break
            removed.append(self.remove(min(leaves, key=self.last_access.__getitem__)))
        return removed

    def remove(self, path: Path) -> Any:
        del self.last_access[path], self.locks[path]
        return self.value.pop(path)

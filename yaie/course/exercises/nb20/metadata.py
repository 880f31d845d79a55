"""What the exercises of notebook 20 share: int32 tensors, batches of requests, an oracle."""

import random
from collections.abc import Sequence
from typing import Any

import torch


def ints(values: Sequence[int]) -> Any:
    return torch.tensor(list(values), dtype=torch.int32)


def random_batch(batch: int, most_keys: int) -> tuple[list[int], list[int]]:
    """New tokens and keys of each request."""
    generator = random.Random(batch)
    lengths = [generator.choice([0, 0, 1, 2, 5]) for _ in range(batch)]
    return lengths, [generator.randrange(most_keys) for _ in range(batch)]


def in_words(lengths: Sequence[int], keys: Sequence[int]) -> str:
    if len(lengths) <= 8:
        return f"{lengths} new tokens, {keys} keys"
    return f"{len(lengths):,} requests, {sum(lengths):,} tokens"


def keys_seen(lengths: Sequence[int], keys: Sequence[int]) -> list[int]:
    """How many keys each new token sees, request by request and token by token."""
    pairs = zip(lengths, keys, strict=True)
    return [max(kv - q + 1 + i, 0) for q, kv in pairs for i in range(q)]

"""Speculative decoding: guess some tokens cheaply, and verify them all in one forward pass.

A decode step reads every weight to find one token. Read for five tokens, the weights cost the same
again only once. So something cheap drafts the next tokens, the model computes all of them together,
as it computes a prompt, and keeps those that it would have chosen itself, and one more: its own
choice at the first place where it differs. With greedy tokens the text is exactly the same.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023; drafts from
the prompt itself: Saxena, "Prompt Lookup Decoding", 2023.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.radix import shared_prefix_length
from yaie.model.batch import Batch
from yaie.model.llama import Llama

Drafter = Callable[[Sequence[int]], list[int]]


def prompt_lookup(
    token_ids: Sequence[int], num_draft: int = 5, longest: int = 3, shortest: int = 1
) -> list[int]:
    """Draft what followed when the last tokens stood there before.

    The last `longest` tokens are looked for earlier in `token_ids`, the latest place first; if
    they are nowhere, one token fewer, down to `shortest`.

    Returns:
        At most `num_draft` tokens; none if nothing was found.
    """
    tokens = list(token_ids)
    for length in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        tail = tokens[-length:]
        for start in range(len(tokens) - length - 1, -1, -1):
            if tokens[start : start + length] == tail:
                return tokens[start + length : start + length + num_draft]
    return []


def accept(draft: Sequence[int], chosen: Sequence[int]) -> list[int]:
    """The tokens that a verified draft yields.

    Args:
        draft: the drafted tokens, in order; there may be none.
        chosen: what the model chooses, one token more than `draft` has: `chosen[0]` follows the
            text, `chosen[i]` follows the text and `draft[:i]`.

    Returns:
        The tokens to append to the text, the same that the model would have found one by one: the
        drafted ones up to the first that the model would not have chosen, and then its own choice
        at that place. So there is always at least one, and one more than `draft` has if all of it
        was right.
    """
    agreeing = 0
    while agreeing < len(draft) and draft[agreeing] == chosen[agreeing]:
        agreeing += 1
    return [*draft[:agreeing], chosen[agreeing]]


def accept_sampled(
    draft: Sequence[int],
    drafter: Sequence[Sequence[float]],
    model: Sequence[Sequence[float]],
    rng: random.Random,
) -> list[int]:
    """The tokens that a verified draft yields if tokens are sampled (Leviathan et al., 2023).

    The text that grows by them has exactly the distribution of one that is sampled from the model
    alone, whatever the drafter's probabilities are.

    Args:
        draft: the drafted tokens, each sampled from its row of `drafter`; there may be none.
        drafter: `[len(draft)][vocabulary]`, the probabilities that the drafter gave each token in
            each place.
        model: `[len(draft) + 1][vocabulary]`, those of the model: row 0 after the text, row i
            after the text and `draft[:i]`. Each row adds up to 1, as the drafter's do.
        rng: what to draw with.

    Returns:
        The tokens to append: the drafted ones up to the first that is rejected, and one more in its
        place, or after all of them, if all are accepted.
    """
    for place, token in enumerate(draft):
        guessed, wanted = drafter[place], model[place]
        if rng.random() * guessed[token] < wanted[token]:
            continue
        missing = [max(0.0, p - q) for p, q in zip(wanted, guessed, strict=True)]
        return [*draft[:place], *rng.choices(range(len(missing)), missing)]
    return [*draft, *rng.choices(range(len(model[-1])), model[-1])]


@dataclass(frozen=True)
class Round:
    """One pass of the model: what was drafted, and what was appended to the text."""

    draft: list[int]
    accepted: list[int]

    @property
    def kept(self) -> int:
        """How many of the drafted tokens are in the text."""
        return shared_prefix_length(self.draft, self.accepted)


class Verifier:
    """A model and the cache of one text, which can be computed several tokens at a time.

    Args:
        model: on its device.
        max_tokens: of the text and a draft.

    Raises:
        ValueError: `max_tokens` is below 1, or a text and its draft have more.
    """

    def __init__(self, model: Llama, max_tokens: int, block_size: int = 16) -> None:
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
        config = model.config
        self.model, self.max_tokens = model, max_tokens
        self.cache = KVCacheManager(
            -(-max_tokens // block_size),
            block_size,
            config.num_key_value_heads,
            config.head_dim,
            dtype=model.cache_dtype,
            num_layers=config.num_hidden_layers,
            device=model.embed.device,
        )
        self.cache.allocate_blocks("text", max_tokens)
        self.num_computed = 0

    def choose(self, token_ids: Sequence[int], draft: Sequence[int] = ()) -> list[int]:
        """The model's choice after `token_ids`, and after each token of `draft` that follows."""
        return self.logits(token_ids, draft).argmax(dim=-1).tolist()

    def logits(self, token_ids: Sequence[int], draft: Sequence[int] = ()) -> torch.Tensor:
        """The logits in these places: float32 `[1 + len(draft), vocabulary]`.

        All that the cache does not have yet is computed in one pass. The keys and values of
        drafted tokens are written as well; the next call forgets them, since what it computes
        lies in the same slots.
        """
        tokens = [*token_ids, *draft]
        start, end = self.num_computed, len(tokens)
        if end > self.max_tokens:
            raise ValueError(
                f"max_tokens is {self.max_tokens}, but the text and its draft have {end}"
            )
        new = range(start, end)
        device = self.model.embed.device

        def numbers(values: Sequence[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
            return torch.tensor(list(values), dtype=dtype, device=device)

        batch = Batch(
            token_ids=numbers(tokens[start:]),
            positions=numbers(new),
            slot_mapping=numbers(self.cache.slot_mapping("text", start, end)),
            block_tables=numbers(self.cache.block_tables["text"], torch.int32).unsqueeze(0),
            context_lens=numbers([end], torch.int32),
            cu_seqlens=numbers([0, len(new)], torch.int32),
            logit_rows=numbers(range(len(token_ids) - 1 - start, len(new))),
        )
        logits = self.model(batch, self.cache.key_pools, self.cache.value_pools)
        self.num_computed = len(token_ids)
        return logits


def speculate(
    verifier: Verifier,
    prompt: Sequence[int],
    max_tokens: int,
    drafter: Drafter,
    accept: Callable[[Sequence[int], Sequence[int]], list[int]] = accept,
) -> tuple[list[int], list[Round]]:
    """Greedy tokens after a prompt, up to the model's end token, and the passes that they took.

    Args:
        max_tokens: the most tokens wanted.
        drafter: takes the text so far, returns the tokens it guesses, as many as it likes.
        accept: says which tokens a verified draft yields.
    """
    tokens, rounds, ends = list(prompt), [], verifier.model.config.eos_token_ids
    while (missing := len(prompt) + max_tokens - len(tokens)) > 0:
        draft = drafter(tokens)[: missing - 1]
        accepted = accept(draft, verifier.choose(tokens, draft))
        last = next((i for i, token in enumerate(accepted) if token in ends), len(accepted))
        rounds.append(Round(draft, accepted[: last + 1]))
        tokens += accepted[: last + 1]
        if last < len(accepted):
            break
    return tokens[len(prompt) :], rounds

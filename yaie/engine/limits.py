"""What requests an engine takes. A server checks them by it in another process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yaie.engine.checks import check_sequence
from yaie.engine.sampling import SamplingParams


@dataclass(frozen=True)
class Limits:
    """The limits of an engine.

    Attributes:
        max_model_len: the most tokens of a request, prompt and output together.
        context: the most tokens that the model was trained for.
        vocab_size: how many token ids the model has.
        num_blocks, block_size: of the KV cache.
    """

    max_model_len: int
    context: int
    vocab_size: int
    num_blocks: int
    block_size: int

    def check_prompt(self, prompt_token_ids: Sequence[int], name: str) -> None:
        """Raise ValueError or TypeError for a prompt that the engine does not take."""
        check_sequence(name, prompt_token_ids, "a list of token ids", (str, bytes))
        if len(prompt_token_ids) >= self.max_model_len:
            raise ValueError(
                f"{name} has {len(prompt_token_ids)} tokens; with the one to generate, at most "
                f"{self.max_model_len} fit (context {self.context}, cache "
                f"{self.num_blocks} blocks of {self.block_size})"
            )
        self._check_token_ids(prompt_token_ids, name)

    def checked_params(self, params: SamplingParams | None, name: str = "params") -> SamplingParams:
        """The parameters to use for a request. Errors call the argument `name`."""
        if params is None:
            return SamplingParams()
        if not isinstance(params, SamplingParams):
            raise TypeError(f"{name} must be SamplingParams, got {type(params).__name__}")
        self._check_token_ids(params.stop_token_ids, f"{name}.stop_token_ids")
        self._check_token_ids([token for token, _ in params.logit_bias], f"{name}.logit_bias")
        return params

    def _check_token_ids(self, token_ids: Sequence[int], name: str) -> None:
        vocabulary = self.vocab_size
        for token in token_ids:
            if not isinstance(token, int) or isinstance(token, bool):
                raise TypeError(f"{name} must have ints as token ids, got {token!r}")
            if not 0 <= token < vocabulary:
                raise ValueError(f"{name} has token id {token}, outside 0 to {vocabulary - 1}")

"""transformers beside the engine: what its answers are compared with, and what its speed is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from yaie.model.pull import find_model

Tokens = list[int]
# How far below the likeliest token's logit that of a greedy answer's token may lie, in standard
# deviations of the logits. Two computations round differently, and of two tokens that are nearly
# as likely either may come. The answer to another prompt has tokens one to six of them below.
TOLERANCE = {torch.float32: 0.003, torch.float16: 0.05, torch.bfloat16: 0.25}


@dataclass(frozen=True)
class Verdict:
    """How well answers agree with transformers.

    Attributes:
        answers: how many were compared.
        same: how many of them have none but the likeliest tokens there.
        worst: the largest distance below the likeliest, in standard deviations of the logits.
    """

    answers: int = 0
    same: int = 0
    worst: float = 0.0

    def row(self) -> dict[str, float]:
        """As part of a row of results."""
        return {
            "checked_answers": self.answers,
            "same_answers": self.same,
            "worst_gap": self.worst,
        }

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.answers + other.answers, self.same + other.same, max(self.worst, other.worst)
        )


class WrongAnswer(RuntimeError):
    """An answer is not the model's: whatever was timed means nothing."""


class Oracle:
    """A model in transformers, with its default attention.

    Args:
        model: name or folder.
        dtype, device: as the engine has them.
    """

    def __init__(
        self, model: str | Path, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> None:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        loaded = AutoModelForCausalLM.from_pretrained(find_model(model), dtype=dtype)
        self._take(loaded.to(device).eval())

    @classmethod
    def of(cls, model: Any) -> Oracle:
        """An oracle of a model of transformers that is there already."""
        oracle = cls.__new__(cls)
        oracle._take(model)
        return oracle

    def _take(self, model: Any) -> None:
        self.model, self.dtype, self.device = model, model.dtype, model.device
        # Both go on after the end token, so that both compute the same number of tokens.
        self.model.generation_config.eos_token_id = None

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU computes."""
        return self.device.type == "cuda"

    @torch.inference_mode()
    def _below(self, prompt: Tokens, answer: Tokens, count: int) -> torch.Tensor:
        """How far every token lies below the likeliest, in standard deviations of the logits, at
        the last `count` tokens of an answer: `[count, vocabulary]`."""
        token_ids = torch.tensor([prompt + answer[:-1]], device=self.device)
        logits = self.model(token_ids, logits_to_keep=count, use_cache=False).logits[0].float()
        return (logits.amax(dim=1, keepdim=True) - logits) / logits.std(dim=1, keepdim=True)

    def judge(self, prompt: Tokens, answer: Tokens) -> Verdict:
        """Compare a greedy answer, token by token, with what transformers thinks of its tokens."""
        chosen = torch.tensor(answer, device=self.device).unsqueeze(1)
        worst = self._below(prompt, answer, len(answer)).gather(1, chosen).max().item()
        return Verdict(1, int(worst == 0), worst)

    def nearly_as_likely(self, prompt: Tokens, answer: Tokens) -> list[int]:
        """The tokens that rounding could have put in the place of an answer's last."""
        near = self._below(prompt, answer, 1)[0] <= TOLERANCE[self.dtype]
        return [token for token in near.nonzero()[:, 0].tolist() if token != answer[-1]]

    def demand(self, what: str, prompts: Sequence[Tokens], answers: Sequence[Tokens]) -> Verdict:
        """Judge answers, and raise WrongAnswer if one is wrong beyond rounding."""
        total = Verdict()
        for prompt, answer in zip(prompts, answers, strict=True):
            total += self.judge(prompt, answer)
        if not total.worst <= TOLERANCE[self.dtype]:
            raise WrongAnswer(
                f"{what}: a token lies {total.worst:.2g} standard deviations below the likeliest; "
                f"rounding explains {TOLERANCE[self.dtype]}"
            )
        return total

    def generate(
        self,
        prompts: Sequence[Tokens],
        max_tokens: int,
        static_cache: bool = False,
        compiled: bool = False,
    ) -> list[Tokens]:
        """Greedy tokens for each prompt, as one batch padded on the left.

        Args:
            static_cache: with keys and values in memory of a fixed size.
            compiled: with that, let transformers compile the decode step (on a GPU).
        """
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        padded = [[0] * n + list(p) for n, p in zip(padding, prompts, strict=True)]
        mask = torch.arange(longest) >= torch.tensor(padding).unsqueeze(1)
        options: dict[str, Any] = {}
        if static_cache:
            options = {"cache_implementation": "static", "disable_compile": not compiled}
        with torch.inference_mode():
            out = self.model.generate(
                torch.tensor(padded, device=self.device),
                attention_mask=mask.long().to(self.device),
                max_new_tokens=max_tokens,
                do_sample=False,
                pad_token_id=0,
                **options,
            )
        return out[:, longest:].tolist()

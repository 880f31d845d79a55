"""One request: what was asked, what has been computed, and what came out."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING

from yaie.engine.params import SamplingParams
from yaie.engine.radix_node import RadixNode, as_key
from yaie.engine.text import OutputText

if TYPE_CHECKING:
    import torch

    from yaie.engine.host_sampling import LogitEdits

PENDING = -1  # in the place of a token that is being computed


class Status(enum.Enum):
    """Where a request is on its way."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass
class Metrics:
    """What a request cost. Times are in seconds, on the clock of `time.perf_counter`.

    Attributes:
        num_cached_tokens: prompt tokens taken from the prefix cache when it was first admitted.
        num_preemptions: how often it lost its blocks and had to be computed again.
    """

    arrival_time: float = field(default_factory=time.perf_counter)
    admitted_time: float | None = None
    first_token_time: float | None = None
    finished_time: float | None = None
    num_cached_tokens: int = 0
    num_preemptions: int = 0


@dataclass(frozen=True)
class TokenLogprob:
    """How likely the model found a token, as natural logarithms.

    Attributes:
        top: the likeliest tokens and their log-probabilities, best first.
        text_offset: where its text begins: how many characters the tokens before it complete.
    """

    token_id: int
    logprob: float
    top: dict[int, float]
    text_offset: int


class Request:
    """A request inside the engine.

    Attributes:
        number: what a server and its engine call it.
        token_ids: the prompt and the tokens generated so far; the last may be PENDING.
        max_length: the most tokens that it may have, prompt and output together.
        num_pending: how many tokens are PENDING.
        row: of its newest token in the results of the step that computes it.
        num_computed_tokens: how many tokens have their keys and values in the cache.
        node: the node of the radix cache that the request has locked.
        num_kept_tokens: how many of its tokens it has put into the radix cache, up to `node`.
        is_unread: whether its prompt is computed but its first token not yet read. Until then no
            other request shares its blocks: only the token tells whether they contain a NaN.
        steps_overtaken: steps that admitted a later arrival before it.
        edits: what its parameters change in its logits, made when they first do.
        output_text: the text of the generated tokens, if the engine has given it a tokenizer.
        logprobs: of every generated token, if its parameters ask for them.
        prompt_logprobs: of every token of the prompt, None for the first, likewise.
        namespace: requests of different namespaces share no cached prefix. One whose prompt's
            log-probabilities are wanted has a namespace of its own, also if its id was used before.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
        namespace: str = "",
        output_text: OutputText | None = None,
    ) -> None:
        self.request_id = request_id
        self.number = 0
        self.params = params = SamplingParams() if params is None else params
        self.scores_prompt = params.prompt_logprobs is not None
        self.namespace = f"{namespace}\0{token_hex(8)}" if self.scores_prompt else namespace
        self.prompt_token_ids = list(prompt_token_ids)
        self.token_ids = list(prompt_token_ids)
        self._key = ""
        self.max_length = len(self.token_ids) + params.max_tokens
        self.output_text = output_text
        self.logprobs: list[TokenLogprob] = []
        length = len(self.prompt_token_ids) if self.scores_prompt else 0
        self.prompt_logprobs: list[TokenLogprob | None] = [None] * length
        self._has_edits = params.repetition_penalty != 1.0 or bool(
            params.frequency_penalty or params.presence_penalty or params.logit_bias
        )
        self._always_needs_logits = self._has_edits or params.logprobs is not None
        self.num_computed_tokens = 0
        self.num_pending = 0
        self.row = 0
        self.status = Status.WAITING
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.node: RadixNode | None = None
        self.num_kept_tokens = 0
        self.is_unread = False
        self.steps_overtaken = 0
        self.edits: LogitEdits | None = None
        self.metrics = Metrics()
        self._drawn = (0, 0.0)  # the place of a token, and its random number

    @property
    def num_prompt_tokens(self) -> int:
        """How many tokens the prompt has."""
        return len(self.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        """The tokens generated so far, without those that are pending."""
        return self.token_ids[self.num_prompt_tokens : self.num_known_tokens]

    @property
    def num_output_tokens(self) -> int:
        """How many tokens were generated so far, including those that are pending."""
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def num_known_tokens(self) -> int:
        """How many tokens it has, without those that are pending."""
        return len(self.token_ids) - self.num_pending

    @property
    def key(self) -> str:
        """Its known tokens as the radix tree holds them."""
        if len(self._key) < self.num_known_tokens:
            self._key += as_key(self.token_ids[len(self._key) : self.num_known_tokens])
        return self._key

    @property
    def num_new_tokens(self) -> int:
        """How many of its tokens the model has yet to see: 1 while it decodes."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def edits_logits(self) -> bool:
        """Whether its parameters change the logits from which the next token is chosen."""
        return self._has_edits or self.num_output_tokens < self.params.min_tokens

    @property
    def needs_logits(self) -> bool:
        """Whether the logits serve for more than the choice of the next token: they are edited, or
        their log-probabilities are reported."""
        return self._always_needs_logits or (self.params.min_tokens > 0 and self.edits_logits)

    def num_scored(self, num_tokens: int) -> int:
        """In a step that computes `num_tokens` of its tokens: how many tell the log-probability of
        a token of the prompt, the one after them."""
        if not self.scores_prompt:
            return 0
        return max(0, min(num_tokens, len(self.prompt_token_ids) - 1 - self.num_computed_tokens))

    @property
    def is_decoding(self) -> bool:
        """Whether only its newest token is left to compute."""
        length = len(self.token_ids)
        return length - self.num_computed_tokens == 1 and length > len(self.prompt_token_ids)

    @cached_property
    def generator(self) -> torch.Generator:
        """Draws its random numbers. Made at first use, so that a server need not import torch."""
        import torch

        generator, seed = torch.Generator(), self.params.seed
        generator.seed() if seed is None else generator.manual_seed(seed)
        return generator

    def uniform(self) -> float:
        """The random number that chooses its next token, however often it is asked for."""
        place = len(self.token_ids)
        if self._drawn[0] != place:
            import torch

            number = torch.rand((), generator=self.generator, dtype=torch.float64)
            self._drawn = (place, number.item())
        return self._drawn[1]

    def expect(self, row: int) -> None:
        """Reserve a place for the next token, which a step leaves in a row of its results."""
        self.token_ids.append(PENDING)
        self.num_pending += 1
        self.row = row

    def receive(self, token: int) -> None:
        """Put a token in the first reserved place."""
        self.token_ids[-self.num_pending] = token
        self.num_pending -= 1

    def forget_pending(self) -> None:
        """Give up the reserved places. What was computed for them counts as not computed."""
        if self.num_pending:
            del self.token_ids[self.num_known_tokens :]
            self.num_pending = 0
            known = self.num_kept_tokens if self.is_unread else len(self.token_ids) - 1
            self.num_computed_tokens = min(self.num_computed_tokens, known)

    def output(self) -> RequestOutput:
        """A copy of what the request has so far; all of it once there is a `finish_reason`."""
        return RequestOutput(
            request_id=self.request_id,
            prompt_token_ids=self.prompt_token_ids,
            token_ids=self.output_token_ids,
            text=self.output_text.text if self.output_text else "",
            finish_reason=self.finish_reason,
            metrics=self.metrics,
            error=self.error,
            logprobs=list(self.logprobs),
            prompt_logprobs=self.prompt_logprobs,
        )

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id!r}, {self.status.value}, "
            f"{self.num_computed_tokens} of {len(self.token_ids)} tokens computed)"
        )


@dataclass(slots=True)
class StepOutput:
    """What a step added to a request. Its size does not depend on how long the answer is.

    Attributes:
        request: the request itself; `request.output()` is all that it has.
        new_token_ids: the token that the step gave it, or none if it failed.
        new_text: the text that may be shown since.
        new_logprobs: one for each of `new_token_ids` if the parameters asked for them.
        finish_reason, error: as in `RequestOutput`.
    """

    request: Request
    new_token_ids: Sequence[int] = ()
    new_text: str = ""
    new_logprobs: Sequence[TokenLogprob] = ()
    finish_reason: str | None = None
    error: str | None = None

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return self.request.request_id


@dataclass
class RequestOutput:
    """All that a request has generated.

    Attributes:
        finish_reason: "stop" (end token, stop token or stop string), "length" (`max_tokens` or
            the context is full), "abort", "error" (`error` says what); None while it runs.
        logprobs: one for each of `token_ids` if the parameters asked for them, else none.
        prompt_logprobs: one for each of `prompt_token_ids`, likewise; None for the first.
    """

    request_id: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    text: str
    finish_reason: str | None
    metrics: Metrics
    error: str | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=list)

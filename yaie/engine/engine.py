"""The loop of the engine: schedule, run, sample, finish.

On a GPU the next step is scheduled and launched while this one is computed, unless `_may_overlap`
forbids it. A request whose token is still being computed has a PENDING one in its place, and goes
on as if it were known. If that token turns out to end the request, the token computed after it is
dropped.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count

import torch

from yaie.engine.checks import check_range
from yaie.engine.config import EngineConfig
from yaie.engine.device import GIB, block_bytes, count_blocks, current, explain_shortage
from yaie.engine.host_sampling import edit, sample
from yaie.engine.logprobs import token_logprobs, vocabulary_logprobs
from yaie.engine.params import Limits, SamplingParams
from yaie.engine.parts import Parts
from yaie.engine.request import Request, RequestOutput, StepOutput, TokenLogprob
from yaie.engine.runner import Launched, Runner
from yaie.engine.text import OutputText
from yaie.model.kv_scales import fold_scales
from yaie.model.llama import Llama
from yaie.model.parallel import own_shard, smallest
from yaie.model.tokenizer import Tokenizer
from yaie.ops.checks import FP8
from yaie.ops.registry import in_words


class Engine:
    """Serves many requests together, step by step.

    One thread at a time may call it: during a step, only `make_request` and `abort` are taken.

    Args:
        model, tokenizer: what to run, already on its device and in its dtype.
        config: the options. `num_blocks` is counted here if it is None.
        parts: what the engine is built from.

    Attributes:
        max_model_len: the most tokens of a request, prompt and output together.
        limits: what requests it takes.
        eos_token_ids: that end an answer: the model's, and the tokenizer's, which chat templates
            write, unless the model lacks it.
        requests: those that are not finished, by id.
    """

    def __init__(
        self,
        model: Llama,
        tokenizer: Tokenizer,
        config: EngineConfig | None = None,
        parts: Parts | None = None,
    ) -> None:
        config = EngineConfig() if config is None else config
        parts = Parts() if parts is None else parts
        if config.kv_cache_dtype == "fp8":
            if mine := parts.operators.keys() & {"reshape_and_cache", "paged_attention"}:
                raise ValueError(
                    f'kv_cache_dtype "fp8": leave out your exercises of {sorted(mine)}'
                )
            with current(model.embed.device):
                fold_scales(model)
        elif model.cache_dtype == FP8:  # an earlier engine's; folded scales may stay
            model.cache_dtype = model.dtype
        if config.num_blocks is None:
            num_blocks = smallest(count_blocks(model, config), own_shard(), model.embed.device)
            config = replace(config, num_blocks=num_blocks)
        num_blocks, block_size = config.num_blocks, config.block_size
        self.tokenizer, self.config = tokenizer, model.config
        vocab_size, context = self.config.vocab_size, self.config.max_position_embeddings
        ends = {*self.config.eos_token_ids, tokenizer.eos_token_id} - {None}
        self.eos_token_ids = {token for token in ends if token < vocab_size}
        longest = min(context, num_blocks * block_size)
        self.max_model_len = config.max_model_len or longest
        sizes = f"context {context}, cache {num_blocks} blocks of {block_size}"
        self.limits = Limits(self.max_model_len, vocab_size, sizes)
        fits, most = self.max_model_len <= longest, f"at most {longest} ({sizes})"
        check_range("max_model_len", self.max_model_len, fits, most)
        pool = parts.block_pool(num_blocks)
        room = num_blocks * block_bytes(model.config, model.cache_dtype, block_size) / GIB
        with explain_shortage(
            f"{num_blocks} KV blocks of {block_size} tokens take {room:.2f} GiB: lower num_blocks"
        ):
            self.kv = parts.kv_cache(
                *(num_blocks, block_size, model.config.num_key_value_heads, model.config.head_dim),
                *(model.cache_dtype, model.config.num_hidden_layers, model.embed.device, pool),
            )
        self.cache = parts.radix_cache(pool, block_size, parts.radix_tree(block_size))
        self.scheduler = parts.scheduler(self.kv, self.cache, config)
        self.sampler = parts.sampler()
        self.device = model.embed.device
        on_gpu = self.device.type == "cuda"
        self.overlap = on_gpu if config.overlap is None else config.overlap
        named = () if isinstance(config.backend, str) else config.backend
        self._samples_like_a_gpu = on_gpu or self.overlap or "sample" in {*parts.operators, *named}
        with current(self.device):
            self.runner = Runner(model, self.kv, config, self.max_model_len)
            if on_gpu and self._samples_on_device() and not config.enforce_eager:
                self.runner.capture(config.max_num_batched_tokens)
        self._outputs: list[StepOutput] = []  # that no step has returned yet
        self._in_flight: deque[Launched] = deque()  # steps whose tokens have not been read
        self.requests: dict[str, Request] = {}
        self._new_ids = map("request-{}".format, count())
        self._in_step = False
        self._to_abort: list[str] = []
        self._unsettled: deque[Request] = deque()  # in the middle of a step

    # ------------------------------------------------------------------------ requests

    def add_request(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
        request_id: str | None = None,
        namespace: str = "",
    ) -> str:
        """Make a request, queue it, and return its id. Raises as `make_request` and `queue`."""
        request = self.make_request(prompt_token_ids, params, request_id, namespace)
        self.queue(request)
        return request.request_id

    def make_request(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
        request_id: str | None = None,
        namespace: str = "",
        prompt_name: str = "prompt",
        params_name: str = "params",
    ) -> Request:
        """A request for `queue`. This is the one place where a prompt is checked; errors call it
        `prompt_name`, and the parameters `params_name`.

        Raises:
            ValueError: the prompt is empty, too long, or has a token id that the model lacks.
            TypeError: an argument is of the wrong type.
        """
        self.limits.check_prompt(prompt_token_ids, prompt_name)
        params = self.limits.checked_params(params, params_name)
        text = OutputText(self.tokenizer, params.stop, prompt_token_ids, params.min_tokens)
        if request_id is None:
            request_id = next(name for name in self._new_ids if name not in self.requests)
        return Request(request_id, prompt_token_ids, params, namespace, text)

    def queue(self, request: Request) -> None:
        """Take a request that `make_request` has made.

        Raises ValueError if its id is in use, RuntimeError if another thread is in a step.
        """
        self.check_idle()
        if request.request_id in self.requests:
            raise ValueError(
                f"request_id {request.request_id!r} is in use by a request that still runs"
            )
        request.max_length = min(request.max_length, self.max_model_len)
        self.scheduler.add(request)  # first: a learner's scheduler may raise
        self.requests[request.request_id] = request

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now, and return what it has; None if no such request is unfinished.

        During a step or another abort the request ends after it: streams close at any time.
        """
        request = self.requests.get(request_id)
        if request is None:
            return None
        self._to_abort.append(request_id)
        if not self._in_step:
            self._in_step = True
            self._end_step()
        return request.output()

    def reset_prefix_cache(self) -> int:
        """Forget every cached prefix that no running request uses; return the blocks freed. Raises
        RuntimeError if another thread is in a step."""
        self.check_idle()
        return self.cache.evict(self.cache.num_cached)

    def close(self) -> None:
        """Free the CUDA graphs. Weights and cache are freed with the engine itself."""
        self.runner.forget_graphs()

    @property
    def has_work(self) -> bool:
        """Whether any request is not finished."""
        return self.scheduler.has_work or bool(self._outputs)

    @property
    def is_usable(self) -> bool:
        """Whether a step may still succeed, whatever has failed."""
        return True

    # ------------------------------------------------------------------------ one step

    def step(self) -> list[StepOutput]:
        """Launch the next step, and read the tokens of those in flight.

        A step whose tokens the next one does not have to wait for is left in flight, and a later
        call returns its tokens. A call that needs the tokens in flight first only reads them.
        A step is not left in flight if Python reads its logits (penalties, logit_bias, logprobs) or
        if no request goes on after it. So a call may return two outputs of a request: first that of
        the step that was in flight, then that of the step that the call launched.

        If the model or the sampler raises, nothing counts as computed: the same step can be tried
        again, and its requests can be aborted. (A sampler on the host that raises after its draw
        draws other random numbers then.) Raises RuntimeError if another thread is in a step.

        Returns:
            What was added to the requests whose next token is known now.
        """
        self.check_idle()
        try:
            self._begin_step()
            with current(self.device):
                if not self._in_flight or self._may_overlap():
                    self._launch()
                while self._in_flight and not self._may_overlap():
                    self._read_tokens()
                return self.take_outputs()
        finally:
            self._end_step()

    def check_idle(self) -> None:
        """Raise a RuntimeError if a step is under way: then another thread uses the engine."""
        if self._in_step:
            advice = "one thread at a time may use an engine; `yaie serve` takes many"
            raise RuntimeError(f"a step is under way: {advice}")

    def take_outputs(self) -> list[StepOutput]:
        """What no step has returned yet. After a step that failed: what was known before."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def _begin_step(self) -> None:
        self._in_step = True

    def _end_step(self) -> None:
        """End the requests that were aborted during the step, or that would miss a token of it."""
        try:
            for request in self._alive(self._unsettled):
                request.error = "a step failed before the request got its token"
                self._finish(request, "error")
            self._unsettled.clear()
            while self._to_abort:
                if request := self.requests.get(self._to_abort.pop()):
                    self._finish(request, "abort")
        finally:
            self._in_step = False

    def _launch(self) -> None:
        """Schedule a step, have it computed, and note which requests get a token by it."""
        step = self.scheduler.schedule()
        now = time.perf_counter() if step.admitted else 0.0
        for request in step.admitted:
            request.metrics.admitted_time = request.metrics.admitted_time or now
        if not step.scheduled:
            if self.scheduler.has_work:  # the next step would schedule nothing either
                raise RuntimeError(
                    f"the scheduler scheduled nothing, though {len(self.scheduler.waiting)} "
                    f"requests wait and {len(self.scheduler.running)} run"
                )
            return
        ready = [r for r in step.scheduled if r.num_new_tokens == step.num_tokens[r.request_id]]
        on_device = self._samples_on_device()
        needs_logits = not on_device or any(request.needs_logits for request in ready)
        choose = partial(self._choose, ready, on_device) if needs_logits else None
        # The device keeps their tokens until this step chooses its own; a retry needs them read.
        for unread in self._in_flight:
            unread.may_overlap = False
        launched = self.runner.launch(step, ready, on_device, choose)
        self._unsettled = deque(step.scheduled)
        self.scheduler.advance(step, is_read=not (self.overlap and launched.may_overlap))
        for row, request in enumerate(ready):
            request.expect(row)
        if ready:
            self._in_flight.append(launched)
        self._unsettled.clear()

    @property
    def about(self) -> str:
        """Two lines: which back end computes each operator of a step, and in which dtypes weights,
        keys and values are kept."""
        model, computed = self.runner.model, dict(self.runner.model.backends)
        if not self._samples_on_device():
            del computed["sample"]  # the sampler chooses the tokens
        cached, dtype = (str(x).removeprefix("torch.") for x in (model.cache_dtype, model.dtype))
        forms = {part.form for linear in model.linears() for part in linear.rows if part.form}
        weights = " and ".join(sorted(forms)) or dtype
        first = f"back ends: {in_words(computed, self.device)}"
        return f"{first}\nweights in {weights}, keys and values in {cached}"

    def _samples_on_device(self) -> bool:
        """Whether the operator `sample` chooses tokens; the sampler may be replaced at any time."""
        return self._samples_like_a_gpu and self.sampler.samples_on_device

    def _read_tokens(self) -> None:
        """Read the tokens of the oldest step in flight, and give them to its requests."""
        launched, logprobs = self._in_flight[0], {}
        if alive := list(self._alive(launched.requests)):
            tokens = dict(zip(launched.requests, launched.tokens(), strict=True))
            for request, vocabulary in launched.logprobs.items():
                if request in alive and (token := tokens[request]) >= 0:
                    about = request.params.logprobs, request.output_text.length
                    logprobs[request] = token_logprobs(vocabulary[None], [token], *about)
        self._unsettled = unsettled = deque(alive)
        self._in_flight.popleft()  # what follows does not use the device, which may fail
        while unsettled:
            request = unsettled[0]
            self._outputs.append(self._accept(request, tokens[request], logprobs.get(request, ())))
            unsettled.popleft()

    def _may_overlap(self) -> bool:
        """Whether the next step may be launched before the tokens in flight are known.

        Not if Python chose them or reads their logits; not if a running request might have to
        give up a block; and not if none of their requests may have another token.
        """
        if len(self._in_flight) > 1:
            return False
        launched = self._in_flight[0]
        if not any(self._alive(launched.requests)):  # all were aborted
            return True
        return (
            self.overlap
            and launched.may_overlap
            and self.cache.num_available >= len(self.scheduler.running)
            and any(len(r.token_ids) < r.max_length for r in self._alive(launched.requests))
        )

    def _alive(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Those of a step's requests that have not ended since it was launched."""
        return (r for r in requests if self.requests.get(r.request_id) is r)

    # ------------------------------------------------------------------------ tokens

    def _choose(
        self, requests: list[Request], on_device: bool, logits: torch.Tensor
    ) -> tuple[torch.Tensor, Mapping[Request, torch.Tensor]]:
        """The next token of each request, int64 `[requests]`, -1 where the logits allow none; and
        the log-probabilities of the vocabulary, for the requests that ask for some."""
        logprobs = vocabulary_logprobs(requests, logits)  # before they are edited
        edit(self.sampler, requests, logits, self.eos_token_ids)
        if on_device:
            return self.runner.sample(logits), logprobs
        return sample(self.sampler, requests, logits), logprobs

    def _accept(self, request: Request, token: int, logprobs: Sequence[TokenLogprob]) -> StepOutput:
        """Add a token to a request, and finish the request if it was the last."""
        if token < 0:
            request.error = "the model returned logits with a NaN, +inf or only -inf"
            text = self._finish(request, "error")
            return StepOutput(request, (), text, (), "error", request.error)
        request.receive(token)
        if request.is_unread:
            request.is_unread = False
            self.scheduler.keep(request, request.num_known_tokens - 1)
        request.logprobs.extend(logprobs)
        if request.metrics.first_token_time is None:
            request.metrics.first_token_time = time.perf_counter()
        params, text, reason = request.params, "", None
        if token in params.stop_token_ids or (
            token in self.eos_token_ids and not params.ignore_eos
        ):
            reason = "stop"
        else:
            output_text = request.output_text
            text = output_text.push(token)
            if output_text.stopped:
                reason = "stop"
            elif request.num_known_tokens >= request.max_length:
                reason = "length"
        if reason is not None:
            text += self._finish(request, reason)
        return StepOutput(request, (token,), text, logprobs, request.finish_reason)

    def _finish(self, request: Request, reason: str) -> str:
        """End a request, and return the text that was held back and can be shown now."""
        request.forget_pending()
        text = request.output_text.finish()
        if request.output_text.stopped and reason == "length":  # held back was a stop string
            reason = "stop"
        request.metrics.finished_time = time.perf_counter()
        self.scheduler.finish(request, reason)
        del self.requests[request.request_id]
        return text

"""The loop of the engine: schedule, run, sample, decide who is done.

On a GPU the next step is scheduled and launched while this one is computed (`_may_run_ahead` says
when not). A request whose token is still on its way has a PENDING one in its place, and goes on as
if it were known. If it turns out that the request has ended with it, the token after it was
computed in vain and is dropped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import torch

from yaie.engine.checks import check_count, check_switch
from yaie.engine.device import GIB, block_bytes, current, explain_shortage
from yaie.engine.kv_cache import blocks_needed
from yaie.engine.logprobs import TokenLogprob, of_vocabulary, told
from yaie.engine.parts import Parts
from yaie.engine.request import Request, RequestOutput
from yaie.engine.runner import Launched, Runner
from yaie.engine.sampling import FastSampler, SamplingParams
from yaie.engine.scheduler import Step
from yaie.engine.text import OutputText
from yaie.model.llama import Llama
from yaie.model.tokenizer import Tokenizer


class Engine:
    """Serves many requests at once, a step at a time.

    Args:
        model, tokenizer: what to run.
        num_blocks, block_size: the size of the paged cache.
        parts: what the engine is built from.
        max_model_len, enforce_eager: see `LLM`.
        overlap: launch a step before the last one's tokens are known; by default on a GPU. Tokens
            are then chosen by the operator `sample`, on the device, as on any GPU.
        scheduling: options of `Scheduler`.

    One thread at a time may call it: while a step is under way, no other one is begun, and no
    request is taken.

    Attributes:
        max_model_len: the most tokens of a request, prompt and output together: what the model
            was trained for, and what the cache can hold.
        eos_token_ids: tokens that end an answer: the model's, and the tokenizer's, which chat
            templates write.
        requests: those that are not finished, by id.
    """

    def __init__(
        self,
        model: Llama,
        tokenizer: Tokenizer,
        *,
        num_blocks: int,
        block_size: int = 16,
        parts: Parts | None = None,
        max_model_len: int | None = None,
        enforce_eager: bool = False,
        overlap: bool | None = None,
        **scheduling: bool | int | str,
    ) -> None:
        check_count("num_blocks", num_blocks)
        check_count("block_size", block_size)
        check_switch("enforce_eager", enforce_eager)
        if num_blocks * block_size < 2:
            raise ValueError(
                "num_blocks must make room for a prompt of one token and a token to generate, "
                f"got {num_blocks} with block_size {block_size}"
            )
        parts = Parts() if parts is None else parts
        config = model.config
        self.tokenizer = tokenizer
        self.config = config
        self.eos_token_ids = {*config.eos_token_ids, tokenizer.eos_token_id} - {None}
        pool = parts.block_pool(num_blocks)
        room = num_blocks * block_bytes(config, model.dtype, block_size) / GIB
        with explain_shortage(
            f"{num_blocks} KV blocks of {block_size} tokens take {room:.2f} GiB: lower num_blocks"
        ):
            self.kv = parts.kv_cache(
                num_blocks,
                block_size,
                config.num_key_value_heads,
                config.head_dim,
                dtype=model.dtype,
                num_layers=config.num_hidden_layers,
                device=model.embed.device,
                pool=pool,
            )
        self.cache = parts.radix_cache(pool, block_size, parts.radix_tree(block_size))
        self.scheduler = parts.scheduler(self.kv, self.cache, **scheduling)
        self.sampler = parts.sampler()
        self.max_model_len = min(config.max_position_embeddings, num_blocks * block_size)
        if max_model_len is not None:
            check_count("max_model_len", max_model_len, minimum=2)
            self.max_model_len = min(self.max_model_len, max_model_len)
        self.device = model.embed.device
        on_gpu = self.device.type == "cuda"
        self._samples_like_a_gpu = on_gpu or bool(overlap)
        self.overlap = on_gpu if overlap is None else overlap
        max_num_seqs = self.scheduler.max_num_seqs
        with current(self.device):
            self.runner = Runner(
                model,
                self.kv,
                max_num_seqs,
                max_num_seqs + max(self.scheduler.max_num_batched_tokens, self.max_model_len),
                blocks_needed(self.max_model_len, block_size),
            )
            if on_gpu and self._chooses_on_device() and not enforce_eager:
                self.runner.capture(self.scheduler.max_num_batched_tokens)
        self._outputs: list[RequestOutput] = []  # that no step has returned yet
        self._in_flight: deque[Launched] = deque()  # steps whose tokens nobody has read
        self.requests: dict[str, Request] = {}
        self._texts: dict[str, OutputText] = {}
        self._next_id = 0
        self._in_step = False
        self._to_abort: list[str] = []

    # ------------------------------------------------------------------------ requests

    def add_request(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
        request_id: str | None = None,
        namespace: str = "",
    ) -> str:
        """Queue a request, and return its id.

        Raises:
            ValueError: the prompt is empty, too long, or has a token id that the model lacks.
            TypeError: an argument is of the wrong type.
            RuntimeError: another thread is in a step.
        """
        self.check_idle()
        self.check_prompt(prompt_token_ids)
        self.check_params(params)
        if request_id is None:
            request_id = self._new_id()
        if request_id in self.requests:
            raise ValueError(f"request_id {request_id!r} is in use by a request that still runs")
        request = Request(request_id, prompt_token_ids, params, namespace)
        text = OutputText(self.tokenizer, request.params.stop, request.prompt_token_ids)
        self.scheduler.add(request)  # a learner's may raise: then there is no such request
        self.requests[request_id], self._texts[request_id] = request, text
        return request_id

    def check_prompt(self, prompt_token_ids: Sequence[int], name: str = "prompt") -> None:
        """Raise an error that names the argument if no request can be made of a prompt."""
        if isinstance(prompt_token_ids, str | bytes) or not isinstance(prompt_token_ids, Sequence):
            kind = type(prompt_token_ids).__name__
            raise TypeError(f"{name} must be a list of token ids, got {kind}")
        if not prompt_token_ids:
            raise ValueError(f"{name} must have at least one token, got none")
        if len(prompt_token_ids) >= self.max_model_len:
            raise ValueError(
                f"{name} has {len(prompt_token_ids)} tokens; with the one to generate, at most "
                f"{self.max_model_len} fit (context {self.config.max_position_embeddings}, cache "
                f"{self.kv.pool.num_blocks} blocks of {self.kv.block_size})"
            )
        self._check_token_ids(prompt_token_ids, name)

    def check_params(self, params: SamplingParams | None, name: str = "params") -> None:
        """Raise an error that names the argument if no request can be made of its parameters."""
        if params is None:
            return
        if not isinstance(params, SamplingParams):
            raise TypeError(f"{name} must be SamplingParams, got {type(params).__name__}")
        self._check_token_ids(params.stop_token_ids, f"{name}.stop_token_ids")

    def _check_token_ids(self, token_ids: Sequence[int], name: str) -> None:
        vocabulary = self.config.vocab_size
        for token in token_ids:
            if not isinstance(token, int) or isinstance(token, bool):
                raise TypeError(f"{name} must have ints as token ids, got {token!r}")
            if not 0 <= token < vocabulary:
                raise ValueError(f"{name} has token id {token}, outside 0 to {vocabulary - 1}")

    def _new_id(self) -> str:
        while (request_id := f"request-{self._next_id}") in self.requests:
            self._next_id += 1
        self._next_id += 1
        return request_id

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now, and return what it has; None if no such request is unfinished.

        In the middle of a step, which the garbage collector may choose to close a forgotten
        stream, the request ends with the step.
        """
        request = self.requests.get(request_id)
        if request is None:
            return None
        if self._in_step:
            self._to_abort.append(request_id)
        else:
            self._finish(request, "abort")
        return request.output()

    def reset_prefix_cache(self) -> int:
        """Forget every cached prefix that no running request uses; return the blocks freed."""
        return self.cache.evict(self.cache.num_cached)

    @property
    def has_work(self) -> bool:
        """Whether any request is not finished."""
        return self.scheduler.has_work or bool(self._outputs)

    @property
    def is_usable(self) -> bool:
        """Whether a step may still succeed, whatever has failed."""
        return True

    # ------------------------------------------------------------------------ one step

    def step(self) -> list[RequestOutput]:
        """Compute one step.

        If the model or the sampler raises, nothing counts as computed: the same step can be tried
        again, and its requests can be aborted. Only a sampler on the host that raises behind its
        draw has used up its random numbers, and draws others then.

        Returns:
            What the requests whose next token is known now have so far; the finished ones have a
            `finish_reason`. A step that overlaps with the next is reported by the next.

        Raises:
            RuntimeError: another thread is in a step.
        """
        self.check_idle()
        try:
            self._begin_step()
            with current(self.device):
                self._catch_up()
                step = self.scheduler.schedule()
                if step.scheduled:
                    self._launch(step)
                elif self.scheduler.has_work:  # would be so for ever
                    raise RuntimeError(
                        f"the scheduler scheduled nothing, though {len(self.scheduler.waiting)} "
                        f"requests wait and {len(self.scheduler.running)} run"
                    )
                self._catch_up()
                return self.take_outputs()
        finally:
            self._in_step = False
            while self._to_abort:
                self.abort(self._to_abort.pop())

    def check_idle(self) -> None:
        """Raise a RuntimeError if a step is under way: then another thread uses the engine."""
        if self._in_step:
            raise RuntimeError(
                "a step is under way: one thread at a time may use an engine; `yaie serve` takes "
                "many"
            )

    def take_outputs(self) -> list[RequestOutput]:
        """What no step has returned yet. Behind one that failed: what it had before it did."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def _begin_step(self) -> None:
        self._in_step = True

    def _launch(self, step: Step) -> None:
        """Have a step computed, and note who gets a token by it."""
        ready = [r for r in step.scheduled if r.num_new_tokens == step.num_tokens[r.request_id]]
        on_device = self._chooses_on_device()
        if on_device and not any(request.needs_logits for request in ready):
            launched = self.runner.launch(step, ready)
        else:
            logits = self.runner.run(step, ready, on_device)
            logprobs = of_vocabulary(ready, logits)  # before `_choose` changes any logits
            tokens = self._choose(ready, logits, on_device) if ready else logits
            launched = Launched(ready, False, tokens, logprobs=logprobs)
        self.scheduler.advance(step)
        for row, request in enumerate(ready):
            request.expect(row)
        if ready:
            self._in_flight.append(launched)

    def _chooses_on_device(self) -> bool:
        """Whether the operator `sample` chooses: not in the place of a sampler of somebody's own,
        which may be put in at any time."""
        return self._samples_like_a_gpu and type(self.sampler) is FastSampler

    def _catch_up(self) -> None:
        """Read the tokens of the steps under way, but for one whose end nobody has to wait for."""
        while self._in_flight and not self._may_run_ahead():
            launched = self._in_flight[0]
            requests = [r for r in launched.requests if self._is_open(r)]
            if requests:
                tokens = dict(zip(launched.requests, launched.tokens(), strict=True))
                logprobs = {
                    request: told(of_all, tokens[request], request, self._texts[request.request_id])
                    for request, of_all in launched.logprobs.items()
                    if self._is_open(request) and tokens[request] >= 0
                }
            self._in_flight.popleft()  # what follows asks nothing of the device, which may fail
            for request in requests:
                self._accept(request, tokens[request], logprobs.get(request))
                self._outputs.append(request.output())

    def _may_run_ahead(self) -> bool:
        """Whether the next step may be launched though the last one's tokens are not known.

        Not behind a prompt, whose blocks others could share before it is known that no NaN is in
        them; nor if a token has to be chosen on the host, or a block be taken from a request that
        is being computed; nor if there is nobody to go on with.
        """
        if not self.overlap or len(self._in_flight) > 1:
            return False
        launched = self._in_flight[0]
        return (
            launched.decodes
            and self.cache.num_available >= len(self.scheduler.running)
            and any(self._goes_on(request) for request in launched.requests)
            and not any(request.needs_logits for request in self.requests.values())
        )

    def _goes_on(self, request: Request) -> bool:
        """Whether a request will want another token, unless it stops of its own accord."""
        return self._is_open(request) and not self._is_last(request, request.num_output_tokens)

    def _is_last(self, request: Request, num_output_tokens: int) -> bool:
        """Whether a request may have so many tokens and no more."""
        length = request.num_prompt_tokens + num_output_tokens
        return num_output_tokens >= request.params.max_tokens or length >= self.max_model_len

    def _is_open(self, request: Request) -> bool:
        return self.requests.get(request.request_id) is request

    # ------------------------------------------------------------------------ tokens

    @torch.inference_mode()
    def _choose(
        self, requests: list[Request], logits: torch.Tensor, on_device: bool
    ) -> torch.Tensor:
        """The next token of each request, int64 `[requests]`; -1 where the logits allow none."""
        for row, request in enumerate(requests):
            penalty = request.params.repetition_penalty
            if penalty != 1.0:
                seen = self._seen(request, logits[row])
                logits[row] = self.sampler.repetition_penalty(logits[row], penalty, seen)
        return self.runner.sample(logits) if on_device else self._sample(requests, logits)

    def _seen(self, request: Request, logits: torch.Tensor) -> torch.Tensor:
        """The distinct tokens of a request. It is asked at every token, and marks only that one."""
        if request.seen is None:
            request.seen = torch.zeros_like(logits, dtype=torch.bool)
            request.seen[request.token_ids] = True
        request.seen[request.token_ids[-1]] = True
        return request.seen.nonzero().squeeze(1)

    def _sample(self, requests: list[Request], logits: torch.Tensor) -> torch.Tensor:
        """What `_choose` returns, by the sampler."""
        sound = logits.amax(dim=-1).isfinite()  # the maximum of a row with a NaN is NaN
        tokens = torch.full((len(requests),), -1, device=logits.device)
        requests = [requests[row] for row in sound.nonzero().squeeze(1).tolist()]
        if not requests:
            return tokens
        params = [request.params for request in requests]
        tokens[sound] = self.sampler.sample(
            logits if len(requests) == len(logits) else logits[sound],
            temperature=[p.temperature for p in params],
            top_p=[p.top_p for p in params],
            top_k=[p.top_k for p in params],
            min_p=[p.min_p for p in params],
            generators=[request.generator for request in requests],
        )
        return tokens

    def _accept(self, request: Request, token: int, logprob: TokenLogprob | None) -> None:
        """Add a token to a request, and finish the request if it was the last."""
        if token < 0:
            request.error = "the model returned logits with a NaN, +inf or only -inf"
            self._finish(request, "error")
            return
        request.receive(token)
        if logprob is not None:
            request.logprobs.append(logprob)
        if request.metrics.first_token_time is None:
            request.metrics.first_token_time = time.perf_counter()
        params, text = request.params, self._texts[request.request_id]
        if token in params.stop_token_ids or (
            token in self.eos_token_ids and not params.ignore_eos
        ):
            self._finish(request, "stop")
            return
        text.push(token)
        request.text = text.text
        if text.stopped:
            self._finish(request, "stop")
        elif self._is_last(request, request.num_output_tokens - request.num_pending):
            self._finish(request, "length")

    def _finish(self, request: Request, reason: str) -> None:
        """End a request: what was held back of its text can be shown now."""
        request.forget_pending()
        text = self._texts.pop(request.request_id)
        text.finish()
        request.text = text.text
        if text.stopped and reason == "length":  # what was held back was a stop string
            reason = "stop"
        request.metrics.finished_time = time.perf_counter()
        self.scheduler.finish(request, reason)
        del self.requests[request.request_id]

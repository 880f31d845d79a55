"""The loop of the engine: schedule, run, sample, decide who is done."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from yaie.engine.parts import Parts
from yaie.engine.request import Request, RequestOutput, Status
from yaie.engine.runner import Runner
from yaie.engine.text import OutputText
from yaie.model.llama import Llama
from yaie.model.tokenizer import Tokenizer
from yaie.sampling import SamplingParams


class Engine:
    """Serves many requests at once, a step at a time.

    Args:
        model, tokenizer: what to run.
        num_blocks, block_size: the size of the paged cache.
        parts: what the engine is built from.
        scheduling: options of `Scheduler`.

    Attributes:
        max_model_len: the most tokens of a request, prompt and output together: what the model
            was trained for, and what the cache can hold.
    """

    def __init__(
        self,
        model: Llama,
        tokenizer: Tokenizer,
        *,
        num_blocks: int,
        block_size: int = 16,
        parts: Parts | None = None,
        **scheduling: bool | int | str,
    ) -> None:
        parts = Parts() if parts is None else parts
        config = model.config
        self.tokenizer = tokenizer
        self.config = config
        pool = parts.block_pool(num_blocks)
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
        self.runner = Runner(model, self.kv)
        self.max_model_len = min(config.max_position_embeddings, num_blocks * block_size)
        self._requests: dict[str, Request] = {}
        self._texts: dict[str, OutputText] = {}
        self._next_id = 0

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
        """
        self.check_prompt(prompt_token_ids)
        if request_id is None:
            request_id = f"request-{self._next_id}"
            self._next_id += 1
        if request_id in self._requests:
            raise ValueError(f"request_id {request_id!r} is in use by a request that still runs")
        request = Request(request_id, prompt_token_ids, params, namespace)
        self._requests[request_id] = request
        self._texts[request_id] = OutputText(self.tokenizer, request.params.stop)
        self.scheduler.add(request)
        return request_id

    def check_prompt(self, prompt_token_ids: Sequence[int], name: str = "prompt") -> None:
        """Raise a ValueError that names the argument if no request can be made of a prompt."""
        if not prompt_token_ids:
            raise ValueError(f"{name} must have at least one token, got none")
        if len(prompt_token_ids) >= self.max_model_len:
            raise ValueError(
                f"{name} has {len(prompt_token_ids)} tokens; with the one to generate, at most "
                f"{self.max_model_len} fit (context {self.config.max_position_embeddings}, cache "
                f"{self.kv.pool.num_blocks} blocks of {self.kv.block_size})"
            )
        vocabulary = self.config.vocab_size
        bad = [token for token in prompt_token_ids if not 0 <= token < vocabulary]
        if bad:
            raise ValueError(f"{name} has token id {bad[0]}, outside 0 to {vocabulary - 1}")

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now, and return what it has; None if there is no such request."""
        if request_id not in self._requests:
            return None
        return self._finish(self._requests[request_id], "abort")

    @property
    def has_work(self) -> bool:
        """Whether any request is not finished."""
        return self.scheduler.has_work

    # ------------------------------------------------------------------------ one step

    def step(self) -> list[RequestOutput]:
        """Compute one step.

        Returns:
            What the requests that got a token in it have so far; the finished ones have a
            `finish_reason`.
        """
        step = self.scheduler.schedule()
        if not step.scheduled:
            return []
        logits = self.runner.run(step)
        self.scheduler.advance(step)
        ready = [request for request in step.scheduled if request.num_new_tokens == 0]
        failed = ~logits.amax(dim=-1).isfinite()  # the maximum of a row with a NaN is NaN
        if failed.any():
            outputs = [self._fail(r) for r, bad in zip(ready, failed.tolist(), strict=True) if bad]
            ready = [r for r, bad in zip(ready, failed.tolist(), strict=True) if not bad]
            logits = logits[~failed]
        else:
            outputs = []
        if ready:
            tokens = self._sample(ready, logits).tolist()
            outputs += [self._accept(r, token) for r, token in zip(ready, tokens, strict=True)]
        return outputs

    def _sample(self, requests: list[Request], logits: torch.Tensor) -> torch.Tensor:
        params = [request.params for request in requests]
        for row, request in enumerate(requests):
            penalty = request.params.repetition_penalty
            if penalty != 1.0:
                seen = torch.tensor(request.token_ids, device=logits.device)
                logits[row] = self.sampler.repetition_penalty(logits[row], penalty, seen)
        return self.sampler.sample(
            logits,
            temperature=[p.temperature for p in params],
            top_p=[p.top_p for p in params],
            top_k=[p.top_k for p in params],
            min_p=[p.min_p for p in params],
            generators=[request.generator for request in requests],
        )

    def _accept(self, request: Request, token: int) -> RequestOutput:
        """Add a token to a request, and finish the request if it was the last."""
        if request.metrics.first_token_time is None:
            request.metrics.first_token_time = time.perf_counter()
        request.token_ids.append(token)
        params, text = request.params, self._texts[request.request_id]
        if token in params.stop_token_ids or (
            token in self.config.eos_token_ids and not params.ignore_eos
        ):
            return self._finish(request, "stop")
        text.push(token)
        if text.stopped:
            return self._finish(request, "stop")
        is_full = len(request.token_ids) == self.max_model_len
        if request.num_output_tokens == params.max_tokens or is_full:
            return self._finish(request, "length")
        return self._output(request)

    def _fail(self, request: Request) -> RequestOutput:
        request.error = "the model returned logits that are NaN or infinite"
        return self._finish(request, "error")

    def _finish(self, request: Request, reason: str) -> RequestOutput:
        self.scheduler.finish(request, reason)
        request.metrics.finished_time = time.perf_counter()
        self._texts[request.request_id].finish()
        if self._texts[request.request_id].stopped:
            request.finish_reason = "stop"
        output = self._output(request)
        del self._requests[request.request_id], self._texts[request.request_id]
        return output

    def _output(self, request: Request) -> RequestOutput:
        return RequestOutput(
            request_id=request.request_id,
            prompt_token_ids=request.token_ids[: request.num_prompt_tokens],
            token_ids=request.output_token_ids,
            text=self._texts[request.request_id].text,
            finish_reason=request.finish_reason if request.status is Status.FINISHED else None,
            metrics=request.metrics,
            error=request.error,
        )

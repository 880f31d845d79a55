"""What the server counts, in Prometheus' form."""

from __future__ import annotations

import time
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from yaie.engine.engine import Engine
from yaie.engine.request import Request, StepOutput

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """The counters of one server. Names are vLLM's where they mean the same, with our prefix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = {"namespace": "yaie", "registry": self.registry}
        gauge, counter = partial(Gauge, **own), partial(Counter, **own)
        seconds = partial(Histogram, **own, buckets=_SECONDS)
        self.running = gauge("num_requests_running", "Requests in the batch")
        self.waiting = gauge("num_requests_waiting", "Requests that wait to be admitted")
        self.blocks_in_use = gauge(
            "kv_blocks_in_use", "KV blocks that running requests or the prefix cache hold"
        )
        self.blocks_cached = gauge("kv_blocks_cached", "KV blocks of the prefix cache")
        self.blocks = gauge("kv_blocks", "KV blocks in all")
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens of requests begun")
        self.cached_tokens = counter(
            "prompt_tokens_cached", "Of those, tokens found in the prefix cache"
        )
        self.generation_tokens = counter("generation_tokens", "Tokens generated")
        self.preemptions = counter("num_preemptions", "Requests put back for want of blocks")
        self.refused = counter("requests_refused", "Requests refused: the queue was full")
        self.finished = counter("request_finished", "Requests ended", ["reason"])
        self.first_token = seconds("time_to_first_token_seconds", "Arrival to first token")
        self.between_tokens = seconds("inter_token_latency_seconds", "Token to token")
        self.end_to_end = seconds("e2e_request_latency_seconds", "Arrival to last token")
        self._last_token: dict[str, float] = {}

    def observe_step(self, outputs: list[StepOutput]) -> None:
        """Count a step: its outputs each have a token, or an error."""
        now = time.perf_counter()
        for output in outputs:
            if output.error is None:
                self._observe_token(output.request, now)
            if output.finish_reason is not None:
                self.observe_end(output.request, output.finish_reason)

    def observe_engine(self, engine: Engine) -> None:
        """Note how much work and memory the engine has right now."""
        scheduler, pool = engine.scheduler, engine.kv.pool
        self.running.set(len(scheduler.running))
        self.waiting.set(len(scheduler.waiting))
        self.blocks.set(pool.num_blocks)
        self.blocks_in_use.set(pool.num_blocks - pool.num_free)
        self.blocks_cached.set(engine.cache.num_cached)

    def observe_end(self, request: Request, reason: str) -> None:
        """Count a request that ended, whatever the reason."""
        self._last_token.pop(request.request_id, None)
        self.finished.labels(reason).inc()
        self.preemptions.inc(request.metrics.num_preemptions)
        if reason in ("stop", "length"):
            self.end_to_end.observe(time.perf_counter() - request.metrics.arrival_time)

    def _observe_token(self, request: Request, now: float) -> None:
        self.generation_tokens.inc()
        last = self._last_token.get(request.request_id)
        if last is None:
            self.prompt_tokens.inc(request.num_prompt_tokens)
            self.cached_tokens.inc(request.metrics.num_cached_tokens)
            self.first_token.observe(now - request.metrics.arrival_time)
        else:
            self.between_tokens.observe(now - last)
        self._last_token[request.request_id] = now

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)

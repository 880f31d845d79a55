"""What the server counts, in Prometheus' form."""

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, generate_latest
from prometheus_client.core import HistogramMetricFamily

from yaie.engine.request import Request

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TOKENS = [factor * 10**power for power in range(6) for factor in (1, 2, 5)]
_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0]

# How much work and memory the engine has.
LOAD = {
    "num_requests_running": "Requests in the batch",
    "num_requests_waiting": "Requests that wait to be admitted",
    "kv_blocks_in_use": "KV blocks that running requests or the prefix cache hold",
    "kv_blocks_cached": "KV blocks of the prefix cache",
    "kv_blocks": "KV blocks in all",
    "kv_cache_usage": "Part of the KV blocks that running requests hold",
}

# What dashboards made for vLLM ask for, and which of ours it is: vLLM calls it the same unless a
# name is given, and labels it with the model and the number of the engine.
VLLM = {
    "kv_cache_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "prompt_tokens": ("prompt_tokens", "prefix_cache_queries"),
    "prompt_tokens_cached": ("prefix_cache_hits",),
    "request_generation_tokens": ("request_generation_tokens", "request_max_num_generation_tokens"),
    "inter_token_latency_seconds": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    **dict.fromkeys(["num_requests_running", "num_requests_waiting", "num_preemptions"]),
    **dict.fromkeys(["generation_tokens", "request_success", "request_prompt_tokens"]),
    **dict.fromkeys(["time_to_first_token_seconds", "e2e_request_latency_seconds"]),
    **{
        f"request_{part}_time_seconds": None for part in ("queue", "inference", "prefill", "decode")
    },
}


class Histogram:
    """Counts values by bucket. Prometheus' own takes several times as long to count one."""

    def __init__(self, name: str, what: str, buckets: list, registry: CollectorRegistry) -> None:
        self._name, self._what, self._bounds = f"yaie_{name}", what, buckets
        self._counts, self._sum, self._created = [0] * (len(buckets) + 1), 0.0, time.time()
        registry.register(self)

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value, or several that are equal."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def collect(self) -> Iterator[Metric]:
        """As Prometheus' client collects it."""
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        counts = list(zip(bounds, accumulate(self._counts), strict=True))
        family = HistogramMetricFamily(self._name, self._what, counts, self._sum)
        family.add_sample(f"{self._name}_created", {}, self._created)
        yield family


class Metrics:
    """The counters of one server, by our names and by vLLM's."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._vllm_labels = {"model_name": model_name, "engine": "0"}
        own = {"namespace": "yaie", "registry": self.registry}
        gauge, counter = partial(Gauge, **own), partial(Counter, **own)
        seconds = partial(Histogram, buckets=_SECONDS, registry=self.registry)
        self._gauges = [gauge(name, what) for name, what in LOAD.items()]
        self.load: list[float] = []  # what the engine has told last: a value for each of LOAD
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens of requests begun")
        self.cached_tokens = counter("prompt_tokens_cached", "Of those, found in the prefix cache")
        self.generation_tokens = counter("generation_tokens", "Tokens generated")
        self.preemptions = counter("num_preemptions", "Requests put back for want of blocks")
        self.refused = counter("requests_refused", "Requests refused: the queue was full")
        self.finished = counter("request_finished", "Requests ended", ["reason"])
        self.success = counter("request_success", "Requests answered", ["finished_reason"])
        tokens = partial(Histogram, buckets=_TOKENS, registry=self.registry)
        self.prompt_length = tokens("request_prompt_tokens", "Prompt tokens of a request")
        self.answer_length = tokens("request_generation_tokens", "Tokens generated for a request")
        self.first_token = seconds("time_to_first_token_seconds", "Arrival to first token")
        self.gaps = seconds("inter_token_latency_seconds", "Token to token")
        self.end_to_end = seconds("e2e_request_latency_seconds", "Arrival to last token")
        self.queued = seconds("request_queue_time_seconds", "Arrival to admission")
        self.inference = seconds("request_inference_time_seconds", "Admission to last token")
        self.prefill = seconds("request_prefill_time_seconds", "Admission to first token")
        self.decode = seconds("request_decode_time_seconds", "First token to last token")

    def observe_end(self, request: Request, reason: str) -> None:
        """Count a request that ended, whatever the reason."""
        self.finished.labels(reason).inc()
        self.preemptions.inc(request.metrics.num_preemptions)
        if reason not in ("stop", "length"):
            return
        times, end = request.metrics, time.perf_counter()
        first = times.first_token_time
        admitted = times.admitted_time or first
        self.success.labels(reason).inc()
        self.prompt_length.observe(request.num_prompt_tokens)
        self.answer_length.observe(request.num_output_tokens)
        self.end_to_end.observe(end - times.arrival_time)
        self.queued.observe(admitted - times.arrival_time)
        self.inference.observe(end - admitted)
        self.prefill.observe(first - admitted)
        self.decode.observe(end - first)

    def observe_first(self, request: Request, now: float) -> None:
        """Note the first token of a request."""
        self.prompt_tokens.inc(request.num_prompt_tokens)
        self.cached_tokens.inc(request.metrics.num_cached_tokens)
        self.first_token.observe(now - request.metrics.arrival_time)

    def observe_tokens(self, last_tokens: Mapping[float, int], now: float) -> None:
        """Note the tokens of a step, counted by the time of the token before each (0: none)."""
        self.generation_tokens.inc(sum(last_tokens.values()))
        for last, count in last_tokens.items():
            if last:
                self.gaps.observe(now - last, count)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        for gauge, value in zip(self._gauges, self.load, strict=True):
            gauge.set(value)
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """All of them, as Prometheus' client collects them."""
        for metric in self.registry.collect():
            yield metric
            name = metric.name.removeprefix("yaie_")
            if name in VLLM:
                for theirs in VLLM[name] or (name,):
                    renamed = Metric(f"vllm:{theirs}", metric.documentation, metric.type)
                    for sample in metric.samples:
                        labels = sample.labels | self._vllm_labels
                        part = sample.name.removeprefix(metric.name)
                        renamed.add_sample(renamed.name + part, labels, sample.value)
                    yield renamed

"""The options of an engine, documented and checked in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches

from yaie.engine.checks import check_count, check_number, check_range, check_switch
from yaie.engine.params import SamplingParams


@dataclass(frozen=True)
class EngineConfig:
    """How an engine runs. `LLM` and `yaie serve` take the same options by the same names.

    Attributes:
        device: "cpu", "cuda" or "cuda:1"; "auto" takes what the environment variable YAIE_DEVICE
            names, otherwise a GPU if there is one.
        dtype: "float32", "bfloat16" or "float16"; "auto" is float32 on a CPU and half precision
            on a GPU. On a CPU also "q8_0", "q4_0", "q4_1" (weights of 8 or 4 bits in groups of 32
            with a scale, the rest float32), or "gguf": weights as the model's GGUF file has them.
        backend: which back end computes the operators: "auto", "reference", "cpp", "triton",
            "cuda", or a mapping from operators to back ends, one of which may be your own function,
            "module:function"; see `yaie.ops.registry`.
        kv_cache_dtype: "auto" keeps keys and values in `dtype`, or in float16 if the weights have
            8 or 4 bits; "fp8" in 8-bit floats (e4m3), with scales from `yaie.model.kv_scales`: half
            the memory of bfloat16, and answers that differ a little. "fp8" needs float weights.
        block_size: tokens per KV block.
        num_blocks: blocks of the KV cache; by default as many as memory allows.
        gpu_memory_utilization: the part of a GPU's memory that weights, activations and cache may
            take together. Activations count twice, because CUDA graphs keep their own.
        kv_cache_memory_bytes: for keys and values; by default 1 GiB on a CPU, and what
            `gpu_memory_utilization` leaves on a GPU.
        max_model_len: the most tokens of a request, prompt and output together; by default, and at
            most, as many as the model was trained for and the cache can hold.
        max_num_seqs: the most requests that run together.
        max_num_batched_tokens: the most tokens that a step computes.
        enable_prefix_caching: reuse prefixes from the cache, and keep new ones there.
        enable_chunked_prefill: compute a long prompt over several steps. Without it a prompt that
            exceeds the token budget is the only prompt of its step.
        chunked_prefill_size: the most tokens of one prompt in a step, so that a long prompt leaves
            room for short ones; by default as many as the budget leaves.
        policy: "fcfs" admits requests in order of arrival; "lpm" admits the request with the
            longest cached prefix first; "longest" admits first the one that may generate the most
            tokens, after preempted ones, so that a batch whose answers are as long as `max_tokens`
            says ends earlier. If requests keep arriving, short ones may wait without end.
        patience: under "lpm", in how many steps later arrivals may be admitted before a request.
        enforce_eager: launch every kernel by itself, and capture no CUDA graphs.
        overlap: launch a step before the tokens of the last one are known; by default on a GPU. On
            a CPU, True makes the operator `sample` choose the tokens, as on a GPU.
        tensor_parallel_size: how many processes share the model, each on a GPU of its own, or all
            on the CPU: see `yaie.engine.parallel`. Limits of memory hold for each process.

    Raises ValueError or TypeError for an argument that is out of range or of the wrong type.
    """

    device: str = "auto"
    dtype: str = "auto"
    backend: str | Mapping[str, str] = "auto"
    kv_cache_dtype: str = "auto"
    block_size: int = 16
    num_blocks: int | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_memory_bytes: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    chunked_prefill_size: int | None = None
    policy: str = "fcfs"
    patience: int = 64
    enforce_eager: bool = False
    overlap: bool | None = None
    tensor_parallel_size: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = getattr(self, field.name), str(field.type)
            if value is None and "None" in kind:
                continue
            if kind.startswith("int"):
                check_count(field.name, value, LEAST.get(field.name, 1))
            elif kind.startswith("bool"):
                check_switch(field.name, value)
        check_number("gpu_memory_utilization", self.gpu_memory_utilization)
        share = self.gpu_memory_utilization
        check_range("gpu_memory_utilization", share, 0 < share <= 1, "above 0 and at most 1")
        if self.num_blocks is not None and self.num_blocks * self.block_size < 2:
            raise ValueError(
                "num_blocks must make room for a prompt of one token and a token to generate, "
                f"got {self.num_blocks} with block_size {self.block_size}"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens must be at least max_num_seqs ({self.max_num_seqs}), so "
                f"that every running request can decode, got {self.max_num_batched_tokens}"
            )
        for name, words in CHOICES.items():
            if (got := getattr(self, name)) not in words:
                wanted = " or ".join(f'"{word}"' for word in words)
                raise ValueError(f"{name} must be {wanted}, got {got!r}")


def check_names(options: Iterable[str]) -> None:
    """Raise TypeError for an option of `LLM` that there is not, with the one that may be meant."""
    for name in options:
        if name in SAMPLING_OPTIONS:
            raise TypeError(f"LLM has no option {name!r}: it belongs in SamplingParams({name}=...)")
        if name not in OPTIONS:
            close = get_close_matches(name, OPTIONS, n=1)
            has = f"it has {', '.join(sorted(OPTIONS))}"
            hint = f"did you mean {close[0]!r}?" if close else has
            raise TypeError(f"LLM has no option {name!r}; {hint}")


OPTIONS = {field.name for field in fields(EngineConfig)}
SAMPLING_OPTIONS = {field.name for field in fields(SamplingParams)}
CHOICES = {"policy": ("fcfs", "lpm", "longest"), "kv_cache_dtype": ("auto", "fp8")}
LEAST = {"max_model_len": 2, "patience": 0}  # of the counts that need not be 1 or more

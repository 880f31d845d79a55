"""Where a model runs, in what dtype, and how much memory is left for its cache."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from yaie.engine.config import EngineConfig
from yaie.engine.graphs import PROMPT_TOKENS
from yaie.engine.kv_cache import blocks_needed
from yaie.model.batch import Batch
from yaie.model.config import ModelConfig
from yaie.model.llama import Llama
from yaie.model.weights import FORMATS, parse_dtype
from yaie.ops.registry import AUTO

CPU_CACHE_BYTES = 2**30  # of keys and values, on a CPU, if nothing else is asked for
GIB = 2**30


def choose_device(device: str | torch.device = AUTO) -> torch.device:
    """The device of a name such as "cpu" or "cuda:1".

    "auto" takes what the environment variable YAIE_DEVICE names, else a GPU if there is one.
    Raises ValueError for a device that does not exist or that this engine cannot use.
    """
    name = "device"
    if device == AUTO and os.environ.get("YAIE_DEVICE"):
        name, device = "YAIE_DEVICE", os.environ["YAIE_DEVICE"]
    if device == AUTO:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise ValueError(f'{name} must be "auto", "cpu", "cuda" or "cuda:N", got {device!r}')
    if chosen.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = f"torch is built for CUDA {built}, but finds no GPU" if built else "torch has no CUDA"
        raise ValueError(
            f'{name}="{device}" needs a GPU, and {why}: take "cpu", or let `yaie doctor` say '
            "what is missing"
        )
    index = torch.cuda.current_device() if chosen.index is None else chosen.index
    if index >= torch.cuda.device_count():
        raise ValueError(
            f'{name} must be "cuda:0" to "cuda:{torch.cuda.device_count() - 1}", got {device!r}'
        )
    return torch.device("cuda", index)


def current(device: torch.device) -> AbstractContextManager:
    """Make a GPU this thread's current one, as streams, events and kernels need it."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def still_works(device: torch.device) -> bool:
    """Whether a device still computes for this process.

    After an illegal address, an assertion in a kernel, or an error of the hardware, a GPU answers
    every call of the process with the same error. After a lack of memory it works as before.
    """
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            return False
    return True


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> str | torch.dtype:
    """The dtype of a name; "auto" is float32 on a CPU, and on a GPU the half precision that its
    tensor cores have: bfloat16, or float16 before sm_80. A format of `weights.FORMATS` stays."""
    if dtype != AUTO:
        return dtype if dtype in FORMATS else parse_dtype(dtype)
    if device.type == "cpu":
        return torch.float32
    newer = torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.bfloat16 if newer else torch.float16


@contextmanager
def explain_shortage(problem: str) -> Iterator[None]:
    """Turn an error of torch's allocator into a RuntimeError that names the problem."""
    try:
        yield
    except (RuntimeError, OSError, OverflowError) as error:
        words = ("allocate memory", "too large")
        if isinstance(error, torch.OutOfMemoryError) or any(w in str(error) for w in words):
            raise RuntimeError(f"out of memory: {problem}") from error
        raise


def block_bytes(config: ModelConfig, dtype: torch.dtype, block_size: int) -> int:
    """What a KV block takes: keys and values of `block_size` tokens, in every layer."""
    numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return numbers * dtype.itemsize * block_size


def count_blocks(model: Llama, config: EngineConfig) -> int:
    """How many KV blocks there is memory for.

    On a GPU, weights, the largest steps and the cache together take `gpu_memory_utilization` of all
    its memory, of which other programs use a part. Raises ValueError if not even one request fits,
    RuntimeError if the largest step does not.
    """
    size = block_bytes(model.config, model.cache_dtype, config.block_size)
    device = model.embed.device
    cache_bytes = config.kv_cache_memory_bytes
    if cache_bytes is None and device.type == "cpu":
        cache_bytes = CPU_CACHE_BYTES
    if cache_bytes is not None:
        if cache_bytes < size:
            raise ValueError(
                f"kv_cache_memory_bytes must hold at least one block of {size} bytes, "
                f"got {cache_bytes}"
            )
        return cache_bytes // size
    block_size, max_num_seqs = config.block_size, config.max_num_seqs
    context = model.config.max_position_embeddings
    max_num_batched_tokens = config.max_num_batched_tokens
    if not config.enable_chunked_prefill:  # then a whole prompt may be one step
        longest = min(config.max_model_len or context, context)
        max_num_batched_tokens = max(longest, max_num_batched_tokens)
    tokens = min(max_num_batched_tokens, max_num_seqs * context)
    longest = min(tokens, context)
    shortage = explain_shortage(
        f"a step of {tokens} tokens needs more than the GPU has beside the weights: lower "
        "max_num_batched_tokens, or end other programs that use the GPU"
    )
    with shortage, current(device):
        taken = memory_of_a_step(model, tokens, max_num_seqs, block_size)
        if not config.enforce_eager:
            captured, kept = min(tokens, PROMPT_TOKENS[-1]), taken
            if captured < tokens:
                kept = memory_of_a_step(model, captured, max_num_seqs, block_size)
            taken += kept - memory_in_use(device)
    total = torch.cuda.get_device_properties(device).total_memory
    utilization = config.gpu_memory_utilization
    num_blocks = int(utilization * total - taken) // size
    least = blocks_needed(longest, block_size)
    if num_blocks < least:
        raise ValueError(
            f"gpu_memory_utilization {utilization} of {total / GIB:.1f} GiB leaves "
            f"{max(num_blocks, 0) * size / GIB:.2f} GiB for keys and values, where one request of "
            f"{longest} tokens takes {least * size / GIB:.2f}: weights, the largest step and other "
            f"programs take {taken / GIB:.1f}. Raise it, lower max_num_batched_tokens "
            f"({max_num_batched_tokens}), or end other programs that use the GPU"
        )
    return num_blocks


def memory_in_use(device: torch.device) -> int:
    """Bytes of a GPU that are taken between steps, by this process and others."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def memory_of_a_step(model: Llama, num_tokens: int, num_rows: int, block_size: int) -> int:
    """Bytes of a GPU that are taken while `num_tokens` tokens of one sequence are computed, and
    logits for some: weights and everything else on the GPU, but for the sequence's cache."""
    config, device = model.config, model.embed.device
    num_blocks = blocks_needed(num_tokens, block_size)
    shape = (num_blocks, block_size, config.num_key_value_heads, config.head_dim)
    zeros = torch.zeros(num_tokens, dtype=torch.int64, device=device)
    batch = Batch.of_prompt(zeros, block_size, num_rows)
    batch.positions = batch.positions % config.max_position_embeddings  # a step may be longer
    torch.cuda.empty_cache()
    # One pool for all layers: what each of them writes, the next one may overwrite.
    keys, values = (torch.zeros(shape, dtype=model.cache_dtype, device=device) for _ in range(2))
    torch.cuda.reset_peak_memory_stats(device)
    model(batch, [keys] * config.num_hidden_layers, [values] * config.num_hidden_layers)
    torch.cuda.synchronize(device)
    # Reserved, not allocated: gaps between tensors cannot hold a block either.
    most = torch.cuda.max_memory_reserved(device) - keys.nbytes - values.nbytes
    free, total = torch.cuda.mem_get_info(device)
    of_others = total - free - torch.cuda.memory_reserved(device)
    del keys, values
    torch.cuda.empty_cache()
    return most + of_others

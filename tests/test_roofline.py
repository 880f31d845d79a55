"""Counted work against what torch counts and by hand, the roof, and occupancy against NVIDIA's own
calculator."""

import importlib.util
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from yaie.course.exercises.costs import cost_of
from yaie.course.lessons import costs
from yaie.course.lessons.intensity import decode_step, forward_pass, prefill_step, total
from yaie.course.lessons.roofline import (
    MULTIPROCESSORS,
    Work,
    attainable,
    attention_work,
    decode_attention_work,
    linear_work,
    occupancy,
    ridge_point,
    thread_blocks_per_sm,
)
from yaie.engine.kv_cache import KVCacheManager
from yaie.model.batch import Batch
from yaie.model.config import ModelConfig
from yaie.model.llama import Llama
from yaie.ops.reference.attention import causal_mask, paged_attention

LLAMA_8B = ModelConfig(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=8192,
)

# ------------------------------------------------------------------------------------- work


@pytest.mark.parametrize("tokens", [1, 7, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_a_linear_layer_is_what_torch_counts_and_allocates(tokens, dtype):
    x, weight = torch.zeros(tokens, 24, dtype=dtype), torch.zeros(40, 24, dtype=dtype)
    out, _, flops = cost_of(lambda: F.linear(x, weight))
    work = linear_work(tokens, 24, 40, itemsize=dtype.itemsize)
    assert work.flops == flops
    assert work.num_bytes == x.nbytes + weight.nbytes + out.nbytes


@pytest.mark.parametrize(("new", "past"), [(1, 0), (1, 12), (5, 0), (4, 9)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (4, 4), (3, 1)])
def test_attention_is_counted_by_its_visible_scores(new, past, heads, kv_heads):
    batch, head_dim = 3, 8
    q = torch.zeros(batch, heads, new, head_dim)
    k = torch.zeros(batch, kv_heads, past + new, head_dim)
    pairs = causal_mask(new, past + new).sum().item() * batch * heads
    work = attention_work(batch, new, past, heads, kv_heads, head_dim, itemsize=4)
    assert work == Work(pairs * 2 * (2 * head_dim), 2 * q.nbytes + 2 * k.nbytes)
    if new == 1:
        assert work == decode_attention_work(batch, past + 1, heads, kv_heads, head_dim, 4)


def test_work_by_hand():
    """One token through a layer of Llama-3.1-8B: 4096 × 14336 weights of 2 bytes."""
    work = linear_work(1, 4096, 14336)
    assert work == Work(117_440_512, 117_440_512 + 36_864)
    assert round(work.intensity, 4) == 0.9997
    decode = decode_attention_work(64, 4096, 32, 8, 128)
    assert decode == Work(4_294_967_296, 1_073_741_824 + 1_048_576)
    assert round(decode.intensity, 2) == 4.0
    assert work + work == work.times(2) == Work(234_881_024, 234_954_752)


# ------------------------------------------------------------------------------------- the roof


def test_the_roof_by_hand():
    peak, bandwidth = 736e12, 4281e9
    assert attainable(1.0, peak, bandwidth) == 4281e9
    assert attainable(1000.0, peak, bandwidth) == peak
    assert round(ridge_point(peak, bandwidth)) == 172
    ridge = ridge_point(peak, bandwidth)
    assert attainable(ridge, peak, bandwidth) == pytest.approx(peak)


# ------------------------------------------------------------------------------------- models


def tiny(**changes: int) -> ModelConfig:
    shape = {
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "max_position_embeddings": 64,
    }
    return ModelConfig(**{**shape, **changes})


@pytest.mark.parametrize("config", [tiny(), LLAMA_8B], ids=["tiny", "8B"])
@pytest.mark.parametrize(("new", "past"), [(1, 0), (1, 20), (7, 0), (5, 11)])
def test_a_pass_is_what_costs_counts(config, new, past):
    """`lessons.costs`, which is tested against torch's own counter, counts masked scores too."""
    operations = {operation.name: operation for operation in forward_pass(config, 1, new, past)}
    linears = sum(
        operation.work.flops
        for operation in operations.values()
        if operation.tensor_cores and operation.name != "attention"
    )
    weights, head = costs.layer_weights(config), costs.head_weights(config)
    assert linears == 2 * new * weights + 2 * head
    masked = new * (new - 1) // 2 * 4 * config.head_dim
    masked *= config.num_attention_heads * config.num_hidden_layers
    attention = operations["attention"].work.flops
    assert linears + attention + masked == costs.forward_flops(config, new, past)


def test_bytes_of_a_decode_step_are_weights_cache_and_little_else():
    moved = total(decode_step(LLAMA_8B, 1, 4096)).num_bytes
    least = costs.forward_bytes(LLAMA_8B, 1, 4095)
    assert least < moved < 1.001 * least


def test_the_cache_is_read_by_attention_and_written_by_reshape_and_cache():
    config = tiny()
    operations = {o.name: o.work for o in forward_pass(config, 2, 5, 11, itemsize=4)}
    new_tokens = 2 * 5 * costs.kv_bytes_per_token(config, 4)
    assert operations["reshape_and_cache"] == Work(0, 2 * new_tokens)
    queries = 2 * 2 * 5 * 6 * 4 * 4 * 3  # in and out, batch, tokens, heads, dim, bytes, layers
    read = 2 * 16 * costs.kv_bytes_per_token(config, 4)
    assert operations["attention"].num_bytes == read + queries


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        # of [tokens, columns] each, of one layer
        ("rotary", [(24 + 8), (24 + 8)]),
        ("add_rms_norm", [24] * 8),
        ("silu_and_mul", [80, 40]),
    ],
)
def test_bytes_of_small_operators_by_hand(name, tensors):
    operations = {o.name: o.work for o in prefill_step(tiny(), 7, batch=2)}
    assert operations[name].num_bytes == 3 * 14 * 2 * sum(tensors)


def test_what_the_batch_does():
    """Linear layers gain from it, attention does not."""
    alone, together = (
        {o.name: o.work.intensity for o in decode_step(LLAMA_8B, batch, 4096)} for batch in (1, 64)
    )
    assert together["down_proj"] > 60 * alone["down_proj"]
    assert together["attention"] == alone["attention"]


def batch(new: int, past: int) -> Batch:
    """One sequence in one block of 32."""

    def ints(values, dtype=torch.int64):
        return torch.tensor(list(values), dtype=dtype)

    where = range(past, past + new)
    return Batch(
        token_ids=torch.zeros(new, dtype=torch.int64),
        positions=ints(where),
        slot_mapping=ints(where),
        block_tables=torch.zeros(1, 1, dtype=torch.int32),
        context_lens=ints([past + new], torch.int32),
        cu_seqlens=ints([0, new], torch.int32),
        logit_rows=ints([new - 1]),
    )


@pytest.mark.parametrize("changes", [{}, {"num_key_value_heads": 6}, {"num_hidden_layers": 1}])
@pytest.mark.parametrize(("new", "past"), [(1, 0), (7, 0), (1, 20), (5, 11)])
def test_flops_are_those_that_torch_counts(
    changes: dict, new: int, past: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils.flop_counter import FlopCounterMode  # imports Triton: first configure it

    # torch's counter does not look into an operator of ours, so its reference runs in its place.
    def attend(*arguments, backend):
        return paged_attention(*arguments)

    monkeypatch.setattr("yaie.ops.operators.paged_attention", attend)
    config = tiny(**changes)
    model = Llama(config)
    for weight in model.parameters():
        weight.data.fill_(0.1)
    shape = (1, 32, config.num_key_value_heads, config.head_dim)
    pools = [[torch.zeros(shape) for _ in model.layers] for _ in range(2)]
    with FlopCounterMode(display=False) as counter:
        model(batch(new, past), *pools)
    # A plain pass: the engine's leaves out what the last layer has after attention for all tokens
    # but the last.
    last = model.layers[-1]
    behind = sum(part.weight.numel() for part in (last.output, last.gate_up, last.down))
    left_out = 2 * (new - 1) * behind
    assert costs.forward_flops(config, new, past) == counter.get_total_flops() + left_out


def test_weights_are_those_of_the_model() -> None:
    config = tiny(tie_word_embeddings=False)
    matrices = [w for w in Llama(config).parameters() if w.ndim == 2]
    embedding = config.vocab_size * config.hidden_size
    counted = costs.layer_weights(config) + costs.head_weights(config)
    assert counted == sum(w.numel() for w in matrices) - embedding


def test_kv_bytes_are_those_of_the_cache() -> None:
    config = tiny()
    kv = KVCacheManager(2, 4, config.num_key_value_heads, config.head_dim, torch.float16, 3)
    held = sum(pool.nbytes for pool in kv.key_pools + kv.value_pools)
    assert costs.kv_bytes_per_token(config) * 2 * 4 == held


def test_bytes_of_a_pass() -> None:
    config = tiny()
    token = costs.kv_bytes_per_token(config, 4)
    weights = 4 * (costs.layer_weights(config) + costs.head_weights(config))
    assert costs.forward_bytes(config, 1, 9, itemsize=4) == weights + 11 * token
    assert costs.forward_bytes(config, 10, 0, itemsize=4) == weights + 20 * token


# ------------------------------------------------------------------------------------- occupancy


def test_occupancy_by_hand():
    assert thread_blocks_per_sm(256, 32, 0) == 8  # all 2048 threads
    assert thread_blocks_per_sm(32, 32, 0) == 32  # no more places
    assert thread_blocks_per_sm(256, 64, 0) == 4  # 4 × 256 × 64 = all registers
    assert thread_blocks_per_sm(256, 65, 0) == 3  # 72 registers per thread are given
    assert thread_blocks_per_sm(128, 32, 48 * 1024) == 4  # 49 KiB each of 228
    assert thread_blocks_per_sm(33, 32, 0) == 32  # two warps
    assert thread_blocks_per_sm(1000, 32, 0) == 2  # as many as 1024
    assert occupancy(256, 64, 0) == 0.5
    assert occupancy(33, 32, 0) == 1.0


@pytest.mark.parametrize("asked", [(1025, 32, 0), (32, 256, 0), (32, 32, 227 * 1024 + 1)])
def test_what_no_thread_block_may_have(asked):
    assert thread_blocks_per_sm(*asked) == 0


@pytest.mark.parametrize("asked", [(0, 32, 0), (32, 0, 0), (32, 32, -1)])
def test_nonsense_is_refused(asked):
    with pytest.raises(ValueError, match="threads and registers must be at least 1"):
        thread_blocks_per_sm(*asked)


CALCULATOR = """
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#define __CUDA_OCCUPANCY_H_STANDALONE
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared,
                     cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault };
#include "cuda_occupancy.h"

int main() {
  int major, minor, threads, shared, optin, reserved, t, r, s;
  scanf("%d %d %d %d %d %d", &major, &minor, &threads, &shared, &optin, &reserved);
  while (scanf("%d %d %d", &t, &r, &s) == 3) {
    cudaOccDeviceProp device = {};
    device.computeMajor = major, device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024, device.maxThreadsPerMultiprocessor = threads;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536, device.warpSize = 32;
    device.sharedMemPerBlock = 49152, device.sharedMemPerMultiprocessor = shared;
    device.sharedMemPerBlockOptin = optin, device.reservedSharedMemPerBlock = reserved;
    device.numSms = 132;
    cudaOccFuncAttributes kernel = {};
    kernel.maxThreadsPerBlock = 1024, kernel.numRegs = r, kernel.maxDynamicSharedSizeBytes = optin;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN, kernel.numBlockBarriers = 1;
    cudaOccDeviceState state = {};
    state.cacheConfig = CACHE_PREFER_SHARED, state.carveoutConfig = 100;
    cudaOccResult result = {};
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, t, s)) return 1;
    printf("%d\\n", result.activeBlocksPerMultiprocessor);
  }
}
"""


@pytest.fixture(scope="module")
def calculator(tmp_path_factory):
    """NVIDIA's occupancy calculator, a header that needs no GPU; Triton brings a copy."""
    spec = importlib.util.find_spec("triton")
    if spec is None or shutil.which("g++") is None:
        pytest.skip("needs Triton's copy of cuda_occupancy.h, and g++")
    include = Path(spec.origin).parent / "backends" / "nvidia" / "include"
    folder = tmp_path_factory.mktemp("calculator")
    (folder / "main.cpp").write_text(CALCULATOR)
    command = ["g++", "-w", "-I", str(include), "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "main"


@pytest.mark.parametrize("capability", MULTIPROCESSORS)
def test_occupancy_is_what_nvidia_calculates(calculator, capability):
    rng, sm = random.Random(0), MULTIPROCESSORS[capability]
    cases = [
        (
            rng.choice([rng.randint(1, 1024), 32 * rng.randint(1, 32), 256]),
            rng.choice([rng.randint(16, 255), 8 * rng.randint(2, 31)]),
            rng.choice([0, rng.randint(0, sm.shared_per_block), 1024 * rng.randint(0, 64)]),
        )
        for _ in range(3000)
    ]
    device = (*capability.split("."), sm.threads, sm.shared_bytes, sm.shared_per_block,
              sm.reserved_shared)  # fmt: skip
    text = "\n".join(" ".join(map(str, line)) for line in [device, *cases])
    done = subprocess.run([calculator], input=text, capture_output=True, text=True, check=True)
    wanted = [int(line) for line in done.stdout.split()]
    assert len(wanted) == len(cases)
    got = [thread_blocks_per_sm(*case, sm) for case in cases]
    different = [x for x in zip(cases, got, wanted, strict=True) if x[1] != x[2]]
    assert not different, different[:5]

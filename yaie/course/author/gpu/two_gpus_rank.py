"""What each rank does for `two_gpus`: all-reduces, counted and timed, and steps of a model."""

import statistics
import warnings
from collections import defaultdict
from typing import Any

import torch
from torch import distributed as dist
from torch.profiler import ProfilerActivity, profile

from yaie.bench.protocol import InARow, captured
from yaie.course.author.gpu.engine_steps import BLOCK_SIZE, LARGE, decode_batch
from yaie.course.lessons.capture import capture_on_gpu
from yaie.model import parallel
from yaie.model.batch import Batch
from yaie.model.config import ModelConfig
from yaie.model.llama import Llama
from yaie.model.parallel import own_shard
from yaie.ops import operators

STEPS = {  # sequences, tokens of each; a prompt computes all of them
    "decode 1": (1, 1024),
    "decode 32": (32, 4096),
    "prompt": (1, 4096),
}
TINY = ModelConfig(
    vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=8192,
)  # fmt: skip
ROUNDS, EACH = 5, 10
WAYS = {"NCCL": 0, "peers": parallel.MOST_SENT}

_model: Llama | None = None
_logits: dict[str, torch.Tensor] = {}  # of each step, added up by NCCL


def own_device() -> torch.device:
    """This rank's device."""
    return (
        torch.device("cuda", own_shard().rank) if torch.cuda.is_available() else torch.device("cpu")
    )


def take(way: str) -> None:
    """Choose how small tensors are added up."""
    parallel.MOST_SENT = WAYS.get(way, 0)


def access_of_a_rank() -> tuple[bool, list[str]]:
    """Whether this rank has access to its peers' memory, and the warnings about it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        take("peers")
        x = torch.ones(64, device=own_device())
        parallel.all_reduce(x)
        assert x.eq(2).all(), x
    words = [str(warning.message) for warning in said]
    if torch.cuda.is_available():
        other = 1 - own_shard().rank
        words.append(
            f"can_device_access_peer: {torch.cuda.can_device_access_peer(own_shard().rank, other)}"
        )
    return any(handle is not None for handle in parallel._handles.values()), words


def count_wrong(batches: int, replays: int) -> int:
    """How many all-reduces of peers differ in a bit from a sum in the order of the ranks."""
    take("peers")
    shard, device = own_shard(), own_device()
    alike = torch.Generator().manual_seed(7)  # the same on all ranks
    own = torch.Generator().manual_seed(shard.rank)
    wrong = 0

    def drawn(n: int) -> int:
        return int(torch.randint(n, (), generator=alike))

    def sleep() -> None:  # so that some ranks are late
        if device.type == "cuda" and torch.rand((), generator=own) < 0.3:
            torch.cuda._sleep(int(torch.randint(200_000, (), generator=own)))

    def inputs(count: int) -> list[torch.Tensor]:
        dtypes = [torch.float32, torch.float16, torch.bfloat16]
        lengths = [8 * (1 + drawn(65536 >> drawn(17))) // 2 for _ in range(count)]
        return [
            torch.randn(8 * -(-n // 8), device=device).to(dtypes[drawn(3)]) for n in lengths
        ]  # fmt: skip

    def check(given: list[torch.Tensor], got: list[torch.Tensor]) -> int:
        different = 0
        for x, y in zip(given, got, strict=True):
            parts = [torch.empty_like(x) for _ in range(shard.size)]
            dist.all_gather(parts, x)
            total = torch.zeros(x.shape, device=device)
            for part in parts:
                total += part.float()
            different += not torch.equal(total.to(x.dtype), y)
        return different

    torch.manual_seed(shard.rank)
    for _ in range(batches):
        given = inputs(20)
        got = [x.clone() for x in given]
        for y in got:
            sleep()
            parallel.all_reduce(y)
        wrong += check(given, got)
    given = inputs(20)
    got = [torch.empty_like(x) for x in given]

    def all_of_them() -> None:
        for x, y in zip(given, got, strict=True):
            y.copy_(x)
            parallel.all_reduce(y)

    replay = captured(all_of_them, device)
    for number in range(replays):
        for x in given:
            x.normal_()
        sleep()
        replay()
        if number % 4 == 3:  # between checks only the all-reduces synchronize ranks
            wrong += check(given, got)
    return wrong


@torch.inference_mode()
def time_all_reduce(kib: int, way: str) -> tuple[float, float, float]:
    """Microseconds of an all-reduce in bfloat16: launched, as one of 64 in a CUDA graph, and as one
    of 64 with add_rms_norm after each, as in a decode step of Llama 3.1 8B."""
    take(way)
    x, residual = torch.zeros(2, kib // 8, 4096, dtype=torch.bfloat16, device=own_device())
    norm = residual, torch.ones_like(x[0]), 1e-5

    def normalized() -> None:
        if not parallel.all_reduce(x, *norm):
            operators.add_rms_norm(x, *norm)

    normalized()
    alone = time_of(lambda: parallel.all_reduce(x))
    graphs = [captured(f, x.device, 64) for f in (lambda: parallel.all_reduce(x), normalized)]
    return tuple(round(1e3 * ms, 2) for ms in (alone, *(time_of(f) / 64 for f in graphs)))


@torch.inference_mode()
def make_model() -> int:
    """Draw this rank's part of the model; returns the bytes of weights that a step reads."""
    global _model
    config, device, shard = LARGE if torch.cuda.is_available() else TINY, own_device(), own_shard()
    _model = Llama(config, torch.bfloat16, device, shard=shard)
    alike, own = (torch.Generator(device).manual_seed(seed) for seed in (7, shard.rank))
    for weight in _model.parameters():  # every rank has the embedding and the norms
        is_whole = weight is _model.embed or weight.ndim == 1
        weight.normal_(std=weight.shape[-1] ** -0.5, generator=alike if is_whole else own)
    _model.pack()
    return sum(weight.nbytes for weight in _model.parameters()) - _model.embed.nbytes


def prompt_batch(model: Llama, tokens: int) -> tuple[Batch, list[list[torch.Tensor]]]:
    """A prompt that is computed in one step."""
    (batch, pools), device = decode_batch(model, 1, tokens), model.embed.device
    places = torch.arange(tokens, device=device)
    slots = batch.block_tables[0].long()[places // BLOCK_SIZE] * BLOCK_SIZE + places % BLOCK_SIZE
    ends = torch.tensor([0, tokens], dtype=torch.int32, device=device)
    return Batch(
        token_ids=places % model.config.vocab_size, positions=places, slot_mapping=slots,
        block_tables=batch.block_tables, context_lens=batch.context_lens, cu_seqlens=ends,
        logit_rows=places[-1:],
    ), pools  # fmt: skip


@torch.inference_mode()
def time_step(name: str, way: str) -> dict:
    """Milliseconds of a step, launched and as a CUDA graph; whether its results are right."""
    take(way)
    size, tokens = STEPS[name] if torch.cuda.is_available() else (2, 32)
    is_prompt = name == "prompt"
    torch.manual_seed(1)
    batch, pools = prompt_batch(_model, tokens) if is_prompt else decode_batch(_model, size, tokens)

    @torch.inference_mode()
    def step() -> torch.Tensor:
        return _model(batch, *pools)

    hidden = _model.hidden(batch, *pools)
    eager, replay = step().clone(), step
    row: dict[str, Any] = {"sequences": size, "tokens": tokens}
    if torch.cuda.is_available():
        logits, replay = capture_on_gpu(step)
        logits.fill_(torch.nan)
        replay()
        far = (logits - eager).square().mean().sqrt() / eager.std()
        assert far < 0.02, f"a replayed step differs by {far:.3g} standard deviations"
        first = _logits.setdefault(name, eager)
        row["logits as by NCCL"] = torch.equal(first, eager)
        row["kernels"] = kernels(replay)
    row["same on all ranks"] = same_on_all_ranks(hidden)
    row |= {"eager_ms": time_of(step), "graph_ms": time_of(replay)}
    if torch.cuda.is_available():
        del logits, replay
        torch.cuda.empty_cache()
    return row


def same_on_all_ranks(x: torch.Tensor) -> bool:
    """Whether a tensor has the same bits on every rank."""
    parts = [torch.empty_like(x) for _ in range(own_shard().size)]
    dist.all_gather(parts, x)
    return all(torch.equal(parts[0], part) for part in parts)


def kernels(replay: Any) -> list[list]:
    """[microseconds in one replay, launches, median, name] of each kernel, the longest first."""
    times: dict[str, list[float]] = defaultdict(list)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        dist.barrier()
        replay()
        torch.cuda.synchronize()
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times[event.name[:90]].append(event.device_time)
    rows = [
        [round(sum(us), 1), len(us), round(statistics.median(us), 2), name]
        for name, us in times.items()
    ]
    return sorted(rows, reverse=True)[:16]


def time_of(call: Any) -> float:
    """Milliseconds a call, the median of some rounds that all ranks begin together."""
    for _ in range(3):
        call()
    clock = InARow(own_device(), EACH, before=dist.barrier)
    return round(statistics.median(clock.times(call, ROUNDS)), 4)

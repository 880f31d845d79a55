"""Tensor parallelism on two GPUs: `python -m yaie.course.author.gpu.two_gpus`.

    python tests/tiny.py build/tiny && python -m yaie.course.author.gpu.two_gpus --model build/tiny

- peers: thousands of all-reduces in each other's memory, of random sizes, with ranks that are late,
  launched one by one and from CUDA graphs, give the same bits as a sum in the order of the ranks;
- sizes: an all-reduce alone, through NCCL and through the memory of peers;
- steps: decode steps and a prompt of a model with the sizes of Llama 3.1 8B and random weights, in
  bfloat16, on one GPU, and on two with NCCL and with the memory of peers: launched kernel by
  kernel, and as a CUDA graph that contains the communication as well;
- tokens: an engine on one GPU and an engine on two give the same greedy tokens in float32;
- dead: when a rank dies, the others raise an error within seconds.

Every row is printed and saved as it comes. The status is 1 if anything is wrong. With
`--device cpu` the same runs in processes on a CPU, at sizes that are too small to time.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
import traceback
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch.profiler import ProfilerActivity, profile

from yaie.bench import files
from yaie.bench.machine import head
from yaie.bench.protocol import InARow, captured
from yaie.course.author.gpu.engine_steps import BLOCK_SIZE, LARGE, decode_batch
from yaie.course.lessons.capture import capture_on_gpu
from yaie.engine.llm import LLM
from yaie.engine.params import SamplingParams
from yaie.engine.ranks import RankFailed, Ranks
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
SENT_KIB = [8, 16, 32, 64, 128, 256, 512, 1024]
WAYS = {"NCCL": 0, "peers": parallel.MOST_SENT}
OPTIONS = {"dtype": "float32", "num_blocks": 512, "max_num_seqs": 16}
PROMPTS = [[5, 6, 7], [9] * 40, [5, 6, 7, 8, 200], [300], list(range(3, 90))] * 3
PARAMS = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)


class Record:
    """What was found, printed and saved as it comes."""

    def __init__(self, device: str, output: Path | None) -> None:
        self.kept = None if output is None else files.output_path(output)
        self.found: dict[str, Any] = head(torch.device(device)) | {"faults": []}
        self.found["correctness"] = {}

    def add(self, section: str, row: dict) -> None:
        """Add a row to a section."""
        self.found.setdefault(section, []).append(row)
        shown = {name: value for name, value in row.items() if name != "kernels"}
        print(f"{section}: {shown}", flush=True)
        self.save()

    def note(self, name: str, what: Any, fault: bool = False) -> None:
        """Record a fact about correctness, which may be a fault."""
        self.found["correctness"][name] = what
        if fault:
            self.found["faults"].append(f"{name}: {what}")
        print(f"{name}: {what}", flush=True)
        self.save()

    def save(self) -> None:
        """Save all that is known."""
        if self.kept is not None:
            files.save(self.found, self.kept)


def same_tokens(record: Record, device: str, model: str) -> None:
    """Greedy tokens of an engine on one GPU and of one on two, in float32."""
    for name, eager in (("eager", True), ("graphs", False)):
        tokens = {}
        for size in (1, 2):
            llm = LLM(
                model, device=device, **OPTIONS, enforce_eager=eager, tensor_parallel_size=size
            )
            tokens[size] = [output.token_ids for output in llm.generate(PROMPTS, PARAMS)]
            llm.close()
            del llm
        different = [n for n, (a, b) in enumerate(zip(*tokens.values(), strict=True)) if a != b]
        record.note(f"same tokens, {name}", not different, bool(different))


def dead_rank(record: Record, device: str, model: str) -> None:
    """How soon it is noticed that a rank has died."""
    llm = LLM(model, device=device, **OPTIONS, tensor_parallel_size=2)
    llm.generate(PROMPTS[:1], PARAMS)
    llm.engine.ranks.post(os._exit, 9)
    begun = time.perf_counter()
    try:
        llm.generate(PROMPTS, PARAMS)
        record.note("dead rank", "not noticed", fault=True)
    except RankFailed as failed:
        record.note("dead rank", str(failed).splitlines()[:2])
    seconds = round(time.perf_counter() - begun, 2)
    record.note("seconds until a dead rank is noticed", seconds)
    llm.close()


def peers(record: Record, device: str, _: str | None) -> None:
    """Whether ranks have access to each other's memory, and whether their sums are right."""
    with Ranks(2, device=device, timeout=60.0) as ranks:
        access = ranks.run(access_of_a_rank)
        refused = device == "cuda" and any(not able for able, _ in access)
        record.note("peers have access", access, refused)
        wrong = ranks.run(count_wrong, *((60, 40) if device == "cuda" else (1, 4)))
        record.note("wrong all-reduces", wrong, any(wrong))


def sizes(record: Record, device: str, _: str | None) -> None:
    """An all-reduce alone, by size and way."""
    with Ranks(2, device=device, timeout=120.0) as ranks:
        for kib in SENT_KIB if device == "cuda" else SENT_KIB[:1]:
            row = {"KiB": kib}
            for way in WAYS:
                alone, in_graph, normed = ranks.run(time_all_reduce, kib, way)[0]
                row |= {f"{way}, us": alone, f"{way}, us in a graph": in_graph}
                row[f"{way}, with add_rms_norm, us in a graph"] = normed
            record.add("all_reduce", row)


def steps(record: Record, device: str, _: str | None) -> None:
    """Steps of the model on one GPU, and on two in each way."""
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for size in (1, 2) if record.found["machine"]["gpus"] > 1 else (1,):
        with Ranks(size, device=device, timeout=240.0) as ranks:
            weights = ranks.run(make_model)[0]
            for name in STEPS:
                for way in WAYS if size > 1 else ("one GPU",):
                    row = ranks.run(time_step, name, way)[0]
                    times[name][way] = row["graph_ms"]
                    about = {"step": name, "gpus": size, "way": way, "weights, bytes": weights}
                    faster = round(times[name]["one GPU"] / row["graph_ms"], 3)
                    record.add("steps", about | {"times as fast as one GPU": faster} | row)
                    if not row["same on all ranks"]:
                        record.note(f"{name}, {way}", "the ranks differ", fault=True)


# --------------------------------------------------------------------------- in each rank

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


# --------------------------------------------------------------------------- all of it

PARTS = {"peers": peers, "sizes": sizes, "steps": steps, "tokens": same_tokens, "dead": dead_rank}


def run(model: str | None, device: str, only: str | None, output: Path | None) -> dict:
    """Measure these parts; `faults` in the record are what is wrong."""
    record = Record(device, output)
    found, faults = record.found, record.found["faults"]
    found["machine"]["gpus"] = torch.cuda.device_count() if device == "cuda" else 2
    if device == "cuda":
        found["versions"]["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        done = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True)
        print(done.stdout, flush=True)
    found["NCCL_NVLS_ENABLE"] = os.environ.get("NCCL_NVLS_ENABLE")
    found["model"] = "the sizes of Llama 3.1 8B, random weights, bfloat16"
    if found["machine"]["gpus"] < 2:
        faults.append("there is one GPU here: nothing is compared")
    for name in (only or ",".join(PARTS)).split(","):
        begun = time.monotonic()
        if name in ("tokens", "dead") and model is None:
            faults.append(f"{name}: a model is needed")
        elif found["machine"]["gpus"] > 1 or name == "steps":
            try:
                PARTS[name](record, device, model)
            except Exception as error:  # the other parts are worth as much
                traceback.print_exc()
                faults.append(f"{name}: {type(error).__name__}: {error}")
            record.save()
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
        if name == "peers" and faults:
            WAYS.pop("peers")  # the other parts would hang, or be wrong
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="a folder, for tokens and dead: tests/tiny.py makes one")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--only", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--output", type=files.output_path, help="a JSON file")
    given = parser.parse_args()
    # What the ranks import, so that they find its functions.
    from yaie.course.author.gpu import two_gpus as own

    found = own.run(given.model, given.device, given.only, given.output)
    print("\n".join(f"FAULT: {fault}" for fault in found["faults"]))
    sys.exit(1 if found["faults"] else 0)

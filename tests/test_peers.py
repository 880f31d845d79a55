"""All-reduce in the memory of peers: its sums, its flags, and when it is not used."""

import re
import warnings

import pytest
import torch
from launches import each_device, each_dtype, same_in_each_order
from torch import distributed as dist

from yaie.build import jit
from yaie.emulator import Module
from yaie.model import parallel
from yaie.ops.cuda.launching import SUFFIXES

FILE = "peers/all_reduce.cu"
SOURCE = (jit.CSRC / FILE).read_text(encoding="utf-8")
MOST_BYTES = int(re.search(r"MOST_BYTES = (\d+);", SOURCE)[1])
BLOCKS, RANKS = 32, 8
MEMORY = -(-(4 * (BLOCKS * RANKS + BLOCKS + 1)) // 16) * 16 + 2 * RANKS * MOST_BYTES


def summed(x: torch.Tensor, times: int) -> torch.Tensor:
    """What all ranks hold after these all-reduces: sums in float32, in the order of the ranks."""
    for _ in range(times):
        total = torch.zeros(x.shape[1:])
        for row in x:
            total += row.float()
        x = total.to(x.dtype).expand(len(x), -1)
    return x


def run(module: jit.Module, x: torch.Tensor, memory: torch.Tensor, times: int = 1) -> torch.Tensor:
    out = x.clone()
    launch = getattr(module, f"all_reduce_in_one_grid_{SUFFIXES[x.dtype]}")
    launch(out, memory, x.shape[1], len(x), times)
    return out


def memory_of(ranks: int, device: str = "cpu") -> torch.Tensor:
    return torch.zeros(ranks * MEMORY, dtype=torch.uint8, device=device)


def drawn(ranks: int, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(ranks + count)
    return torch.randn(ranks, count, generator=generator).to(dtype)


@each_device
@each_dtype()
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_rank_has_the_sum_in_the_order_of_the_ranks(ranks, dtype, device):
    """Launches of all sizes, one after the other over the same memory: flags are never cleared."""
    module, memory = jit.load(FILE, checked=device == "cpu"), memory_of(ranks, device)
    for count in (8, 4096, 1016, 8, 24576 if ranks < 8 else 4104):
        x = drawn(ranks, count, dtype)
        got = run(module, x.to(device), memory)
        assert torch.equal(got.cpu(), summed(x, 1))
        assert device != "cpu" or module.report.clean, module.report


@each_device
def test_ranks_that_run_ahead_of_each_other(device):
    """Several all-reduces in one launch, whose ranks wait for nothing but the flags."""
    module, x = jit.load(FILE, checked=device == "cpu"), drawn(3, 4104)
    got = run(module, x.to(device), memory_of(3, device), times=5)
    assert torch.equal(got.cpu(), summed(x, 5))
    assert device != "cpu" or module.report.clean, module.report


def normed(x: torch.Tensor, memory: torch.Tensor, times: int = 1, checked: bool = False):
    """x `[ranks, rows, size]`: what all ranks hold after all_reduce_add_rms_norm, and what the
    kernel of add_rms_norm makes of the sum."""
    (ranks, rows, size), suffix = x.shape, SUFFIXES[x.dtype]
    residual = drawn(rows, size, x.dtype).to(x.device)
    weight = drawn(1, size, x.dtype)[0].to(x.device)
    total = summed(x.cpu().flatten(1), 1)[0].view(rows, size).to(x.device)
    wanted = torch.full((2, rows, size), torch.nan, dtype=x.dtype, device=x.device)
    norm, peers = jit.load("norm/rms_norm.cu"), jit.load(FILE, checked=checked)
    launch = getattr(norm, f"add_rms_norm_{suffix}")
    launch(total, residual, weight, *wanted, rows, size, 1e-5)
    got = torch.full((2, *x.shape), torch.nan, dtype=x.dtype, device=x.device)
    launch = getattr(peers, f"norm_in_one_grid_{suffix}")
    launch(x, residual, weight, *got, memory, rows, size, ranks, times, 1e-5)
    assert not checked or peers.report.clean, peers.report
    return got, wanted


@each_device
@each_dtype()
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_a_sum_is_normalized_with_the_bits_of_the_norm(ranks, dtype, device):
    """Rows of one warp and of several, with one chunk per thread and with two; more rows than
    thread blocks; and all-reduces that follow each other over the same memory."""
    memory = memory_of(ranks, device)
    longest = 4096 if ranks < 8 else 2048  # the emulator runs 8,192 threads together
    for rows, size, times in ((1, 8, 1), (9, 264, 3), (2, 1160, 1), (1, longest, 2)):
        x = drawn(ranks, rows * size, dtype).view(ranks, rows, size).to(device)
        got, wanted = normed(x, memory, times, device == "cpu")
        assert got.eq(wanted.unsqueeze(1)).all()


TOO_LARGE = (1, 4100), (99, 4096), (300, 4096)


@pytest.mark.parametrize(
    ("rows", "size", "said"),
    [(1, 6, "Misaligned"), *((rows, size, "Invalid") for rows, size in TOO_LARGE)],
)
def test_what_is_not_normalized(rows, size, said):
    with pytest.raises(jit.KernelError, match=f"cudaError{said}"):
        normed(torch.zeros(1, rows, size), memory_of(1))


def test_same_bits_in_any_order():
    module, x = jit.load(FILE), drawn(2, 4096)
    got = same_in_each_order(lambda: (run(module, x, memory_of(2), times=2),))
    assert torch.equal(got[0], summed(x, 2))


def test_the_numbers_of_launches_wrap():
    """The number of launches wraps after 2^32 of them."""
    module, memory, x = jit.load(FILE), memory_of(2), drawn(2, 64)
    for rank in range(2):
        words = memory[rank * MEMORY :][: 4 * BLOCKS * (RANKS + 1)].view(torch.int32)
        words.fill_(-2)  # flags, and launches
    assert torch.equal(run(module, x, memory, times=4), summed(x, 4))


def only_what_is_launched(source: str) -> Module:
    """A changed kernel in checked mode, of which only the kernels of launches are compiled."""
    return Module(source, jit.CSRC / FILE, checked=True, apart=True)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("int set = launch % 2,", "int set = 0,"),
        ("st.release.sys.global.u32", "st.global.u32"),
        ("            __syncthreads();\n        }\n        float", "        }\n        float"),
    ],
    ids=["one set of parts", "a flag without release", "only one thread waits"],
)
def test_a_broken_protocol_is_found_in_checked_mode(right, wrong):
    assert SOURCE.count(right) == 1
    module = only_what_is_launched(SOURCE.replace(right, wrong))
    run(module, drawn(2, 4096), memory_of(2), times=3)
    assert module.report.races, module.report


@pytest.mark.parametrize(
    "right",
    [
        "        __syncthreads();  // wait until the sum is read: the next row's overwrites it\n",
        "    __syncthreads();\n    return warp_sum",
    ],
    ids=["the next row's sum", "sums of the warps"],
)
def test_a_norm_with_a_barrier_less_is_found_in_checked_mode(right):
    header = (jit.CSRC / "norm/row_sum.cuh").read_text(encoding="utf-8")
    source = SOURCE.replace('#include "norm/row_sum.cuh"', header.replace("#pragma once", ""))
    assert source.count(right) == 1
    source = source.replace(right, right.replace("__syncthreads();", ""))
    module = only_what_is_launched(source)
    x, rows, size = drawn(2, 9 * 264), 9, 264  # more rows than thread blocks
    weight, out = torch.ones(size), torch.zeros(2, 2, rows, size)
    launch = module.norm_in_one_grid_f32
    launch(x, x[0].clone(), weight, *out, memory_of(2), rows, size, 2, 1, 1e-5)
    assert module.report.races, module.report


@pytest.mark.parametrize(
    ("count", "said"),
    [(6, "cudaErrorMisalignedAddress"), (MOST_BYTES // 4 + 4, "cudaErrorInvalidValue")],
)
def test_what_it_does_not_take(count, said):
    with pytest.raises(jit.KernelError, match=said):
        run(jit.load(FILE), torch.zeros(2, count), memory_of(2))


class Calls:
    """Record the launchers that are called. Either all fail or none does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, able: bool) -> None:
        self.called: list[str] = []
        monkeypatch.setattr(dist, "all_gather_into_tensor", lambda *_: None)
        monkeypatch.setattr(parallel, "own_shard", lambda: parallel.Shard(0, 2))
        monkeypatch.setattr(parallel, "smallest", lambda number, *_: number)
        monkeypatch.setattr(parallel, "_handles", {})

        def call(file: str, name: str, *_: object) -> None:
            self.called.append(name)
            if not able:
                raise jit.KernelError(f"{name} returned cudaErrorPeerAccessUnsupported (217)")

        monkeypatch.setattr("yaie.ops.cuda.launching.call", call)


def test_ranks_try_once_and_a_fallback_is_announced(monkeypatch):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        calls = Calls(monkeypatch, able=True)
        assert parallel._has_peers(torch.device("cpu")) and parallel._has_peers(torch.device("cpu"))
        assert calls.called == ["share_memory", "map_memory"] and not said
        parallel.stop_waiting()
        assert calls.called[2:] == ["stop_waiting"]
        Calls(monkeypatch, able=False)
        assert not parallel._has_peers(torch.device("cpu"))
        parallel.stop_waiting()  # nothing waits
    assert "share_memory returned cudaErrorPeerAccessUnsupported" in str(said[-1].message)


def test_on_several_hosts_peers_have_no_access(monkeypatch):
    """Nothing is compiled, and no memory is kept."""
    calls = Calls(monkeypatch, able=True)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    with pytest.warns(match="the ranks are on several hosts"):
        assert not parallel._has_peers(torch.device("cpu"))
    assert not calls.called

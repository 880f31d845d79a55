"""Matrix products: the choice of a rung, what notebook 16 counts, and the emulated tensor cores."""

import itertools

import pytest
import torch
from launches import check_planted, each_device

from yaie.build import jit
from yaie.build.nvcc import CSRC, able, emulated
from yaie.course.lessons.data_nb16 import (
    CHUNKS,
    Tiling,
    count_loads,
    owners,
    places,
    stage_events,
)
from yaie.course.lessons.ops.cuda import matrix
from yaie.course.viz.tensor_core import pipeline, replay
from yaie.emulator import Module
from yaie.ops.registry import Unsupported

MMA = CSRC / "matmul" / "mma.cu"


# --------------------------------------------------------------------------------------- rungs


@pytest.mark.parametrize("rung", [*matrix.RUNGS, *matrix.HOPPER])
def test_rungs_by_name(rung):
    a, b = torch.randn(5, 24).half(), torch.randn(24, 16).half()
    wanted = (a.double() @ b.double()).half()
    got = (matrix.RUNGS | matrix.HOPPER)[rung](a, b)
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rung", [matrix.wmma, matrix.mma, matrix.HOPPER["tma"]])
def test_what_tensor_cores_do_not_take(rung):
    with pytest.raises(Unsupported, match="float16 and bfloat16 here"):
        rung(torch.randn(8, 8), torch.randn(8, 8))
    for m, k, n in ((8, 12, 8), (8, 8, 12)):
        with pytest.raises(Unsupported, match=f"n and k are {n} and {k}"):
            rung(torch.randn(m, k).half(), torch.randn(k, n).half())
    odd = torch.randn(65).half()[1:].view(8, 8)
    with pytest.raises(Unsupported, match="a and b begin 2 and 0 bytes past one"):
        rung(odd, torch.randn(8, 8).half())


def test_too_many_rows_for_a_grid():
    a = torch.empty(65_535 * 8 + 1, 0)
    with pytest.raises(Unsupported, match=r"naive.cu takes up to 524280 rows, got 524281"):
        matrix.naive(a, torch.empty(0, 1))


# ------------------------------------------------------------------------------- tensor cores


def test_a_file_runs_emulated_up_to_hopper():
    assert able(["7.5", "8.0"], MMA.read_text()) == ("8.0",)
    assert emulated(MMA.read_text()) and emulated("// Needs sm_90a\n")
    assert not emulated("// Needs sm_100a\n")


FRAGMENTS = """
#include "mma.cuh"
__global__ void load(const unsigned short* tile, unsigned* out, int turned) {
    __shared__ alignas(16) unsigned short rows[32 * 8];
    for (int i = threadIdx.x; i < 256; i += 32) rows[i] = tile[i];
    __syncthreads();
    uint32_t found[4];
    if (turned) ldmatrix_x4_trans(found, rows + threadIdx.x * 8);
    else ldmatrix_x4(found, rows + threadIdx.x * 8);
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = found[i];
}
extern "C" cudaError_t run_load(const unsigned short* tile, unsigned* out, int turned,
                                cudaStream_t stream) {
    load<<<1, 32, 0, stream>>>(tile, out, turned);
    return cudaGetLastError();
}
__global__ void multiply(const unsigned* a, const unsigned* b, float* c) {
    uint32_t of_a[4];
    float sums[4];
    for (int i = 0; i < 4; ++i) of_a[i] = a[threadIdx.x * 4 + i], sums[i] = c[threadIdx.x * 4 + i];
    mma_16x8x16<__nv_bfloat16>(sums, of_a, b[threadIdx.x * 2], b[threadIdx.x * 2 + 1]);
    for (int i = 0; i < 4; ++i) c[threadIdx.x * 4 + i] = sums[i];
}
extern "C" cudaError_t run_multiply(const unsigned* a, const unsigned* b, float* c,
                                    cudaStream_t stream) {
    multiply<<<1, 32, 0, stream>>>(a, b, c);
    return cudaGetLastError();
}
"""


def words(pairs: torch.Tensor) -> torch.Tensor:
    """Pairs of 16-bit numbers as the registers that hold them."""
    return pairs.contiguous().view(torch.int32).view(torch.uint32)


@each_device
@pytest.mark.parametrize("turned", [0, 1])
def test_ldmatrix_gives_each_lane_its_words(turned, device):
    tile = torch.arange(256, dtype=torch.int16).view(4, 8, 8)
    out = torch.zeros(32, 4, dtype=torch.uint32, device=device)
    module = jit.load(FRAGMENTS, name="fragments.cu")
    module.run_load(tile.view(torch.uint16).to(device), out, turned)
    matrices = tile.transpose(1, 2) if turned else tile
    for lane, matrix_number in itertools.product(range(32), range(4)):
        low = matrices[matrix_number, lane // 4, lane % 4 * 2].item()
        high = matrices[matrix_number, lane // 4, lane % 4 * 2 + 1].item()
        assert out[lane, matrix_number].item() == low | high << 16


@each_device
def test_mma_finds_the_numbers_where_the_picture_says(device):
    """Tiles are given to the lanes as `owners` has it, and c is read back the same way."""
    table = owners()
    generator = torch.Generator().manual_seed(0)
    tiles = {name: torch.randn(16, len(rows[0]), generator=generator).bfloat16()
             for name, rows in table.items()}  # fmt: skip
    registers = {"A": torch.zeros(32, 4, 2), "B": torch.zeros(32, 2, 2)}
    for name, held in registers.items():
        for row, column in itertools.product(range(16), range(tiles[name].shape[1])):
            lane, register = table[name][row][column]
            along_k = column if name == "A" else row
            held[lane, register, along_k % 2] = tiles[name][row, column]
    c = torch.ones(32, 4, device=device)
    of_a, of_b = (words(held.bfloat16()).to(device) for held in registers.values())
    jit.load(FRAGMENTS, name="fragments.cu").run_multiply(of_a, of_b, c)
    wanted = 1 + tiles["A"].double() @ tiles["B"].double()
    for row, column in itertools.product(range(16), range(8)):
        lane, register = table["C"][row][column]
        assert c[lane, register].item() == pytest.approx(wanted[row, column].item(), rel=1e-5)


def test_a_fragment_holds_every_number_once():
    for name, registers in (("A", 4), ("B", 2), ("C", 4)):
        held = sorted(itertools.chain(*owners()[name]))
        numbers = 2 if name in "AB" else 1
        assert held == sorted([(lane, r) for lane in range(32) for r in range(registers)] * numbers)


@pytest.mark.parametrize("chunks", CHUNKS)
def test_swizzle_keeps_rows_and_avoids_conflicts(chunks):
    table = places(MMA, chunks, 64)
    for row in range(64):
        assert sorted(table[row].tolist()) == list(range(row * chunks, (row + 1) * chunks))
    for first, chunk in itertools.product(range(0, 64, 8), range(chunks)):
        assert len(set((table[first : first + 8, chunk] % 8).tolist())) == 8
    with pytest.raises(ValueError, match="chunks must be one of"):
        places(MMA, 5)


def test_no_line_of_the_last_rung_wastes_anything():
    module = jit.load(MMA, checked=True)
    a, b = torch.randn(128, 64).half(), torch.randn(64, 256).half()
    module.matmul_mma_f16(a, b, torch.empty(128, 256).half(), 128, 256, 64)
    assert module.report.clean
    assert all(x.units == x.ideal_units for x in module.report.accesses if x.memory == "shared")


# ----------------------------------------------------------------------------------- counting


@pytest.mark.parametrize("shape", [(64, 96, 32), (65, 31, 7), (1, 1, 1)])
def test_loads_of_tiles_are_those_of_an_element_at_a_time(shape):
    m, n, k = shape
    for tile in (Tiling("", 1, 1), Tiling("", 32, 32), Tiling("", 8, 24)):
        fetched = set()
        for row, column in itertools.product(range(m), range(n)):
            where = row // tile.rows, column // tile.columns
            fetched |= {(where, "a", row, i) for i in range(k)}
            fetched |= {(where, "b", column, i) for i in range(k)}
        assert count_loads(m, n, k, tile) == len(fetched)


def test_intensity_is_operations_over_bytes():
    tile = Tiling("", 128, 256)
    loads = count_loads(256, 512, 64, tile)
    assert tile.intensity(2) == pytest.approx(2 * 256 * 512 * 64 / (2 * loads))


def test_the_checker_counts_what_the_formula_says():
    """Sectors of the shared tile: 8 floats each, and every tile's elements once."""
    module = jit.load("matmul/shared_tile.cu", checked=True)
    a, b, c = torch.randn(64, 96), torch.randn(96, 128), torch.empty(64, 128)
    module.matmul_shared_tile_f32(a, b, c, 64, 128, 96)
    loads = [x.units for x in module.report.accesses if (x.memory, x.kind) == ("global", "load")]
    assert sum(loads) * 8 == count_loads(64, 128, 96, Tiling("", 32, 32))


def test_a_pipeline_with_enough_stages_waits_once():
    runs = {stages: pipeline(stages, 50, copy=3.0, product=1.0) for stages in (1, 2, 4, 6)}
    ends = {stages: run.products[-1][1] for stages, run in runs.items()}
    assert ends == {1: 200.0, 2: 101.0, 4: 53.0, 6: 53.0}
    for stages, run in runs.items():
        for tile, (begin, _) in enumerate(run.products):
            assert begin >= run.copies[tile][1]
            assert tile < stages or run.copies[tile][0] >= run.products[tile - stages][1]
    with pytest.raises(ValueError, match="stages must be at least 1, got 0"):
        pipeline(0, 3)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_loop_replayed_is_the_model(stages):
    """Fill all stages; then wait for a tile, multiply it, and copy into its stage."""
    events = [("copy", stage) for stage in range(stages)]
    for tile in range(8):
        halves = [("product", 0.5), ("load", 0), ("product", 0.5)]
        events += [("wait", stages - 1), ("barrier", 0), *halves, ("copy", tile % stages)]
    assert replay(stages, events) == pipeline(stages, 8)
    assert replay(stages, [("product", 8.0)]).products == pipeline(stages, 8, copy=0.0).products


def test_the_events_of_the_last_rung(tmp_path):
    stages, events = stage_events(MMA, 4)
    assert stages == 3
    copies, products = ([n for what, n in events if what == kind] for kind in ("copy", "product"))
    assert copies == [0, 1, 2, 0, 1, 2, 0] and sum(products) == pytest.approx(4)
    assert [n for what, n in events if what == "wait"] == [2, 1, 1, 1, 1, 0]
    path = tmp_path / "other.cu"
    path.write_text("// no kernel")
    with pytest.raises(ValueError, match=r"must have '#include .*' once, has it 0 times"):
        stage_events(path, 4)


def test_a_wait_that_is_too_weak_shows():
    """Emulated copies are made when they are waited for, so the pipeline's counts are tested."""
    right = MMA.read_text()
    weak = right.replace("cp_async_wait<STAGES - 2>", "cp_async_wait<STAGES - 1>")
    assert weak != right
    a, b = torch.randn(33, 200).half(), torch.randn(200, 40).half()
    wanted = (a.double() @ b.double()).half()
    for source, is_right in ((right, True), (weak, False)):
        for checked in (False, True):
            module, c = Module(source, MMA, checked, apart=True), torch.full_like(wanted, torch.nan)
            module.matmul_mma_f16(a, b, c, 33, 40, 200)
            assert torch.allclose(c, wanted, rtol=1e-3, atol=1e-2) == is_right
        found = {finding.kind for finding in module.report.findings}
        assert found == (set() if is_right else {"pending_copy"})


# ------------------------------------------------------------------- faults in the rungs for Hopper

# Rung: what is there -> what replaces it, and the line and the words in which it is told.
PLANTED = {
    "no proxy fence": (
        "wgmma", "fence_proxy_async();", "", "multiply",
        r"asynchronously reads .*, which thread \d+ writes .* no fence.proxy.async stands",
    ),
    "no wgmma fence": (
        "wgmma", "wgmma_fence();", "", "multiply", "no wgmma.fence stands before it",
    ),
    "too few bytes": (
        "tma", "(full, A_BYTES + B_BYTES)", "(full, A_BYTES)", "mbarrier_wait|tma_load",
        "deadlock: waits for .* more than it expects|bytes in this phase, of which .* 16384",
    ),
    "no wait for the tile": (
        "producer", "mbarrier_wait(&full[stage], tile / STAGES % 2);", "",
        "multiply|tma_load|arrive",
        "before the asynchronous copy to it|no thread .* written|arrivals where its phase lacks 0",
    ),
    "the other phase": (
        "producer", "tile / STAGES % 2 ^ 1", "tile / STAGES % 2", "mbarrier_wait",
        "deadlock: waits for .* lacks 128 of 128 arrivals",
    ),
    "released early": (
        "consumers", "if (tile > 0) mbarrier_arrive(&empty[(tile - 1) % STAGES])",
        "mbarrier_arrive(&empty[stage])", "tma_load",
        "writes .* before the wgmma that reads it, which .* has been waited for",
    ),
    "the other consumer's arrivals": (
        "consumers", "&empty[stage], CONSUMERS * WARP_GROUP", "&empty[stage], WARP_GROUP",
        "tma_load|mbarrier", "before the wgmma that reads it|arrivals where its phase|deadlock",
    ),
    "a place of the ring too few": (
        "persistent", "mbarrier_arrive(&empty[(load - 1) % STAGES]);\n        store", "store",
        "mbarrier_wait", "deadlock: waits for",
    ),
    "stored before it is written": (
        "store", "        fence_proxy_async();\n        named_barrier_sync(barrier, WARP_GROUP);",
        "        fence_proxy_async();", "tma_store|stmatrix",
        "asynchronously reads .* no fence.proxy.async stands|before the asynchronous copy from it",
    ),
    "written before it is stored": (
        "store", "if (thread == 0) tma_store_wait_read<0>();", "", "stmatrix",
        "writes .* before the asynchronous copy from it, which .* has been waited for",
    ),
    "the other thread block may not have started": (
        "cluster", "cluster_sync();  // the other", "__syncthreads();  // the other",
        "tma_load_multicast|mbarrier_arrive_at", "may not have started: no barrier of the cluster",
    ),
    "a thread block that the cluster has not": (
        "cluster", "(1 << BLOCKS) - 1", "(2 << BLOCKS) - 1", "tma_load_multicast",
        "names thread block 2 of a cluster of 2",
    ),
    "released by one thread block only": (
        "cluster", "if (done > 0) release<BLOCKS>(&empty[(load - 1) % STAGES]);",
        "if (done > 0 && threadIdx.x % WARP < BLOCKS) "
        "mbarrier_arrive_at(&empty[(load - 1) % STAGES], cluster_rank());", "tma_load_multicast",
        "writes .* before the (?:wgmma that reads|asynchronous copy to) it, which .* been waited",
    ),
    "too few bytes in one thread block": (
        "cluster", "(&full[stage], STAGE)", "(&full[stage], STAGE - rank * 64)",
        "mbarrier_wait|tma_load|expect",
        "deadlock: waits for .* more than it expects|bytes in this phase, of which its threads",
    ),
    "half of b to one thread block": (
        "cluster", "(1 << BLOCKS) - 1", "1 << rank", "mbarrier_wait",
        "deadlock: waits for .* lacks 16384 of 49152 bytes",
    ),
    "ends while the other arrives": (
        "cluster", "    cluster_sync();  // until here", "    // until here", "release",
        "may have ended: it waits for nothing that follows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_told(fault):
    rung, *edit_and_words = PLANTED[fault]
    path, (m, k) = CSRC / "matmul" / "hopper" / f"{rung}.cu", (130, 464)
    n = 264 if rung in ("persistent", "store") else 136  # they show at later tiles of c
    a, b, c = torch.randn(m, k).half(), torch.randn(k, n).half(), torch.empty(m, n).half()

    def call(module: Module) -> None:
        getattr(module, f"matmul_{rung}_f16")(a, b, c, m, n, k)

    check_planted(path, *edit_and_words, call)

"""Flash attention for Hopper: what the back end takes, and faults planted in the best rung."""

from dataclasses import replace

import pytest
import torch
from attention_cases import HOPPER_GPU, Shape, batch, close, paged_oracle, ragged, ragged_oracle
from launches import HALVES, check_told

from yaie.build.nvcc import CSRC
from yaie.course.lessons.changed import changed
from yaie.course.lessons.ops.attention import attention_forward
from yaie.emulator import Module
from yaie.ops.attention import paged_attention_forward

PINGPONG = CSRC / "flash" / "hopper" / "pingpong.cu"
DEVICE = "cuda" if HOPPER_GPU else "cpu"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
def test_the_back_end(dtype):
    q, k, v, *begin = ragged([(20, 33), (140, 200), (1, 1)], 4, 2, 64, dtype, DEVICE)
    got = attention_forward(q, k, v, True, None, *begin, backend="cuda_hopper")
    close(got, ragged_oracle(q, k, v, *begin))
    got = attention_forward(q[20:160], k, v, backend="cuda_hopper")
    one = [torch.tensor([0, n], dtype=torch.int32, device=DEVICE) for n in (140, len(k))]
    close(got, ragged_oracle(q[20:160], k, v, *one))
    operands = batch(Shape((40, 90), 2, 1, queries=(20, 70)), dtype, DEVICE)
    got = paged_attention_forward(*operands, backend="cuda_hopper")
    close(got, paged_oracle(*operands))


@pytest.mark.gpu
@pytest.mark.parametrize("dim, block_size", [(128, 8), (128, 16), (128, 64), (256, 16), (80, 16)])
def test_blocks_that_follow_one_another(dim, block_size):
    """TMA brings a tile of them in one box: with the bits of blocks that are scattered."""
    scattered = Shape((330, 170), 2, 1, dim, block_size, queries=(20, 170))
    outputs = []
    for shape in (scattered, replace(scattered, in_order=True)):
        operands = batch(shape, torch.float16, DEVICE)
        outputs.append(paged_attention_forward(*operands, backend="cuda_hopper"))
        close(outputs[-1], paged_oracle(*operands))
    assert all(torch.equal(*both) for both in zip(*outputs, strict=True))


def test_a_tile_of_blocks_that_follow_one_another_is_one_box():
    """If that box begins at another place, results over such blocks are wrong, and no others."""
    header = PINGPONG.parent / "tiles.cuh"
    at = "maps.tile, full, 0, 0, 0, row / 8"
    tiles = changed(header.read_text(encoding="utf-8"), header, {at: f"{at} + 2"})
    include = '#include "flash/hopper/tiles.cuh"'
    source = changed(PINGPONG.read_text(encoding="utf-8"), PINGPONG, {include: tiles})
    module = Module(source, PINGPONG, apart=True)
    shape = Shape((330,), 1, 1, 128, 16, queries=(20,))
    right = []
    for in_order in (False, True):
        operands = batch(replace(shape, in_order=in_order), torch.float16)
        q, keys, values, tables, contexts, begin = operands
        out, lse = torch.empty_like(q), torch.empty(20, 1)
        module.flash_pingpong_f16(
            *(q, keys, values, out, lse, begin, None, tables, contexts),
            *(1, 20, keys.shape[0] * 16, 1, 1, 128, 128, 128, 128, 16, tables.shape[1]),
            *(128**-0.5, 1),
        )
        right.append(torch.allclose(out.double(), paged_oracle(*operands)[0], atol=0.01))
    assert right == [True, False]


def test_what_the_back_end_does_not_take():
    for dim, dtype, message in (
        (264, torch.float16, "a multiple of 8 up to 256, got 264"),
        (64, torch.float32, "tensor cores take float16 and bfloat16 here, got torch.float32"),
    ):
        q = torch.zeros(2, 1, dim, dtype=dtype)
        with pytest.raises(ValueError, match=f"'cuda_hopper' cannot: .*{message}"):
            attention_forward(q, q, q, backend="cuda_hopper")
    operands = batch(Shape((40, 90), 2, 1, block_size=24, queries=(20, 70)), torch.float16)
    with pytest.raises(ValueError, match=r"blocks must be .* multiples of 128 tokens, got 24"):
        paged_attention_forward(*operands, backend="cuda_hopper")


def test_other_cards_are_declined(monkeypatch):
    q = torch.zeros(2, 1, 64).half()
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda x: True))
    for has in ((8, 0), (10, 0)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, has=has: has)
        with pytest.raises(ValueError, match=f"wgmma needs sm_90a, this is sm_{has[0]}0"):
            attention_forward(q, q, q, backend="cuda_hopper")


# What is there, what stands there instead, the line that is told, and the words. All faults are
# compiled together, and HERE says whether a launch has this one: it is given the fault's number as
# `max_blocks`, which a kernel reads only if there are block tables.
PLANTED = {
    "no wait for the keys": (
        "k_tile = wait_for(load + 1);",
        "k_tile = HERE ? ring + (load + 1) % STAGES * Size::KV_TILE : wait_for(load + 1);",
        "load_tile|multiply_keys|arrive",
        "before the asynchronous copy|no thread .* written|arrivals where its phase lacks 0",
    ),
    "values given back too early": (
        "wgmma_wait<0>();\n                release(load + 2);",
        "if (HERE) release(load + 2);\n                wgmma_wait<0>();\n"
        "                if (!HERE) release(load + 2);",
        "load_tile|zero_values", "writes .* before the wgmma that reads it",
    ),
    "scores read before they are there": (
        "wgmma_wait<1>();\n                release(load + 1);",
        "if (!HERE) wgmma_wait<1>();\n                release(load + 1);",
        "softmax", "reads accumulators of the wgmma of .* before",
    ),
    "output stored before it is there": (
        "wgmma_wait<1>();\n                release(load++);",
        "if (!HERE) wgmma_wait<1>();\n                release(load++);",
        "store_rows", "reads accumulators of the wgmma of .* before",
    ),
    "the next scores read before they are there": (
        "wgmma_wait<0>();\n                continue;",
        "if (!HERE) wgmma_wait<0>();\n                continue;",
        "softmax.raise", "reads accumulators of the wgmma of .* before",
    ),
    "output rescaled while it sums": (
        "bool raised = softmax.raise(scores, factors);",
        "bool raised = softmax.raise(scores, factors);\n"
        "                if (HERE && raised) rescale(out, factors), raised = false;",
        "rescale", "(?:reads|writes) accumulators of the wgmma of .* before",
    ),
    "no fence before the product": (
        "26.2 end\n                wgmma_fence();",
        "26.2 end\n                if (!HERE) wgmma_fence();",
        "multiply_keys", "no wgmma.fence follows line .*, which writes its accumulators",
    ),
    "the turn given to itself": (
        "end_turn((consumer + 1) % CONSUMERS);", "end_turn((consumer + !HERE) % CONSUMERS);",
        "named_barrier_(sync|arrive)", "deadlock|arrive",
    ),
    "queries given back twice": (
        "store_rows<T, DIM>(flash",
        "if (HERE) mbarrier_arrive(&q_empty[count % Q_STAGES]);\n"
        "            store_rows<T, DIM>(flash",
        "load_queries|arrive|wait",
        "no fence.proxy.async stands between|arrivals where its phase|deadlock: waits for .* 385",
    ),
    "no fence after the output": (
        "fence_proxy_async();  // before TMA", "if (!HERE) fence_proxy_async();  // before TMA",
        "load_queries", "asynchronously writes .*, which .* writes .* no fence.proxy.async stands",
    ),
    "the other phase": (
        "mbarrier_wait(&empty[stage], load / STAGES % 2 ^ 1);",
        "mbarrier_wait(&empty[stage], load / STAGES % 2 ^ !HERE);",
        "mbarrier_wait|named_barrier_sync", "deadlock: waits for .* 12 of 12|128 of 256 threads",
    ),
    "arrivals of threads, not of warps": (
        "mbarrier_init(&empty[i], CONSUMERS * WARP_GROUP / WARP);",
        "mbarrier_init(&empty[i], CONSUMERS * WARP_GROUP / (HERE ? 1 : WARP));",
        "mbarrier_wait|named_barrier_sync", "deadlock: waits for .* 372 of 384|128 of 256 threads",
    ),
    "zeros that do not wait for the values": (
        "mbarrier_wait(tail, tails++ % 2);", "if (!HERE) mbarrier_wait(tail, tails++ % 2);",
        "zero_values|load_tile",
        "writes .* before the asynchronous copy to it|arrivals where its phase lacks 0",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def planted() -> Module:
    source = PINGPONG.read_text(encoding="utf-8")
    for number, (old, new, *_) in enumerate(PLANTED.values(), start=1):
        new = new.replace("HERE", f"(flash.max_blocks == {number})")
        source = changed(source, PINGPONG, {old: new})
    return Module(source, PINGPONG, checked=True, apart=True)  # compiles only what is launched


def launch_planted(module: Module, fault: str | None) -> None:
    keys = 344 if fault and "zeros" in fault else 384
    later = fault in ("queries given back twice", "no fence after the output")
    rows, heads = (770, 2) if later else (386, 1)  # they show at a thread block's later tiles
    q, (k, v) = torch.randn(rows, heads, 64).half(), torch.randn(2, keys, 1, 64).half()
    k *= torch.linspace(0.0, 40.0, keys).half().view(keys, 1, 1)  # the maxima rise
    out, lse = torch.empty_like(q), torch.empty(rows, heads)
    number = [None, *PLANTED].index(fault)
    module.flash_pingpong_f16(
        *(q, k, v, out, lse, None, None, None, None, 1, rows, keys, heads, 1, 64),
        *(q.stride(0), k.stride(0), v.stride(0), 0, number, 0.125, 0),
    )


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_told(planted, fault):
    *_, where, words = PLANTED[fault]
    check_told(planted, where, words, lambda: launch_planted(planted, fault))


def test_without_a_fault_nothing_is_told(planted):
    launch_planted(planted, None)
    assert planted.report.clean, planted.report

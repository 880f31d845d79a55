"""Ladders of attention's variants: with all scores in memory, over selected tokens, in 8 bits."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from yaie.bench.cases import Case, Draw, Prepare
from yaie.bench.cases_attention import WORKSPACE, decode, pages, prefill
from yaie.bench.protocol import Call
from yaie.course.lessons import attention_variants as variants
from yaie.course.lessons.steps import BF16, Step, wrapped
from yaie.ops.cuda import paged

TOPK = 2048  # tokens that DeepSeek's sparse attention selects per query
TOKENS = 16384  # of all sequences of a step of `naive`, whatever their length


# ------------------------------------------------------------------------------------- naive


def naive(on_gpu: bool) -> Iterator[Step]:
    """Matrix product, softmax, matrix product in bfloat16, beside kernels that keep no scores."""
    heads = 32 if on_gpu else 2
    for head_dim in (128, 64):
        for causal in (False, True):
            for tokens in (1024, 2048, 4096, 8192, 16384) if on_gpu else (33,):
                batch = TOKENS // tokens if on_gpu else 2
                case = prefill(batch, heads, tokens, head_dim, causal, BF16)
                peers: dict[str, Prepare] = {"naive": partial(prepare_naive, batch)}
                names = ("cuda", "triton") if on_gpu else ("cuda",)
                about: dict[str, Any] = {
                    "tokens": tokens, "head_dim": head_dim, "causal": causal, "peak_bytes": {},
                    "naive_bytes": case.num_bytes
                    + naive_bytes(batch * heads, tokens, causal),
                }  # fmt: skip
                rungs = {name: case.ours(name) for name in names}
                ways = [peers | (case.peers if on_gpu else {}), rungs]
                watched = [
                    {name: _watched(about["peak_bytes"], name, x) for name, x in way.items()}
                    for way in ways
                ]
                case = replace(case, peers=watched[0], rungs=watched[1], rough=("naive",))
                against = {"of_naive": ("naive",)}
                yield Step(case, ("problems", case.shape), BF16, about, against)


def naive_bytes(matrices: int, tokens: int, causal: bool) -> int:
    """The bytes of scores and weights, in bfloat16, that naive attention moves.

    Each is written once and read once, and a mask reads and writes the scores once more.
    """
    return (6 if causal else 4) * matrices * tokens * tokens * 2


def prepare_naive(batch: int, q, k, v, starts_q, starts_k, causal, scale) -> Call:
    """Attention as three operations, their intermediate results in memory in the dtype of q.

    What a call would spend on layout, on the mask and on the scale is done beforehand or folded
    into a product, so that only products, mask and softmax are timed.
    """
    q, k, v = (
        x.unflatten(0, (batch, -1)).transpose(1, 2).flatten(0, 1).contiguous() for x in (q, k, v)
    )
    tokens, head_dim = q.shape[1:]
    blank = q.new_zeros(1, 1, 1)
    hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)

    def call() -> torch.Tensor:
        # scale × q kᵀ in one product; with beta 0 the first argument is not read
        scores = torch.baddbmm(blank, q, k.transpose(1, 2), beta=0, alpha=head_dim**-0.5)
        if causal:
            scores.masked_fill_(hidden, -torch.inf)
        out = torch.softmax(scores, dim=-1) @ v
        return out.unflatten(0, (batch, -1)).transpose(1, 2)

    return call


def _watched(peaks: dict[str, int], name: str, prepare: Prepare) -> Prepare:
    """Keep the bytes that the first call takes beyond those that were there, its output included.

    Preparing has its own first call, which may compile, so each time it is prepared counts again.
    """

    def watch(*arguments: object) -> Call:
        call, calls = prepare(*arguments), 0

        def watched() -> object:
            nonlocal calls
            calls += 1
            if calls > 1 or not torch.cuda.is_available():
                return call()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            result = call()
            peaks[name] = torch.cuda.max_memory_allocated() - before
            return result

        return watched

    return watch


# --------------------------------------------------------------------------- selected tokens


def selected(on_gpu: bool) -> Iterator[Step]:
    """Decode over 2,048 tokens of each context: two ways to follow the selection."""
    sizes = [(16, 8192), (64, 8192), (16, 32768), (4, 131072), (1, 131072)] if on_gpu else [(2, 40)]
    heads = (32, 8, 128, 16, BF16) if on_gpu else (4, 2, 64, 16, BF16)
    topk = TOPK if on_gpu else 9
    for batch, context in sizes:
        name = f"B{batch} ctx{context}"
        full = replace(decode(batch, context, *heads), peers={}, rungs={"mma": wrapped(paged.mma)})
        yield Step(full, ("full", name))
        case = _selected_case(full, batch, context, topk, heads)
        against = {"of_flashinfer": ("FlashInfer, pages of 1 token",)}
        yield Step(case, ("selected", name), about={"topk": topk}, against=against)


def _selected_case(full: Case, batch: int, context: int, topk: int, heads: tuple) -> Case:
    """`full` over random positions; the two tensors of the selection follow its arguments."""

    def arguments(draw: Draw) -> tuple:
        chosen = [draw.permutation(context)[:topk] for _ in range(batch)]
        selected = torch.stack(chosen).int()
        return *full.arguments(draw), selected, torch.full_like(selected[:, 0], topk)

    def oracle(*given: Any) -> tuple:
        q, keys, values, *others, selected, counts = given
        doubles = (x.double() for x in (q, keys, values))
        return variants.selected_attention(*doubles, *others, selected=selected, counts=counts)

    def by_slots(*given: Any, kept: bool) -> Call:
        *operands, selected, counts = given
        where = (*operands[3:6], operands[1].shape[1])

        def table() -> torch.Tensor:
            return variants.slot_tables(selected, counts, *where)

        slots = table()
        return lambda: variants.attention_by_slots(
            *operands, slots=slots if kept else table(), counts=counts
        )

    def own(*given: Any) -> Call:
        *operands, selected, counts = given
        chosen = {"selected": selected, "counts": counts}
        return lambda: variants.selected_attention_cuda(*operands, **chosen)

    return replace(
        full,
        operator="selected_attention", shape=f"{full.shape} top {topk}", arguments=arguments,
        oracle=oracle, num_bytes=2 * batch * topk * heads[1] * heads[2] * 2 + 4 * batch * topk,
        flops=4 * batch * heads[0] * topk * heads[2],
        rungs={
            "selected": own,
            "slots, then mma": partial(by_slots, kept=False),
            "mma, slots kept": partial(by_slots, kept=True),
        },
        peers={"FlashInfer, pages of 1 token": _flashinfer_selected},
    )  # fmt: skip


def _flashinfer_selected(*given: Any) -> Call:
    q, key_pool, value_pool, *where, _, selected, counts = given
    slots = variants.slot_tables(selected, counts, *where, key_pool.shape[1])
    pools = [pool.flatten(0, 1).unsqueeze(1) for pool in (key_pool, value_pool)]
    return _flashinfer(q, pools, slots, counts)


def _flashinfer(q, pools, tables, lengths, **scales: float) -> Call:
    """FlashInfer's decode with tensor cores over pools of any dtype and block size."""
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    _, block_size, kv_heads, head_dim = pools[0].shape
    workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=q.device)
    wrapper = BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)
    wrapper.plan(
        *pages(tables, lengths, block_size), q.shape[1], kv_heads, head_dim, block_size,
        q_data_type=q.dtype, kv_data_type=pools[0].dtype,
    )  # fmt: skip
    return lambda: wrapper.run(q, tuple(pools), **scales)


# ------------------------------------------------------------------------------- 8-bit cache


def eight_bits(on_gpu: bool) -> Iterator[Step]:
    """Decode over a cache of e4m3, beside the same numbers in bfloat16."""
    sizes = [(64, 4096), (16, 8192), (64, 8192), (1, 32768)] if on_gpu else [(2, 40)]
    heads = (32, 8, 128, 16, BF16) if on_gpu else (4, 2, 64, 16, BF16)
    for batch, context in sizes:
        full = decode(batch, context, *heads)
        saved = batch * context * heads[1] * heads[2] * 2  # a byte of each key and value
        about = {"bytes_16": full.num_bytes}
        case = _eight_bit_case(replace(full, num_bytes=full.num_bytes - saved))
        yield Step(case, ("decode", f"B{batch} ctx{context}"), about=about)


def _eight_bit_case(full: Case) -> Case:
    """`full` with pools of e4m3 and their scales, powers of two, so that bfloat16 holds the same
    numbers exactly."""

    def arguments(draw: Draw) -> tuple:
        q, keys, values, *others = full.arguments(draw)
        scales = torch.tensor([2.0**-6, 2.0**-5], device=draw.device).split(1)
        codes = (
            (x / s).to(torch.float8_e4m3fn) for x, s in zip((keys, values), scales, strict=True)
        )
        return q, *codes, *others, *scales

    def oracle(*given: Any) -> tuple:
        q, *others, key_scale, value_scale = given
        scales = {"key_scale": key_scale, "value_scale": value_scale}
        return variants.attention_fp8(q.double(), *others, **scales)

    def sixteen(*given: Any) -> Call:
        q, keys, values, *others, key_scale, value_scale = given
        pools = (
            x.to(q.dtype) * s.to(q.dtype) for x, s in ((keys, key_scale), (values, value_scale))
        )
        operands = (q, *pools, *others)
        return lambda: paged.mma(*operands)

    def eight(*given: Any, more: int = 0) -> Call:
        *operands, key_scale, value_scale = given
        device, head_dim = operands[0].device, operands[0].shape[2]
        workers = paged._workers(device, head_dim, 1) + more * paged.multiprocessors(device)
        how = {"key_scale": key_scale, "value_scale": value_scale, "workers": workers}
        return lambda: variants.attention_fp8_cuda(*operands, **how)

    def flashinfer(*given: Any) -> Call:
        q, keys, values, tables, lengths, _, _, key_scale, value_scale = given
        scales = {"k_scale": float(key_scale), "v_scale": float(value_scale)}
        return _flashinfer(q, (keys, values), tables, lengths, **scales)

    return replace(
        full, operator="paged_attention_fp8", arguments=arguments, oracle=oracle,
        rungs={"mma, bfloat16": sixteen, "mma, e4m3": eight},
        variants={
            f"mma, e4m3, {more:+} warps per SM": partial(eight, more=more)
            for more in (-2, -1, 1, 2, 3)
        },
        peers={"FlashInfer, e4m3": flashinfer},
    )  # fmt: skip

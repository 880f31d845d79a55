"""The last rungs changed: other constants, or one of their ideas taken away, for `ladders`."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from yaie.bench.cases import Prepare
from yaie.build import jit
from yaie.build.cache import cache_root, content_hash
from yaie.build.nvcc import CSRC
from yaie.ops.cuda import paged

Changes = dict[str, str]  # of a kernel's source: what is there -> what replaces it


def variant(file: str, name: str, changes: Changes) -> jit.Module:
    """A kernel in bfloat16 alone, after replacements, each of which must apply to it, to a header
    beside it or to the header that all kernels share."""
    kernel, header = ((CSRC / f).read_text(encoding="utf-8") for f in (file, "common.cuh"))
    kernel = re.sub(r'extern "C" cudaError_t \w+_f(16|32)\(.*?\n}\n', "", kernel, flags=re.DOTALL)
    for beside in (CSRC / file).parent.glob("*.cuh"):
        text = beside.read_text(encoding="utf-8").replace("#pragma once", "")
        line = f'#include "{beside.relative_to(CSRC).as_posix()}"'  # which is found anywhere
        kernel = kernel.replace(f'#include "{beside.name}"', line)
        if any(old in text for old in changes):
            kernel = kernel.replace(line, text)
    # A place that does not change: what nvcc makes of it is kept for other runs.
    place = cache_root() / "variants" / content_hash(file, name, *map(str, changes.items()))
    place.mkdir(parents=True, exist_ok=True)
    for old, new in changes.items():
        if old not in kernel + header:
            raise ValueError(f"{file} no longer has {old!r}")
        if old in header:  # a second one, unchanged, would define everything twice
            header = header.replace(old, new)
            (place / "common.cuh").write_text(header, encoding="utf-8")
        kernel = kernel.replace(old, new)
    path = place / Path(file).name
    path.write_text(kernel, encoding="utf-8")
    return jit.load(path)


@dataclass(frozen=True)
class Variants:
    """Changed versions of a kernel.

    Attributes:
        file: below `csrc/`.
        launch: (module, a case's arguments) -> its outputs, without the back end's checks.
        changes: by the names of the rows.
    """

    file: str
    launch: Callable[..., object]
    changes: dict[str, Changes]

    def modules(self) -> dict[str, jit.Module]:
        """All of them, by name; nothing is compiled yet."""
        return {name: variant(self.file, name, c) for name, c in self.changes.items()}

    def prepares(self) -> dict[str, Prepare]:
        """How a case calls them."""
        return {
            name: lambda *a, m=module: functools.partial(self.launch, m, *a)
            for name, module in self.modules().items()
        }


def _add_relu(module, x, y) -> torch.Tensor:
    out = x.new_empty(x.shape)
    module.add_relu_bf16(x, y, out, x.numel())
    return out


def _rms_norm(module, x, weight, eps) -> torch.Tensor:
    out = x.new_empty(x.shape)
    module.rms_norm_bf16(x, weight, out, *x.shape, eps)
    return out


def _product(module, a, b) -> torch.Tensor:
    c, (launcher,) = a.new_empty(a.shape[0], b.shape[1]), module.launchers
    getattr(module, launcher)(a, b, c, *c.shape, a.shape[1])
    return c


def _attention(module, q, k, v, starts_q, starts_k, causal, scale) -> tuple:
    (tokens, heads, head_dim), (keys, kv_heads, _) = q.shape, k.shape
    out, lse = q.new_empty(q.shape), q.new_empty(tokens, heads, dtype=torch.float32)
    (launcher,) = module.launchers
    getattr(module, launcher)(
        *(q, k, v, out, lse, starts_q, starts_k, None, None, len(starts_q) - 1, tokens),
        *(keys, heads, kv_heads, head_dim, q.stride(0), k.stride(0), v.stride(0), 0, 0),
        *(head_dim**-0.5, int(causal)),
    )
    return out, lse


def _paged(module, *operands) -> tuple:
    """With as many thread blocks as run together."""
    q, key_pool = operands[:2]
    group, head_dim, workers = q.shape[1] // key_pool.shape[2], q.shape[2], 4
    if q.is_cuda:
        properties = torch.cuda.get_device_properties(q.device)
        stages, tile = (
            int(re.search(rf"\b{name} = (\d+);", module.source)[1]) for name in ("STAGES", "TILE")
        )
        together = properties.shared_memory_per_multiprocessor // (
            stages * tile * 4 * head_dim + 1024
        )
        workers = together * properties.multi_processor_count
    state, given = paged.arguments(*operands)
    size = workers * (4 + 2 * group * (head_dim + 1))
    module.paged_mma_bf16(*given, q.new_empty(size, dtype=torch.float32), 0, workers)
    return state


def tiles(m: int, n: int, k: int, stages: int, blocks: int = 1) -> Changes:
    """Replacements that give the product's last rung other tiles."""
    return {
        "TILE_M = 256, TILE_N = 128, TILE_K = 32;": f"TILE_M = {m}, TILE_N = {n}, TILE_K = {k};",
        "STAGES = 3;": f"STAGES = {stages};",
        "MIN_BLOCKS = 1;": f"MIN_BLOCKS = {blocks};",
    }


STREAMING = {
    "uint4 bits = *reinterpret_cast<const uint4*>(from);": (
        "uint4 bits = __ldcs(reinterpret_cast<const uint4*>(from));"
    ),
    "*reinterpret_cast<uint4*>(to) = reinterpret_cast<const uint4&>(vec);": (
        "__stcs(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4&>(vec));"
    ),
}
EARLY = {"blocks <= FEW_BLOCKS": "true"}
THREADS, PIECES = "constexpr int THREADS = ", "vecs <= 128 ? 1 : vecs <= 1024 ? 2 : 4"
TURNS = {
    "named_barrier_sync(TURN + consumer, 2 * WARP_GROUP);": "",
    "named_barrier_arrive(TURN + next, 2 * WARP_GROUP);": "",
    # With no barrier after the loop ptxas counts a consumer's registers as before setmaxnreg: it
    # spills, and waits for each product.
    "if (consumer == 0) begin_turn();": "named_barrier_sync(TURN + consumer, WARP_GROUP);",
}
SKIPPED = "return CONSUMERS == 2 ? work.tiles"
LATER = {"if (Q_STAGES > 1 && tiles == work.tiles) {": "if (false) {"}
GIVEN = "                end_turn((consumer + 1) % CONSUMERS);\n"
V_TILE = "                const T* v_tile = wait_for(load + 2);"
EXPONENTIAL = "exp2_approx(power)"
POLYNOMIAL = """__device__ __forceinline__ float polynomial(float power) {  // 2 to this
    power = fmaxf(power, -127.0f);
    float whole = power + 12582912.0f, part = power - (whole - 12582912.0f);
    part = ((0.05459282f * part + 0.24221784f) * part + 0.6933686f) * part + 1.0f;
    return __int_as_float(__float_as_int(part) + (__float_as_int(whole) << 23));
}
"""
WHOLE = """__device__ __forceinline__ uint64_t advance_64(uint64_t descriptor, int bytes) {
    return descriptor + (bytes >> 4);
}
"""
WEIGHTS = "                softmax.weigh(scores);\n"
GIVEN_BACK = """                wgmma_wait<0>();
                release(load + 2);
                if (raised) rescale(out, factors);
"""
KEPT = {GIVEN_BACK + WEIGHTS: WEIGHTS + GIVEN_BACK}
KEYS = "KEYS = (WIDE ? 160 : 128) / (DIM > 128 ? 2 : 1);"
BOUNDS, BLOCKS = "(Sizes<DIM, WIDE>::THREADS, 1)", "int blocks = min(sms, all);"


def consumers_64(keys: int, consumers: int, producer: int, registers: int) -> Changes:
    """Replacements that give heads of 64 other tiles, and their threads other registers."""
    return {
        KEYS: f"KEYS = DIM <= 64 ? {keys} : {KEYS[7:]}",
        "DIM <= 64 ? 3 : 2,": f"DIM <= 64 ? {consumers} : 2,",
        "CONSUMERS == 3 ? 32 :": f"DIM <= 64 ? {producer} :",
        "CONSUMERS == 3 ? 160 :": f"DIM <= 64 ? {registers} :",
    }


TWO_BLOCKS = consumers_64(64, 2, 32, 104) | {
    BOUNDS: BOUNDS.replace("1)", "DIM <= 64 ? 2 : 1)"),
    BLOCKS: BLOCKS.replace("sms", "2 * sms"),  # heads of 64 alone are timed
}
TOGETHER, WEIGH = "HEADS_TOGETHER = ", "                weigh(j, weights[j / 2]);\n"
VARIANTS = {
    "add_relu": Variants("elementwise/add_relu.cu", _add_relu, {
        "launcher, as it is": {},
        **{f"launcher, {n} threads": {f"{THREADS}256;": f"{THREADS}{n};"}
           for n in (128, 512, 1024)},
        "launcher, streaming": STREAMING,
    }),
    "rms_norm": Variants("norm/rms_norm.cu", _rms_norm, {
        "launcher, as it is": {},
        **{f"launcher, {n} pieces a thread": {PIECES: str(n)} for n in (1, 2, 4)},
        "launcher, weights before the sum": EARLY,
        "launcher, streaming": STREAMING,
    }),
    "matmul": Variants("matmul/mma.cu", _product, {
        "mma, 128 × 256 × 32, 3 stages": tiles(128, 256, 32, 3),
        "mma, 256 × 128 × 64, 3 stages": tiles(256, 128, 64, 3),
        "mma, 256 × 128 × 64, 4 stages": tiles(256, 128, 64, 4),
        "mma, 128 × 128 × 32, 3 stages, 2 thread blocks": tiles(128, 128, 32, 3, 2),
        "mma, 128 × 128 × 64, 3 stages, 2 thread blocks": tiles(128, 128, 64, 3, 2),
        "mma, 4 stages": {"STAGES = 3;": "STAGES = 4;"},
        "mma, 2 stages": {"STAGES = 3;": "STAGES = 2;"},
        "mma, no swizzle": {"(chunk ^ (row / ROWS & MASK))": "chunk"},
        "mma, groups of 8 rows of tiles": {"GROUP = 16;": "GROUP = 8;"},
        "mma, tiles in the order of rows": {"GROUP = 16;": "GROUP = 1;"},
    }),
    "hopper": Variants("matmul/hopper/store.cu", _product, {
        "store, 3 stages": {"STAGES = 4;": "STAGES = 3;"},
        **{f"store, groups of {n} rows of tiles": {"GROUP = 16;": f"GROUP = {n};"}
           for n in (8, 32)},
        "store, tiles in the order of rows": {"GROUP = 16;": "GROUP = 1;"},
    }),
    "flash": Variants("flash/mma.cu", _attention, {
        "mma, all weights of a tile first": {
            WEIGH: f"{WEIGH}            }}\n#pragma unroll\n"
                   "            for (int j = 0; j < KEY_TILES; j += 2) {\n"
        },
        "mma, rescaled whenever a maximum grows": {"LAZY = 8.0f;": "LAZY = 0.0f;"},
        "mma, no swizzle": {"(chunk ^ row % 8)": "chunk"},
        "mma, tiles of 8 KiB": {"return 8192 / DIM;": "return 4096 / DIM;"},
        "mma, 1 head after the other": {f"{TOGETHER}16;": f"{TOGETHER}1;"},
        **{f"mma, {n} heads together": {f"{TOGETHER}16;": f"{TOGETHER}{n};"} for n in (8, 32)},
        "mma, all of head_dim unrolled": {"#pragma unroll 4  // not 8": "#pragma unroll  // not 8"},
    }),
    "flash_hopper": Variants("flash/hopper/pingpong.cu", _attention, {
        "pingpong, no turns": TURNS,
        "pingpong, turns that end after the scores": {
            GIVEN: "", V_TILE: GIVEN + V_TILE},
        "pingpong, tiles skipped": {SKIPPED: SKIPPED.replace("== 2", "== 0")},
        "pingpong, weights after the products": {"wgmma_wait<1>();": "wgmma_wait<0>();"},
        "pingpong, values given back after the weights": KEPT,
        "pingpong, a thread block for each tile": {"min(sms, all)": "all"},
        "pingpong, scores begun when the output is stored": LATER,
        "pingpong, 8 heads together": {f"{TOGETHER}16;": f"{TOGETHER}8;"},
        "pingpong, tiles of 128 keys": {
            "wide = !cache || Sizes<DIM, true>::KEYS % flash.block_size == 0;": "wide = false;"},
    }),
    "flash_hopper_64": Variants("flash/hopper/pingpong.cu", _attention, {
        "pingpong, no turns": TURNS,
        "pingpong, descriptors added in 64 bits": {
            '#include "hopper.cuh"': '#include "hopper.cuh"\n' + WHOLE, "advance(": "advance_64("},
        "pingpong, no tile skipped": {SKIPPED: SKIPPED.replace("== 2", "== 3")},
        "pingpong, scores begun when the output is stored": LATER,
        "pingpong, 2 consumers": {"DIM <= 64 ? 3 : 2,": "2,"},
        "pingpong, values given back after the weights": KEPT,
        "pingpong, 4 consumers, tiles of 64 keys": consumers_64(64, 4, 32, 112),
        "pingpong, 2 thread blocks, tiles of 64 keys": TWO_BLOCKS,
        "pingpong, 2 thread blocks, no turns": TWO_BLOCKS | TURNS,
        "pingpong, a quarter by a polynomial": {
            "constexpr float LAZY": POLYNOMIAL + "constexpr float LAZY",
            EXPONENTIAL: "i % 8 < 2 ? polynomial(power) : exp2_approx(power)"},
    }),
    "paged": Variants("paged/mma.cu", _paged, {
        "mma, 2 stages": {"STAGES = 3;": "STAGES = 2;"},
        "mma, tiles of 16 keys": {"TILE = 32;": "TILE = 16;"},
        "mma, merge launched when the shares are done": {
            "    if (work.skip == 0) let_next_begin();\n": "",
            "    let_next_begin();  // only here": "    // not here",
        },
    }),
}  # fmt: skip


def prepares(name: str) -> dict[str, Prepare]:
    """How a case calls the variants of a kernel, if it has any."""
    return VARIANTS[name].prepares() if name in VARIANTS else {}

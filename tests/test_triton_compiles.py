"""Every Triton kernel of the engine compiles for cards that are not here.

The interpreter takes more than the compiler does: `if` of a number that is no integer, say.
"""

import importlib.util
import os
import subprocess
import sys

import pytest

if importlib.util.find_spec("triton") is None:  # an import decides where kernels run
    pytest.skip("Triton is not installed", allow_module_level=True)

COMPILE = """
from itertools import product
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, mangle_type

compiled = set()


def run(kernel, *arguments, grid, warmup, **options):
    given = dict(zip(kernel.arg_names, arguments))
    given |= {name: options.pop(name) for name in kernel.arg_names if name in options}
    constants = {p.name: given[p.name] for p in kernel.params if p.is_constexpr}
    kinds = dict.fromkeys(constants, "constexpr")
    kinds |= {name: mangle_type(x) for name, x in given.items() if name not in constants}
    kinds = {name: kinds[name] for name in kernel.arg_names}
    target = GPUTarget("cuda", arch, 32)
    triton.compile(ASTSource(kernel, kinds, constants), target=target, options=options)
    compiled.add((arch, kernel.__name__))


JITFunction.run = run
from yaie.ops.triton import elementwise, flash, kv, norm, paged, rotary

norm.multiprocessors = paged.multiprocessors = lambda device: 132
for arch, dtype in product((80, 90), (torch.float32, torch.float16, torch.bfloat16)):
    print(f"sm_{arch}, {dtype}", flush=True)
    fp8 = [torch.float8_e4m3fn] if arch >= 89 else []
    x, heads = torch.randn(4, 96, dtype=dtype), torch.randn(3, 4, 64, dtype=dtype)
    cos, ints = torch.randn(9, 32), torch.arange(4, dtype=torch.int32)
    norm.rms_norm.__wrapped__(x, x[0], 1e-5)
    norm.add_rms_norm.__wrapped__(x, x, x[0], 1e-5)
    elementwise.silu_and_mul.__wrapped__(x)
    rotary.rotary.__wrapped__(heads, torch.arange(3), cos, cos)
    flash.ragged_attention.__wrapped__(heads, heads, heads, ints[:2] * 3, ints[:2] * 3, True, None)
    for kept in (dtype, *fp8):
        pool = torch.zeros(64, 16, 2, 64).to(kept)
        kv.reshape_and_cache.__wrapped__(heads[:, :2], heads[:, 2:], pool, pool, torch.arange(3))
        tables = torch.zeros(3, 64, dtype=torch.int32)  # long contexts, which are split
        for lengths, ends in ((ints[:3], ints), (ints[:1], ints[:2] * 3)):
            own = tables[: len(lengths)]
            paged.paged_attention.__wrapped__(heads, pool, pool, own, lengths, ends, None)
kernels = {
    (arch, name)
    for arch in (80, 90)
    for module in (elementwise, flash, kv, norm, paged, rotary)
    for name, x in vars(module).items()
    if isinstance(x, JITFunction) and name.endswith("_kernel")
}
assert compiled == kernels, kernels ^ compiled
"""


def test_every_kernel_compiles() -> None:
    """For both GPUs in one process, which imports torch and Triton once."""
    told = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=os.environ | {"TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stdout[-100:] + told.stderr[-3000:]

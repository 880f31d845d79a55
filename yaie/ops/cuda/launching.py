"""Calling the launchers of `csrc/`: which file, which dtype, and what they cannot do."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from yaie.build import dtypes, jit, nvcc
from yaie.ops import plans
from yaie.ops.registry import HOPPER, Declined, Unsupported

SUFFIXES = {getattr(torch, name): suffix for name, suffix in dtypes.SUFFIXES.items()}
SINCE_SM_80 = {torch.float16: (8, 0), torch.bfloat16: (8, 0)}  # of mma.sync as csrc/ uses it
MOST = 2**31 - 2**16  # elements: indices are 32 bits, and may pass the end by a thread block's


def launch(file: str | Path, name: str, dtype: torch.dtype, *arguments: Any) -> None:
    """`call` the variant of a launcher for `dtype`. Also raises Unsupported for a dtype that has no
    variant, and for tensors whose elements 32 bits cannot count."""
    name = f"{name}_{suffix(dtype)}"
    for argument in arguments:
        if type(argument) is torch.Tensor and argument.numel() > MOST:
            size = argument.numel()
            raise Unsupported(f"the kernels take up to {MOST} elements per tensor, got {size}")
    call(file, name, *arguments)


def call(file: str | Path, name: str, *arguments: Any) -> None:
    """Call the launcher `name` of a file, from `csrc/` if it is relative.

    Raises Unsupported if the tensors are on a GPU and nvcc or its C++ compiler is missing.
    """
    try:
        function = launcher(file, name)
        function(*arguments)
        if plan := plans.recording():
            _note(plan, function, arguments)
    except jit.CompileError as error:
        on_gpu = any(getattr(argument, "is_cuda", False) for argument in arguments)
        if on_gpu and (nvcc.find() is None or not nvcc.has_host_compiler()):
            raise Unsupported(str(error)) from None
        raise


def _note(plan: plans.Plan, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    module, launcher = function.kernel
    plan.is_whole &= launcher.can_repeat
    if plan.is_whole:
        again = module.repeat(launcher, plan.index, launcher.values(arguments, 0))
        line = "if error := {start}({pack}({first}, {values}, stream)): {fail}(error)"
        plan.note(line, launcher.pointers(arguments), **again)


@cache
def launcher(file: str | Path, name: str) -> Callable[..., None]:
    """The launcher `name` of a file, from `csrc/` if it is relative, as it was at the first call.

    Like a Python module, a file is read once per process: `jit.load` reads the file and every
    header, which takes longer than a launch. After `forget_sources()` all are read again.
    """
    return getattr(jit.load(jit.CSRC / file), name)


def forget_sources() -> None:
    """Have every file read again at its next call: one may have been edited."""
    launcher.cache_clear()
    plans.forget()


@cache
def constants(file: str) -> dict[str, int]:
    """The constants that a file of `csrc/` declares `constexpr int` outside of any function.

    Numbers and products of numbers, such as `WARPS = 8, THREADS = WARPS * WARP`, and no others.
    """
    text = (jit.CSRC / file).read_text(encoding="utf-8")
    found = {"WARP": 32}
    for declaration in re.findall(r"^constexpr int ([^;]+);", text, re.MULTILINE):
        for name, value in re.findall(r"(\w+) = ([^,]+)", declaration):
            factors = value.split(" * ")
            if all(factor.isdecimal() or factor in found for factor in factors):
                found[name] = math.prod(found.get(x) or int(x) for x in factors)
    return found


def suffix(dtype: torch.dtype) -> str:
    """What a launcher's name ends in for a dtype. Raises Unsupported if there is no variant."""
    if dtype == torch.int32:
        return "i32"
    if dtype not in SUFFIXES:
        raise Unsupported(f"the kernels take float32, float16 and bfloat16, got {dtype}")
    return SUFFIXES[dtype]


def require_tensor_cores(
    x: torch.Tensor, since: Mapping[torch.dtype, tuple[int, int]] = SINCE_SM_80
) -> None:
    """Raise Unsupported unless the tensor cores of x's card multiply its dtype; a CPU's do.

    Args:
        since: the first compute capability of each dtype.
    """
    if x.dtype not in since:
        raise Unsupported(f"tensor cores take float16 and bfloat16 here, got {x.dtype}")
    if x.is_cuda and (has := torch.cuda.get_device_capability(x.device)) < since[x.dtype]:
        major, minor = since[x.dtype]
        raise Unsupported(f"{x.dtype} needs sm_{major}{minor}, this is sm_{has[0]}{has[1]}")


def require_hopper(x: torch.Tensor) -> None:
    """Raise Declined unless x's card has wgmma, which takes x's dtype; the emulator has it."""
    if x.is_cuda and (has := torch.cuda.get_device_capability(x.device)) != HOPPER:
        raise Declined(f"wgmma needs sm_90a, this is sm_{has[0]}{has[1]}")
    if x.dtype not in SINCE_SM_80:
        raise Declined(f"tensor cores take float16 and bfloat16 here, got {x.dtype}")


def token_rows(x: torch.Tensor) -> torch.Tensor:
    """`[tokens, heads, head_dim]` in which at most the tokens lie apart."""
    heads_touch = x.shape[1] == 1 or x.stride(1) == x.shape[2]
    return x if x.stride(2) == 1 and heads_touch and x.stride(0) >= 0 else x.contiguous()


def memory(x: torch.Tensor) -> torch.Tensor:
    """All memory from the first element of x to its last, as launchers take it: contiguous."""
    if x.is_contiguous():
        return x
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((last + 1 if x.numel() else 0,), (1,))

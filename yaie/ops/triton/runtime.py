"""What every launch needs: the interpreter's limits, a device, and a configuration.

Under the interpreter each kernel has one configuration, the first of its list. On a GPU a large
problem is timed with each, once for every key, and the fastest is kept; a small one takes the
first, since it would never earn the compilations back.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from yaie.ops import plans
from yaie.ops.interpreter import VARIABLE
from yaie.ops.registry import Unsupported

Config = dict[str, int]  # constants of the kernel, num_warps and num_stages

INTERPRETED = triton.knobs.runtime.interpret
TUNED: dict[tuple, tuple[Config, float]] = {}  # kernel and key -> fastest configuration, its ms
_TURN = threading.RLock()  # the interpreter computes one kernel at a time

if INTERPRETED and isinstance(tl.sum, triton.JITFunction):
    raise ImportError(
        f"triton was imported before {VARIABLE}=1 was set, and cannot change its mind: "
        f"import yaie.ops first, or set {VARIABLE}=1 before Python starts"
    )


def launches(
    float32_result: int | None = None, computes: bool = True
) -> Callable[[Callable], Callable]:
    """Decorate a function that launches kernels: refuse what Triton cannot do, choose the device.

    The interpreter multiplies the bits of bfloat16 as if they were integers, so there arguments are
    widened to float32 before the kernel, and results are rounded after it.

    Args:
        float32_result: which result, if any, is float32 whatever the dtype of the arguments.
        computes: False if the kernel only moves elements, whatever their bits mean.
    """

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def launch(*arguments: Any) -> Any:
            x = arguments[0]
            if x.dtype == torch.float64 and computes:
                raise Unsupported("the kernels compute in float32, got float64")
            if INTERPRETED:
                with _TURN, np.errstate(all="ignore"):  # a GPU does not warn of exp(-inf) either
                    results = function(*(map(_widened, arguments) if computes else arguments))
                return _rounded(results, x.dtype, float32_result) if computes else results
            if x.device.type != "cuda":
                raise Unsupported(
                    f"the kernels are compiled for the GPU here, got a tensor on {x.device}; "
                    f"set {VARIABLE}=1 before Python starts to run them on the CPU"
                )
            with torch.cuda.device(x.device):
                return function(*arguments)

        return launch

    return decorate


def _widened(argument: Any) -> Any:
    is_narrow = isinstance(argument, torch.Tensor) and argument.dtype == torch.bfloat16
    return argument.float() if is_narrow else argument


def _rounded(results: Any, dtype: torch.dtype, float32_result: int | None) -> Any:
    if not isinstance(results, tuple):
        return _rounded((results,), dtype, float32_result)[0]
    return tuple(
        result if i == float32_result else result.to(dtype) for i, result in enumerate(results)
    )


def largest_code(pool: torch.Tensor) -> float:
    """The largest number of a pool of 8-bit floats; 0 for other pools. Raises Unsupported where the
    card has no such floats."""
    if pool.element_size() > 1:
        return 0.0
    if pool.is_cuda and torch.cuda.get_device_capability(pool.device) < (8, 9):
        raise Unsupported("8-bit floats need sm_89 in Triton")
    return torch.finfo(pool.dtype).max


def run_kernel(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Launch a kernel, and note the launch for `yaie.ops.plans`. Triton takes longer to choose the
    compiled kernel than to launch it, so a planned call skips the choice. It launches by torch's
    C++ launcher or, if there are hooks, by Triton, which gives them addresses instead of tensors.

    Args:
        arguments: tensors and numbers, for the first of the kernel's parameters.
        options: the remaining parameters, all constants, and options such as num_warps.
    """
    compiled = kernel[grid](*arguments, **options)
    plan = plans.recording()
    if INTERPRETED or plan is None:
        return
    given = [*arguments, *[options[name] for name in kernel.arg_names[len(arguments) :]]]
    kinds, grid = list(compiled.src.signature.values()), (*grid, 1, 1)[:3]
    run, hooks, about = compiled[grid], triton.knobs.runtime, compiled.metadata
    plan.is_whole &= about.num_ctas == 1 and not about.global_scratch_size
    passed = [x for x, kind in zip(given, kinds, strict=True) if kind != "constexpr"]
    constants = {i: x for i, x in enumerate(given) if kinds[i] == "constexpr"}
    types = "".join("f" if kind == "fp32" else "l" for kind in kinds if kind != "constexpr") + "ll"
    form = compiled.function, *grid, about.num_warps, about.shared, types
    launch = functools.partial(torch._C._StaticCudaLauncher._launch_kernel, *form)

    def hooked(values: tuple[Any, ...], stream: int) -> None:
        rest = iter(values)
        every = [constants[i] if i in constants else next(rest) for i in range(len(kinds))]
        run(*every, stream=stream)

    has_hooks = "{hooks}.launch_enter_hook.calls or {hooks}.launch_exit_hook.calls"
    line = f"({{hooked}} if {has_hooks} else {{launch}})(({{values}}), stream)"
    values = [*passed, 0, 0]  # the last two are null: no scratch memory
    plan.note(line, values, hooks=hooks, hooked=hooked, launch=launch)


def fastest(
    key: tuple, configs: Sequence[Config], launch: Callable[[Config], None], large: bool
) -> Config:
    """Choose the configuration that a kernel is launched with.

    Args:
        key: the kernel's name and whatever the choice depends on.
        configs: the candidates; the first must work for any problem.
        launch: launches the kernel with one of them; may be called many times.
        large: whether the problem is worth timing all of them, if its key is new.
    """
    if key in TUNED:
        return TUNED[key][0]
    if INTERPRETED or not large or len(configs) == 1:
        return configs[0]
    if torch.cuda.is_current_stream_capturing():  # it cannot be timed here; a later call can be
        if plan := plans.recording():
            plan.is_provisional = True
        return configs[0]
    with plans.paused():
        times = [_time(launch, config) for config in configs]
    TUNED[key] = min(zip(configs, times, strict=True), key=itemgetter(1))
    plans.forget()  # plans of small problems still have the first configuration
    return TUNED[key][0]


def _time(launch: Callable[[Config], None], config: Config) -> float:
    """The median milliseconds of a launch; infinite if it needs more than the device has."""
    try:
        return triton.testing.do_bench(
            lambda: launch(config), warmup=10, rep=50, return_mode="median"
        )
    except (triton.runtime.errors.OutOfResources, triton.runtime.errors.PTXASError):
        return float("inf")


def precision(dtype: torch.dtype) -> str:
    """How the tensor cores multiply: TF32 keeps 11 bits of float32, three such products keep 22."""
    return "tf32x3" if dtype == torch.float32 else "tf32"


def aligned(x: torch.Tensor) -> bool:
    """Whether the copy engine can read x: every row begins at a multiple of 16 bytes."""
    size = x.element_size()
    strides = all(stride * size % 16 == 0 for stride in x.stride()[:-1])
    return strides and x.stride(-1) == 1 and x.data_ptr() % 16 == 0

"""09.4: what `benchmark_kernel` measures on simulated GPUs, where the kernels' time is known."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from yaie.bench.measure import Measurement
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb09.devices import FakeGpu, FakeKernel, odd_ones

ARGS = ("x", "y")
PLAIN = "The processor goes on while the GPU computes; the GPU itself takes the times of events."
WARM = "The first calls are slower. Make `warmup` calls first, which are not measured."
COLD = "From warm caches a call is faster. Empty them before every call, outside its two events."
TYPICAL = "A few calls were disturbed. The median is the time of a typical call."
HALFWAY = "The median of an even number of times lies halfway between the two in the middle."
SHORT = (
    "A launch takes longer than this kernel. While the GPU is busy with emptying its caches, the "
    "processor launches the kernel ahead of time, if it does not wait in between."
)


def cases() -> Iterator[Case]:
    yield kernel("a kernel that takes 0.04 ms", 0.04, PLAIN, num_bytes=96_000_000, flops=4 * 10**9)
    yield kernel("its first call compiles, for 800 ms", 0.04, WARM, iters=1, compiling=800.0)
    yield kernel("its first 5 calls are slow", 0.04, WARM, 5, 5, odd=[(range(5), 9.0)])
    yield kernel("its input fits in the L2 cache", 0.04, COLD, iters=9, warm=0.25)
    late = [(range(18, 21), 50.0)]  # the last of them among them
    yield kernel("3 of 20 calls are slow", 0.04, TYPICAL, 1, 20, odd=late)
    early = [(range(4, 6), 0.5)]
    yield kernel("2 of 20 calls are fast", 0.04, TYPICAL, 1, 20, odd=early)
    halves = [(range(1, 3), 0.8), (range(3, 5), 1.2)]
    yield kernel("2 calls of 0.04 ms and 2 of 0.06 ms", 0.05, HALFWAY, 1, 4, odd=halves)
    yield kernel("a short kernel, launched slowly", 0.003, SHORT, launch=0.02)
    yield kernel("no warm-up, one call", 0.5, PLAIN, 0, 1, flops=10**12)
    yield Case("", bad={"iters": 0})
    yield Case("", bad={"warmup": -1})
    generator = random.Random(0)
    for number in range(12):
        ms, warmup, iters = 10 ** generator.uniform(-2, 1), *(generator.randint(1, 9) for _ in "ab")
        odd, warm = [(range(warmup), 3.0)], generator.uniform(0.2, 0.9)
        work = {"num_bytes": generator.randint(1, 10**9), "flops": generator.randint(0, 10**12)}
        name = f"random kernel {number}, {ms:.3g} ms"
        yield kernel(name, ms, PLAIN, warmup, iters, odd=odd, warm=warm, **work)


def kernel(
    name: str, ms: float, why: str, warmup: int = 1, iters: int = 5, num_bytes: int = 12_000_000,
    flops: int = 0, **device: Any,
) -> Case:  # fmt: skip
    options = {"warmup": warmup, "iters": iters, "num_bytes": num_bytes, "flops": flops}
    name = f"{name}; warmup={warmup}, iters={iters}"
    return Case(name, ms=ms, why=why, options=options, device=device)


def observe(benchmark_kernel: Callable[..., Any], case: Case, see: Observer) -> None:
    if hasattr(case, "bad"):
        gpu = FakeGpu(0.005)
        fn = FakeKernel(gpu, odd_ones(0.04, []), 1.0, 0.0)
        [(name, value)], said = case.bad.items(), []

        def refused() -> None:
            try:
                benchmark_kernel(fn, *ARGS, clock=gpu, num_bytes=8, **{name: value})
            except ValueError as error:
                said.append(str(error))
                raise

        what = f"benchmark_kernel with {name}={value}"
        with gpu.keeps_time():
            see.raises(
                what, ValueError, refused, "iters must be at least 1, and warmup at least 0."
            )
        told = [f"does not name {name}: {words!r}" for words in said if name not in words]
        see.true(
            f"the ValueError of {what}", not told, "".join(told), "Say which argument is wrong."
        )
        return
    device = {"launch": 0.005, "odd": [], "warm": 1.0, "compiling": 0.0} | case.device
    gpu = FakeGpu(device["launch"])
    fn = FakeKernel(gpu, odd_ones(case.ms, device["odd"]), device["warm"], device["compiling"])
    with see.call("benchmark_kernel"), gpu.keeps_time():
        got = benchmark_kernel(fn, *ARGS, clock=gpu, **case.options)
    see.kind("benchmark_kernel", got, Measurement)
    calls = case.options["warmup"] + case.options["iters"]
    see.equal("the number of calls", len(fn.calls), calls, "`warmup` calls, then `iters`.")
    wrong = [args for args in fn.calls if args != ARGS]
    see.equal("calls without the arguments", wrong, [], "Each call is fn(*args).")
    ms, took = case.ms, f"The GPU took {case.ms:.3g} ms. "
    why = case.why if case.why == HALFWAY else took + case.why  # there no call took the median
    see.close("ms", got.ms, ms, why, rtol=0.02, atol=0.0)
    see.stop_if_wrong()
    for what, unit, number in (("gb_s", 1e9, "num_bytes"), ("tflop_s", 1e12, "flops")):
        amount = case.options[number]
        why = f"{amount:,} in {got.ms:.3g} ms, in units of {unit:.0e} per second."
        want = amount / (got.ms / 1e3) / unit
        see.close(what, getattr(got, what), want, why, rtol=1e-9, atol=0.0)

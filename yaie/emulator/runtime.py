"""The runtime's C interface, in Python: settings, failures, what the checker found."""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_size_t, c_void_p
from ctypes import c_int64 as i64
from ctypes import c_uint32 as u32
from ctypes import c_uint64 as u64
from functools import cache
from typing import Any

from yaie.emulator.build import build_runtime
from yaie.emulator.signature import Launcher

ORDERS = ("forward", "reverse", "random")

# As in runtime/failure.h, in this order.
KINDS = (
    *("out_of_bounds", "misaligned", "race", "uninitialized", "divergent_barrier", "deadlock"),
    *("inactive_lane", "wrong_mask", "divergent_collective", "segmentation_fault"),
    *("stack_overflow", "division", "time_limit", "assertion", "trap"),
    *("pending_copy", "conversion", "shift", "same_value", "interrupted", "launcher_fault"),
    *("missing_return", "refused", "mbarrier", "barrier_count", "transaction_bytes"),
    *("missing_fence", "warp_group", "pending_registers", "register_budget", "cluster", "left_out"),
)
MEMORIES = ("none", "global", "shared", "global")  # the last: __device__ variables
ACCESSES = ("load", "store", "atomic")


class Index(ctypes.Structure):
    """A uint3: blockIdx or threadIdx."""

    _fields_ = [("x", u32), ("y", u32), ("z", u32)]

    def __str__(self) -> str:
        return f"({self.x}, {self.y}, {self.z})"


class RawFailure(ctypes.Structure):
    """`struct Failure` of runtime/failure.h."""

    _fields_ = [
        *[("kind", c_int), ("error", c_int), ("site", u64), ("other_site", u64)],
        *[("block", Index), ("thread", Index), ("other_block", Index), ("other_thread", Index)],
        *[("memory", c_int), ("access", c_int), ("other_access", c_int), ("size", c_int)],
        *[("range", c_int), ("offset", i64), ("address", u64), ("count", u64)],
        *[("in_kernel", c_int), ("extent", u64), ("owner", c_int)],
        ("text", c_char * 256),
    ]


class RawSite(ctypes.Structure):
    """`struct Site` of runtime/counters.h."""

    _fields_ = [
        *[("address", u64), ("memory", c_int), ("access", c_int), ("size", c_int)],
        *[("range", c_int), ("requests", u64), ("by_lanes", u64 * 33)],
        *[("first_lanes", u32 * 64), ("units", u64)],
        *[("ideal_units", u64), ("worst_lanes", u32), ("worst_units", u32)],
        *[("worst_offsets", i64 * 32), ("worst_block", Index), ("worst_thread", Index)],
    ]


@cache
def library() -> ctypes.CDLL:
    """The runtime's core, built if need be, with the types of its functions declared."""
    return _load(
        "core",
        {
            "emulator_configure": (None, [c_int, u64, c_double, c_int, u64]),
            "emulator_begin": (c_void_p, [c_void_p]),
            "emulator_end": (None, []),
            "emulator_failure": (c_int, [POINTER(RawFailure)]),
            "emulator_static_shared": (None, [c_char_p, c_size_t]),
            "emulator_refusal": (c_int, [POINTER(RawFailure)]),
            "emulator_launches": (c_size_t, [POINTER(u64), c_size_t]),
            "emulator_grid_shape": (None, [POINTER(u64)]),
            "emulator_take_text": (c_size_t, [c_char_p, c_size_t]),
        },
    )


@cache
def checker() -> ctypes.CDLL:
    """What checked mode needs besides the core."""
    library()
    return _load(
        "checker",
        {
            "emulator_check_begin": (None, []),
            "emulator_check_end": (None, []),
            "emulator_check_range": (None, [c_void_p, c_size_t, c_int, c_int]),
            "emulator_check_unwritten": (None, [c_void_p, c_size_t, c_size_t]),
            "emulator_check_symbol": (None, [c_size_t, c_size_t, c_char_p, c_int]),
            "emulator_num_findings": (c_size_t, []),
            "emulator_finding": (None, [c_size_t, POINTER(RawFailure)]),
            "emulator_num_sites": (c_size_t, []),
            "emulator_site": (None, [c_size_t, POINTER(RawSite)]),
            "emulator_num_untracked": (c_size_t, []),
            "emulator_untracked": (c_int, [c_size_t]),
            "emulator_num_barriers": (c_size_t, []),
            "emulator_counters_truncated": (c_int, []),
        },
    )


def _load(part: str, signatures: dict[str, tuple]) -> ctypes.CDLL:
    lib = ctypes.CDLL(str(build_runtime(part)), mode=ctypes.RTLD_GLOBAL)
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


_present = ("forward", 0, 60.0, 0, 0)


@contextmanager
def settings(
    order: str = "forward",
    seed: int = 0,
    time_limit: float = 60.0,
    cores: int = 0,
    most_blocks: int = 0,
) -> Iterator[None]:
    """Run kernels in this block with another schedule, time limit or number of cores.

    Args:
        order: in which order threads and thread blocks take their turns: "forward", "reverse", or
            "random" with `seed`. A kernel that is right gives the same result in any.
        time_limit: seconds that a core may compute before the launch is given up; what others of
            the machine compute meanwhile does not count.
        cores: over how many cores thread blocks are spread; 0 means all that the machine lends.
        most_blocks: how many thread blocks of a launch run, the first in `order`; 0 means all. A
            grid may then be larger than could be emulated as a whole.
    """
    global _present
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    if not 0 < time_limit <= 1e6:
        raise ValueError(f"time_limit must be seconds above 0, got {time_limit}")
    if cores < 0:
        raise ValueError(f"cores must be 0 or more, got {cores}")
    if most_blocks < 0:
        raise ValueError(f"most_blocks must be 0 or more, got {most_blocks}")
    before, _present = _present, (order, seed, time_limit, cores, most_blocks)
    _apply()
    try:
        yield
    finally:
        _present = before
        _apply()


def _apply() -> None:
    order, *others = _present
    library().emulator_configure(ORDERS.index(order), *others)


def call(
    launcher: Launcher, loaded: ctypes.CDLL, arguments: Sequence[Any], static: Mapping[str, int]
) -> int:
    """Call a launcher, watched: a fault in it, or Ctrl-C, ends it. Returns its cudaError_t.

    `static` has the bytes of static shared memory of each kernel.
    """
    values = launcher.values(arguments)
    lib = library()
    address = lib.emulator_begin(ctypes.cast(launcher.bind(loaded), c_void_p))
    try:
        for kernel, size in static.items():
            lib.emulator_static_shared(kernel.encode(), size)
        return launcher.at(address)(*values)
    finally:
        lib.emulator_end()


def failure() -> RawFailure | None:
    """What stopped the last launch, if something did."""
    raw = RawFailure()
    return raw if library().emulator_failure(ctypes.byref(raw)) else None


def refusal() -> RawFailure | None:
    """The first launch that was refused in the last call.

    None if no launch was, or if the launcher has asked for the error and then launched another.
    """
    raw = RawFailure()
    return raw if library().emulator_refusal(ctypes.byref(raw)) else None


def launches() -> frozenset[int]:
    """Numbers of the last call's launches; a number stands for one instance of a template."""
    size = library().emulator_launches(None, 0)
    found = (u64 * size)()
    library().emulator_launches(found, size)
    return frozenset(found)


def grid_shape() -> tuple[int, int]:
    """Thread blocks of the last launch, and threads of each; (0, 0) if there was none."""
    found = (u64 * 2)()
    library().emulator_grid_shape(found)
    return found[0], found[1]


def printed() -> str:
    """What kernels printed since the last time this was asked."""
    size = library().emulator_take_text(None, 0)
    buffer = ctypes.create_string_buffer(size + 1)
    library().emulator_take_text(buffer, size)
    return buffer.raw[:size].decode(errors="replace")


def findings() -> list[RawFailure]:
    """What the checker found in the call that just ended."""
    count = checker().emulator_num_findings()
    return _filled(RawFailure, checker().emulator_finding, count)


def sites() -> list[RawSite]:
    """The counters of each instruction of the call that just ended."""
    return _filled(RawSite, checker().emulator_site, checker().emulator_num_sites())


def _filled(kind: type, fill: Callable[..., None], count: int) -> list:
    """`count` structures, each filled by a function of the runtime."""
    found = [kind() for _ in range(count)]
    for index, raw in enumerate(found):
        fill(index, ctypes.byref(raw))
    return found


def untracked() -> list[int]:
    """The ranges of the call that just ended in which no races were looked for."""
    count = checker().emulator_num_untracked()
    return [checker().emulator_untracked(index) for index in range(count)]

"""22.1: the binding of a launcher, on two simulated GPUs."""

import ctypes
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from yaie.course.core.cuda import KernelCase
from yaie.course.core.observe import Observer

FLOAT, HALF, LONG = 0, 1, 5  # as at::ScalarType counts them in the emulator's header
CPU = -1
STREAMS = 0x51, 0x52  # the current stream of each GPU, unless a case says otherwise
SPY = r"""
#line 1 "the check"
namespace check {
struct Given { int dtype, device, dim; int64_t sizes[3], strides[3]; void* data; };
struct Seen {
    int launches, count, device, device_after, result_dtype, result_device, result_dim;
    int64_t stream, result_sizes[3];
    const void *x, *y, *out, *result;
    char said[1000];
};
Seen seen;
int code;
at::Tensor tensor(const Given& given) {
    at::Tensor made;
    made.data = std::shared_ptr<void>(given.data, [](void*) {});
    auto kind = given.device < 0 ? c10::kCPU : c10::kCUDA;
    made.about = {(c10::ScalarType)given.dtype, {kind, (c10::DeviceIndex)given.device}};
    made.shape.assign(given.sizes, given.sizes + given.dim);
    made.steps.assign(given.strides, given.strides + given.dim);
    return made;
}
}
extern "C" cudaError_t vector_add_float4_f32(const float* x, const float* y, float* out, int n,
                                             cudaStream_t stream) {
    check::Seen& seen = check::seen;
    ++seen.launches;
    seen.x = x, seen.y = y, seen.out = out, seen.count = n;
    seen.stream = (int64_t)stream, seen.device = c10::world.device;
    for (int i = 0; !check::code && i < n && n < 100; ++i) out[i] = x[i] + y[i];
    return (cudaError_t)check::code;
}
extern "C" const check::Seen* check_binding(
    const check::Given* x, const check::Given* y, int device, int64_t first, int64_t second,
    int code, float* result
) {
    using namespace check;
    seen = {};
    check::code = code;
    c10::world = {device, {(cudaStream_t)first, (cudaStream_t)second}};
    auto found = torch::implementations.find("CUDA yaie_extension::vector_add");
    if (found == torch::implementations.end()) return nullptr;
    try {
        at::Tensor out = found->second(tensor(*x), tensor(*y));
        seen.result = out.data.get(), seen.result_dtype = (int)out.scalar_type();
        seen.result_device = out.is_cuda() ? out.get_device() : -1;
        seen.result_dim = out.dim();
        for (int i = 0; i < out.dim() && i < 3; ++i) seen.result_sizes[i] = out.size(i);
        if (out.nbytes() < 400) memcpy(result, out.data.get(), out.nbytes());
    } catch (const std::exception& error) {
        snprintf(seen.said, sizeof(seen.said), "%s", *error.what() ? error.what() : "?");
    }
    seen.device_after = c10::world.device;
    return &seen;
}
"""


class Given(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("dtype", "device", "dim")),
        *((name, ctypes.c_int64 * 3) for name in ("sizes", "strides")),
        ("data", ctypes.c_void_p),
    ]


class Seen(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("launches", "count", "device", "device_after")),
        *((f"result_{name}", ctypes.c_int) for name in ("dtype", "device", "dim")),
        ("stream", ctypes.c_int64),
        ("result_sizes", ctypes.c_int64 * 3),
        *((name, ctypes.c_void_p) for name in ("x", "y", "out", "result")),
        ("said", ctypes.c_char * 1000),
    ]


class Fake:
    """A tensor of a simulated GPU: shape, strides, and numbers if there are few."""

    def __init__(
        self, *shape: int, dtype: int = FLOAT, device: int = 0, strides: tuple[int, ...] = ()
    ) -> None:
        count = 1
        whole = []
        for size in reversed(shape):
            whole.insert(0, count)
            count *= size
        self.numbers = (ctypes.c_float * 100)(*range(100))
        sizes, steps = [*shape, 0, 0, 0][:3], [*(strides or whole), 0, 0, 0][:3]
        address = ctypes.addressof(self.numbers)
        long3 = ctypes.c_int64 * 3
        self.given = Given(dtype, device, len(shape), long3(*sizes), long3(*steps), address)
        self.shape, self.count, self.device = shape, count, device


ONE_GPU = "The launcher gets addresses, and adds what lies there on one GPU."
TYPE = "The launcher reads 4 bytes per element as float32, whatever they are."
SHAPE = "The launcher adds n elements of each, whatever their shapes are."
DENSE = "The launcher reads n elements that lie side by side."
COUNT = "n is an int: a larger count would be cut to 32 bits."


def cases() -> Iterator[KernelCase]:
    yield right("x and y of float32 [3, 5]", Fake(3, 5))
    yield right("another stream is current", Fake(7), streams=(0x77, 0x78))
    yield right("tensors on cuda:0, while cuda:1 is current", Fake(6), current=1)
    yield right("tensors on cuda:1, while cuda:0 is current", Fake(6, device=1))
    yield right("no elements, [0, 4]", Fake(0, 4))
    yield right(f"{2**31 - 1:,} elements", Fake(2**31 - 1))
    told = "The launcher's return code is the only sign of a refused launch."
    name = "the launch returns cudaErrorInvalidConfiguration"
    yield KernelCase(name, x=Fake(4), y=Fake(4), code=9, because=told)
    both = Fake(3, 5, dtype=HALF)
    yield KernelCase("x and y are float16", x=both, y=both, because=TYPE, fault="x")
    both = Fake(3, 5, strides=(1, 3))
    yield KernelCase("x and y are transposed", x=both, y=both, because=DENSE, fault="x")
    for what, other, because in (
        ("is float16", Fake(3, 5, dtype=HALF), TYPE),
        ("is int64", Fake(3, 5, dtype=LONG), TYPE),
        ("is [3]", Fake(3), SHAPE),
        ("is [5, 3]", Fake(5, 3), SHAPE),
        ("is a transposed [5, 3]", Fake(3, 5, strides=(1, 3)), DENSE),
        ("is every second column", Fake(3, 5, strides=(10, 2)), DENSE),
        ("is on the CPU", Fake(3, 5, device=CPU), ONE_GPU),
        ("is on cuda:1", Fake(3, 5, device=1), ONE_GPU),
    ):
        whole = Fake(3, 5)
        for fault, x, y in (("y", whole, other), ("x", other, whole)):
            name = f"{fault} {what}, the other is float32 [3, 5] on cuda:0"
            yield KernelCase(name, x=x, y=y, because=because, fault=fault)
    for n in (2**31, 2**32 + 8):
        yield KernelCase(f"{n:,} elements", x=Fake(n), y=Fake(n), because=COUNT, fault="x")


def right(name: str, x: Fake, streams: tuple[int, int] = STREAMS, current: int = 0) -> KernelCase:
    y = Fake(*x.shape, device=x.device)
    return KernelCase(name, x=x, y=y, streams=streams, current=current)


def observe(path: Path, case: KernelCase, see: Observer) -> None:
    streams, current = getattr(case, "streams", STREAMS), getattr(case, "current", 0)
    code, fault = getattr(case, "code", 0), getattr(case, "fault", "")
    for given in (case.x, case.y):  # which another version may have written into
        given.numbers[:] = range(100)
    call, result = built(path.read_text(encoding="utf-8"), path), (ctypes.c_float * 100)()
    given = ctypes.byref(case.x.given), ctypes.byref(case.y.given)
    found = call(*given, current, *streams, code, result)
    registered = "The operator is yaie_extension::vector_add, and this is its function for CUDA."
    see.true("m.impl", bool(found), 'registers no "vector_add"', registered)
    see.stop_if_wrong()
    seen = found.contents
    said = seen.said.decode(errors="replace")
    see.true("the current device afterwards", seen.device_after == current, "is another one")
    if fault or code:
        because = f"{case.because} What it said: {said}" if said else case.because
        does = f"refuses, and names {fault}" if fault else "raises"
        got = "returns a tensor"
        if said:
            named = not fault or fault in re.findall(r"\w+", said)
            got = does if named else f"refuses, and does not name {fault}"
        see.equal("what vector_add_cuda does", got, does, because)
        if fault:
            see.equal("launches", seen.launches, 0, "Refuse before the launch.")
        return
    see.equal("the exception", said, "", "Nothing is wrong with these tensors.")
    see.equal("launches", seen.launches, 1)
    x, device = case.x, case.x.device
    see.equal("n of the launch", seen.count, x.count)
    lie = "The launcher takes x, y and the output, in this order."
    addresses = seen.x, seen.y, seen.out
    wanted = case.x.given.data, case.y.given.data, seen.result
    roles = {wanted[0]: "x", wanted[1]: "y", wanted[2]: "the result"}
    got = [roles.get(address, "another address") for address in addresses]
    see.equal("the addresses of the launch", got, ["x", "y", "the result"], lie)
    own = "It has the dtype, the shape and the device of x, in memory of its own."
    shape = tuple(seen.result_sizes[: seen.result_dim])
    kind = seen.result_dtype == FLOAT, shape, seen.result_device
    see.equal("the result: whether float32, its shape, its GPU", kind, (True, x.shape, device), own)
    guard = "A launch goes to the current device: make it that of the tensors, until the end."
    see.equal("the current device at the launch", seen.device, device, guard)
    queue = "torch's other work on these tensors is in the current stream of their device."
    see.equal("the stream of the launch", hex(seen.stream), hex(streams[device]), queue)
    if x.count < 100:
        sums = [2.0 * i for i in range(x.count)]
        see.equal("the numbers of the result", list(result[: x.count]), sums)


@lru_cache(maxsize=32)
def built(source: str, path: Path) -> Any:
    """The learner's file with the launcher that watches, as a function of Python."""
    from yaie.emulator import compile, runtime

    runtime.library()  # cudaGetLastError is in it
    function = ctypes.CDLL(str(compile(source + SPY, path, checked=False))).check_binding
    function.argtypes = [
        *(ctypes.POINTER(Given),) * 2, ctypes.c_int, *(ctypes.c_int64,) * 2, ctypes.c_int,
        ctypes.POINTER(ctypes.c_float),
    ]  # fmt: skip
    function.restype = ctypes.POINTER(Seen)
    return function

"""What notebook 25 shows: the figures of the ladder, where wgmma leaves sums, a kernel's trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch

from yaie.build import jit
from yaie.course.core import paths
from yaie.course.lessons.changed import changed

kept_ladder = partial(paths.kept, "16_hopper_h100")
kept_mma = partial(paths.kept, "16_matmul_h200")

# ---------------------------------------------------------------------------------- accumulator

# Row 256 i + j of c is i, column j: the product of [row, 1] and [[256 ...], [0, 1, 2, ...]].
PLACES = """
#include "matmul/hopper/tiles.cuh"

__global__ void __launch_bounds__(WARP_GROUP) places(float* out) {
    extern __shared__ __align__(1024) __half a_tile[];
    __half* b_tile = a_tile + 64 * LINE;
    for (int i = threadIdx.x; i < 64 * LINE; i += WARP_GROUP) {
        int line = i / LINE, place = line * LINE + ((i % LINE / 8) ^ line % 8) * 8 + i % 8;
        int k = i % LINE;
        a_tile[place] = __float2half(k == 0 ? line : k == 1 ? 1.0f : 0.0f);
        b_tile[place] = __float2half(line == 0 ? 256.0f : line == 1 ? i % LINE : 0.0f);
    }
    fence_proxy_async();
    __syncthreads();
    float sums[32] = {};
    wgmma_fence();
    multiply<__half, 64>(sums, a_tile, b_tile);
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = sums[i];
}

extern "C" cudaError_t accumulator_places(float* out, cudaStream_t stream) {
    places<<<1, WARP_GROUP, 2 * 64 * LINE * sizeof(__half), stream>>>(out);
    return cudaGetLastError();
}
"""


def accumulator_places() -> torch.Tensor:
    """Which element of c, 64 × 64, each thread of a warp group holds in each register.

    Returns:
        `[128, 32, 2]`: thread, register, (row, column). Observed: the product of two matrices
        that gives each element its own place.
    """
    out = torch.empty(128, 32)
    jit.load(PLACES, name="places.cu").accumulator_places(out)
    return torch.stack([out.long() // 256, out.long() % 256], dim=-1)


# ---------------------------------------------------------------------------------- trace

EVENTS = ("wait", "waited", "expect", "load", "commit", "products", "done", "arrive", "store")
# Thread 0 and the first thread of the consumer note what they do, with the SM's clock.
RECORD = """
constexpr int MOST_EVENTS = 2048;
__device__ long long event_times[2 * MOST_EVENTS], event_words[2 * MOST_EVENTS];
__device__ int event_counts[2];
__device__ __forceinline__ void record(int what, int number) {
    int role = threadIdx.x / WARP_GROUP;
    if (blockIdx.x + blockIdx.y > 0 || threadIdx.x % WARP_GROUP || role > 1) return;
    int at = event_counts[role]++;
    if (at >= MOST_EVENTS) return;
    event_times[role * MOST_EVENTS + at] = clock64();
    event_words[role * MOST_EVENTS + at] = what * 256 + number;
}
__global__ void copy_events(long long* times, long long* words, int* counts) {
    for (int i = threadIdx.x; i < 2 * MOST_EVENTS; i += blockDim.x)
        times[i] = event_times[i], words[i] = event_words[i];
    if (threadIdx.x < 2) {
        counts[threadIdx.x] = event_counts[threadIdx.x];
        event_counts[threadIdx.x] = 0;
    }
}
extern "C" cudaError_t read_events(long long* times, long long* words, int* counts,
                                   cudaStream_t stream) {
    copy_events<<<1, 256, 0, stream>>>(times, words, counts);
    return cudaGetLastError();
}
template <int PENDING>
__device__ __forceinline__ void recorded_wait() {
    record(5, PENDING), wgmma_wait<PENDING>(), record(6, PENDING);
}
template <typename T, int N, typename... Parts>
__device__ __forceinline__ void recorded_store(Parts&&... parts) {
    record(8, 0), store_sums<T, N>(parts...);
}
#define NUMBER(barrier) int((barrier) - full)
#define mbarrier_wait(barrier, parity)                                                 \\
    (record(0, NUMBER(barrier) * 2 + ((parity) & 1)), mbarrier_wait(barrier, parity), \\
     record(1, NUMBER(barrier)))
#define mbarrier_arrive_expect(barrier, bytes) \\
    (record(2, NUMBER(barrier)), mbarrier_arrive_expect(barrier, bytes))
#define tma_load(to, map, barrier, ...) \\
    (record(3, NUMBER(barrier)), tma_load(to, map, barrier, __VA_ARGS__))
#define wgmma_commit() (record(4, 0), wgmma_commit())
#define wgmma_wait recorded_wait
#define mbarrier_arrive(barrier) (mbarrier_arrive(barrier), record(7, NUMBER(barrier)))
#define store_sums recorded_store
"""
INCLUDE = '#include "matmul/hopper/tiles.cuh"\n'


@dataclass(frozen=True)
class Event:
    """What a thread did.

    Attributes:
        what: one of `EVENTS`: "wait" for an mbarrier and "waited" after it; "expect" and "load",
            "arrive" at an mbarrier; "commit" a group of wgmma; "products", waits for all groups
            but `number`, and "done" after it; "store".
        number: the mbarrier's (those of `full` first, then those of `empty`), for "wait" twice it
            plus the parity.
        clock: the SM's, in cycles; in the emulator, nanoseconds without a meaning.
    """

    what: str
    number: int
    clock: int


@dataclass(frozen=True)
class Trace:
    """What thread 0 did, and the first thread of the consumer if that is another warp group."""

    stages: int
    events: tuple[tuple[Event, ...], ...]


def trace(
    path: Path, tiles: int, device: str = "cpu", blocks: int = 0, columns: int = 128
) -> Trace:
    """Run a rung of csrc/matmul/hopper and note the events of its first thread block.

    Args:
        path: a file of one of the rungs tma, stages, producer, persistent.
        tiles: along k, of 64 values.
        device: "cpu" is emulated; on "cuda" the clocks are the GPU's.
        blocks: for a persistent kernel, how many thread blocks are launched; 0: one per SM.
        columns: of c, which has 128 rows.
    """
    text = changed(path.read_text(encoding="utf-8"), path, {INCLUDE: INCLUDE + RECORD})
    if blocks:
        text = text.replace("<<<blocks,", f"<<<{blocks},")
    module = jit.load(text, name=f"traced_{path.name}")
    [name] = [name for name in module.launchers if name.endswith("_f16")]
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(size, generator=generator).to(device, torch.float16)
        for size in ((128, tiles * 64), (tiles * 64, columns))
    )
    c = torch.empty(128, columns, dtype=a.dtype, device=device)
    times, words = (torch.zeros(2 * 2048, dtype=torch.int64, device=device) for _ in "ab")
    counts = torch.zeros(2, dtype=torch.int32, device=device)
    for _ in range(1 if device == "cpu" else 3):  # on a GPU the last is kept: the caches are warm
        getattr(module, name)(a, b, c, 128, columns, tiles * 64)
        module.read_events(times, words, counts)
    if not torch.allclose(c.float(), a.float() @ b.float(), rtol=1e-2, atol=0.5):
        raise AssertionError(f"{path.name} is wrong, so its trace would show nothing")
    stages = text.partition("constexpr int STAGES = ")[2].partition(";")[0]
    roles = [
        tuple(
            Event(EVENTS[word // 256], word % 256, clock)
            for word, clock in zip(
                words[role * 2048 :][:count].tolist(), times[role * 2048 :].tolist(), strict=False
            )
        )
        for role, count in enumerate(counts.tolist())
    ]
    return Trace(int(stages or 1), tuple(role for role in roles if role))


# ---------------------------------------------------------------------------------- replay


@dataclass(frozen=True)
class Span:
    """Something that lasts.

    Attributes:
        lane: whose it is: "producer", "consumer", "tensor cores", "stage 3".
        kind: "copy", "product", "wait", "store" or "held" (a tile that has arrived).
        begin, end: in units of the model, or in cycles.
        name: the tile's number, if it has one.
    """

    lane: str
    kind: str
    begin: float
    end: float
    name: str = ""


@dataclass(frozen=True)
class Replayed:
    """A kernel along time, in the model or as a GPU ran it.

    Attributes:
        lanes: in the order in which they are drawn.
        spans: all of them.
        unit: what time counts.
    """

    lanes: tuple[str, ...]
    spans: tuple[Span, ...]
    unit: str = ""

    @property
    def end(self) -> float:
        """When the last span ends."""
        return max(span.end for span in self.spans)

    @property
    def busy(self) -> float:
        """The share of that time in which the tensor cores multiply."""
        products = [s for s in self.spans if s.lane == "tensor cores" and s.kind == "product"]
        return sum(span.end - span.begin for span in products) / self.end


class Barrier:
    """An mbarrier of the model: when each of its phases is complete."""

    def __init__(self) -> None:
        self.complete: list[float] = []

    def after(self, time: float, parity: int) -> float | None:
        """When a wait that begins at `time` ends; None if that is not known yet."""
        done = sum(end <= time for end in self.complete)
        if done % 2 != parity:
            return time
        return max(time, self.complete[done]) if done < len(self.complete) else None


class _Model:
    """The units that the threads of a thread block share."""

    def __init__(self, stages: int, copy: float, product: float, store: float, lanes: Mapping):
        self.stages, self.copy, self.product, self.store = stages, copy, product, store
        self.barriers = {number: Barrier() for number in range(2 * stages)}
        self.spans: list[Span] = []
        self.lanes = lanes
        self.copies = 0  # tiles
        self.groups: list[float] = []  # when each group of products ends

    def run(self, role: int, event: Event, now: float) -> float | None:
        """When this thread goes on after an event; None if it has to wait for another thread."""
        lane = self.lanes[role]
        if event.what == "wait":
            end = self.barriers[event.number // 2].after(now, event.number % 2)
            if end is not None and end > now:
                self.spans.append(Span(lane, "wait", now, end))
            return end
        if event.what == "expect":
            self.barriers[event.number].complete.append(now + self.copy)
            stage = f"stage {event.number % self.stages}"
            self.spans.append(Span(stage, "copy", now, now + self.copy, str(self.copies)))
            self.copies += 1
        elif event.what == "commit":
            begin = max(now, self.groups[-1] if self.groups else 0.0)
            name = str(len(self.groups))
            self.groups.append(begin + self.product)
            self.spans.append(Span("tensor cores", "product", begin, self.groups[-1], name))
        elif event.what == "products":
            covered = self.groups[: len(self.groups) - event.number]
            end = max([now, *covered])
            if end > now:
                self.spans.append(Span(lane, "wait for products", now, end))
            return end
        elif event.what == "arrive":
            self.barriers[event.number].complete.append(now)
        elif event.what == "store":
            self.spans.append(Span(lane, "store", now, now + self.store))
            return now + self.store
        return now


def replay(traced: Trace, copy: float = 3.0, product: float = 1.0, store: float = 1.0) -> Replayed:
    """The same events along time in a model with three numbers.

    Every other instruction takes no time; any number of copies can be in flight, and the tensor
    cores compute one group after the other.

    Args:
        copy: of a tile of a and one of b, from the request until they are there.
        product: of such tiles.
        store: of half of the sums.
    """
    threads = len(traced.events)
    lanes = ("producer", "consumer") if threads > 1 else ("thread 0",)
    model = _Model(traced.stages, copy, product, store, lanes)
    at, now = [0] * threads, [0.0] * threads
    while any(at[i] < len(traced.events[i]) for i in range(threads)):
        ready = [i for i in range(threads) if at[i] < len(traced.events[i])]
        for role in sorted(ready, key=lambda i: now[i]):
            then = model.run(role, traced.events[role][at[role]], now[role])
            if then is not None:
                at[role], now[role] = at[role] + 1, then
                break
        else:
            raise ValueError("each thread of the trace waits for another one")
    stages = [f"stage {number}" for number in range(traced.stages)]
    return Replayed((*lanes[:1], *stages, *lanes[1:], "tensor cores"), tuple(model.spans))


def observed(traced: Trace) -> Replayed:
    """The spans that the threads themselves saw, from their clocks: waits, and the time between."""
    lanes = ("producer", "consumer") if len(traced.events) > 1 else ("thread 0",)
    first = min(events[0].clock for events in traced.events)
    spans = []
    kinds = {"waited": "wait", "done": "wait for products"}
    for lane, events in zip(lanes, traced.events, strict=True):
        for before, event in pairwise(events):
            begin, end = before.clock - first, event.clock - first
            spans.append(Span(lane, kinds.get(event.what, "works"), begin, end))
    return Replayed(lanes, tuple(spans), "cycles")


# ---------------------------------------------------------------------------------- registers


@dataclass(frozen=True)
class Budget:
    """Registers of a thread block on an SM.

    Attributes:
        title: which moment.
        groups: (name, registers per thread, of which sums) of each warp group of 128 threads.
    """

    title: str
    groups: Sequence[tuple[str, int, int]]


def budgets() -> list[Budget]:
    """The registers of consumers.cu at the start and after setmaxnreg; its sums take 128."""
    after = [("producer", 40, 0), ("consumer 0", 232, 128), ("consumer 1", 232, 128)]
    start = [(name, 168, sums) for name, _, sums in after]
    return [Budget("at the start", start), Budget("after setmaxnreg", after)]

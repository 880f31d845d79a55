"""The last rung with a clock: when the consumers of one thread block start products and wait."""

from pathlib import Path

import torch

from yaie.build import jit
from yaie.course.lessons.changed import changed
from yaie.course.lessons.data_nb26 import INCLUDE
from yaie.course.viz.turns import Span

MOST = 512  # events of a consumer
CLOCK = """
#define WHO int(threadIdx.x / WARP_GROUP - 1)
__device__ long long* told;  // for each consumer MOST times what and when
__device__ int counts[2];
__device__ inline void tell(int what) {
    if (threadIdx.x % WARP_GROUP || blockIdx.x > 0 || counts[WHO] >= MOST) return;
    long long* to = told + (WHO * MOST + counts[WHO]++) * 2;
    to[0] = what, to[1] = clock64();
}
template <int PENDING>
__device__ inline void told_wait() { tell(3), wgmma_wait<PENDING>(), tell(4); }
template <typename T, int DIM, int KEYS, bool TOGETHER = false, typename... Parts>
__device__ inline void told_keys(Parts&&... parts) {
    tell(0), multiply_keys<T, DIM, KEYS, TOGETHER>(parts...);
}
template <typename T, int DIM, int KEYS, bool TOGETHER = false, typename... Parts>
__device__ inline void told_values(Parts&&... parts) {
    tell(1), add_values<T, DIM, KEYS, TOGETHER>(parts...);
}
#define wgmma_wait told_wait
#define multiply_keys told_keys
#define add_values told_values
#define weigh(scores) weigh((tell(2), scores))
""".replace("MOST", str(MOST))
SHARED = "    extern __shared__ __align__(1024) unsigned char shared[];\n"
BEGIN = """    if (threadIdx.x == 0) {  // what is told lies after the log-sum-exps
        told = reinterpret_cast<long long*>(flash.lse + flash.tokens * flash.heads);
        counts[0] = counts[1] = 0;
    }
"""


def trace(path: Path, tiles: int, device: str = "cuda") -> list[Span]:
    """When the two consumers of a thread block computed what, in cycles of its SM's clock.

    A product begins when it is started, and ends when the wait for it is over.

    Args:
        path: a file with the kernel of `csrc/flash/hopper/pingpong.cu`.
        tiles: of 160 keys.
    """
    changes = {INCLUDE: INCLUDE + CLOCK, SHARED: SHARED + BEGIN}
    source = changed(path.read_text(encoding="utf-8"), path, changes)
    kernels = jit.load(source, name=str(path))
    q = torch.randn(128, 1, 128, device=device).half()
    k = torch.randn(tiles * 160, 1, 128, device=device).half()
    out, lse = torch.empty_like(q), torch.zeros(128 + 2 * MOST * 4, device=device)
    kernels.flash_pingpong_f16(
        *(q, k, k, out, lse, None, None, None, None, 1, len(q), len(k), 1, 1, 128, 128, 128, 128),
        *(0, 0, 128**-0.5, 0),
    )
    told = lse[128:].view(torch.int64).view(2, MOST, 2).tolist()
    events = [[(what, when) for what, when in rows if when] for rows in told]
    first = min(when for rows in events for _, when in rows)
    return [
        span
        for c, rows in enumerate(events)
        for span in _spans(c, [(w, t - first) for w, t in rows])
    ]


def _spans(consumer: int, events: list[tuple[int, int]]) -> list[Span]:
    """A product ends at the first wait that is left since, the second of a turn at the next."""
    found, waiting = [], []
    counts = [0, 0, 0]
    for number, (what, when) in enumerate(events):
        if what in (0, 1):
            waiting.append(("scores" if what == 0 else "output", counts[what], when))
        elif what == 2:
            end = events[number + 1][1] if number + 1 < len(events) else when
            found.append(Span(consumer, "weights", counts[2], when, end))
        elif what == 4 and waiting:
            name, tile, begin = waiting.pop(0)
            found.append(Span(consumer, name, tile, begin, when))
        if what < 3:
            counts[what] += 1
    return found

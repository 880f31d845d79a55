"""Exercise 09.5: Notice an impossible benchmark.

`claim` is one row of a published benchmark: bytes, operations, a time, rates, a ratio, and how
the time was measured. Return the reason why it cannot be true of the GPU, or None if there is
none. The docstring lists the reasons and the order in which to check them.

You have
- `claim.num_bytes`, `claim.flops`, `claim.ms`: what one call is said to move, to compute and to
  take
- `claim.gb_s`, `claim.tflop_s`: the published rates, in 10⁹ bytes and 10¹² operations per second
- `claim.peer_ms`, `claim.times_as_fast`: another kernel's time and the published ratio, or None
- `claim.dtype`: "bfloat16" or "float32": what is multiplied
- `claim.timer`, `claim.synchronized`: "events" or "host", and whether the program waited for the
  GPU
- `gpu.gb_s`, `gpu.tflop_s[dtype]`, `gpu.l2_bytes`, `gpu.shortest_ms`: what the GPU cannot exceed
- `ROUNDED`: the relative difference that rounding explains, 0.01

In a terminal: yaie check 09.5, yaie hint 09.5, yaie reset 09.5.
"""

from __future__ import annotations

from yaie.course.lessons.impossible import H200, ROUNDED, Claim, Gpu


def why_impossible(claim: Claim, gpu: Gpu = H200) -> str | None:
    """Why a claim about a GPU cannot be true, a key of `REASONS`; None if it can.

    The first of these that holds, since each makes those after it meaningless:

    - "units": `gb_s`, `tflop_s` or, if there is a peer, `times_as_fast` differs by more than
      `ROUNDED`, relative, from what follows from bytes, operations and times;
    - "not waited for": the timer is the host's, and the program did not wait;
    - "launch": the time is below the GPU's shortest;
    - "cache", if the bytes are no more than fit in L2, else "bytes": they would have to move faster
      than the GPU's memory does;
    - "operations": they would have to be done faster than the GPU does those of this dtype.

    A rate that reaches a limit exactly is possible.
    """
    raise NotImplementedError("Exercise 09.5: Notice an impossible benchmark")

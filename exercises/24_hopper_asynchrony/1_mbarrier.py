"""Exercise 24.1: An mbarrier's counts and phases.

Write the four methods of an mbarrier. A phase needs `arrivals` arrivals and all bytes that its
threads have announced. As soon as both counts are 0, the next phase begins, which again needs
`arrivals` arrivals. `try_wait(parity)` tells whether the phase of that parity, the present one or
the one before, is complete; it never waits. Bytes may arrive before they are announced: then the
count of bytes is negative for a while.

You have
- `self.arrivals`: how many arrivals each phase needs
- `self.pending`: how many arrivals the present phase still lacks; `self.arrivals` at its
  beginning
- `self.bytes`: how many bytes it still lacks; 0 in the beginning
- `self.phase`: the number of the present phase: 0, 1, 2, …; all before it are complete
- `self.finish_phase()`: yours: begins the next phase if the present one lacks nothing

In a terminal: yaie check 24.1, yaie hint 24.1, yaie reset 24.1.
What this file does not define is inherited from yaie/course/lessons/asynchrony.py.
"""

from __future__ import annotations

from yaie.course.lessons import asynchrony as reference


class Mbarrier(reference.Mbarrier):
    def arrive(self, expect: int = 0) -> None:
        """Have the present phase expect `expect` bytes more, then arrive at it.

        Raises ValueError, and changes nothing, if the phase lacks no arrival.
        """
        raise NotImplementedError("Exercise 24.1: An mbarrier's counts and phases")

    def complete(self, num_bytes: int) -> None:
        """Count bytes that a copy has brought."""
        raise NotImplementedError("Exercise 24.1: An mbarrier's counts and phases")

    def finish_phase(self) -> None:
        """Begin the next phase if the present one lacks neither arrivals nor bytes."""
        raise NotImplementedError("Exercise 24.1: An mbarrier's counts and phases")

    def try_wait(self, parity: int) -> bool:
        """Whether the phase with this parity (0 or 1), the present one or the last, is complete."""
        raise NotImplementedError("Exercise 24.1: An mbarrier's counts and phases")

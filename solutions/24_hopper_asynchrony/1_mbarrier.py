"""Solution of exercise 24.1: An mbarrier's counts and phases.

Write the four methods of an mbarrier. A phase needs `arrivals` arrivals and all bytes that its
threads have announced. As soon as both counts are 0, the next phase begins, which again needs
`arrivals` arrivals. `try_wait(parity)` tells whether the phase of that parity, the present one or
the one before, is complete; it never waits. Bytes may arrive before they are announced: then the
count of bytes is negative for a while.

Generated from Mbarrier.arrive, Mbarrier.complete, Mbarrier.finish_phase, Mbarrier.try_wait in
yaie/course/lessons/asynchrony.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from yaie.course.lessons import asynchrony as reference


class Mbarrier(reference.Mbarrier):
    def arrive(self, expect: int = 0) -> None:
        """Have the present phase expect `expect` bytes more, then arrive at it.

        Raises ValueError, and changes nothing, if the phase lacks no arrival.
        """
        if self.pending == 0:
            raise ValueError("the phase lacks no arrival")
        self.bytes += expect
        self.pending -= 1
        self.finish_phase()

    def complete(self, num_bytes: int) -> None:
        """Count bytes that a copy has brought."""
        self.bytes -= num_bytes
        self.finish_phase()

    def finish_phase(self) -> None:
        """Begin the next phase if the present one lacks neither arrivals nor bytes."""
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.arrivals

    def try_wait(self, parity: int) -> bool:
        """Whether the phase with this parity (0 or 1), the present one or the last, is complete."""
        return self.phase % 2 != parity

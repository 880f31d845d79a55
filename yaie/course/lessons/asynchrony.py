"""What notebook 24 models: an mbarrier, a ring of stages around it, and the swizzle of TMA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from yaie.course.core import paths
from yaie.course.viz.ring import Counts, Moment, tile_name

kept_hopper = partial(paths.kept, "16_hopper_h100")  # the figures of the ladder hopper
BYTES = 8192  # of a tile
FIRST, SECOND = 2, 3  # steps until the halves of a copy land
READING = 4  # steps from reading the first half of a stage to reading the second

Steps = Iterator[str | None]  # what was done; None: nothing, since it waits


class Mbarrier:
    """A barrier that counts arrivals and bytes, phase after phase.

    Attributes:
        arrivals: how many each phase needs.
        pending: how many arrivals the present phase still lacks.
        bytes: how many it still lacks; negative if more came than it expects by now.
        phase: the number of the present phase. All phases before it are complete.
    """

    def __init__(self, arrivals: int) -> None:
        self.arrivals = self.pending = arrivals
        self.bytes = 0
        self.phase = 0

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


class Ring:
    """Stages that a producer has filled by copies, and a consumer reads, step by step.

    Args:
        stages: how many there are.
        mbarrier: makes an mbarrier for a number of arrivals.

    Attributes:
        full: an mbarrier per stage, for one arrival and the bytes of its tile.
        empty: one per stage, for the arrival of the consumer.
        moments: what was recorded.
        stuck: why the run ended before its time; "" if it did not.
    """

    def __init__(self, stages: int = 2, mbarrier: Callable[[int], Mbarrier] = Mbarrier) -> None:
        self.full = [mbarrier(1) for _ in range(stages)]
        self.empty = [mbarrier(1) for _ in range(stages)]
        self.moments: list[Moment] = []
        self.stuck = ""
        self._held: list[list[int | None]] = [[None, None] for _ in range(stages)]
        self._copies: list[tuple[int, int, int, int]] = []  # when, stage, half, tile
        self._read: list[tuple[int | None, int | None]] = []
        self._now = 0
        self._doing = {"producer": "begins", "consumer": "begins"}

    @property
    def stages(self) -> int:
        """How many there are."""
        return len(self.full)

    @property
    def read_tiles(self) -> list[str]:
        """What the consumer read, in words."""
        return [tile_name(halves) for halves in self._read]

    def wait(self, name: str, stage: int, parity: int) -> Steps:
        """Ask until the phase of that parity is complete; `name` is "full" or "empty"."""
        barrier = getattr(self, name)[stage]
        who = "consumer" if name == "full" else "producer"
        while not barrier.try_wait(parity):
            self._doing[who] = f"waits for {name}[{stage}], parity {parity}"
            yield None

    def start_copy(self, tile: int, stage: int) -> None:
        """Ask for a tile; its halves land later, and full[stage] counts their bytes."""
        for half, steps in enumerate((FIRST, SECOND)):
            self._copies.append((self._now + steps, stage, half, tile))

    def read(self, stage: int) -> Steps:
        """Read a stage, its second half some steps after the first."""
        first = self._held[stage][0]
        for _ in range(READING):
            yield f"reads stage {stage}"
        self._read.append((first, self._held[stage][1]))

    def run(self, producer: Steps, consumer: Steps) -> list[Moment]:
        """Take turns until both have ended or nothing can happen any longer."""
        going = {"producer": producer, "consumer": consumer}
        self._record("nothing has been asked for")
        while going:
            events = self._land()
            for who, steps in list(going.items()):
                try:
                    done = next(steps)
                except StopIteration:
                    del going[who]
                    done = "is done"
                except ValueError as error:
                    self.stuck = f"error in the {who}: {error}"
                    return self.moments
                if done:
                    self._doing[who] = done
                    events.append(f"the {who} {done}")
            if events:
                self._record("; ".join(dict.fromkeys(events)))
            elif not self._copies:
                self.stuck = "deadlock: " + ", ".join(
                    f"the {who} {self._doing[who]}" for who in going
                )
                self._record(self.stuck)
                break
            self._now += 1
        return self.moments

    def _land(self) -> list[str]:
        landed = [copy for copy in self._copies if copy[0] <= self._now]
        self._copies = [copy for copy in self._copies if copy[0] > self._now]
        for _, stage, half, tile in landed:
            self._held[stage][half] = tile
            self.full[stage].complete(BYTES // 2)
        return [f"half of tile {tile} lands" for *_, tile in landed]

    def _record(self, event: str) -> None:
        full, empty = (
            tuple(Counts(b.pending, b.bytes, b.phase) for b in barriers)
            for barriers in (self.full, self.empty)
        )
        stages = tuple((first, second) for first, second in self._held)
        moment = Moment(event, stages, full, empty, *self._doing.values(), tuple(self._read))
        if not self.moments or moment != self.moments[-1]:
            self.moments.append(moment)


def produce(ring: Ring, tiles: int, expect: int = BYTES) -> Steps:
    """Ask for all tiles, each when its stage is empty."""
    for tile in range(tiles):
        stage, use = tile % ring.stages, tile // ring.stages
        yield from ring.wait("empty", stage, use % 2 ^ 1)  # the first use: immediately
        ring.full[stage].arrive(expect)
        ring.start_copy(tile, stage)
        yield f"asks for tile {tile}"


def consume(
    ring: Ring,
    tiles: int,
    parity: Callable[[int], int] = lambda use: use % 2,
    early: bool = False,
) -> Steps:
    """Read all tiles, each when its stage is full."""
    for tile in range(tiles):
        stage, use = tile % ring.stages, tile // ring.stages
        yield from ring.wait("full", stage, parity(use))
        if early:
            ring.empty[stage].arrive()
        yield from ring.read(stage)
        if not early:
            ring.empty[stage].arrive()
        yield f"releases stage {stage}"


def swizzle(byte: int, span: int) -> int:
    """Where TMA puts a byte of a box in shared memory, counted from where the box begins.

    Args:
        byte: its number in the box, whose rows of `span` bytes follow each other.
        span: the bytes of a row, within which 16-byte chunks change places: 16 (none does), 32, 64
            or 128.
    """
    return byte ^ byte // 128 % (span // 16) * 16

"""What checked mode found, told in the lines of the source.

`Report` is what a notebook prints: the faults in plain words, then what each line asked of the
memory system.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from yaie.emulator import runtime
from yaie.emulator.elements import Memory, name_of
from yaie.emulator.lines import Lines, Place
from yaie.emulator.words import sentence

LIMITS = (
    "Not modeled: time, caches, occupancy, registers, rounding inside tensor cores."
    " The counts describe the loads and stores of the C++ compiler, not the GPU's machine code."
)


@dataclass(frozen=True)
class Finding:
    """One kind of fault at one place, or between two.

    Attributes:
        kind: one of `runtime.KINDS`, such as "race" or "out_of_bounds".
        line: where; 0 if unknown. `other_line` is the other side of a race or a deadlock.
        header: the header that `line` is of; "" if it is of the source itself.
        count: how often.
        memory: "global", "shared" or "none".
        name, offset: of the argument or shared array that is touched, and the byte in it.
        access, other_access: "load", "store" or "atomic".
    """

    kind: str
    message: str
    line: int
    other_line: int
    count: int
    memory: str
    thread: tuple[int, int, int]
    thread_block: tuple[int, int, int]
    other_thread: tuple[int, int, int] = (0, 0, 0)
    other_thread_block: tuple[int, int, int] = (0, 0, 0)
    name: str = ""
    offset: int = 0
    access: str = ""
    other_access: str = ""
    header: str = ""

    def __str__(self) -> str:
        return self.message


@dataclass
class Access:
    """What one line asks of one memory by loads, stores or atomics, over the whole launch.

    Attributes:
        memory: "global" or "shared".
        kind: "load", "store" or "atomic".
        requests: how often a warp executed it.
        by_lanes: how many of them had this many active lanes.
        first_lanes: the active lanes of the first 64 requests, one bit per lane.
        units: sectors of 32 bytes (global) or wavefronts (shared), over all requests.
        ideal_units: the fewest that could carry the bytes that differ.
        worst: the byte that each lane of the worst request touched, by lane, counted from the
            beginning of the sector in which the memory begins.
        header: the header that the line is of; "" if it is of the source itself.
    """

    line: int
    memory: str
    kind: str
    size: int
    name: str = ""
    requests: int = 0
    by_lanes: Counter[int] = field(default_factory=Counter)
    first_lanes: list[int] = field(default_factory=list)
    units: int = 0
    ideal_units: int = 0
    worst_units: int = 0
    worst: dict[int, int] = field(default_factory=dict)
    header: str = ""

    @property
    def per_request(self) -> float:
        return self.units / self.requests if self.requests else 0.0

    @property
    def lanes(self) -> int:
        """Active lanes, over all requests."""
        return sum(lanes * requests for lanes, requests in self.by_lanes.items())

    @property
    def ideal(self) -> float:
        return self.ideal_units / self.requests if self.requests else 0.0

    @property
    def unit(self) -> str:
        return "sectors" if self.memory == "global" else "wavefronts"


@dataclass(frozen=True)
class Line:
    """The accesses of one line of the source."""

    number: int
    accesses: tuple[Access, ...]

    def access(self, memory: str, kind: str | None = None) -> Access:
        """The worst access of this line to "global" or "shared" memory, of one kind or of any."""
        found = [a for a in self.accesses if a.memory == memory and kind in (None, a.kind)]
        if not found:
            raise ValueError(f"line {self.number} has no {kind or 'access'} in {memory} memory")
        return max(found, key=lambda a: (a.per_request - a.ideal, a.per_request))


class Report:
    """The findings and counts of one call of a launcher in checked mode.

    Args:
        count: computes the accesses. It is called when they are first asked for: looking up the
            lines of a kernel starts a process, and most reports are read only for their findings.

    Attributes:
        notes: what is no fault and may surprise: threads that store the same value.
        truncated: the counts leave out part of a long stretch without a barrier.
        untracked: the names of tensors in which no races were looked for: with 64 bytes kept for
            each element, those of more than 128 Mi elements are left out.
        grid_shape: thread blocks of the last launch, and threads of each; (0, 0) if none was.
        num_barriers: how often thread blocks passed `__syncthreads()`, added up over all of them.
    """

    def __init__(
        self,
        findings: Sequence[Finding],
        count: Callable[[], Sequence[Access]],
        source: str = "",
        truncated: bool = False,
        untracked: Sequence[str] = (),
        grid_shape: tuple[int, int] = (0, 0),
        num_barriers: int = 0,
    ) -> None:
        self.notes = [f for f in findings if f.kind == "same_value"]
        self.findings = [f for f in findings if f.kind != "same_value"]
        self._count = count
        self.source = source
        self.truncated = truncated
        self.untracked = list(untracked)
        self.grid_shape = grid_shape
        self.num_barriers = num_barriers

    @cached_property
    def accesses(self) -> list[Access]:
        """What each line asks of each memory, in the order of the lines."""
        return sorted(self._count(), key=lambda a: (a.line, a.memory, a.kind))

    def of_kind(self, *kinds: str) -> list[Finding]:
        """The findings of these kinds."""
        return [finding for finding in self.findings if finding.kind in kinds]

    @property
    def clean(self) -> bool:
        return not self.findings

    @property
    def races(self) -> list[Finding]:
        return self.of_kind("race")

    @property
    def out_of_bounds(self) -> list[Finding]:
        return self.of_kind("out_of_bounds")

    @property
    def barriers(self) -> list[Finding]:
        """Barriers that not all threads reach, and threads that wait for each other."""
        named = ("mbarrier", "barrier_count", "transaction_bytes", "warp_group")
        return self.of_kind("divergent_barrier", "divergent_collective", "deadlock", *named)

    def line(self, number: int) -> Line:
        """What line `number` of the source asks of the memory system."""
        own = [a for a in self.accesses if not a.header]
        found = tuple(a for a in own if a.line == number)
        if not found:
            lines = sorted({a.line for a in own})
            raise ValueError(f"line {number} touches no memory; lines that do: {lines}")
        return Line(number, found)

    def table(self) -> str:
        """One row for each line and kind of access, with its cost beside the least possible."""
        if not self.accesses:
            return "no access to global or shared memory"
        head = (
            f"{'line':>4}  {'access':<14} {'of':<12} {'requests':>8} {'per request':>16} "
            f"{'ideal':>6}  source"
        )
        lines = self.source.splitlines()
        rows = [head]
        for a in self.accesses:
            text = lines[a.line - 1].strip() if 0 < a.line <= len(lines) else ""
            text = f"(of {a.header})" if a.header else text
            cost = f"{a.per_request:.4g} {a.unit}"
            mark = "*" if a.units > a.ideal_units else " "
            rows.append(
                f"{a.line:>4}  {a.memory + ' ' + a.kind:<14} {a.name[:12]:<12} "
                f"{a.requests:>8} {cost:>16} "
                f"{a.ideal:>6.4g}{mark} {text[:60]}"
            )
        return "\n".join(rows)

    def activity(self) -> str:
        """Which accesses leave lanes of a warp idle, and how many, one line of text for each."""
        words = []
        for a in self.accesses:
            if a.lanes == 32 * a.requests:
                continue
            split = ", ".join(f"{a.by_lanes[n]} with {n}" for n in sorted(a.by_lanes, reverse=True))
            of = f" of {a.name}" if a.name else ""
            words.append(
                f"line {a.line}, {a.memory} {a.kind}{of}: {a.lanes / a.requests:.3g} of 32 lanes "
                f"active per request; {a.requests} requests: {split}"
            )
        return "\n".join(words) or "every request has 32 active lanes"

    def __str__(self) -> str:
        count = len(self.findings)
        parts = [f"{count} fault{'s' * (count != 1)} found" if count else "no fault found"]
        parts += [f"  {finding.message}" for finding in self.findings]
        parts += [f"  no fault: {note.message}" for note in self.notes]
        parts += ["", self.table()]
        if any(a.units > a.ideal_units for a in self.accesses):
            parts.append("* costs more than the bytes that are used would need")
        if self.untracked:
            names = ", ".join(self.untracked)
            parts.append(f"No races were looked for in {names}: too large to keep track of.")
        if self.truncated:
            parts.append("The counts leave out part of a long stretch without a barrier.")
        return "\n".join([*parts, "", LIMITS])

    def __repr__(self) -> str:
        return str(self)


# ------------------------------------------------------------------------- from the runtime


def make_report(
    library: Path, source: str, memories: Sequence[Memory], stopped: runtime.RawFailure | None
) -> Report:
    """Turn what the runtime noted in the last call into a report."""
    raw = runtime.findings() + ([stopped] if stopped else [])
    lines = Lines(library, {f.site for f in raw} | {f.other_site for f in raw})
    raw = [f for f in raw if not _waits_for_its_turn(f, lines, source)]
    for failure in raw:
        if failure.text == b"lost" and _counts(_row(lines.place(failure.site), source)):
            failure.kind = runtime.KINDS.index("race")  # two that add 1 store the same value
    findings = merge([describe(failure, lines, memories, source) for failure in raw])
    truncated = bool(runtime.checker().emulator_counters_truncated())
    untracked = [name_of(number, memories) for number in runtime.untracked()]
    count = partial(_accesses, runtime.sites(), library, memories)
    barriers = runtime.checker().emulator_num_barriers()
    return Report(findings, count, source, truncated, untracked, runtime.grid_shape(), barriers)


_COMPOUND = re.compile(r"\+\+|--|(?:[-+*/%&|^]|<<|>>)=")
_ASSIGNED = re.compile(r"(\*?\(?\**[A-Za-z_]\w*(?:(?:->|\.)\w+|\[[^\]]*\])*\)?)\s*=(?!=)([^;]*)")


def _is_update(line: str) -> bool:
    """Whether a line of C++ has `++x`, `x += …` or `x = … x …`."""
    return bool(_COMPOUND.search(line)) or any(
        re.search(rf"(?<!\w){re.escape(place)}(?!\w)", value)
        for place, value in _ASSIGNED.findall(line)
    )


def _counts(line: str) -> bool:
    """Whether an update has another result if it is made twice: a sum has, a maximum has not."""
    values = [value for place, value in _ASSIGNED.findall(line) if place in value]
    return bool(re.search(r"\+\+|--|[-+*/%]=", line)) or any(
        re.search(r"[-+*/%]", value) and not re.search(r"max|min|[|&]", value) for value in values
    )


def _row(place: Place, source: str) -> str:
    """The text of a line of the source; "" if it is a header's."""
    if "#line" in source:  # its lines are those of the file that it was made of
        source = Path(place.file).read_text() if Path(place.file).is_file() else ""
    rows = source.splitlines()
    return rows[place.line - 1] if not place.header and 0 < place.line <= len(rows) else ""


def _waits_for_its_turn(raw: runtime.RawFailure, lines: Lines, source: str) -> bool:
    """Whether a volatile store follows a load of its address, but does not compute on what it read:
    `while (*turn != me); *turn = me + 1;` loses nothing."""
    if raw.text != b"lost" or str(raw.block) == str(raw.other_block):
        return False
    return not _is_update(_row(lines.place(raw.site), source))


def merge(findings: Sequence[Finding]) -> list[Finding]:
    """One finding for each kind and pair of lines; calls of one line that differ are one."""
    seen: dict[tuple, Finding] = {}
    raced = {
        line
        for finding in findings
        if finding.kind == "race" and finding.memory == "shared"
        for line in (finding.line, finding.other_line)
    }
    pending = {
        frozenset((finding.line, finding.other_line))
        for finding in findings
        if finding.kind == "pending_copy"
    }
    for finding in findings:
        if finding.kind == "race" and frozenset((finding.line, finding.other_line)) in pending:
            continue  # with the copy, when it had landed after all
        if finding.kind in ("divergent_barrier", "divergent_collective") and (
            finding.line == finding.other_line and not finding.offset
        ):
            continue  # the compiler made two copies of one call
        if finding.kind == "uninitialized" and finding.line in raced:
            continue  # the read that won the race
        where = sorted((finding.line, finding.other_line))
        if finding.kind == "deadlock":
            where = [finding.line, finding.name, finding.offset]
        key = (finding.kind, finding.memory, finding.header, *where)
        seen.setdefault(key, finding)
    return list(seen.values())


def _accesses(sites: Sequence, library: Path, memories: Sequence[Memory]) -> list[Access]:
    """The counters of all instructions of a line that do the same, added up."""
    lines = Lines(library, {site.address for site in sites})
    found: dict[tuple, Access] = {}
    for site in sites:
        place = lines.place(site.address)
        memory, kind = runtime.MEMORIES[site.memory], runtime.ACCESSES[site.access]
        name = name_of(site.range, memories)
        key = (place, memory, kind, name, site.size)
        if key not in found:
            found[key] = Access(place.line, memory, kind, site.size, name, header=place.header)
        access = found[key]
        access.requests += site.requests
        access.by_lanes.update({n: count for n, count in enumerate(site.by_lanes) if count})
        access.first_lanes += site.first_lanes[: min(site.requests, 64)]
        access.units += site.units
        access.ideal_units += site.ideal_units
        if site.worst_units > access.worst_units:
            access.worst_units = site.worst_units
            lanes = [lane for lane in range(32) if site.worst_lanes >> lane & 1]
            known = 0 <= site.range < len(memories)
            lead = memories[site.range].lead if known else 0
            access.worst = {lane: site.worst_offsets[lane] + lead for lane in lanes}
    return [access for access in found.values() if access.requests]


def describe(
    raw: runtime.RawFailure, lines: Lines, memories: Sequence[Memory], source: str = ""
) -> Finding:
    """Say in a sentence what happened, to whom and where."""
    kind = runtime.KINDS[raw.kind]
    here, there = lines.place(raw.site), lines.place(raw.other_site)
    return Finding(
        kind,
        sentence(raw, here, there, memories, source),
        here.line,
        there.line,
        raw.count,
        runtime.MEMORIES[raw.memory],
        (raw.thread.x, raw.thread.y, raw.thread.z),
        (raw.block.x, raw.block.y, raw.block.z),
        (raw.other_thread.x, raw.other_thread.y, raw.other_thread.z),
        (raw.other_block.x, raw.other_block.y, raw.other_block.z),
        name_of(raw.range, memories),
        raw.offset,
        runtime.ACCESSES[raw.access],
        runtime.ACCESSES[raw.other_access],
        here.header,
    )

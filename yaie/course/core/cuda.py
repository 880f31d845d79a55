"""What `.cu` exercises are loaded and observed with: they run on the CPU, every access checked.

def cases():
    yield from in_every_order(KernelCase("n = 100", n=100))

def observe(path, case, see):
    a, b, out = torch.randn(case.n), torch.randn(case.n), poisoned(case.n)
    run(see, path, "vector_add_f32", a, b, out, case.n, **case.how)
    see.equal("out", out, a + b, unwritten(out))
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.build.dtypes import ROUNDING, SUFFIXES
from yaie.course.core.launch_slips import STREAM, off_the_stream, other_size
from yaie.course.core.observe import Case, Found, Stop
from yaie.emulator.text import without_comments

if TYPE_CHECKING:
    from yaie.course.core.observe import Observer
    from yaie.emulator import KernelError, Module, Report
    from yaie.emulator.checks import Access, Finding

SECONDS = 3.0  # that a core computes in one launch: those of a check take milliseconds

ORDERS = ("forward", "reverse", "random")  # in which threads may take their turns
DTYPES = {suffix: name for name, suffix in SUFFIXES.items()}  # of a launcher's name → of torch

# A finding or an error's name → what to tell. A function gets the finding (None for an error).
# "shuffle" stands for the four kinds of `LANES`.
Explain = Mapping[str, "str | Callable[[Any], str]"]
LANES = ("inactive_lane", "wrong_mask", "divergent_collective", "deadlock")

EXPLAIN: Explain = {
    "out_of_bounds": "No thread may touch memory that is not its tensors'.",
    "misaligned": "A load or store needs an address that is a multiple of its size in bytes.",
    "race": "Two threads touch it in no order, and one of them writes: which comes first is luck.",
    "pending_copy": (
        "The bytes of an asynchronous copy are there when its thread has waited for its group and "
        "then all threads have met at a barrier."
    ),
    "uninitialized": "Shared memory holds nothing until a thread of the thread block writes it.",
    "divergent_barrier": "All threads of a thread block have to reach the same __syncthreads().",
    "deadlock": "Some threads wait for others that wait for them.",
    "inactive_lane": "What a shuffle gets from a lane that does not take part is undefined.",
    "wrong_mask": "Every lane has to be in the mask that it passes itself.",
    "time_limit": "Is there a loop whose condition never changes?",
    "cudaErrorInvalidConfiguration": (
        "The launch was refused: a thread block has 1 to 1,024 threads, and a grid at least one "
        "thread block."
    ),
}
UNSET = "A thread that skips an assignment keeps what the variable had before: nothing at first."


class KernelCase(Case):
    """A case of a kernel.

    Attributes:
        suffix: of the launcher, for its dtype.
        costs: whether what loads and stores cost is looked at.
        how: options of `run`, such as `order` and `checked`.
    """

    suffix = "f32"
    costs = False
    how: Mapping[str, Any] = {}


def operator_by(function: str, **options: Any) -> Callable[[Path], Callable[..., Any]]:
    """A function that makes a model's operator of a learner's file as it is then.

    For `Exercise.fit`.

    Args:
        function: the back end that takes such a file, as module:name; imported when it is needed.
        options: what else it is given, such as the launcher's name.
    """

    def fit(file: Path) -> Callable[..., Any]:
        from yaie.ops.cuda.launching import forget_sources

        forget_sources()
        return partial(pkgutil.resolve_name(function), file=file, **options)

    return fit


def poisoned(*shape: int, dtype: Any = None) -> Any:
    """An output in which every element that is not written shows: NaN, or the least integer."""
    import torch

    dtype = dtype or torch.float32
    fill = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min
    return torch.full(shape, fill, dtype=dtype)


def unwritten(out: Any, because: str = "") -> str:
    """Why a poisoned output is wrong: elements that no thread has written, before other reasons."""
    import torch

    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[out.element_size()]
    poison = poisoned(1, dtype=out.dtype)
    missing = int((out.contiguous().view(bits) == poison.view(bits)).sum())  # by bits: NaN != NaN
    if not missing:
        return because
    left = "1 element holds" if missing == 1 else f"{missing:,} elements hold"
    what = "NaN" if out.dtype.is_floating_point else f"{poison.item()}"
    return f"{left} the {what} that was there before the launch. {because}".strip()


def dtype_of(suffix: str) -> Any:
    """The dtype of a launcher whose name ends in "f32", "f16" or "bf16"."""
    import torch

    return getattr(torch, DTYPES[suffix])


def rounding(suffix: str) -> float:
    """How far results of a dtype may be off."""
    return ROUNDING[DTYPES[suffix]]


def reserved(elements: int, dtype: Any) -> Any:
    """A tensor of zeros, with as many of them in front, that takes no memory until it is touched.

    An index that overflows 32 bits, and is negative then, meets these. The case ends if the
    machine cannot reserve this many addresses.
    """
    import mmap

    import torch

    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    try:
        memory = mmap.mmap(-1, 2 * elements * dtype.itemsize, flags=private)
    except OSError:
        raise Stop from None
    return torch.frombuffer(memory, dtype=dtype)[elements:]


def compiled(path: Path, checked: bool = False) -> Module:
    """The kernels of a `.cu` file as it is now, for CPU tensors; built once for each text."""
    from yaie.emulator.rewrite import read_source

    return module_of(read_source(path), path, checked)


def module_of(source: str, path: Path, checked: bool = False) -> Module:
    """The kernels of `source`, in place of the text of the file; built once for each text of it and
    of the headers that it includes."""
    from yaie.emulator.rewrite import included

    return _module(source, path, checked, *included(source, path).values())


@lru_cache(maxsize=128)
def _module(source: str, path: Path, checked: bool, *headers: str) -> Module:
    from yaie.emulator import Module

    return Module(source, path, checked, apart=True)


def warm_up() -> None:
    """Load torch and the emulator, whose time is not the learner's."""
    import torch  # noqa: F401

    from yaie.emulator.runtime import checker

    checker()


_faulty: set[str] = set()  # the texts in which a checked run has found something


def run(
    see: Observer,
    path: Path,
    name: str,
    *arguments: Any,
    explain: Explain | None = None,
    order: str = "forward",
    checked: bool = True,
    most_blocks: int = 0,
    causes: Sequence[str] = (),
) -> Report | None:
    """Run the launcher `name` of a `.cu` file, and note a fault, which ends the case.

    Args:
        arguments: CPU tensors and numbers, without the stream.
        explain: what to tell for a kind of finding ("race") or an error that the launcher returns
            ("cudaErrorInvalidConfiguration"), where no known mistake explains it; `EXPLAIN` has
            the rest.
        order: in which threads take their turns: "forward", "reverse" or "random".
        checked: whether every load and store is looked at. A file in which a fault was found is
            always checked: it might spoil the memory of this process.
        most_blocks: how many thread blocks of the grid run, the first in `order`; 0 means all.
            With `checked=False`, a file in which a fault was found is not run at all.
        causes: kinds of findings that are told first, since others are their consequences.

    Returns:
        The report of a checked run, which then has no findings.
    """
    from yaie.emulator import KernelError, settings
    from yaie.emulator.rewrite import read_source

    if not checked and read_source(path) in _faulty:
        if most_blocks:  # of a grid over tensors that may be too large to be copied
            see.stop()
        checked = True
    kernels = compiled(path, checked)
    explain = _completed(explain or {})
    error = None
    try:
        with settings(order=order, time_limit=SECONDS, most_blocks=most_blocks):
            getattr(kernels, name)(*arguments)
    except KernelError as raised:
        error = raised
    if kernels.report and kernels.report.findings:
        finding = _cause(kernels.report.findings, causes)
        size = other_size(finding, kernels.source, name, arguments)
        _note_finding(see, finding, kernels.source, explain, size)
    if error is not None:
        note_error(see, error, explain)
    if stray := off_the_stream(without_comments(kernels.source)):
        line, text = stray
        see.found(Found("stream", text), f"line {line}: a launch that is not on `stream`", STREAM)
    return kernels.report


def note_error(see: Observer, error: KernelError, explain: Explain) -> None:
    """Note an error that a launcher has raised, which ends the case; `explain` as for `run`."""
    known = ((k, t) for k, t in _completed(explain).items() if k.replace("_", " ") in str(error))
    kind, told = next(known, ("error", ""))
    where = str(error).partition("deadlock: ")[2]  # which barrier waits for how many threads
    see.found(Found(kind, where=where), str(error), told(None) if callable(told) else told)


def _completed(explain: Explain) -> Explain:
    """With the explanations that all exercises share, and "shuffle" for each fault of `LANES`."""
    own = dict(explain)
    shuffle = own.pop("shuffle", None)
    lanes = dict.fromkeys(LANES, shuffle) if shuffle else {}
    return {**EXPLAIN, **lanes, **own}


def _cause(findings: Sequence[Finding], causes: Sequence[str]) -> Finding:
    """The first that is a cause: a barrier that not all threads reach causes races."""
    late = ("race", "uninitialized")
    return min(findings, key=lambda found: (found.kind not in causes, found.kind in late))


def _note_finding(
    see: Observer, finding: Finding, source: str, explain: Explain, size: str
) -> None:
    _faulty.add(source)
    lines = source.splitlines()
    inside = 0 < finding.line <= len(lines) and not finding.header
    text = lines[finding.line - 1].strip() if inside else ""
    unset = finding.kind == "uninitialized" and finding.memory == "none"  # a thread's own variable
    told = UNSET if unset else explain.get(finding.kind, "")
    told = told(finding) if callable(told) else told
    found = Found(finding.kind, text, _where(finding), finding.memory)
    see.found(found, finding.message, f"{size}{told}", _quoted(finding, lines))


def _quoted(finding: Finding, source: Sequence[str]) -> str:
    """The lines of the source that a finding names, with their numbers and in its order: a race
    begins with the thread that reads. "" if that is only the line of the finding."""
    said = re.findall(r"\bline (\d+)\b(?! of [\w.]+\.(?:cuh|h|hpp)\b)", finding.message)
    places = (finding.line, finding.other_line)
    named = [n for n in dict.fromkeys(map(int, said)) if n in places and 0 < n <= len(source)]
    rows = [f"{n:>5} | {source[n - 1].strip()}" for n in named]
    return "" if named == [finding.line] else "\n".join(rows)


def _where(finding: Finding) -> str:
    """Which element and threads; the name of a shared array is the learner's, so it is left out."""
    name = finding.name if finding.memory == "global" else ""
    threads = finding.thread, finding.thread_block, finding.other_thread, finding.other_thread_block
    how = finding.access, finding.other_access
    lacks = re.findall(r"phase \d+ [^;]* lacks [^;]*", finding.message)  # what is waited for
    return " ".join(map(str, (name, finding.offset, *threads, *how, finding.count, *lacks)))


def in_every_order(*cases: KernelCase, orders: Sequence[str] = ORDERS) -> Iterator[KernelCase]:
    """The cases with each order in which threads may take their turns."""
    for order in orders:
        for case in cases:
            words = str(case) if order == "forward" else f"{case}, threads in {order} order"
            changed = {"name": words, "how": {**case.how, "order": order}}
            yield KernelCase(**{**vars(case), **changed})


def report_of(path: Path, name: str, *arguments: Any) -> Report:
    """The report of a checked run that is known to be clean."""
    module = compiled(path, checked=True)
    getattr(module, name)(*arguments)
    return module.report


def draw_lines(path: Path, name: str, *arguments: Any) -> Any:
    """What each line of a launcher costs a warp."""
    from yaie.course.viz.memory import draw_costs

    return draw_costs(report_of(path, name, *arguments))


def accesses(report: Report, **which: Any) -> list[Access]:
    """Those with some attributes: `accesses(report, name="x", kind="load")`."""
    return [a for a in report.accesses if all(getattr(a, k) == v for k, v in which.items())]


def requests(report: Report, **which: Any) -> int:
    """How many requests of warps such accesses took."""
    return sum(access.requests for access in accesses(report, **which))


def cheap(see: Observer, report: Report, told: Mapping[str, str]) -> None:
    """Note what loads and stores cost, which should move no more than their bytes need.

    Args:
        told: why a cost is too high, for each kind of access that is looked at: "global load",
            "global store", "shared load", "shared store".
    """
    for kind, because in told.items():
        memory, _, access = kind.partition(" ")
        dear = accesses(report, memory=memory, kind=access)
        dear = [a for a in dear if a.units > a.ideal_units]
        problem = ""
        if dear:
            see.picture(partial(_draw_access, dear[0]))
            line, header = dear[0].line, dear[0].header
            text = "" if header else report.source.splitlines()[line - 1].strip()
            place = f"line {line} of {header}" if header else f"line {line}"
            problem = (
                f"cost more than they need. In {place} a request of a warp to "
                f"{dear[0].name} takes {dear[0].per_request:.4g} {dear[0].unit}, and "
                f"{dear[0].ideal:.4g} would be enough\n    {text}"
            ).rstrip()
        costs = sorted((round(a.per_request, 2), round(a.ideal, 2)) for a in dear)
        see.note(f"the {kind}s", costs, problem, because)


def _draw_access(access: Access) -> Any:
    from yaie.course.viz.memory import draw_access

    return draw_access(access)

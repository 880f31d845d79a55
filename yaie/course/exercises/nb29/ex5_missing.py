"""29.5: what `missing` says of changes that were made to lack something."""

import random
from collections.abc import Callable, Iterator

from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.rules import RULES, SEVERAL_GPUS, TOOLS, Change, Record

CU, TEST, ROWS = "csrc/norm/rms_norm.cu", "tests/test_norm.py", "tests/kernel_cases.py"
PAGE = "yaie/course/exercises/nb11/ex2_softmax.md"
STUB, SOLVED = "exercises/11_first_triton_kernels/2_softmax.py", "solutions/x/2_softmax.py"
ADD_STUB, ADD_SOLVED = "exercises/14_first_cuda_kernel/1_add.cu", "solutions/x/1_add.cu"
H200, T4 = Record("NVIDIA H200"), Record("Tesla T4")
Planned = tuple[Change, tuple[str, ...]]


def of(*files: str, **more: object) -> Change:
    return Change(frozenset(files), **more)


def kernel(*files: str, **more: object) -> Change:
    """A change of a kernel that has its test and passed the tools."""
    return of(CU, ROWS, *files, passed=frozenset(TOOLS), **more)


PLANNED: dict[str, Planned] = {
    "a text": (of("README.md", "yaie/ops/triton/notes.md"), ()),
    "a kernel alone": (of(CU), ("test", "sanitizers")),
    "a kernel with a row in the table of kernels": (kernel(), ()),
    "a kernel with a test of its own": (of(CU, TEST, passed=frozenset(TOOLS)), ()),
    "a kernel that memcheck has passed": (
        of(CU, TEST, passed=frozenset({"memcheck"})), ("sanitizers",),
    ),
    "a header of kernels": (of("csrc/mma.cuh", TEST), ("sanitizers",)),
    "a kernel in Triton": (of("yaie/ops/triton/norm.py"), ("test",)),
    "a kernel in Triton with a test": (of("yaie/ops/triton/norm.py", TEST), ()),
    "a kernel and a helper of tests": (of(CU, "tests/tiny.py", passed=frozenset(TOOLS)), ("test",)),
    "a kernel that a fourth tool has passed": (
        of(CU, TEST, passed=frozenset({*TOOLS, "synccheck"})), (),
    ),
    "files of csrc/ that are no kernels": (of("csrc/setup.py", "csrc/cpu/linear.cpp"), ()),
    "a kernel's stub and solution": (of(ADD_STUB, ADD_SOLVED), ()),
    "a new operator without a row": (
        kernel("tests/test_registry.py", new_operators=("softcap",)), ("registry",),
    ),
    "a new operator": (kernel("yaie/ops/registry.py", new_operators=("softcap",)), ()),
    "a claim without a record": (kernel(faster_on=("NVIDIA H200",)), ("record",)),
    "a claim, another GPU was measured": (
        kernel(faster_on=("NVIDIA H200",), records=(T4,)), ("record",),
    ),
    "a claim of two GPUs, one was measured": (
        kernel(faster_on=("NVIDIA H200", "Tesla T4"), records=(H200,)), ("record",),
    ),
    "a claim of one GPU, two were measured": (
        kernel(faster_on=("NVIDIA H200",), records=(T4, H200)), (),
    ),
    "a claim whose results were not checked": (
        kernel(faster_on=("NVIDIA H200",), records=(Record("NVIDIA H200", checked=False),)),
        ("record",),
    ),
    "ranks, one GPU was measured": (of(SEVERAL_GPUS[0], records=(H200,)), ("two GPUs",)),
    "ranks, four GPUs were measured": (of(SEVERAL_GPUS[0], records=(H200, Record("A100", 4))), ()),
    "a page with its stub alone": (of(PAGE, STUB), ("generated",)),
    "a page with its solution alone": (of(PAGE, SOLVED), ("generated",)),
    "a page with both generated files": (of(PAGE, STUB, SOLVED), ()),
    "the cases of an exercise": (of(PAGE.replace(".md", ".py")), ()),
    "a pinned version": (of("constraints.txt"), ("changelog",)),
}  # fmt: skip


def cases() -> Iterator[Case]:
    for name, (change, want) in PLANNED.items():
        yield Case(name, change=change, want=list(want))
    generator = random.Random(0)
    for number in range(1, 301):
        change, want = draw_one(generator)
        yield Case(f"random change {number}", change=change, want=want)


def draw_one(generator: random.Random) -> tuple[Change, list[str]]:
    """A change put together rule by rule: untouched, met, or broken."""
    fate = {rule: generator.choice(("untouched", "met", "broken")) for rule in RULES}
    files, passed, operators, faster, records = {"Makefile"}, set(), (), (), []
    some = generator.sample(TOOLS, generator.randrange(3))
    if fate["sanitizers"] != "untouched":
        files.add(generator.choice((CU, "csrc/mma.cuh", "csrc/flash/row.cu")))
        passed.update(TOOLS if fate["sanitizers"] == "met" else some)
        fate["test"] = generator.choice(("met", "broken"))
    elif fate["test"] != "untouched":
        files.add("yaie/ops/triton/flash.py")
        passed.update(some)
    if fate["test"] == "met":
        files.add(generator.choice((ROWS, TEST)))
    if fate["test"] == "broken":
        files.add(generator.choice(("tests/test_notes.md", "tests/emulator/test_race.py")))
    if fate["registry"] != "untouched":
        operators = ("softcap",)
    if fate["registry"] == "met":
        files.add("yaie/ops/registry.py")
    if fate["record"] != "untouched":
        faster = ("NVIDIA H200", "Tesla T4")
        records += [T4, H200] if fate["record"] == "met" else [T4, Record("NVIDIA H200", 1, False)]
    if fate["two GPUs"] != "untouched":
        files.add(generator.choice(SEVERAL_GPUS))
        records.append(Record("NVIDIA A100", 2, fate["two GPUs"] == "met"))
    if fate["generated"] != "untouched":
        files.add(PAGE)
        files.update(
            (STUB, SOLVED) if fate["generated"] == "met" else (generator.choice((STUB, SOLVED)),)
        )
    if fate["changelog"] != "untouched":
        files.add(generator.choice(("pyproject.toml", "constraints.txt")))
    if fate["changelog"] == "met":
        files.add("CHANGELOG.md")
    change = Change(frozenset(files), operators, faster, tuple(records), frozenset(passed))
    return change, [rule for rule in RULES if fate[rule] == "broken"]


def observe(missing: Callable[[Change], list[str]], case: Case, see: Observer) -> None:
    with see.call("missing(change)"):
        got = missing(case.change)
    rules = " ".join(f"{rule.capitalize()}: {RULES[rule]}." for rule in case.want)
    told = f"The change: {in_words(case.change)}. {rules or 'It is complete.'}"
    see.equal("what it lacks", list(got) if isinstance(got, tuple) else got, case.want, told)


def in_words(change: Change) -> str:
    words = [", ".join(sorted(change.files))]
    if change.passed:
        words.append(f"passed {', '.join(sorted(change.passed))}")
    if change.new_operators:
        words.append(f"adds the operator {', '.join(change.new_operators)}")
    if change.faster_on:
        words.append(f"faster on {', '.join(change.faster_on)}")
    for record in change.records:
        checked = "" if record.checked else ", results not checked"
        words.append(f"record of {record.gpus} × {record.gpu}{checked}")
    return "; ".join(words)

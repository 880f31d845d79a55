"""The list of exercises: what each asks for, and where its reference is.

An exercise has one place, `yaie/course/exercises/nbNN/exK_name`: its page (`.md`), its known
mistakes (`.mistakes`), and a module with `cases()`, `observe(target, case, see)` and, if it has a
picture, `draw(target)`. Reading the list reads pages only: a module, and with it torch, is imported
when one of its functions is asked for.
"""

import difflib
import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

HINTS = ("Idea", "Invariant", "Shape")
HAVE = "You have"
LONGEST_TITLE = 48  # what a stub's line that names the exercise has room for
NOTEBOOKS = (
    *("00_start_here", "01_attention_and_kv_cache", "02_radix_tree", "03_paged_kv_cache"),
    *("04_prefix_sharing", "05_sampling", "06_scheduling", "07_online_softmax"),
    *("08_flash_attention", "09_gpu_memory_and_roofline", "10_roofline_of_your_machine"),
    *("11_first_triton_kernels", "12_triton_matmul", "13_triton_attention", "14_first_cuda_kernel"),
    *("15_memory_barriers_warps", "16_tiled_matmul", "17_kv_memory_operations"),
    *("18_flash_attention_cuda", "19_paged_attention_cuda", "20_radix_and_metadata_kernels"),
    *("21_sampling_kernels", "22_operators_gradients_graphs", "23_profiling_and_sanitizers"),
    *("24_hopper_asynchrony", "25_hopper_matmul", "26_hopper_flash_attention", "27_back_ends"),
    *("28_serving_and_benchmarks", "29_where_next"),
)


class UnknownExercise(ValueError):
    """No exercise has this id."""


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Attributes:
        id: notebook and number, such as "02.2".
        notebook: the notebook's file name without suffix, such as "02_radix_tree".
        slug: the rest of the exercise's file name, such as "match".
        title: what is built, in a few words.
        target: the reference. "yaie.engine.radix:RadixTree.match" is a method,
            "yaie.engine.radix:shared_prefix_length" a function, names joined by commas are
            several of one module, "yaie.ops.triton.online:online_step" a function that Triton
            compiles, and "csrc/kv/copy.cu#copy" is the region of a CUDA file between the
            comments `// exercise 17.2 begin` and `// exercise 17.2 end`; files of "csrc/roofline/"
            are C++ for the CPU.
        task: what to do, in a few sentences.
        difficulty: 1 (a few obvious lines) to 3 (a puzzle).
        minutes: how long a learner needs.
        hints: the idea, the invariant, the shape of the lines.
        proves: one sentence that is true of every solution that passes the check.
        place: its module's file; `.md`, `.mistakes` and `.symptoms.json` lie beside it.
        module_name: its module, which is imported when one of its functions is asked for.
        part: the field of `yaie.engine.parts.Parts` that the solution plugs into, if any.
        operator: the operator of the model that the solution computes, if any.
        launches: of a CUDA kernel with many instances, the template arguments of those that the
            check launches: only these are compiled. By default, all are.
        draft: for CUDA, the lines that a learner begins with and repairs; none: writes all of them.
        have: what is at hand, as (names in Markdown, what they are or return).
    """

    id: str
    notebook: str
    slug: str
    title: str
    target: str
    task: str
    difficulty: int
    minutes: int
    hints: tuple[str, str, str]
    proves: str
    place: Path
    module_name: str
    part: str | None = None
    operator: str | None = None
    launches: str = ""
    draft: str = ""
    have: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if len(self.title) > LONGEST_TITLE:
            raise ValueError(f"{self.id}: title must have at most {LONGEST_TITLE} characters")
        if self.difficulty not in (1, 2, 3):
            raise ValueError(f"{self.id}: difficulty must be 1, 2 or 3, got {self.difficulty}")
        if not self.is_cuda and len({name.partition(".")[0] for name in self.names}) > 1:
            dotted = [name for name in self.names if "." in name]
            if dotted:
                raise ValueError(f"{self.id}: a target is methods of one class, or functions")

    @property
    def cases(self) -> Callable[[], Iterable[Any]]:
        """Yields the situations in which a learner's code is observed."""
        return self._own.cases

    @property
    def observe(self) -> Callable[[Any, Any, Any], None]:
        """Notes what the learner's class or function does in a case; `core.observe` says how.

        Of several functions it takes a namespace, of CUDA the file's path.
        """
        return self._own.observe

    @property
    def picture(self) -> Callable[[Any], Any] | None:
        """Takes what `observe` takes, returns a matplotlib figure drawn by running it."""
        return getattr(self._own, "draw", None)

    @property
    def fit(self) -> Callable[[Any], Any]:
        """Makes the part or operator from the solution; by default it is the solution itself."""
        return getattr(self._own, "fit", lambda solution: solution)

    @property
    def _own(self) -> ModuleType:
        return importlib.import_module(self.module_name)

    @property
    def is_cuda(self) -> bool:
        """Whether it is C++ of `csrc/`: CUDA, or the code for the CPU around it (`.cpp`)."""
        return self.target.startswith("csrc/")

    @property
    def is_native(self) -> bool:
        """Whether it is C++ that computes on the CPU: it runs as it is, and nothing is emulated."""
        return self.target.startswith("csrc/roofline/")

    @property
    def is_triton(self) -> bool:
        return ".ops.triton." in self.target

    @property
    def module(self) -> str:
        """The reference's module, or its file if it is CUDA."""
        return self.target.partition("#" if self.is_cuda else ":")[0]

    @property
    def names(self) -> list[str]:
        """What the learner writes, as it is called in the reference's module."""
        return self.target.partition("#" if self.is_cuda else ":")[2].replace(" ", "").split(",")

    @property
    def class_name(self) -> str | None:
        """The class whose methods these are; None for functions and CUDA."""
        head, dot, _ = self.names[0].partition(".")
        return head if dot and not self.is_cuda else None

    @property
    def what(self) -> str:
        """The target in words, such as "RadixTree.match"."""
        return ", ".join(self.names)

    @property
    def source(self) -> str:
        """The reference's file, from the project's root."""
        return self.module if self.is_cuda else self.module.replace(".", "/") + ".py"

    @property
    def file(self) -> Path:
        """The exercise's file inside `exercises/` and `solutions/`."""
        suffix = Path(self.source).suffix
        return Path(self.notebook, f"{self.id[3:]}_{self.slug}{suffix}")

    @property
    def shown(self) -> str:
        """The file's name for messages, the same wherever the folder really is."""
        return f"exercises/{self.file.as_posix()}"


@cache
def exercises() -> tuple[Exercise, ...]:
    """All exercises, in the order of the course."""
    pages = Path(__file__).parents[1].glob("exercises/nb[0-9][0-9]/ex[0-9]_*.md")
    return tuple(_exercise(page) for page in sorted(pages))


def _exercise(page: Path) -> Exercise:
    package = f"yaie.course.exercises.{page.parent.name}"
    notebook = next(name for name in NOTEBOOKS if name[:2] == page.parent.name[2:])
    return Exercise(
        id=f"{notebook[:2]}.{page.name[2]}",
        notebook=notebook,
        slug=page.stem[4:],
        place=page.with_suffix(".py"),
        module_name=f"{package}.{page.stem}",
        **read_page(page),
    )


def read_page(path: Path) -> dict[str, Any]:
    """The fields of `Exercise` that a page has.

    A page is "# title", lines such as "minutes: 25", the task, and the sections "You have" (lines
    such as "`copy(tile)`: starts the copies of a tile"), Idea, Invariant and Shape (the hints),
    Proves and, where learners repair some lines, Draft.
    """
    head, *sections = re.split(
        r"^## ([\w ]+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    fields, _, task = head.partition("\n\n")
    title, *pairs = fields.splitlines()
    page: dict[str, Any] = dict(pair.split(": ", 1) for pair in pairs)
    texts = dict(zip(sections[::2], (text.strip("\n") for text in sections[1::2]), strict=True))
    if not title.startswith("# ") or {*texts} - {"Draft", HAVE} != {*HINTS, "Proves"}:
        wanted = f"a title and the sections {HAVE}, {', '.join(HINTS)}, Proves and perhaps Draft"
        raise ValueError(f"{path}: has {title!r} and {', '.join(texts)}; a page has {wanted}")
    return {
        **page,
        "title": title.removeprefix("# "),
        "task": task.strip("\n"),
        "difficulty": int(page["difficulty"]),
        "minutes": int(page["minutes"]),
        "hints": tuple(texts[name] for name in HINTS),
        "proves": texts["Proves"],
        "draft": texts["Draft"] + "\n" if "Draft" in texts else "",
        "have": tuple(_at_hand(path, line) for line in texts.get(HAVE, "").splitlines()),
    }


def _at_hand(path: Path, line: str) -> tuple[str, str]:
    names, colon, what = line.partition("`: ")
    if not (line.startswith("`") and colon) or "|" in line:
        raise ValueError(
            f'{path}: a line of {HAVE!r} looks like "`name(x)`: what it is", got {line!r}'
        )
    return f"{names}`", what


def find(exercise_id: str) -> Exercise:
    """The exercise of this id, "02.2" or "2.2", or of this file.

    Raises UnknownExercise, which names the exercises that look like it, or those of a notebook.
    """
    exercise_id = _plain(exercise_id)
    for exercise in exercises():
        if exercise.id == exercise_id:
            return exercise
    if own := in_notebook(exercise_id):
        these = " to ".join(dict.fromkeys((own[0].id, own[-1].id)))
        raise UnknownExercise(
            f"one exercise is wanted, such as {own[0].id}; notebook {own[0].id[:2]} has {these}"
        )
    raise UnknownExercise(_unknown(exercise_id, [e.id for e in exercises()]))


def in_notebook(which: str) -> list[Exercise]:
    """The exercises of a notebook, "02", "2", "02_radix_tree" or its path; none if it is none."""
    which = _plain(which)
    return [e for e in exercises() if which in (e.id[:2], e.notebook)]


def select(which: str) -> list[Exercise]:
    """The exercises that `which` means: what `find` or `in_notebook` takes, or "all"."""
    which = _plain(which)
    chosen = [e for e in exercises() if which in ("all", e.id)] or in_notebook(which)
    if not chosen:
        ids = [e.id for e in exercises()]
        raise UnknownExercise(_unknown(which, ["all", *sorted({i[:2] for i in ids}), *ids]))
    return chosen


def _unknown(got: Any, known: list[str]) -> str:
    if not isinstance(got, str):
        return f'an exercise is named in quotes, such as "02.2"; got {got!r} without them'
    if close := _near(got, known):
        *others, last = close
        these = f"{', '.join(others)} or {last}" if others else last
        return f"there is no exercise {got!r}; did you mean {these}?"
    kind, last = "notebook" if got.isdecimal() else "exercise", exercises()[-1].id[:2]
    return (
        f"there is no {kind} {got!r}; the notebooks are 00 to {last}, and `yaie status 02`, say, "
        "lists the exercises of notebook 02"
    )


def _plain(which: Any) -> Any:
    """A name with its leading zero (2.2 is 02.2); of an exercise's file its id, and of a notebook's
    folder or file its name, as shells complete them."""
    if not isinstance(which, str):
        return which
    path = Path(which).absolute()
    if path.stem in NOTEBOOKS:
        return path.stem
    ids = {e.file.parts: e.id for e in exercises()}
    return ids.get(path.parts[-2:], re.sub(r"^(?=\d(\.|$))", "0", which))


def _near(got: str, known: list[str]) -> list[str]:
    """Ids that may be meant: similar ones of the same notebook."""
    close = difflib.get_close_matches(got, known, n=len(known), cutoff=0.7)
    return sorted(name for name in close if name[:2] == got[:2])

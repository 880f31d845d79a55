"""The exercise machinery: what is generated, how it is judged, and what learners are told."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from yaie.course.author import build
from yaie.course.core import cuda_text, exercise, limit, manifest, notebook, plug, render, tell
from yaie.course.core import judge as judging
from yaie.course.core.exercise import Broken
from yaie.course.core.manifest import Exercise, UnknownExercise, exercises, find, read_page, select
from yaie.course.core.observe import Case
from yaie.course.core.paths import ROOT, exercises_dir, state_dir
from yaie.course.core.picture import draw
from yaie.course.core.verdict import Verdict, judge
from yaie.engine import radix
from yaie.engine.parts import Parts

SOLVED = "\n".join(
    [
        "def shared_prefix_length(a, b):",
        "    length = 0",
        "    for x, y in zip(a, b):",
        "        if x != y:",
        "            break",
        "        length += 1",
        "    return length",
    ]
)


pytestmark = pytest.mark.usefixtures("folders")


def write(text: str, chosen: str | Exercise = "00.1") -> Path:
    found = find(chosen) if isinstance(chosen, str) else chosen
    path = exercise.learner_path(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def verdict(text: str, **options: float) -> Verdict:
    write(text)
    return judge(find("00.1"), **options)


def made(
    target: str, observe=lambda target, case, see: None, number: int = 1, fit=None, **fields
) -> Exercise:
    """An exercise that is in no list."""
    place = Path(os.environ["YAIE_STATE"]).with_name("made.py")
    place.with_suffix(".mistakes").touch()
    name = f"made_{number}"
    sys.modules[name] = own = SimpleNamespace(cases=lambda: [Case("a call")], observe=observe)
    if fit is not None:
        own.fit = fit
    return Exercise(
        **{
            **{"id": f"99.{number}", "notebook": "99_made", "slug": name, "module_name": name},
            **{"title": "Made for a test", "task": "Write it.", "difficulty": 1, "minutes": 1},
            **{"target": target, "hints": ("idea", "invariant", "shape"), "proves": "It does."},
            **{"place": place, **fields},
        }
    )


# ------------------------------------------------------------------------------------ manifest


def test_manifest_is_in_order_and_well_formed() -> None:
    assert [e.id for e in exercises()] == sorted({e.id for e in exercises()})
    for e in exercises():
        assert e.shown == f"exercises/{e.notebook}/{e.id[3:]}_{e.slug}{e.file.suffix}"
        assert e.proves.endswith(".") and "." not in e.title[-1:] and all(map(str.strip, e.hints))
    assert {e.part for e in exercises()} - {None} <= {field.name for field in fields(Parts)}


def test_a_check_freezes_nothing_of_a_process_that_has_torch() -> None:
    """A notebook may hold engines, which are garbage later."""
    code = "import gc, sys, torch; from yaie.course.core import manifest, verdict; "
    code += "before = gc.get_freeze_count(); verdict._import(manifest.find('01.2')); "
    code += "sys.exit(gc.get_freeze_count() != before)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_listing_imports_no_torch() -> None:
    code = "import sys; from yaie.course.core.manifest import exercises; exercises();"
    code += "sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_unknown_exercise_names_close_ones() -> None:
    for call, name, why in [
        (find, "19.9", r"did you mean 19\.1, 19\.2, .* or 19\.5\?$"),
        (find, "14.44", r"did you mean 14\.4\?$"),
        (find, "zzz", "yaie status"),
        (find, "99.9", r"the notebooks are 00 to \d\d, and `yaie status 02`"),
    ]:
        with pytest.raises(UnknownExercise, match=why):
            call(name)
    assert [e.id for e in select("00")] == ["00.1"] and select("all") == list(exercises())
    assert find("0.1") == find("00.1") and select("2") == select("02") and select("2") != []


def test_bad_exercise_is_refused(tmp_path: Path) -> None:
    fine = made("yaie.engine.radix:shared_prefix_length")
    two = "yaie.engine.radix:RadixTree.match, shared_prefix_length"
    for change in ({"difficulty": 4}, {"title": "x" * 49}, {"target": two}):
        with pytest.raises(ValueError):
            replace(fine, **change)
    page = find("18.2").place.with_suffix(".md").read_text()
    for old, new in (("# A first", "A first"), ("## Idea", "## Ideas"), ("## Proves\n", "")):
        assert old in page
        (tmp_path / "page.md").write_text(page.replace(old, new, 1))
        with pytest.raises(ValueError, match=r"page\.md: has .*; a page has a title"):
            read_page(tmp_path / "page.md")
    lines = "`copy(tile)`: starts its copies\n`wait()`: waits"
    for have in (lines, lines.replace("`: w", " w"), lines + "|"):
        (tmp_path / "page.md").write_text(
            page.replace("## Idea", f"## You have\n{have}\n\n## Idea")
        )
        if have == lines:
            got = read_page(tmp_path / "page.md")["have"]
            assert got == (("`copy(tile)`", "starts its copies"), ("`wait()`", "waits"))
        else:
            with pytest.raises(ValueError, match=r"page\.md: a line of 'You have' looks like"):
                read_page(tmp_path / "page.md")


# ---------------------------------------------------------------------------- generated files


TRICKY = '''\
from __future__ import annotations

import math
import os.path
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any as Anything

import torch
import torch.nn.functional as F

from .helpers import help_out
from ..engine.radix import shared_prefix_length

if TYPE_CHECKING:
    from yaie.engine.kv_cache import BlockPool

LIMIT = 3
unused = 4


def decorate(function):
    return function


class Helper:
    pass


def _private(x: Sequence[int]) -> int:
    return len(x)


class Thing:
    @decorate
    def first(self, pool: BlockPool, x: Anything = LIMIT) -> torch.Tensor:
        """Do the first thing."""
        # A comment that stays.
        total: Iterable[int] = [_private([1])]

        def inner(math):
            return math + F.relu(torch.zeros(1))

        help_out(), shared_prefix_length([], [])
        return [inner(LIMIT) for unused in total], Thing, Helper

    def second(self) -> str:
        """Do the second thing."""
        return os.path.join("a", "b")
'''


@pytest.fixture
def tricky(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Exercise:
    """An exercise whose reference uses names in every way that imports have to follow."""
    package = folders / "yaie" / "tricky"
    package.mkdir(parents=True)
    (package / "module.py").write_text(TRICKY)
    monkeypatch.setattr(render, "ROOT", folders)
    return made("yaie.tricky.module:Thing.first, Thing.second")


def test_solution_imports_what_its_body_uses_and_nothing_else(tricky: Exercise) -> None:
    lines = render.solution(tricky).splitlines()
    begin = lines.index("from __future__ import annotations")
    assert lines[begin : lines.index("class Thing(reference.Thing):")] == [
        "from __future__ import annotations",
        "",
        "import os.path",
        "from collections.abc import Iterable",
        "from typing import Any as Anything",
        "",
        "import torch",
        "import torch.nn.functional as F",
        "",
        "from yaie.engine.kv_cache import BlockPool",
        "from yaie.engine.radix import shared_prefix_length",
        "from yaie.tricky import module as reference",
        "from yaie.tricky.helpers import help_out",
        "from yaie.tricky.module import LIMIT, Helper, _private, decorate",
        "",
        "",
    ]
    assert "        # A comment that stays." in lines


def test_stub_keeps_signature_decorators_and_docstring_only(tricky: Exercise) -> None:
    code = render.stub(tricky).partition("class ")[2].splitlines()
    assert code == [
        "Thing(reference.Thing):",
        "    @decorate",
        "    def first(self, pool: BlockPool, x: Anything = LIMIT) -> torch.Tensor:",
        '        """Do the first thing."""',
        '        raise NotImplementedError("Exercise 99.1: Made for a test")',
        "",
        "    def second(self) -> str:",
        '        """Do the second thing."""',
        '        raise NotImplementedError("Exercise 99.1: Made for a test")',
    ]


def test_generated_python_is_clean(tricky: Exercise, folders: Path, monkeypatch) -> None:
    files = folders / "generated"
    (files / "stub").mkdir(parents=True)
    (files / "stub" / "tricky.py").write_text(render.stub(tricky))
    monkeypatch.undo()
    for e in exercises():
        for kind, text in (("stub", render.stub(e)), ("solution", render.solution(e))):
            path = files / kind / e.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    ours = ["--config", "lint.isort.known-first-party = ['yaie']"]
    # A stub already imports what its solution will use, so it has imports that it does not use.
    for arguments in (["check", *ours, "--ignore", "F401"], ["format", "--diff"]):
        command = [sys.executable, "-m", "ruff", *arguments, *config, str(files)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_reference_that_cannot_become_an_exercise_is_refused(folders, monkeypatch) -> None:
    monkeypatch.setattr(render, "ROOT", folders)
    (folders / "yaie").mkdir()
    (folders / "yaie" / "bad.py").write_text(
        "class A:\n    def bare(self):\n        return 1\n"
        "    def parent(self):\n        'Doc.'\n        return super().parent()\n"
    )
    for name, why in [("bare", "docstring"), ("parent", "super"), ("gone", "does not define")]:
        with pytest.raises(ValueError, match=why):
            render.stub(made(f"yaie.bad:A.{name}"))


CUDA = """\
#include "common.cuh"

__global__ void copy(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // exercise 99.1 begin
    if (i < n) {
        out[i] = in[i];
    }
    // exercise 99.1 end
}
"""


def test_cuda_stub_is_the_file_with_its_regions_emptied(folders: Path, monkeypatch) -> None:
    monkeypatch.setattr(render, "ROOT", folders)
    (folders / "csrc").mkdir()
    (folders / "csrc" / "copy.cu").write_text(CUDA)
    copy = made("csrc/copy.cu#copy")
    assert copy.shown == "exercises/99_made/1_made_1.cu"
    assert render.solution(copy).endswith(CUDA)
    region = CUDA[CUDA.index("    if (i < n)") : CUDA.index("    // exercise 99.1 end")]
    assert render.stub(copy).endswith(CUDA.replace(region, "    // your lines\n"))
    with pytest.raises(ValueError, match="no region"):
        render.stub(made("csrc/copy.cu#copy", number=2))

    second = CUDA.replace("99.1", "99.2").replace("copy", "other").partition("\n\n")[2]
    told = CUDA.replace("99.1 begin", "99.1 begin: the copy")
    (folders / "csrc" / "two.cu").write_text(f"{told}\n{CUDA.partition(chr(10))[2]}\n{second}")
    stub = render.stub(made("csrc/two.cu#copy"))
    hole = "// exercise 99.1 begin: the copy\n    // your lines\n    // exercise 99.1 end\n"
    assert hole in stub and stub.count("// exercise 99.1 begin") == 2
    assert stub.count("out[i] = in[i]") == 0 and "99.2 begin" not in stub
    assert '    // exercise 99.2\n#include "../solutions/99_made/2_part_1.cuh"\n' in stub
    assert list(render.parts(made("csrc/copy.cu#copy"))) == []
    second = made("csrc/two.cu#other", number=2)
    assert list(render.parts(second)) == [("solutions/99_made/2_part_1.cuh", region)]


def test_comments_and_spaces_are_no_code() -> None:
    assert cuda_text.same_code("int i; // here", "/* there */ int  i;\n")
    assert not cuda_text.same_code("int i;", "int j;")


def test_check_compares_what_git_has_where_learners_edit(folders: Path) -> None:
    root = folders / "checkout"

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)

    root.mkdir()
    name, text = next(build.generated())
    assert f"{name} is missing" in build.differences(root)
    build.write(root)
    assert build.differences(root) == []
    git("init", "--quiet")
    git("add", ".")
    assert build.write(root) == []

    (root / name).write_text(SOLVED)  # a learner
    assert build.differences(root) == []

    git("add", ".")  # a stub that was edited by hand
    assert build.differences(root) == [f"{name} differs from the reference"]

    report = build.write(root)  # the staged text is not what will be generated: no copy needed
    assert f"wrote {name}" in report
    assert (root / name).read_text() == text

    (root / "solutions" / "stale.py").write_text("")
    git("add", ".")
    assert build.differences(root) == ["solutions/stale.py belongs to no exercise"]


def test_build_keeps_a_copy_of_an_edited_exercise(folders: Path) -> None:
    build.write(folders / "plain")
    name, _ = next(build.generated())
    (folders / "plain" / name).write_text(SOLVED)
    assert "was edited" in build.write(folders / "plain")[0]
    assert [p.read_text() for p in (folders / "state" / "backup").rglob("*.py")] == [SOLVED]


def test_committed_files_are_what_the_reference_gives(folders: Path) -> None:
    command = [sys.executable, "-m", "yaie.course"]
    done = subprocess.run([*command, "build", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


# ----------------------------------------------------------------------------------- judging


@pytest.mark.parametrize("returned", ["None", "[1, 2]", "[[0]]", "[(0, 1, 2, 3)]"])
@pytest.mark.parametrize(("id", "wanted"), [("25.4", "parts"), ("26.3", "(tile, head)")])
def test_work_of_another_form_is_told_as_it_came(id: str, wanted: str, returned: str) -> None:
    write(re.sub(r"raise NotImpl.*", f"return {returned}", render.stub(find(id))), id)
    said = judge(find(id)).message
    assert f"returned {returned}, expected a list of {wanted}" in said and "error" not in said


@pytest.mark.parametrize("form", ["yield from map(list, {})", "return [list(x) for x in {}]"])
@pytest.mark.parametrize("id", ["25.4", "26.3"])
def test_work_may_come_as_lists_and_from_a_generator(id: str, form: str) -> None:
    (name,) = find(id).names
    form = form.format("solved(*given)")
    more = f"\n\nsolved = {name}\n\n\ndef {name}(*given):\n    {form}\n"
    write(render.solution(find(id)) + more, id)
    assert judge(find(id)).state == "passes"


def test_a_file_may_begin_with_a_mark_of_its_encoding() -> None:
    assert verdict("\N{ZERO WIDTH NO-BREAK SPACE}" + SOLVED).state == "passes"


def test_code_written_below_the_stubs_line_is_told_so() -> None:
    stub = render.stub(find("00.1"))
    got = verdict(stub + "    return len(a)\n")
    assert (got.state, got.crashed) == ("fails", False)
    lines = got.message.splitlines()
    assert lines[0] == "This line of the stub still runs; put your code in its place:"
    assert f"line {stub.count(chr(10))}, in shared_prefix_length" in lines[1]
    assert lines[2].strip().startswith("raise NotImplementedError")


def test_states() -> None:
    stub = render.stub(find("00.1"))
    for old, mine in ("import Sequence", "import Sequence  # mine"), ("Count the", "I count the"):
        assert verdict(stub.replace(old, mine)).state == "not started"
    assert verdict(SOLVED) == Verdict("00.1", "passes", find("00.1").proves)
    assert verdict(SOLVED.replace("length += 1", "length += 2")).state == "fails"


def test_file_is_read_afresh_each_time() -> None:
    """Two edits of the same size within a clock tick, which byte-code caches would miss."""
    for answer in ("1", "2", "1"):
        path = write(f"def shared_prefix_length(a, b):\n    return {answer}\n")
        assert exercise.load(find("00.1"), path)([], []) == int(answer)


def test_file_that_cannot_be_used() -> None:
    for text, words in [
        ("def shared_prefix_length(a, b)\n    return 0\n", ["line 1", "SyntaxError", "(a, b)"]),
        ("import no_such_module\n", ["line 1", "import no_such_module", "ModuleNotFoundError"]),
        ("x = 1\n", ["no longer defines shared_prefix_length", "yaie reset 00.1"]),
        ("from yaie.engine.radix import shared_prefix_length\n", ["no longer defines"]),
        ("raise SystemExit(3)\n", ["line 1", "SystemExit: 3"]),
        ("\0", ["does not run"]),
    ]:
        got = verdict(text)
        assert got.state in ("broken", "fails")
        assert all(word in got.message for word in words)
    path = exercise.learner_path(find("00.1"))
    path.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in judge(find("00.1")).message
    path.unlink()
    assert "`yaie reset 00.1` restores it" in judge(find("00.1")).message
    with pytest.raises(Broken):
        exercise.load(find("00.1"), path)
    split, head = (
        made("yaie.engine.radix:RadixTree.split"),
        "from yaie.engine import radix as reference\n",
    )
    for text, why in [
        (f"{head}class RadixTree:\n    def split(self): ...\n", "must derive from"),
        (f"{head}class RadixTree(reference.RadixTree):\n    pass\n", "no longer defines"),
        (f"{head}from yaie.engine.radix import RadixTree\n", "no longer defines"),
    ]:
        with pytest.raises(Broken, match=why):
            exercise.load(split, write(text, split))


def test_a_rate_that_is_off_is_explained_though_no_known_mistake_fits():
    """A gap drawn at the rate of its beginning, with quiet times skipped in steps of one gap."""
    lines = [
        "def varying_arrivals(rate, peak, seconds, rng):",
        "    times, now = [], 0.0",
        "    while now < seconds:",
        "        now += rng.expovariate(rate(now)) if rate(now) else 1 / peak",
        "        if now < seconds and rate(now):",
        "            times.append(now)",
        "    return times",
    ]
    write("\n".join(lines), "28.2")
    got = judge(find("28.2"))
    assert got.state == "fails" and not got.mistake
    assert "propose times at the rate `peak`, and keep each with probability" in got.message


def test_crash_shows_the_learners_line_and_the_call() -> None:
    got = verdict("def shared_prefix_length(a, b):\n    # why\n    return helper(a)\n")
    assert (got.state, got.crashed) == ("fails", True)
    assert got.message.splitlines() == [
        "Your code stopped with an error.",
        f"{find('00.1').shown}, line 3, in shared_prefix_length",
        "    return helper(a)",
        "NameError: name 'helper' is not defined",
        "The check was at: the prompts [5, 8, 13] and [5, 8, 21, 34]: shared_prefix_length(a, b)",
    ]


def test_crash_in_reference_code_names_both_places() -> None:
    unlock = made("yaie.engine.radix:RadixTree.unlock", lambda tree, case, see: tree().unlock(None))
    text = (
        "from yaie.engine import radix as reference\n\n\nclass RadixTree(reference.RadixTree):\n"
        "    def unlock(self, node):\n        self.lock(node)\n"
    )
    message = judge(unlock, write(text, unlock)).message
    assert "line 6, in unlock" in message and "raised in\nengine/radix.py, line" in message


def test_endless_loop_that_catches_everything_is_stopped_and_its_line_named() -> None:
    loop = "while True:\n  try:\n   pass\n  except Exception:\n   pass\n"
    got = verdict(f"def shared_prefix_length(a, b):\n {loop}", seconds=0.3)
    assert got.state == "fails" and "still running after 0.3 s of computing" in got.message
    assert "in shared_prefix_length" in got.message


def test_code_that_others_keep_from_computing_has_patience(monkeypatch) -> None:
    monkeypatch.setattr(limit.time, "thread_time", lambda: 0.0)
    monkeypatch.setattr(limit, "PATIENCE", 4)
    began = time.monotonic()
    with pytest.raises(limit.TimeUp, match=r"^1\.2 s$"), limit.time_limit(0.3):
        while True:
            pass
    assert time.monotonic() - began >= 1.2


def test_what_went_wrong_is_told_although_its_mistake_is_not_found_in_time(monkeypatch) -> None:
    def forever(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr(judging, "diagnose", forever)
    got = verdict("def shared_prefix_length(a, b):\n    return 0\n", seconds=0.3)
    assert got.state == "fails" and "still running" not in got.message
    assert got.message.startswith("The prompts [5, 8, 13] and")


def test_an_alarm_that_was_set_before_survives() -> None:
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    earlier = signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        judge(find("00.1"))
        verdict(SOLVED)
        deadline = time.monotonic() + 20
        while not rung and time.monotonic() < deadline:
            time.sleep(0.01)
        assert rung
    finally:
        signal.setitimer(signal.ITIMER_REAL, *earlier)
        signal.signal(signal.SIGALRM, before)


def test_outside_the_main_thread_another_process_judges() -> None:
    head = "def shared_prefix_length(a, b):\n"
    for text, state, words in [
        (SOLVED, "passes", ""),
        (f"{head}    while True:\n        pass\n", "fails", "0.3 s of computing"),
        (f"import os\n\n{head}    os._exit(3)\n", "fails", "exit status 3"),
        (f"import os\n\n{head}    os._exit(0)\n", "fails", "ended the process that checked it"),
        (f"print('debug', end=' ')\n{SOLVED}", "passes", ""),
        (f"import atexit\n\natexit.register(print, 'bye')\n{SOLVED}", "passes", ""),
        (f"import sys\n\nsys.stdout.buffer.write(bytes([255]))\n{SOLVED}", "passes", ""),
    ]:
        write(text)
        with ThreadPoolExecutor() as pool:
            got = pool.submit(
                judge, find("00.1"), seconds=0.3 if "while" in text else 10.0
            ).result()
        assert got.state == state and words in got.message, text


# -------------------------------------------------------------------------------- notebooks


def test_notebook_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(call, *arguments):
        result = call(*arguments)
        return capsys.readouterr().out, result

    importlib.import_module("matplotlib").use("agg")
    first, _ = printed(notebook.check, "00.1")
    again, _ = printed(notebook.check, "00.1")
    assert first.splitlines()[:2] == again.splitlines()[:2]
    assert "not started" in first
    assert "drawn by the reference" in first
    said, function = printed(notebook.use, "00.1")
    assert function is radix.shared_prefix_length
    assert said == "00.1 shared_prefix_length: the reference, yours is not started.\n"

    write(SOLVED)
    assert "drawn by your code" in printed(notebook.check, "00.1")[0]
    said, function = printed(notebook.use, "00.1")
    assert said == "00.1 shared_prefix_length: yours, it passes its check.\n"
    assert function is not radix.shared_prefix_length
    assert function([1, 2], [1, 3]) == 1


def test_hints_card_and_solution(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(4):
        notebook.hint("00.1")
    last = 'solution("00.1") shows the reference, `yaie hint 00.1 --all` all hints.\n'
    assert capsys.readouterr().out.endswith(last)
    for shown in (notebook.card("00.1"), notebook.solution("00.1")):
        assert repr(shown) == shown._repr_markdown_()
    assert "1_shared_prefix_length.py" in repr(notebook.card("00.1"))
    assert render.shown_solution(find("00.1")) in repr(notebook.solution("00.1"))
    have = (("`a`, `b`", "lists of tokens"), ("`min(x, y)`", "the less"))
    card = tell.card(replace(find("00.1"), have=have))
    table = (
        "| You have |  |\n| --- | --- |\n| `a`, `b` | lists of tokens |\n| `min(x, y)` | the less |"
    )
    assert f"\n\n{table}\n\n- Difficulty" in card


def test_picture_of_a_failure_never_raises() -> None:
    got = Verdict("00.1", "fails", "wrong", picture=lambda: 1 / 0)
    assert draw(made("yaie.engine.radix:shared_prefix_length"), got) is None


def test_failure_is_wrapped_and_its_code_is_not() -> None:
    code, long_word = "    total = " + "value + " * 20 + "0", "x" * 100
    message = "\n".join(["A left-aligned word. " * 12, code, f"it is {long_word} here"])
    shown = tell.verdict(find("00.1"), Verdict("00.1", "fails", message), hint="press h")
    lines = shown.splitlines()[1:-1]
    assert f"  {code}" in lines and f"  {long_word}" in lines
    assert all(len(line) <= 90 for line in lines if code not in line and long_word not in line)
    assert not any(line.endswith("left-") for line in lines)
    assert " ".join(shown.split()).count(" ".join(message.split())) == 1


def test_what_the_machine_lacks_is_not_to_be_edited() -> None:
    for able in True, False:
        lacks = Verdict("00.1", "broken", "no compiler", can_mend=able)
        assert ("Edit" in tell.verdict(find("00.1"), lacks, hint="press h")) == able


def test_hint_text_fills_paragraphs_and_keeps_code() -> None:
    hints = ("a", "b", "word " * 40 + "\n\n    for x in y:\n        z")
    text = tell.hint(made("yaie.engine.radix:shared_prefix_length", hints=hints), 3)
    assert text.endswith("\n\n      for x in y:\n          z")
    assert max(map(len, text.splitlines())) <= 92


# ------------------------------------------------------------------------------------ plugging


def subclass(method: str, extra: str = "") -> str:
    return (
        "from yaie.engine import radix as reference\n\n\nclass RadixTree(reference.RadixTree):\n"
        f"    def {method}(self, *a, **k):\n"
        f"        self.log.append('{method}')\n"
        f"        return getattr(reference.RadixTree, '{method}')(self, *a, **k)\n{extra}"
    )


def tree_method(name: str, number: int = 1, observe=lambda *_: None, **fields) -> Exercise:
    return made(f"yaie.engine.radix:RadixTree.{name}", observe, number, **fields)


def test_composed_class_runs_every_method_that_passes() -> None:
    chosen = [tree_method("match", 0), tree_method("split", 1)]
    for e, method in zip(chosen, ("match", "split"), strict=True):
        write(subclass(method), e)
    joined, report = plug.compose(chosen)
    tree = joined()
    tree.log = []
    tree.insert([1, 2, 3])
    tree.match([1, 2])
    assert tree.log == ["match", "match", "split"] and isinstance(tree, radix.RadixTree)
    assert [line.partition(": ")[2] for line in report] == ["yours, it passes its check."] * 2


def test_composed_class_leaves_out_what_does_not_pass_or_would_hide() -> None:
    match, split = tree_method("match", 1), tree_method("split", 2)
    evict = tree_method("evict", 3, lambda target, case, see: see.true("it", False, "no"))
    write(subclass("match", "    def _walk(self): ...\n"), match)
    write(subclass("split", "    def _walk(self): ...\n"), split)
    write(subclass("evict"), evict)
    joined, report = plug.compose([match, split, evict])
    assert joined.split is radix.RadixTree.split and joined.evict is radix.RadixTree.evict
    assert joined.match is not radix.RadixTree.match
    assert "yours also defines _walk, as your 99.1 does" in report[1]
    assert "does not pass" in report[2]
    with pytest.raises(ValueError, match="one class"):
        plug.compose([match, made("yaie.course.lessons.trie:TokenTrie.x", number=2)])


def test_methods_that_pass_alone_but_not_together_are_not_joined() -> None:
    def observe(RadixTree, case, see) -> None:
        see.true("alone", not (hasattr(RadixTree, "one") and hasattr(RadixTree, "two")), "no")

    chosen = [tree_method("match", 0, observe), tree_method("split", 1, observe)]
    write(subclass("match", "    one = 1\n"), chosen[0])
    write(subclass("split", "    two = 1\n"), chosen[1])
    joined, report = plug.compose(chosen)
    assert joined is radix.RadixTree
    assert all("together do not pass the check of 99.0" in line for line in report)


def test_learners_part_is_the_engines(monkeypatch) -> None:
    got = plug.learner_parts()
    assert got == Parts(report=got.report)
    assert got.report == (tell.rest(False),)

    split = tree_method("split", part="radix_tree")
    write(subclass("split"), split)
    monkeypatch.setattr(plug, "exercises", lambda: (split,))
    got = plug.learner_parts()
    assert got.radix_tree is not radix.RadixTree
    mine = "99.1 RadixTree.split: yours, it passes its check."
    assert got.report == (mine, tell.rest(True))

    piece = tree_method("split", part="radix_tree", fit=lambda mine: [mine])
    monkeypatch.setattr(plug, "exercises", lambda: (piece,))
    [mine] = plug.learner_parts().radix_tree
    assert mine.__module__ == "exercise_99_1"
    exercise.learner_path(piece).unlink()
    assert plug.learner_parts().radix_tree is radix.RadixTree

    wrong = tree_method("split", part="steering_wheel")
    monkeypatch.setattr(plug, "exercises", lambda: (wrong,))
    with pytest.raises(ValueError, match="steering_wheel"):
        plug.learner_parts()


def test_begun_exercises_that_are_no_part_of_the_engine_are_named(monkeypatch) -> None:
    split = tree_method("split", 1, part="radix_tree")
    others = [tree_method("split", n) for n in (2, 3)]
    monkeypatch.setattr(plug, "exercises", lambda: (split, *others))
    monkeypatch.setattr(plug, "find", {"99.1": split}.__getitem__)
    for each in (split, *others):
        write(subclass("split"), each)
    mine = "99.1 RadixTree.split: yours, it passes its check."
    told = "Begun or solved, but no part of the engine: 99.2, 99.3."
    assert plug.learner_parts().report == (mine, told, tell.rest(True))
    assert plug.learner_parts(["99.1"]).report == (mine, tell.rest(True))  # others were not asked
    write(render.stub(find("02.3")), others[0])
    exercise.learner_path(others[1]).unlink()
    assert plug.learner_parts().report == (mine, tell.rest(True))


def test_the_last_exercise_for_an_operator_computes_it(monkeypatch) -> None:
    first, second = (
        tree_method("split", n, operator="rotary", fit=lambda mine, n=n: (n, mine)) for n in (1, 2)
    )
    monkeypatch.setattr(plug, "exercises", lambda: (first, second))
    monkeypatch.setattr(plug, "find", {"99.1": first, "99.2": second}.__getitem__)
    write(subclass("split"), first)
    assert plug.learner_parts().operators["rotary"][0] == 1
    write(subclass("split"), second)
    got = plug.learner_parts()
    assert got.operators["rotary"][0] == 2
    assert got.report == (
        "99.1 RadixTree.split: passes, but your 99.2 computes rotary.",
        "99.2 RadixTree.split: yours, it computes rotary.",
        tell.rest(True),
    )
    assert plug.learner_parts(["99.1"]).operators["rotary"][0] == 1


def test_only_exercises_that_the_engine_runs_can_be_asked_for() -> None:
    told = r"cannot answer with 00\.1 .* or 27\.2 \(compute\): .* part .* exercises .*15\.4"
    with pytest.raises(ValueError, match=told):
        plug.learner_parts(["00.1", "15.4", "27.2"])
    with pytest.raises(manifest.UnknownExercise, match=r"there is no exercise '14\.44'"):
        plug.learner_parts(["14.44"])
    for name, able in ("15", "15.4"), ("28", "none"), ("15_memory_barriers_warps", "15.4"):
        told = f"'{name}' is a notebook; of its exercises, the engine can run {able}$"
        with pytest.raises(ValueError, match=told):
            plug.check_ids([name])


def test_state_folder_is_beside_the_package_by_default(monkeypatch) -> None:
    monkeypatch.delenv("YAIE_STATE")
    monkeypatch.delenv("YAIE_EXERCISES_DIR")
    assert (state_dir(), exercises_dir()) == (ROOT / ".yaie", ROOT / "exercises")
    assert os.path.samefile(ROOT, Path(manifest.__file__).parents[3])

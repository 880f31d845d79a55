"""Exercises in CUDA C++: how a learner's `.cu` file is judged, and what is told."""

import json
import mmap
import shutil
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import Event

import pytest
import torch
from matplotlib.figure import Figure

from yaie.course.core import cuda, cuda_text, exercise, notebook, printed
from yaie.course.core import verdict as verdicts
from yaie.course.core.launch_slips import other_size
from yaie.course.core.manifest import exercises, find
from yaie.course.core.observe import Observer, Stop
from yaie.course.core.paths import ROOT
from yaie.course.core.printed import MOST_LINES
from yaie.course.core.verdict import Verdict, judge, judge_for_parent
from yaie.emulator.checks import Finding
from yaie.emulator.rewrite import read_source

FIRST = find("14.1")
SOLVED = (ROOT / "solutions" / FIRST.file).read_text()


pytestmark = pytest.mark.usefixtures("folders", "warm_python")


def verdict(old: str, new: str) -> Verdict:
    """Of the solution with one piece of it replaced."""
    assert old in SOLVED
    exercise.learner_path(FIRST).write_text(SOLVED.replace(old, new))
    return judge(FIRST)


def line_of(text: str) -> int:
    return 1 + SOLVED[: SOLVED.index(text)].count("\n")


def test_a_pass_is_remembered_until_a_header_or_a_check_changes(monkeypatch, tmp_path) -> None:
    path = exercise.learner_path(FIRST)
    outer, inner = path.with_name("outer.cuh"), path.with_name("inner.cuh")
    path.write_text(f'#include "outer.cuh"\n{SOLVED}')
    outer.write_text('#include <inner.cuh>\n#include "common.cuh"\n')
    once = f'#pragma once\n#include "../{path.parent.name}/inner.cuh"\n'
    inner.write_text(once)
    judged = []

    def passes(*given) -> Verdict:
        judged.append(inner.read_text())
        return Verdict(FIRST.id, "passes", "")

    monkeypatch.setattr(verdicts, "_judge_elsewhere", passes)
    assert all(judge(FIRST).state == "passes" for _ in range(2)) and len(judged) == 1
    inner.write_text(once + "#define n m\n")
    assert judge(FIRST).state == "passes" and len(judged) == 2
    copied = shutil.copytree(FIRST.place.parent, tmp_path / "nb14") / FIRST.place.name
    for number in (3, 4):
        assert judge(replace(FIRST, place=copied)).state == "passes" and len(judged) == number
        (tmp_path / "oracles.py").write_text("# what all checks share\n")


def test_a_file_with_a_fault_never_runs_on_tensors_that_take_no_memory(monkeypatch) -> None:
    """A checked run would copy them, which are gigabytes, and an unchecked one is not safe."""
    reserve, large, ran = mmap.mmap, [], []

    def noted(number: int, size: int, **how: int) -> mmap.mmap:
        large.append(size)
        return reserve(number, size, **how)

    monkeypatch.setattr(mmap, "mmap", noted)
    seen = set()
    for each in filter(lambda each: each.is_cuda, exercises()):
        path = ROOT / "solutions" / each.file
        monkeypatch.setattr(cuda, "_faulty", {read_source(path)})

        def would_run(*given, exercise=each, **how):
            if large:
                ran.append(exercise.id)
            raise Stop

        monkeypatch.setattr(cuda, "compiled", would_run)
        for case in each.cases():
            if getattr(case, "how", {}).get("checked", True):
                continue
            large.clear()
            with suppress(Stop):
                each.observe(path, case, Observer())
            seen |= {each.id} if large else set()
    assert {"15.1", "17.1", "17.2", "17.3", "18.1", "18.5", "19.2", "19.5"} <= seen
    assert not ran


def test_a_header_that_an_edited_header_includes_is_seen(tmp_path) -> None:
    """Its later edits are seen too, and that it was deleted."""
    source = '#include "first.cuh"\n' + SOLVED.replace("out[i] = x", "out[i] = MANY * x")
    first, second = tmp_path / "first.cuh", tmp_path / "second.cuh"
    x, out = torch.ones(4), torch.empty(4)

    def result() -> float:
        cuda.module_of(source, tmp_path / "sum.cu").vector_add_scalar_f32(x, x, out, 4)
        return out[0].item()

    first.write_text("#define MANY 2\n")
    assert result() == 3
    first.write_text('#include "second.cuh"\n')
    for many in (4, 5):
        second.write_text(f"#define MANY {many}\n")
        assert result() == many + 1
    second.unlink()
    first.write_text("#define MANY 7\n")
    assert result() == 8


def test_what_does_not_compile_is_told_in_the_learners_lines() -> None:
    launch, call = line_of("vector_add<<<"), "vector_add<<<thread_blocks, THREADS, 0, stream>>>(x"
    for old, new, words in [
        ("x[i] + y[i]", "x[i] + z[i]", [f"{FIRST.shown}:{line_of('if (i < n)')}:", "'z' was not"]),
        (call, "vector_add(x", [f"{FIRST.shown}:{launch}: vector_add is a __global__"]),
        (">>>(x, y, out, n)", ">>(x, y, out, n)", [f"{FIRST.shown}:{launch}"]),
        ("vector_add_scalar_f32", "my_add", ["vector_add_scalar_f32 is gone"]),
        ("float* out, int n,\n", "float* out, long n,\n", ["has other parameters"]),
    ]:
        got = verdict(old, new)
        assert got.state == "broken" and all(word in got.message for word in words), got.message


def test_what_the_compiler_warns_of_is_told_first() -> None:
    got = verdict("out[i] = x[i] + y[i]", "out[i] == x[i] + y[i]")
    first, line, told = got.message.splitlines()[:3]
    number = line_of("if (i < n)")
    assert first.startswith(f"{FIRST.shown}, line {number}: the compiler warns: ")
    assert "no effect" in first and "out[i] == x[i]" in line and "no line of it assigns" in told


def test_a_warning_is_told_if_the_file_is_compiled_before_torch_is_imported(
    monkeypatch, tmp_path
) -> None:
    """Of a file whose kernels run in no case."""
    compiled = Event()

    def load(*arguments):
        try:
            return exercise.load(*arguments)
        finally:
            compiled.set()

    path, answer = tmp_path / "add.cu", tmp_path / "verdict.json"
    path.write_text(SOLVED.replace("out[i] = x[i] + y[i]", "out[i] == x[i] + y[i]"))
    monkeypatch.setattr(verdicts, "load", load)
    own = import_module(FIRST.module_name)
    monkeypatch.setattr(verdicts, "_import", lambda exercise: compiled.wait(60))
    monkeypatch.setattr(own, "observe", lambda path, case, see: see.equal("x", 1, 2))
    judge_for_parent(FIRST, path, 20.0, answer)
    assert "the compiler warns: " in json.loads(answer.read_text())["message"]


def test_an_unknown_name_in_a_template_is_told_as_any_other() -> None:
    said = cuda_text.first_error(
        "1.cu:5:9: error: there are no arguments to 'fmx' that depend on a template parameter, so "
        "a declaration of 'fmx' must be available [-fpermissive]\n    5 |  fmx(1);\n"
        "1.cu:5:9: note: (if you use '-fpermissive', G++ will accept your code)"
    )
    assert said == "1.cu:5:9: error: 'fmx' was not declared in this scope\n    5 |  fmx(1);"


@pytest.mark.parametrize("cxx", ["g++", "clang++"])
@pytest.mark.parametrize(
    "number, old, new, first, last",
    [
        (
            *("15.4", "from_float<T>(value * scale * to_float(weight[column]))"),
            "from[column] * scale * weight[column]",
            "'const __half' and 'float'",
            "T is __half for one of the launchers, and C++ has no operator between __half and",
        ),
        (
            *("14.3", "__hmax_nan(__hadd(x[first], y[first]), __float2half(0.0f))"),
            "0.5f * x[first]",
            "__half'",
            "write __half2float(...) around what you read, and __float2half(...) around what you",
        ),
        (
            *("14.2", "make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w)", "a + b"),
            "'float4' and 'float4'",
            "float4 has no operators. Compute with each of its members x, y, z and w, as in a.x",
        ),
    ],
)
def test_an_operator_that_a_type_of_cuda_does_not_have_is_told_with_the_way_out(
    number: str, old: str, new: str, first: str, last: str, cxx: str
) -> None:
    """And without the emulator's own names and lines; what is refused, nvcc refuses too."""
    if not shutil.which(cxx):
        pytest.skip(f"no {cxx}")
    each = find(number)
    text = (ROOT / "solutions" / each.file).read_text().replace(old, new)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", cxx)
        exercise.learner_path(each).write_text(text)
        said = judge(each).message.splitlines()
    assert said[1].startswith(f"{each.shown}:") and first in said[1] and last in said[-1]
    assert new in said[2] and "emulator" not in "".join(said).lower()
    assert not any("EMULATOR" in line or "note: " in line or "{aka" in line for line in said)


def test_a_file_that_disappears_before_it_is_judged_is_told(tmp_path) -> None:
    answer = tmp_path / "verdict.json"
    judge_for_parent(FIRST, tmp_path / "gone.cu", 20.0, answer)
    told = json.loads(answer.read_text())
    assert told["state"] == "broken" and "is missing" in told["message"]


def test_only_errors_of_the_learners_own_lines_are_told() -> None:
    got = verdict("(x, y, out, n);\n    // exercise", "(x, y, n, out);\n    // exercise")
    lines = got.message.splitlines()
    assert lines[0] == "The file does not compile." and "from 'int' to 'float*'" in lines[1]
    assert all(line.startswith((" ", FIRST.shown, "and 1 more error")) for line in lines[1:])
    said = verdict("if (i < n) out", "for i in range(n):\n        out").message.splitlines()
    assert sum(": error: " in line for line in said) == 1 and " more error" in said[-2]
    assert said[-1] == "This is C++: for (int i = 0; i < n; ++i)"


def test_finding_has_its_line_its_source_and_its_picture() -> None:
    got = verdict("i < n", "i <= n")
    assert got.state == "fails" and not got.crashed
    assert f"line {line_of('i < n')}: a load of 4 bytes" in got.message
    assert "\n    if (i <= n) out[i] = x[i] + y[i];\n" in got.message
    got = verdict("out[i] =", "out[i + 1000000000] =")
    assert got.state == "fails" and "an index far off" in got.message
    got = verdict("(n + THREADS - 1) / THREADS", "n / THREADS")
    figure = got.picture()  # from the other process
    assert got.state == "fails" and isinstance(figure, Figure) and figure.images


def test_a_race_quotes_both_lines_the_one_that_reads_first() -> None:
    each = find("15.1")
    text = (ROOT / "solutions" / each.file).read_text().replace("    __syncthreads();\n", "")
    exercise.learner_path(each).write_text(text)
    told = judge(each).message.splitlines()
    rows = [
        f"{1 + number:>5} | {line.strip()}"
        for part in ("= tile[threadIdx.x][step]", "tile[step][threadIdx.x] =")
        for number, line in enumerate(text.splitlines())
        if part in line
    ]
    assert told[1:3] == rows and len(rows) == 2
    reads, writes = (int(row.split()[0]) for row in rows)
    assert f"In line {reads} thread 0 reads" in told[0] and f" in line {writes}, " in told[0]


@pytest.mark.parametrize(
    "launch", ["<<<thread_blocks, THREADS>>>", "<<<thread_blocks,\n THREADS>>>"]
)
def test_a_launch_on_another_stream_is_told(launch: str) -> None:
    got = verdict("<<<thread_blocks, THREADS, 0, stream>>>", f"/* stream */ {launch}  // stream\n")
    assert got.state == "fails"
    assert f"line {line_of('vector_add<<<')}: a launch that is not on `stream`" in got.message
    assert "default stream" in got.message


def test_an_access_wider_than_an_element_is_told() -> None:
    got = verdict("x[i] + y[i]", "((const double*)x)[i] + y[i]")
    told = "A load of 8 bytes, where an element of x has 4: is that meant, or has the pointer"
    assert got.state == "fails" and told in " ".join(got.message.split())
    assert "an element of x has" not in verdict("i < n", "i <= n").message


@pytest.mark.parametrize(
    ("line", "told"), [("Vec<float> v = load16(x);", 1), ("cp_async_16(to, x);", 0)]
)
def test_an_asynchronous_copy_is_meant_to_be_wide(line: str, told: int) -> None:
    message = "a load of 16 bytes, 0 bytes past the end of x"
    finding = Finding("out_of_bounds", message, 2, 0, 1, "global", (0, 0, 0), (0, 0, 0), name="x")
    head = 'extern "C" cudaError_t copy(const float* x, int n, cudaStream_t stream) {'
    source = f"{head}\n    {line}\n    return cudaGetLastError();\n}}\n"
    assert bool(other_size(finding, source, "copy", (torch.zeros(4), 4))) == told


def test_what_a_kernel_prints_is_shown_up_to_a_limit(capfd) -> None:
    got = verdict("if (i < n)", 'if (i == 7) printf("here is %d\\n", i);\n    if (i < n)')
    assert got.state == "passes"
    assert "here is 7\n" in capfd.readouterr().out
    verdict("if (i < n)", 'printf("here is %d\\n", i);\n    if (i < n)')
    printed = capfd.readouterr().out.splitlines()
    assert len(printed) == MOST_LINES + 1 and "more lines" in printed[-1]


def test_text_that_passed_is_judged_again_only_when_something_changed(monkeypatch) -> None:
    exercise.learner_path(FIRST).write_text(SOLVED)
    assert judge(FIRST).state == "passes"
    again = Verdict("14.1", "fails", "judged again")
    monkeypatch.setattr("yaie.course.core.verdict._judge_elsewhere", lambda *_: again)
    assert judge(FIRST).state == "passes"
    exercise.learner_path(FIRST).write_text(SOLVED + "// changed\n")
    assert judge(FIRST) is again
    exercise.learner_path(FIRST).write_text(SOLVED)
    other_check = replace(FIRST, place=find("15.1").place)
    assert judge(other_check) is again


def test_use_gives_the_path_of_a_file_that_passes() -> None:
    assert notebook.use("14.1") == ROOT / FIRST.source
    exercise.learner_path(FIRST).write_text(SOLVED)
    assert notebook.use("14.1") == exercise.learner_path(FIRST)


LOST = """
#include <cuda_runtime.h>
__global__ void lose(int* out) { *(out + (1 << 24)) = 1; }
extern "C" cudaError_t lose_i32(int* out, int threads, cudaStream_t stream) {
    lose<<<1, threads, 0, stream>>>(out);
    return cudaGetLastError();
}
"""


def test_run_notes_and_explains_findings_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "lost.cu"
    path.write_text(LOST)
    out = cuda.poisoned(4, dtype=torch.int32)
    assert out.tolist() == [-(2**31)] * 4
    invalid = "cudaErrorInvalidConfiguration"
    for threads, explain, problem, because in [
        (1, {"out_of_bounds": "Far off."}, "line 3: a store of 4 bytes", "Far off."),
        (2000, {}, "(9)", ""),
        (2000, {invalid: lambda _: "Too many."}, "(9)", "Too many."),
    ]:
        see = Observer()
        with pytest.raises(Stop):
            cuda.run(see, path, "lose_i32", out, threads, explain=explain)
        assert problem in see.facts[-1].problem and because in see.facts[-1].because


UNSET_OR_ENDLESS = """
#include <cuda_runtime.h>
__global__ void keep(int* out, int step) {
    int kept[2];
    if (threadIdx.x > 0) kept[0] = 1;
    for (int i = 0; i < 4; i += step) out[threadIdx.x] = kept[0];
}
extern "C" cudaError_t keep_i32(int* out, int step, cudaStream_t stream) {
    keep<<<1, 4, 0, stream>>>(out, step);
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize(
    "step, checked, kind, because",
    [(4, True, "uninitialized", cuda.UNSET), (0, False, "time_limit", "Go on.")],
)
def test_a_threads_own_variable_is_not_explained_as_shared_memory_and_an_endless_loop_is_known(
    tmp_path: Path, monkeypatch, step: int, checked: bool, kind: str, because: str
) -> None:
    """The latter without checks as well, where only an error tells of it."""
    monkeypatch.setattr(cuda, "SECONDS", 0.3)
    path, see = tmp_path / f"keep_{kind}.cu", Observer()
    path.write_text(UNSET_OR_ENDLESS)
    explain = {"uninitialized": "Shared.", "time_limit": "Go on."}
    with pytest.raises(Stop):
        out = cuda.poisoned(4, dtype=torch.int32)
        cuda.run(see, path, "keep_i32", out, step, explain=explain, checked=checked)
    assert (see.facts[-1].got.kind, see.facts[-1].because) == (kind, because)


def test_what_a_learner_prints_is_not_taken_for_what_a_check_has_a_kernel_print(capsys):
    with printed.hear() as heard:
        print("wait 3\ntold: wait 0\nx = 1 told: wait 1\n")
    assert heard == [["wait", "0"], ["wait", "1"]]
    assert capsys.readouterr().out.split() == ["wait", "3", "x", "=", "1"]

"""Exercises in CUDA C++: how a learner's `.cu` file is judged, and what is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from yaie.course.author import build
from yaie.course.core import cuda, exercise, notebook
from yaie.course.core.expect import CheckFailed
from yaie.course.core.manifest import find
from yaie.course.core.paths import ROOT
from yaie.course.core.verdict import MOST_LINES, Verdict, judge

FIRST = find("13.1")
SOLVED = (ROOT / "solutions" / FIRST.file).read_text()


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("YAIE_EXERCISES_DIR", str(tmp_path / "exercises"))
    monkeypatch.setenv("YAIE_STATE", str(tmp_path / "state"))
    build.write_stubs(tmp_path / "exercises")
    return tmp_path


def verdict(old: str, new: str) -> Verdict:
    """Of the solution with one piece of it replaced."""
    assert old in SOLVED
    exercise.learner_path(FIRST).write_text(SOLVED.replace(old, new))
    return judge(FIRST)


def line_of(text: str) -> int:
    return 1 + SOLVED[: SOLVED.index(text)].count("\n")


def test_compile_error_is_told_in_the_learners_lines() -> None:
    got = verdict("x[i] + y[i]", "x[i] + z[i]")
    assert got.state == "broken"
    first = got.message.splitlines()
    assert first[0] == "The file does not compile."
    assert first[1].startswith(f"{FIRST.shown}:{line_of('if (i < n)')}:")
    assert "'z' was not declared" in first[1]


def test_wrong_arguments_of_a_launch_are_told_without_our_templates() -> None:
    got = verdict("(x, y, out, n);\n    // exercise", "(x, y, n, out);\n    // exercise")
    lines = got.message.splitlines()
    assert got.state == "broken" and "from 'int' to 'float*'" in lines[1]
    assert all(line.startswith((" ", FIRST.shown, "and 1 more error")) for line in lines[1:])


def test_a_loop_of_python_gets_one_error_and_the_loop_of_c() -> None:
    got = verdict("if (i < n) out", "for i in range(n):\n        out")
    said = got.message.splitlines()
    assert got.state == "broken" and sum(": error: " in line for line in said) == 1
    assert said[-1] == "This is C++: for (int i = 0; i < n; ++i)"
    assert " more error" in said[-2]


def test_a_kernel_called_as_a_function_is_told() -> None:
    got = verdict("vector_add<<<thread_blocks, THREADS, 0, stream>>>(x", "vector_add(x")
    assert got.state == "broken"
    assert f"{FIRST.shown}:{line_of('vector_add<<<')}: vector_add is a __global__" in got.message


def test_an_index_far_off_is_not_called_negative() -> None:
    got = verdict("out[i] =", "out[i + 1000000000] =")
    assert got.state == "fails" and "far beyond the 1,000 elements, or negative" in got.message


def test_launch_without_an_end_is_told() -> None:
    got = verdict(">>>(x, y, out, n)", ">>(x, y, out, n)")
    assert got.state == "broken" and f"{FIRST.shown}:{line_of('<<<')}" in got.message


def test_launcher_that_is_gone_or_changed_is_told() -> None:
    got = verdict("vector_add_scalar_f32", "my_add")
    assert got.state == "broken" and "vector_add_scalar_f32 is gone" in got.message
    got = verdict("float* out, int n,\n", "float* out, long n,\n")
    assert got.state == "broken" and "has other parameters" in got.message


def test_finding_has_its_line_and_its_source() -> None:
    got = verdict("i < n", "i <= n")
    assert got.state == "fails" and not got.crashed
    assert f"line {line_of('i < n')}: a load of 4 bytes" in got.message
    assert "\n    if (i <= n) out[i] = x[i] + y[i];\n" in got.message


def test_picture_of_a_failure_comes_back_from_the_other_process() -> None:
    got = verdict("(n + THREADS - 1) / THREADS", "n / THREADS")
    assert got.state == "fails"
    figure = got.picture()
    assert isinstance(figure, Figure) and figure.images


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
    again = Verdict("13.1", "fails", "judged again")
    monkeypatch.setattr("yaie.course.core.verdict._judge_elsewhere", lambda *_: again)
    assert judge(FIRST).state == "passes"
    exercise.learner_path(FIRST).write_text(SOLVED + "// changed\n")
    assert judge(FIRST) is again
    exercise.learner_path(FIRST).write_text(SOLVED)
    other_check = replace(FIRST, check=find("14.1").check)
    assert judge(other_check) is again


def test_use_gives_the_path_of_a_file_that_passes(capsys) -> None:
    assert notebook.use("13.1") == ROOT / FIRST.source
    exercise.learner_path(FIRST).write_text(SOLVED)
    assert notebook.use("13.1") == exercise.learner_path(FIRST)
    assert capsys.readouterr().out.splitlines() == [
        "13.1 vector_add: the reference, yours is not started.",
        "13.1 vector_add: yours, it passes its check.",
    ]


LOST = """
#include <cuda_runtime.h>
__global__ void lose(int* out) { *(out + (1 << 24)) = 1; }
extern "C" cudaError_t lose_i32(int* out, int threads, cudaStream_t stream) {
    lose<<<1, threads, 0, stream>>>(out);
    return cudaGetLastError();
}
"""


def test_launch_explains_findings_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "lost.cu"
    path.write_text(LOST)
    out = cuda.poisoned(4, dtype=torch.int32)
    assert out.tolist() == [-(2**31)] * 4
    with pytest.raises(CheckFailed, match=r"line 3: a store of 4 bytes.*\n.*\nFar off\."):
        cuda.launch(path, "lose_i32", out, 1, explain={"out_of_bounds": "Far off."})
    with pytest.raises(CheckFailed, match=r"\(9\)\. A thread block has 1 to 1,024|refused"):
        cuda.launch(path, "lose_i32", out, 2000)
    told = {"cudaErrorInvalidConfiguration": lambda _: "Too many."}
    with pytest.raises(CheckFailed, match=r"\(9\)\. Too many\."):
        cuda.launch(path, "lose_i32", out, 2000, explain=told)

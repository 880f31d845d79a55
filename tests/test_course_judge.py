"""What is observed, how mistakes are written as edits, and which of them is told."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from yaie.course.core.judge import Versions, mistakes
from yaie.course.core.manifest import find
from yaie.course.core.mistakes import BadMistake, apply, read_mistakes
from yaie.course.core.observe import Case, Fact, Found, Observer, Raised, first_wrong, observed
from yaie.course.core.texts import kept_file


def wrong(note) -> str:
    """What an observer says of the first wrong fact; "" if there is none."""
    see = Observer()
    note(see)
    fact = first_wrong(see.facts)
    return f"{fact.what} {fact.problem}" if fact else ""


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        (3, 4, "x is 3, expected 4"),
        (True, 1, "x is True, expected 1"),
        (None, [], "x is None, expected []"),
        ([1, 2, 3], [1, 9, 3], "index 1 is 2, expected 9"),
        ([1, 2], [1, 2, 3], "x is [1, 2], expected [1, 2, 3]"),
        ([[]], [["a"]], "x is [[]], expected [['a']]"),
        ([3] * 20, [3] * 21, "20 entries, expected 21"),
        ([torch.ones(1)], [torch.zeros(1)], "index 0 is 1 at index [0], expected 0"),
        ((1, 2), [1, 2], "x is a tuple (1, 2), expected a list"),
        ({"a": 1}, {"a": 2}, "expected {'a': 2}"),
        (np.ones(2), 1, "x is array([1., 1.]), expected 1"),
        (np.ones(2), [1, 1], "x is array([1., 1.]), expected [1, 1]"),
        ({"a": torch.ones(2)}, {"a": 2}, "expected {'a': 2}"),
        (torch.tensor([2**60 + 1]), torch.tensor([2**60]), "x is 1152921504606846977 at index [0]"),
        (torch.ones(2), [1, 1], "a tensor 2 float32 [1.0, 1.0], expected [1, 1]"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "x is 2 at index [1], expected 3 (1 of 2"),
        (torch.ones(2), torch.ones(3), "has shape [2], expected [3]"),
        (torch.ones(2), torch.ones(2).double(), "has dtype torch.float32"),
        (torch.tensor([float("nan")]), torch.zeros(1), "is NaN at index [0]"),
    ],
)
def test_a_difference_is_told(got, want, words) -> None:
    assert words in wrong(lambda see: see.equal("x", got, want))
    assert not wrong(lambda see: see.equal("x", want, want))


def test_rounding_is_no_difference() -> None:
    near, far = torch.tensor([1.00001, 2.0]), torch.tensor([1.1, 2.0])
    assert not wrong(lambda see: see.close("x", near, torch.tensor([1.0, 2.0])))
    assert "1.1" in wrong(lambda see: see.close("x", far, torch.tensor([1.0, 2.0])))


def test_numbers_that_nearly_agree_are_told_in_all_digits() -> None:
    told = wrong(lambda see: see.close("x", 292522913, 292522913.375, rtol=1e-12))
    assert told == "x is 292522913.0, expected 292522913.375"
    pair = torch.tensor([1.0 + 2**-40], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    assert "is 1.0000000000009095 at" in wrong(lambda see: see.equal("x", *pair))


def test_a_fault_in_another_memory_is_another_symptom() -> None:
    """Even in the same line: one loads past the end of a tensor, the other stores past the end of
    shared memory."""
    line = "row[c] = x[first + c];"
    facts = [
        Fact("", Found("out_of_bounds", line, where, memory), problem="strays")
        for where, memory in (("x 4", "global"), ("x 8", "global"), (" 4", "shared"))
    ]
    assert facts[0].same(facts[1], strict=False) and not facts[0].same(facts[2], strict=False)


def test_a_fact_is_a_copy() -> None:
    see, values = Observer(), [1, 2]
    see.equal("x", values, [1, 2])
    values.append(3)
    assert see.facts[0].got == [1, 2]


def test_a_recursion_ends_at_the_same_depth_whatever_a_library_has_set() -> None:
    """As torch.compile does, for the rest of the process."""

    def deep(left):
        return left and deep(left - 1)

    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(5000)
        [fact] = observed(lambda target, case, see: target(1000), deep, Case("deep"))
        assert fact.got.kind == "RecursionError" and sys.getrecursionlimit() == 5000
    finally:
        sys.setrecursionlimit(before)


def test_what_has_no_truth_is_another_symptom_and_no_error() -> None:
    mine, theirs = (Fact("x", {"a": np.ones(2)}, "is wrong") for _ in "ab")
    assert not mine.same(theirs) and mine.same(mine)
    near, far = (Fact("x", x, "is wrong", atol=0.1) for x in (1.0, 1.05))
    assert near.same(far)


def test_an_error_ends_a_case_and_names_its_call() -> None:
    def observe(target, case, see):
        see.equal("before", 1, 1)
        with see.call("target(3)"):
            target(3)
        see.equal("behind", 1, 1)

    before, error = observed(observe, lambda n: n / 0, Case("a case"))
    assert before.what == "before" and error.what == "target(3)"
    assert error.got == Raised("ZeroDivisionError", "division by zero")


def test_errors_of_a_library_are_alike_by_their_words_and_raised_ones_by_their_kind() -> None:
    def met(fault):
        [fact] = observed(lambda target, case, see: target(), fault, Case("a case"))
        return fact

    def refuses():
        raise ValueError("too many of them")

    def refuses_in_one_line(n=0):
        if n < 1: raise ValueError("one is the least")  # fmt: skip  # noqa: E701

    def asks_a_library():
        raise ValueError(int("eight"))

    too_few, fewer = met(lambda: [[a, b, c] for a, b, c in [(1, 2)]]), met(lambda: divmod(*[1]))
    three = met(lambda: [a for a, b, c, d in [(1, 2, 3)]])
    no_number = met(lambda: int("seven"))
    assert too_few.got.kind == three.got.kind == no_number.got.kind == "ValueError"
    assert too_few.same(three, strict=False) and not too_few.same(three)
    assert not too_few.same(no_number, strict=False) and not too_few.same(fewer, strict=False)
    assert met(refuses).same(no_number, strict=False)
    assert met(refuses_in_one_line).same(too_few, strict=False)
    assert not met(asks_a_library).same(too_few, strict=False)


# ---------------------------------------------------------------------------------------- edits

TEXT = """\
def f(x):
    for i in range(3):
        x += i  # why
        if x:
            x += 1

            x += i
    return x
"""


def edited(*lines: str) -> str:
    return apply(TEXT, [(line[0], line[2:]) for line in lines])


def test_an_edit_keeps_the_depth_of_the_old_line() -> None:
    assert "            x += 2\n\n" in edited("- x += 1", "+ x += 2")
    assert "    y = 0\n    for i in" in edited("+ y = 0", "= for i in range(3):")
    assert "    while x:\n        x -= 1\n    return" in edited(
        "+ while x:", "+     x -= 1", "= return x"
    )


def test_lines_that_follow_each_other_are_found_together() -> None:
    assert edited("= x += 1", "- x += i").count("x += i") == 1  # blank lines do not count
    assert edited("= for i in range(3):", "- x += i").count("x += i") == 1


def test_an_ellipsis_stands_for_all_lines_between() -> None:
    assert edited("- for i in range(3):", "- ...", "- return x", "+ return 0") == (
        "def f(x):\n    return 0\n"
    )


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("- x += i",), "occurs 2 times"),
        (("- x += 7",), "no line `x \\+= 7`"),
        (("+ y = 0",), "needs an old line"),
        (("- for i in range(3):", "- ..."), "needs an old line below"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(lines, words) -> None:
    with pytest.raises(BadMistake, match=words):
        edited(*lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: One.\n- x\n\na: Two.\n- y\n", "second entry a"),
        ("a [often]: One.\n- x\n", "unknown flag often"),
        ("a [on b]: One.\n- x\n", "b is no right version"),
        ("a: One.\n", "needs a sentence and an edit"),
        ("- x\n", "neither an entry's head nor an edit"),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "ex1.mistakes"
    path.write_text(text)
    with pytest.raises(BadMistake, match=words):
        read_mistakes(path)


def test_torch_is_loaded_before_a_mistakes_time_begins() -> None:
    """An alarm in the middle of this import would leave half of torch in the process."""
    code = (
        "import sys\n"
        "from contextlib import nullcontext\n"
        "from yaie.course.core import judge\n"
        "from yaie.course.core.manifest import find\n"
        "judge.time_limit = lambda seconds: print('torch' in sys.modules) or nullcontext()\n"
        "versions = judge.Versions(find('00.1'), 1.0)\n"
        "for mistake in judge.mistakes(versions.exercise)[:4]:\n"
        "    needs = 'import torch' in versions.text(mistake)\n"
        "    needs and print('torch' in sys.modules)\n"
        "    needs and versions.facts(mistake, versions.cases[0], 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["False", "True"], "")


def test_each_text_of_an_exercise_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two checkouts with one cache leave each other's file; each text is always in one place."""
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path))
    exercise = find("14.1")
    mine, other = (kept_file(exercise, text) for text in ("// mine\n", "// other\n"))
    assert mine != other and kept_file(exercise, "// mine\n") == mine
    assert mine.read_text() == "// mine\n" and other.read_text() == "// other\n"
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted([mine, other])
    for path in (mine, other):
        os.utime(path.parent, (0, 0))  # last written in 1970
    assert kept_file(exercise, "// mine\n").exists() and other.exists()
    assert kept_file(exercise, "// new\n").exists() and mine.exists() and not other.exists()


def test_another_checkouts_version_of_a_mistake_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path))
    here, there = Versions(find("14.1")), Versions(find("14.1"))
    mistake = mistakes(find("14.1"))[0]
    path = here.path(mistake)
    monkeypatch.setattr(there, "text", lambda entry: "// of another reference\n")
    assert there.path(mistake) != path and path.read_text() == here.text(mistake)

"""Renumbering on a small made-up course: every form of a number, and figures that are none."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yaie.course.author.renumber import Refused, renumber

NOTEBOOKS = ["00", "01", "07", "13", "14", "22"]
FIGURES = """14.1 times as fast, (14.1 GB/s) in 13.1 ms, 22 to 14 bytes, f(14, 13), data[14], (14),
13.14.1 and 2014_a, 14_000, x14_a, nb141, 114.1 and 14.12, notebook 140, exercise 14.15, 14 % or 22.
"version 13.1", exercises 13 of which are solved, 0.07.
"""


def course(numbers: list[str]) -> dict[str, str]:
    """A course whose notebooks a, b, c, … have these numbers."""
    a, b, c, d, e, f = numbers
    files = {
        "README.md": f"| {a} | [Title]({a}_a.ipynb) | 14 |\n| {d} | [Other]({d}_d.ipynb) | 13 |\n"
        f"Notebooks {b}, {c} and {e}; notebooks {a} to {f}; (notebook {e}). `yaie check {d}.1`, "
        f"exercise\n{e}.2, exercises {a}.1, {b}.1 and {c}.2, yaie check {d}.1 {e}.1, see exercise "
        f"{f}.1. In notebook {e}, 13 threads; from notebook {a} to exercise {b}.2's 14.1 times.\n",
        "csrc/k.cu": f"    // exercise {d}.1 begin: 14 threads\n// as notebook\n// {e} says\n",
        "figures.md": FIGURES,
        "tests/test_nb.py": f'find("{d}.1"), use("{e}.1", \'{f}.2\'), yaie.nb{d}.x, "{c}_c"\n'
        f'[use(f"{a}.{{k}}") for k in (1, 2)]\n'
        f'"as in exercise "\n    "{e}.1 with 14.1 times", nb{b}  # author run {e}\n',
    }
    for letter, n in zip("abcdef", numbers, strict=True):
        files[f"notebooks/{n}_{letter}.ipynb"] = (
            f'"# {n} Title {letter}\\n",\n"| Exercises | {n}.1 a, of 14 bytes · {n}.2 `b` |\\n",\n'
            f'"Next: [{e} Title e, 14](../{e}_e.ipynb) and notebooks\\n",\n   "{b} and {c}\\n",\n'
            f'"card(\\"{d}.1\\")\\n", "use(f\\"{e}.{{k}}\\")\\n",\n'
            f'"{d}.1 Title: not started.\\n", "<b>{a} Title a</b>"\n'
            f'"image/png": "{"AAAA/nb14/" * 30}",\n"{e}.1  rms  14.1 us"\n'
        )
        files[f"notebooks/data/{n}_{letter}.json"] = "14.1\n"
        room = f"yaie/course/exercises/nb{n}"
        files[f"{room}/__init__.py"] = f'"""Notebook {n}: "{n}_{letter}"."""\n'
        files[f"{room}/ex1_a.py"] = f'"""{n}.1: a; 14.1 as well."""\nfrom yaie.nb{e} import b\n'
        files[f"{room}/ex2_b.py"] = f'"""{n}.2: b."""\n'
    return files


def git(root, *arguments):
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


def commit(root):
    git(root, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qam", "as it is")


def tree(root) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    root = tmp_path_factory.mktemp("course")
    for name, text in course(NOTEBOOKS).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "--all")
    commit(root)
    git(root, "tag", "first")
    return root


@settings(max_examples=12, deadline=None)
@given(numbers=st.permutations(NOTEBOOKS))
def test_a_permutation_gives_the_course_with_these_numbers_and_its_inverse_the_first(
    made_up, numbers
):
    git(made_up, "reset", "-q", "--hard", "first")
    moves = [(old, new) for old, new in zip(NOTEBOOKS, numbers, strict=True) if old != new]
    if moves:
        list(renumber([f"{old}={new}" for old, new in moves], made_up))
        assert tree(made_up) == course(list(numbers))
        commit(made_up)
        list(renumber([f"{new}={old}" for old, new in moves], made_up))
        commit(made_up)
    assert tree(made_up) == course(NOTEBOOKS)


def test_a_notebook_is_inserted_and_what_may_be_a_number_is_listed(made_up):
    git(made_up, "reset", "-q", "--hard", "first")
    report = "\n".join(renumber(["--insert", "13"], made_up))
    assert tree(made_up) == course(["00", "01", "07", "14", "15", "23"])
    assert "notebooks/22_f.ipynb → notebooks/23_f.ipynb" in report
    assert [line.partition(": ")[0] for line in report.partition("meant?\n")[2].splitlines()] == [
        "figures.md:3",
        *(f"yaie/course/exercises/nb{n}/ex1_a.py:1" for n in ("00", "01", "07", "14", "15", "23")),
    ]
    git(made_up, "reset", "-q", "--hard")
    bare = (
        "as in 13.1, best with 07, 14 and 22, by the scheduler (13) and its cache (01, 22), 07.1\n"
    )
    (made_up / "bare.md").write_text(bare)
    git(made_up, "add", "bare.md")
    report = "\n".join(renumber(["--insert", "07"], made_up, dry_run=True))
    for place in ("as in 13.1", "07, 14 and 22", "scheduler (13)"):
        assert any("bare.md:1: " in line and place in line for line in report.splitlines()), place
    assert tree(made_up)["bare.md"] == bare, "a dry run changed a file"
    commit(made_up)
    list(renumber(["--insert", "07"], made_up))
    assert "(13) and its cache (01, 23), 08.1" in tree(made_up)["bare.md"]
    git(made_up, "reset", "-q", "--hard", "first")


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["21=30"], "no notebook 21; there are 00, 01"),
        (["14=22"], "notebooks 14 and 22 would both be 22"),
        (["14=15", "22=15"], "notebooks 14 and 22 would both be 15"),
        (["14=15", "14=16"], "notebook 14 cannot become both 15 and 16"),
        (["14"], "should look like 14=15"),
        (["14=14"], "say which numbers change"),
        (["--insert", "12"], "no notebook 12, so its number is free"),
    ],
)
def test_what_cannot_be_done_is_refused(made_up, arguments, why):
    with pytest.raises(Refused, match=why):
        list(renumber(arguments, made_up))


def test_a_tree_that_is_not_committed_is_refused(made_up):
    (made_up / "new.md").write_text("")
    with pytest.raises(Refused, match=r"(?s)commit or stash.*new\.md"):
        list(renumber(["14=15"], made_up))
    (made_up / "new.md").unlink()

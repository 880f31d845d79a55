"""`yaie check`, `hint`, `solution`, `reset`, `status` and `watch`, driven as a learner would."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from yaie.course.core import progress, render, watch
from yaie.course.core.commands import app
from yaie.course.core.exercise import learner_path
from yaie.course.core.manifest import Exercise, exercises, find
from yaie.course.core.notebook import check
from yaie.course.core.printed import LONGEST_LINE, MOST_LINES

FIRST = find("00.1")
WRONG = "def shared_prefix_length(a, b):\n    return len(a)\n"


pytestmark = pytest.mark.usefixtures("folders")


def yaie(*arguments: str, answer: str | None = None, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments), input=answer)
    assert result.exit_code == status, result.output
    return result.output


def solve(exercise=FIRST) -> None:
    learner_path(exercise).write_text(render.solution(exercise))


def test_check_of_one_exercise() -> None:
    assert "not started" in yaie("check", "00.1", status=1)
    learner_path(FIRST).write_text(WRONG)
    said = yaie("check", "00.1", status=1)
    assert "00.1 Count the tokens that two prompts share: does not pass yet." in said
    assert "Stuck? yaie hint 00.1" in said
    learner_path(FIRST).write_text(WRONG.replace(":", ""))
    said = yaie("check", "00.1", status=1)
    assert "cannot be checked" in said and "and check again. Stuck? yaie hint 00.1" in said
    solve()
    assert f"passed. {FIRST.proves}" in " ".join(yaie("check", "00.1").split())


def test_check_of_a_notebook_counts_and_saves_the_picture(folders: Path) -> None:
    solve()
    assert "passed" in yaie("check", "00")
    assert f"1 of {len(exercises())} pass." in yaie("check", "all", status=1)
    assert "1 of 2 pass." in yaie("check", "00.1", "02.2", "00", status=1)
    path = folders / "picture.png"
    assert "drawn by your code" in yaie("check", "00.1", "--picture", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="picture must be in a folder that exists, got 'nowhere/x"):
        raise CliRunner().invoke(app, ["check", "00.1", "--picture", "nowhere/x.png"]).exception


def test_unknown_exercise_is_a_usage_error() -> None:
    for command in ("check", "hint", "solution", "reset", "watch"):
        said = yaie(command, "19.9", status=2)
        assert "did you mean" in said and "19.1" in said


def test_a_notebook_is_no_exercise_and_its_exercises_are_named() -> None:
    for command in ("hint", "solution", "reset", "watch"):
        for notebook in ("02", "2", "02_radix_tree"):
            said = yaie(command, notebook, status=2)
            assert "one exercise is wanted, such as 02.1; notebook 02 has 02.1 to 02.4" in said
    assert "has 00.1 to" not in yaie("hint", "00", status=2)  # it has one


def test_a_path_is_the_exercise_or_the_notebook_that_it_names(folders: Path, monkeypatch) -> None:
    path = learner_path(find("02.2"))
    monkeypatch.chdir(path.parent)
    for name in ("exercises/02_radix_tree/2_match.py", str(path), path.name, f"./{path.name}"):
        assert "Hint 1 of 3 for 02.2" in yaie("hint", name, "--tier", "1")
        assert yaie("solution", name, "--yes") == render.shown_solution(find("02.2"))
        assert f"{find('02.2').shown} is as it was" in yaie("reset", name)
        assert "02.2 Match a prompt" in yaie("check", name, status=1)
        assert "Next: 02.2 " in yaie("status", name)
    for name in ("02_radix_tree", "exercises/02_radix_tree/", "notebooks/02_radix_tree.ipynb"):
        assert "0 of 4 pass." in yaie("check", name, status=1)
        assert "Next: 02.1 " in yaie("status", name)
    gone = "exercises/02_radix_tree/9_gone.py"
    assert f"there is no exercise '{gone}'" in " ".join(yaie("hint", gone, status=2).split())


def test_hints_one_by_one() -> None:
    kinds = ["idea", "invariant", "shape of the lines"]
    for number, kind in enumerate(kinds, start=1):
        assert f"Hint {number} of 3 for 00.1, the {kind}" in yaie("hint", "00.1")
    last = (
        "That was the last hint: `yaie solution 00.1` shows the reference, "
        "`yaie hint 00.1 --all` all hints.\n"
    )
    assert yaie("hint", "00.1") == yaie("hint", "00.1") == last
    assert "Hint 1 of 3" in yaie("hint", "00.1", "--tier", "1")
    assert yaie("hint", "00.1", "--all").count("Hint ") == 3
    assert "--tier" in yaie("hint", "00.1", "--tier", "4", status=2)


def test_what_is_remembered_at_the_same_time_is_all_kept() -> None:
    chosen = exercises()[:40]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(partial(progress.remember_hints, count=2), chosen))
    assert [progress.hints_taken(exercise) for exercise in chosen] == [2] * len(chosen)


def test_damaged_progress_is_an_error_that_says_what_to_do(folders: Path) -> None:
    (folders / "state").mkdir()
    (folders / "state" / "progress.json").write_text("{")
    result = CliRunner().invoke(app, ["hint", "00.1"])
    assert isinstance(result.exception, ValueError)
    assert "delete it to start over" in str(result.exception)


def test_solution_asks_first_while_hints_are_left() -> None:
    assert "length += 1" not in yaie("solution", "00.1", answer="n\n", status=1)
    assert "3 of the hints are not taken" in yaie("solution", "00.1", answer="n\n", status=1)
    assert "length += 1" in yaie("solution", "00.1", answer="y\n")
    shown = render.shown_solution(FIRST)
    assert yaie("solution", "00.1", "--yes") == shown
    yaie("hint", "00.1", "--all")
    assert yaie("solution", "00.1") == shown


def test_solution_is_shown_without_the_lines_for_authors() -> None:
    for exercise in exercises():
        shown, whole = render.shown_solution(exercise), render.solution(exercise)
        left_out = [line for line in whole.splitlines() if line not in shown.splitlines()]
        first, *_, last = [line.lstrip("/ ").split()[0] for line in left_out]
        assert (first, last) == ("Generated", "Edit") and len(left_out) <= 3  # one may be wrapped


def test_reset_restores_keeps_copies_and_knows_the_hints_taken(folders: Path) -> None:
    path = learner_path(FIRST)
    assert "hints" not in yaie("reset", "00.1")
    yaie("hint", "00.1")
    for text in (WRONG, "mine"):
        path.write_text(text)
        assert "kept as" in yaie("reset", "00.1")
        assert path.read_text() == render.stub(FIRST)
    copies = folders / "state" / "backup" / FIRST.notebook
    assert sorted(p.read_text() for p in copies.iterdir()) == sorted([WRONG, "mine"])
    assert "kept as" not in yaie("reset", "00.1")
    path.unlink()
    assert "taken 1 of its 3 hints; `yaie hint 00.1 --tier 1`" in yaie("reset", "00.1")
    assert path.read_text() == render.stub(FIRST)
    assert "Hint 2 of 3" in yaie("hint", "00.1")


def test_status_table_and_json() -> None:
    total = len(exercises())
    assert "00.1 Count the tokens that two prompts share" in yaie("status", "00")
    assert "value: there is no notebook '77'; the notebooks are 00 to 29," in yaie(
        "status", "77", status=2
    )
    table = yaie("status")
    assert re.search(r"02_radix_tree +░+ +0 of 4", table) and find("02.2").title not in table
    assert f"0 of {total} exercises pass" in table and "Next: 00.1" in table
    learner_path(find("02.1")).write_text("wrong = 1\n")
    assert re.search(r"02_radix_tree +░+ +0 of 4 +02\.1", yaie("status"))
    assert "passes" not in yaie("status", "02")
    solve()
    yaie("hint", "00.1")
    assert f"1 of {total} exercises pass" in yaie("status")
    got = json.loads(yaie("status", "--json"))
    assert (got["passed"], got["total"]) == (1, total) and got["next"] != "00.1"
    first = {"id": "00.1", "notebook": "00_start_here", "title": FIRST.title, "file": FIRST.shown}
    assert got["exercises"][0] == {**first, "state": "passes", "hints": 1}


def test_status_of_a_notebook_recommends_an_exercise_of_it() -> None:
    assert "Next: 02.1 " in yaie("status", "02")
    solve(find("02.1"))
    assert "Next: 02.2 " in yaie("status", "02") and "Next: 00.1 " in yaie("status")
    solve()
    assert "Next: 01.1 " in yaie("status", "00")  # all of 00 is solved


def test_a_notebook_checks_what_the_command_checks(capsys) -> None:
    check("02")
    said = capsys.readouterr().out
    assert re.findall(r"^.*(02\.\d) .* not started", said, re.MULTILINE) == [
        "02.1", "02.2", "02.3", "02.4"
    ]  # fmt: skip


def test_a_print_that_was_left_in_gives_few_lines(capsys) -> None:
    line = "    print(len(a), len(b), *range(1000))\n"
    start = "def shared_prefix_length(a, b):\n"
    learner_path(FIRST).write_text(WRONG.replace(start, start + 200 * line))
    check("00.1")
    printed = capsys.readouterr().out.splitlines()
    assert [row.split()[2:5] for row in printed[:MOST_LINES]] == [["0", "1", "2"]] * MOST_LINES
    assert max(map(len, printed[:MOST_LINES])) == LONGEST_LINE
    assert re.fullmatch(r"… and \d+ more lines", printed[MOST_LINES])
    assert "does not pass yet" in printed[MOST_LINES + 1]


def watched(waits, *arguments) -> list[str]:
    """What `watch` says to a learner who does these things, or presses these keys."""
    said: list[str] = []
    waits = iter(waits)

    def read_key(seconds: float) -> str:
        action = next(waits)
        if callable(action):
            action()
        return action if isinstance(action, str) else ""

    watch.Watch(said.append, read_key).run(*arguments)
    return said


def saving(*which: Exercise) -> Callable[[], None]:
    """What empties the files of exercises."""
    return lambda: [learner_path(exercise).write_text("") for exercise in which]


def test_watch_checks_each_save_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner who waits, takes a hint, makes a mistake, mends it, and quits later."""
    last = exercises()[-1]
    monkeypatch.setattr(watch, "exercises", lambda: (FIRST, last))
    wrong = lambda: learner_path(FIRST).write_text(WRONG)  # noqa: E731
    said = watched([None, "h", wrong, None, solve, "q"])
    assert [text.strip().splitlines()[0] for text in said][:5] == [
        f"Watching {FIRST.shown}. Keys: h for a hint, q to quit.",
        f"{FIRST.id} {FIRST.title}: not started.",
        "Hint 1 of 3 for 00.1, the idea:",
        f"{FIRST.id} {FIRST.title}: does not pass yet.",
        f"{FIRST.id} {FIRST.title}: passed.",
    ]
    assert said[5].strip().startswith(f"Watching {last.shown}")


def test_watch_goes_past_what_passes_and_waits_for_a_missing_file() -> None:
    learner_path(FIRST).unlink()
    said = watched([solve, "q"], FIRST)
    assert "yaie reset 00.1" in said[1] and "passed" in said[2]
    following = exercises()[1]
    said = watched(["q"], FIRST)
    assert said[0].strip().startswith(f"Watching {FIRST.shown}.") and "passed" in said[1]
    assert said[2].strip().startswith(f"Watching {following.shown}.")


def test_watch_judges_an_exercise_once_for_each_save(monkeypatch: pytest.MonkeyPatch) -> None:
    judged, following, judge = [], exercises()[1], watch.judge
    monkeypatch.setattr(watch, "judge", lambda e: judged.append(e) or judge(e))
    watched([None, solve, None, saving(following), None, "q"])
    assert judged == [FIRST, FIRST, following, following]


def test_watch_turns_to_the_exercise_that_is_saved() -> None:
    other = exercises()[5]
    heads = [text.strip().splitlines()[0] for text in watched([None, saving(other), "h", "q"])]
    assert heads[0].startswith(f"Watching {FIRST.shown}.") and heads[1].startswith("00.1")
    assert heads[2].startswith(f"Watching {other.shown}.") and heads[3].startswith(other.id)
    assert heads[4].startswith(f"Hint 1 of 3 for {other.id}") and len(heads) == 5


def test_watch_checks_all_that_are_saved_together() -> None:
    others = exercises()[5], exercises()[8]
    heads = [text.strip().splitlines()[0] for text in watched([None, saving(*others), None, "q"])]
    for head, other in zip(heads[2::2], others, strict=True):
        assert head.startswith(f"Watching {other.shown}.")


def test_watch_ends_where_nothing_is_left_to_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "exercises", lambda: (FIRST,))
    assert watched([solve])[-1] == watched([])[-1] == "Every exercise is solved."


def test_watch_reads_keys_from_a_terminal(folders: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "yaie.course.core.commands", "watch", "00.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb"},
    )
    os.close(theirs)
    seen = b""
    for wanted, key in ((b"not started", b"h"), (b"Hint 1 of 3", b"q")):
        deadline = time.monotonic() + 60
        while wanted not in seen and time.monotonic() < deadline:
            seen += os.read(ours, 4096)
        assert wanted in seen
        os.write(ours, key)
    assert process.wait(timeout=60) == 0
    os.close(ours)


def test_the_folder_of_exercises(folders: Path, monkeypatch) -> None:
    assert f"Exercises are read from {folders / 'exercises'}" in yaie("check", "00.1", status=1)
    monkeypatch.setenv("HOME", str(folders))
    monkeypatch.setenv("YAIE_EXERCISES_DIR", "~/elsewhere")
    result = CliRunner().invoke(app, ["check", "00.1"])
    assert isinstance(result.exception, ValueError)
    wanted = f"no folder {folders}/elsewhere (YAIE_EXERCISES_DIR can name another): `yaie reset"
    assert wanted in str(result.exception)
    yaie("reset", "00.1")
    assert "not started" in yaie("check", "00.1", status=1)
    assert (folders / "elsewhere" / FIRST.file).exists()

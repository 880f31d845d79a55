"""The commands of the `yaie` program that belong to the exercises."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from yaie.bench.files import check_folder
from yaie.course.core import progress, render, tell
from yaie.course.core.exercise import learner_path
from yaie.course.core.manifest import Exercise, UnknownExercise, exercises, find, select
from yaie.course.core.paths import ROOT, exercises_dir
from yaie.course.core.picture import draw
from yaie.course.core.verdict import Verdict, judge
from yaie.course.core.watch import Watch, keys

if TYPE_CHECKING:  # rich would take every command 40 ms, and `yaie serve` 3 MB
    from rich.table import Table

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The course's exercises.")

COLORS = {"passes": "green", "fails": "red", "broken": "red", "not started": "dim"}

Found = TypeVar("Found")

Id = Annotated[str, typer.Argument(metavar="NN.k", help="An exercise, such as 02.2, or its file.")]


@app.command()
def check(
    which: Annotated[
        list[str],
        typer.Argument(
            metavar="NN.k|NN|all", help="Exercises (02.2), their files, notebooks (02) or all."
        ),
    ],
    picture: Annotated[
        Path | None, typer.Option(help="Save the exercise's picture here (.png, .pdf, .svg).")
    ] = None,
) -> None:
    """Check your code; the exit status is 0 only if all of it passes."""
    chosen = list(dict.fromkeys(e for one in which for e in _known(select, one)))
    if picture is not None and len(chosen) > 1:
        raise typer.BadParameter("a picture is of one exercise", param_hint="--picture")
    if picture is not None:
        check_folder("picture", picture)
    verdicts = [_say_verdict(exercise) for exercise in chosen]
    if picture is not None:
        _save_picture(chosen[0], verdicts[0], picture)
    passed = sum(v.state == "passes" for v in verdicts)
    if len(chosen) > 1:
        typer.echo(f"{passed} of {len(chosen)} pass.")
    _say_folder()
    raise typer.Exit(0 if passed == len(chosen) else 1)


@app.command()
def hint(
    exercise_id: Id,
    tier: Annotated[
        int | None, typer.Option(min=1, max=3, help="Only this: 1 idea, 2 invariant, 3 shape.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show all three.")] = False,
) -> None:
    """Show the next hint, one more each time."""
    exercise = _known(find, exercise_id)
    if everything:
        progress.remember_hints(exercise, len(exercise.hints))
        typer.echo("\n".join(tell.hint(exercise, n) for n in (1, 2, 3)))
    elif tier is not None:
        progress.remember_hints(exercise, max(tier, progress.hints_taken(exercise)))
        typer.echo(tell.hint(exercise, tier))
    else:
        typer.echo(tell.next_hint(exercise, progress.take_hint(exercise)))


@app.command()
def solution(
    exercise_id: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
) -> None:
    """Show the reference solution."""
    from rich.console import Console
    from rich.syntax import Syntax

    exercise = _known(find, exercise_id)
    left = len(exercise.hints) - progress.hints_taken(exercise)
    if left and not yes:
        typer.confirm(f"{left} of the hints are not taken yet. Show the solution?", abort=True)
    text, language = render.shown_solution(exercise), "cpp" if exercise.is_cuda else "python"
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, language, background_color="default"))
    else:
        typer.echo(text, nl=False)


@app.command()
def reset(exercise_id: Id) -> None:
    """Put the unsolved file back, and keep a copy of yours.

    Hints stay taken.
    """
    exercise = _known(find, exercise_id)
    path, text = learner_path(exercise), render.stub(exercise)
    if path.exists() and path.read_bytes() != text.encode():
        typer.echo(f"Your version is kept as {progress.backup(path)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    typer.echo(f"{exercise.shown} is as it was at the start.")
    if taken := progress.hints_taken(exercise):
        again = f"`yaie hint {exercise.id} --tier 1` shows the first again"
        typer.echo(f"You have taken {taken} of its {len(exercise.hints)} hints; {again}.")
    _say_folder()


@app.command()
def status(
    which: Annotated[
        str | None,
        typer.Argument(metavar="NN|all", help="Show each exercise of a notebook, or of all."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show how far you are, and which exercise comes next."""
    from rich.console import Console

    chosen = None if which is None else set(_known(select, which))
    judged = [(exercise, judge(exercise)) for exercise in exercises()]
    open_ones = [e for e, v in judged if v.state != "passes"]
    wanted = [e for e in open_ones if not chosen or e in chosen]
    following = next(iter(wanted or open_ones), None)
    passed = sum(v.state == "passes" for _, v in judged)
    if as_json:
        rows = [_row(exercise, verdict) for exercise, verdict in judged]
        summary = {"passed": passed, "total": len(rows), "next": following and following.id}
        typer.echo(json.dumps({**summary, "exercises": rows}, indent=2, ensure_ascii=False))
        return
    console = Console()
    shown = [pair for pair in judged if chosen is None or pair[0] in chosen]
    console.print(_table(shown, each=chosen is not None))
    console.print(f"{_bar(passed, len(judged), 30)} {passed} of {len(judged)} exercises pass")
    _say_folder()
    if following is None:
        typer.echo("Every exercise is solved.")
    else:
        typer.echo(f"Next: {following.id} {following.title}")
        typer.echo(f"  edit {following.shown}, then run `yaie check {following.id}`")
    if chosen is None:
        typer.echo("Each exercise of a notebook: `yaie status 02`, say.")


@app.command()
def watch(
    exercise_id: Annotated[
        str | None,
        typer.Argument(metavar="NN.k", help="Begin with this one, not with the first unsolved."),
    ] = None,
) -> None:
    """Check whichever exercise you save.

    After a pass, take the next unsolved one.
    """
    exercise = None if exercise_id is None else _known(find, exercise_id)
    with keys() as read_key:
        Watch(say=typer.echo, read_key=read_key).run(exercise)


def _known(look_up: Callable[[str], Found], which: str) -> Found:
    """What `find` or `select` returns. An unknown exercise is an error of the command line."""
    try:
        return look_up(which)
    except UnknownExercise as unknown:
        raise typer.BadParameter(str(unknown)) from None


def _say_verdict(exercise: Exercise) -> Verdict:
    verdict = judge(exercise)
    text = tell.verdict(exercise, verdict, hint=f"yaie hint {exercise.id}")
    head, _, rest = text.partition(f": {tell.HEADLINES[verdict.state]}")
    color = {"passes": typer.colors.GREEN, "not started": None}
    typer.secho(head + ": ", bold=True, nl=False)
    typer.secho(tell.HEADLINES[verdict.state], fg=color.get(verdict.state, "red"), nl=False)
    typer.echo(rest)
    return verdict


def _say_folder() -> None:
    """Where `exercises/` really is, if it is not beside the package."""
    if exercises_dir() != ROOT / "exercises":
        typer.echo(f"Exercises are read from {exercises_dir()}")


def _save_picture(exercise: Exercise, verdict: Verdict, path: Path) -> None:
    drawn = draw(exercise, verdict)
    if drawn is None:
        raise typer.BadParameter(f"{exercise.id} has no picture", param_hint="--picture")
    caption, figure = drawn
    figure.savefig(path, bbox_inches="tight", dpi=120)
    typer.echo(f"{caption} It is saved as {path}")


def _table(judged: list[tuple[Exercise, Verdict]], each: bool) -> Table:
    """A row per notebook, or per exercise if `each`."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    last = ("exercise", "state", "hints") if each else ("passed", "begun")
    for heading in ("notebook", "", *last):
        table.add_column(heading, no_wrap=heading not in ("exercise", "begun"))
    for notebook, group in groupby(judged, key=lambda pair: pair[0].notebook):
        rows = list(group)
        done = sum(verdict.state == "passes" for _, verdict in rows)
        begun = [e.id for e, verdict in rows if verdict.state not in ("passes", "not started")]
        start = notebook, _bar(done, len(rows), len(rows))
        if not each:
            table.add_row(*start, f"{done} of {len(rows)}", " ".join(begun))
            continue
        for exercise, verdict in rows:
            color, title = COLORS[verdict.state], escape(f"{exercise.id} {exercise.title}")
            hints = str(progress.hints_taken(exercise) or "")
            table.add_row(*start, title, f"[{color}]{verdict.state}[/{color}]", hints)
            start = "", ""
    return table


def _bar(done: int, total: int, width: int) -> str:
    filled = done * width // total
    return f"[green]{'█' * filled}[/green][dim]{'░' * (width - filled)}[/dim]"


def _row(exercise: Exercise, verdict: Verdict) -> dict[str, object]:
    return {
        "id": exercise.id,
        "notebook": exercise.notebook,
        "title": exercise.title,
        "file": exercise.shown,
        "state": verdict.state,
        "hints": progress.hints_taken(exercise),
    }


if __name__ == "__main__":
    app()

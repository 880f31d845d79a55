"""What an IPython shell shows of an interrupted cell, and of an exercise that is not there."""

import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

from yaie.course.core import short_tracebacks

DEEP = """\
def deep(n):
    if n:
        return deep(n - 1)
    raise KeyboardInterrupt
"""


@pytest.fixture
def shell():
    try:
        shell = InteractiveShell.instance()
        short_tracebacks.register(shell)
        yield shell
    finally:
        InteractiveShell.clear_instance()


def shown(shell, cell: str, capsys) -> list[str]:
    capsys.readouterr()
    assert not shell.run_cell(cell, store_history=True).success
    return capsys.readouterr().out.strip().splitlines()


def test_an_interrupt_is_told_by_the_cells_line(shell, capsys) -> None:
    code = f"from types import ModuleType\nm = ModuleType('m')\nexec({DEEP!r}, vars(m))\n"
    assert shown(shell, code + "m.deep(100)", capsys) == [
        "Cell In[1], line 4: m.deep(100)",
        "KeyboardInterrupt",
    ]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("check('13.9')", "there is no exercise '13.9'; did you mean 13.1"),
        ("check(13.2)", 'an exercise is named in quotes, such as "02.2"; got 13.2 without them'),
        ("hint(2)", "got 2 without them"),
        ("use('02.2', '02.9')", "there is no exercise '02.9'"),
    ],
)
def test_an_unknown_exercise_is_told_in_one_line(shell, capsys, call, told) -> None:
    cell, error = shown(shell, f"from yaie.course import check, hint, use; {call}", capsys)
    assert cell.endswith(call) and told in error


def test_other_errors_keep_their_frames(shell, capsys) -> None:
    told = re.sub(r"\033\[[\d;]*m", "", "\n".join(shown(shell, FRAMES, capsys)))  # without colors
    assert "return f(x)" in told and "ZeroDivisionError" in told


FRAMES = """\
def g(x):
    return f(x)
def f(x):
    return 1 / x
g(0)
"""

"""`%%gpu` in an IPython shell: what runs, where, and what is said where nothing does."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from yaie.course.core import gpu_cells


@pytest.fixture
def shell():
    try:
        shell = InteractiveShell.instance()
        gpu_cells.register()
        yield shell
    finally:
        InteractiveShell.clear_instance()


def test_without_a_gpu_one_line_and_nothing_else(shell, monkeypatch, capsys) -> None:
    monkeypatch.setattr(gpu_cells, "available", lambda: False)
    result = shell.run_cell("%%gpu\nseen = 1\n!echo no\nthis is not Python")
    assert result.success and "seen" not in shell.user_ns
    assert capsys.readouterr().out == "Skipped: no CUDA GPU here.\n"


def test_with_a_gpu_it_runs_in_the_users_namespace(shell, monkeypatch, capsys) -> None:
    monkeypatch.setattr(gpu_cells, "available", lambda: True)
    shell.run_cell("word = 'hello'")
    cell = "%%gpu\ndef twice():\n    return 2 * word\n\nlength = len(twice())\n%pwd\ntwice()"
    assert shell.run_cell(cell).success
    assert shell.user_ns["length"] == 10
    assert "'hellohello'" in capsys.readouterr().out


def test_its_errors_are_the_cells(shell, monkeypatch, capsys) -> None:
    monkeypatch.setattr(gpu_cells, "available", lambda: True)
    result = shell.run_cell("%%gpu\nfirst = 1\nfirst / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert "first / 0" in capsys.readouterr().out


def test_outside_ipython_nothing_happens() -> None:
    gpu_cells.register()

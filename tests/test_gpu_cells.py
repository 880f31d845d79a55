"""`%%gpu` in an IPython shell: what runs, where, and what is said where nothing does."""

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
from functools import reduce
from pkgutil import resolve_name

import nbformat
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from yaie.course.author.gpu.cells import gpu_cells as cells_of
from yaie.course.author.gpu.cells import needed, statements
from yaie.course.author.notebooks import committed
from yaie.course.core import gpu_cells
from yaie.course.lessons.measure import side_by_side


@pytest.fixture
def shell():
    try:
        shell = InteractiveShell.instance()
        gpu_cells.register(shell)
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


def test_each_notebook_on_kernels_measures_the_learners_card() -> None:
    """Every `%%gpu` cell finds all its names, and from notebook 09 on one of them times kernels.

    Notebook 10 is about the processor.
    """
    timed, times = (
        set(),
        re.compile(r"side_by_side\(|compare\(|kernels\.run\(|measure \d\d|clock_|run_batch\("),
    )
    for path in committed():
        for cell, chosen, missing in cells_of(path):
            assert not missing, f"{path.stem}, cell {cell}"
            if any(times.search(s.code) for s in chosen if s.cell == cell):
                timed.add(path.name[:2])
    there = {path.name[:2] for path in committed()}
    wanted = {n for n in there if "09" <= n <= "28"} - {"10"}
    assert wanted <= timed, f"without a measuring %%gpu cell: {sorted(wanted - timed)}"


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.stem)
def test_a_gpu_cell_changes_nothing_that_a_later_cell_needs(path) -> None:
    """Where it is skipped, the cells after it see what those before it left."""
    cells = nbformat.read(path, as_version=4).cells
    every = [statements(n, c.source) if c.cell_type == "code" else () for n, c in enumerate(cells)]
    skipped = [cell.source.startswith(gpu_cells.FIRST_LINE) for cell in cells]
    common: set[str] = set()
    for number, own in enumerate(every):
        changed = skipped[number] and common & {name for s in own for name in s.defines}
        for later, after in enumerate(every[number:], number) if changed else ():
            for statement in after if not skipped[later] else ():
                assert not statement.uses & changed, f"cell {number}, then cell {later}"
                changed -= statement.defines
        common |= set() if skipped[number] else {name for s in own for name in s.defines}


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.stem)
def test_what_a_gpu_cell_calls_is_there_and_takes_its_arguments(path) -> None:
    """Where it is skipped, a function of the course that has moved or changed raises no error."""
    for cell, chosen, _ in cells_of(path):
        nodes = [*ast.walk(ast.parse("\n".join(s.code for s in chosen)))]
        ours = {
            name.asname or name.name: resolve_name(f"{node.module}.{name.name}")
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module.startswith("yaie")
            for name in node.names
        }
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            owner, *names = ast.unparse(call.func).split(".")
            if owner not in ours or not all(map(str.isidentifier, names)):
                continue
            function = reduce(getattr, names, ours[owner])
            if not inspect.isfunction(function):
                continue
            given, keywords = call.args, {k.arg: k for k in call.keywords if k.arg is not None}
            spread = any(isinstance(one, ast.Starred) for one in given)
            signature = inspect.signature(function)
            bind = signature.bind
            if spread or len(keywords) < len(call.keywords):  # there are more than one can count
                bind, given = signature.bind_partial, []
            try:
                bind(*given, **keywords)
            except TypeError as error:
                pytest.fail(f"cell {cell}: {ast.unparse(call)}: {error}")


def test_of_earlier_cells_only_what_a_cell_needs_is_run() -> None:
    sources = [
        "import math\nimport json\ntable = {}\ntable['a'] = 2",
        "def twice(x):\n    return math.sqrt(4) * x\n\nfor x in range(3):\n    print(x)",
        "table = {}\nunused = twice(1)\ntable['b'] = 3",
        "%%gpu\ntotal = 0\nfor name in table:\n    total += twice(table[name])\n!echo {total}",
    ]
    chosen, missing = needed(sources, 3)
    assert [s.cell for s in chosen] == [0, 1, 2, 2, 3, 3, 3]
    assert not missing
    space: dict = {}
    exec("\n".join(s.code for s in chosen[:-1]), space)
    assert space["total"] == 6
    assert needed(["", "%%gpu\nprint(nowhere)"], 1)[1] == {"nowhere"}


def test_what_an_earlier_cell_writes_or_registers_is_there() -> None:
    written = "from pathlib import Path\nfile = Path('a')\nfile.write_text('b')\nfile.exists()"
    chosen, missing = needed([written, "%%gpu\nprint(file)"], 1)
    assert [s.code[:6] for s in chosen] == ["from p", "file =", "file.w", "print("] and not missing
    imports = "from yaie.ops.registry import register, resolve"
    own = "def own(x):\n    return x\n\nregister('add_relu', 'own', own)"
    chosen, missing = needed([imports, own, "%%gpu\nresolve('add_relu', 'own')(1)"], 2)
    assert [s.cell for s in chosen] == [0, 1, 1, 2] and not missing


SIMULATED = """
import sys, torch
torch.cuda.is_available = lambda: True
from yaie.bench import kernels
from yaie.course.core.notebook import use
from yaie.course.lessons import measure
kernels.run = lambda only, **options: print("timed:", only)
measure.show_tuning = lambda: print("\\ntimed:", len(vars(use("12.3"))))
for ids in sys.argv[1:]:
    measure.main(ids.split())
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
@pytest.mark.usefixtures("warm_python")
def test_with_a_gpu_and_nothing_solved_a_cell_says_so_and_times_the_references(folders) -> None:
    """What the `%%gpu` cells of notebooks 11, 12 and 20 start, up to the clock, which needs one."""
    timed = {
        found[1].strip()
        for path in committed()
        for found in re.finditer(r"lessons\.measure ([\d. ]+)", path.read_text(encoding="utf-8"))
    }
    done = subprocess.run([sys.executable, "-c", SIMULATED, *timed], capture_output=True, text=True)
    assert not done.returncode and not done.stderr, done.stderr
    ids = " ".join(timed).split()
    assert done.stdout.count("the reference, yours is not started.\n") == len(ids) >= 7
    assert done.stdout.count("\ntimed: ") == len(timed) >= 4


def test_a_wrong_kernel_is_not_timed(capsys) -> None:
    x = torch.arange(6.0)
    calls = {"right": lambda: x + 1, "wrong": lambda: x, "integers": lambda: x.long() + 1}
    times = side_by_side(calls, x.double() + 1, num_bytes=48)
    assert [*times] == ["right", "integers", "a copy"]
    assert "wrong                        wrong: relative error 2.6e-01" in capsys.readouterr().out

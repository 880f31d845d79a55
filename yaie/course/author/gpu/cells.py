"""Run the `%%gpu` cells of notebooks as plain Python, each with what it needs of earlier cells.

    python -m yaie.course.author.gpu.cells 13 16 19 --output cells.json

Needs no Jupyter. Of the cells before, it runs the statements that define a name which the cell
uses, and what these use in turn. The status is 1 if a cell fails. Without names: all notebooks.
"""

import argparse
import ast
import builtins
import contextlib
import io
import json
import os
import re
import subprocess
import symtable
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from yaie.bench.files import output_path, save
from yaie.course.core.gpu_cells import FIRST_LINE
from yaie.course.core.paths import NOTEBOOKS, ROOT


def _shell(command: str) -> None:
    """What `!` does in IPython. Raises RuntimeError if the command fails, with what it said."""
    done = subprocess.run(command, shell=True, stdout=-1, stderr=-2, text=True)
    print(done.stdout)
    if done.returncode:
        raise RuntimeError(f"{command} returned {done.returncode}\n{done.stdout[-2000:]}")


# Methods; what they return is unused.
CHANGING = {"add", "append", "extend", "update", "write_text"}
GIVEN = {"display": print, "_shell": _shell}  # what IPython defines


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of a cell.

    Attributes:
        cell: the cell's number.
        defines, uses: the names that it defines for others, and those that it needs of others.
        whole: whether a name that it defines no longer has what it had before.
    """

    cell: int
    code: str
    defines: frozenset[str]
    uses: frozenset[str]
    whole: bool


@cache
def statements(cell: int, source: str) -> tuple[Statement, ...]:
    """The statements of a cell, without the line `%%gpu`; lines of a shell become calls."""
    source = source.removeprefix(FIRST_LINE)
    source = re.sub(
        r"^( *)!(.*)$",
        lambda m: f"{m[1]}_shell(f{m[2]!r})",
        re.sub(r"^ *%.*$", "", source, flags=re.MULTILINE),
        flags=re.MULTILINE,
    )
    found = []
    apart = ast.fix_missing_locations(_Apart().visit(ast.parse(source)))
    for node, plain in zip(apart.body, ast.parse(source).body, strict=True):
        uses, defines = set[str](), set[str]()
        _follow([node], uses, defines)
        changed = {
            part.value.id
            for target in getattr(node, "targets", [])
            for part in ast.walk(target)
            if isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.value, ast.Name)
        }
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id="register"))):
                both = {"resolve"}  # which finds more from here on
                uses, defines = uses | both, defines | both
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))):
                changed |= {name} if method in CHANGING else set()
        whole = not changed and not isinstance(node, ast.AugAssign) and not hasattr(node, "body")
        whole |= isinstance(node, ast.FunctionDef | ast.ClassDef)
        defined = frozenset(defines | changed)
        found.append(Statement(cell, ast.unparse(plain), defined, frozenset(uses), whole))
    return tuple(found)


def _follow(body: list[ast.stmt], uses: set[str], defines: set[str]) -> None:
    """Add what statements use before they define it, and what they define, in their order."""
    for node in body:
        inner = [
            part for name in ("body", "orelse", "finalbody") for part in getattr(node, name, [])
        ]
        inner += [part for handler in getattr(node, "handlers", []) for part in handler.body]
        if isinstance(node, ast.FunctionDef | ast.ClassDef) or not inner:
            _look(node, uses, defines)
            continue
        heads = [getattr(node, name, None) for name in ("iter", "test")]
        heads += [item.context_expr for item in getattr(node, "items", [])]
        for head in filter(None, heads):
            _look(head, uses, defines)
        targets = [getattr(node, "target", None)]
        targets += [item.optional_vars for item in getattr(node, "items", [])]
        defines |= {h.name for h in getattr(node, "handlers", []) if h.name}
        for target in filter(None, targets):
            defines |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        _follow(inner, uses, defines)


class _Apart(ast.NodeTransformer):
    """Comprehensions as generators, whose variables are their own in symtable of 3.12, too."""

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp) -> ast.AST:
        self.generic_visit(node)
        return ast.GeneratorExp(node.elt, node.generators)

    visit_SetComp = visit_ListComp

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        self.generic_visit(node)
        return ast.GeneratorExp(ast.Tuple([node.key, node.value], ast.Load()), node.generators)


def _look(node: ast.AST, uses: set[str], defines: set[str]) -> None:
    table = symtable.symtable(ast.unparse(node), "cell", "exec")
    own = table.get_symbols()
    read = {s.get_name() for s in own if s.is_referenced()} | set(_globals_of(table))
    if isinstance(node, ast.AugAssign):
        read |= {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
    uses |= read - defines
    defines |= {s.get_name() for s in own if s.is_assigned() or s.is_imported()}


def _globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    for child in table.get_children():
        yield from (s.get_name() for s in child.get_symbols() if s.is_global())
        yield from _globals_of(child)


def needed(sources: list[str], cell: int) -> tuple[list[Statement], set[str]]:
    """The statements to run for a cell, itself included, and names that nothing defines."""
    before = [s for number in range(cell) for s in statements(number, sources[number])]
    chosen = list(statements(cell, sources[cell]))
    missing: set[str] = set()
    for statement in reversed(chosen):
        missing = (missing - statement.defines) | statement.uses
    for statement in reversed(before):
        if statement.defines & missing:
            chosen.insert(0, statement)
            missing = (missing - (statement.defines if statement.whole else set())) | statement.uses
    return chosen, missing - set(dir(builtins)) - set(GIVEN)


def gpu_cells(path: Path) -> Iterator[tuple[int, list[Statement], set[str]]]:
    """Of each `%%gpu` cell its number, the statements to run, and names that nothing defines."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(c["source"]) if c["cell_type"] == "code" else "" for c in cells]
    for number, source in enumerate(sources):
        if source.startswith(FIRST_LINE):
            yield number, *needed(sources, number)


def run(path: Path, number: int, chosen: list[Statement]) -> dict:
    """What a cell prints, and how it fails if it does."""
    said, error, begun = io.StringIO(), None, time.perf_counter()
    space = {**GIVEN, "__name__": "__main__"}
    try:
        for statement in chosen:
            own = statement.cell == number
            with contextlib.redirect_stdout(said if own else io.StringIO()):
                exec(compile(statement.code, f"{path.stem}, cell {statement.cell}", "exec"), space)
    except (Exception, SystemExit):
        error = traceback.format_exc(limit=-4)
    seconds = round(time.perf_counter() - begun, 1)
    row = {"notebook": path.stem, "cell": number, "seconds": seconds, "said": said.getvalue()}
    no_model = error is not None and "run `yaie pull" in error
    return row | {"no model": no_model, "error": None if no_model else error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", help="numbers, such as 13")
    parser.add_argument("--output", type=output_path, required=True, help="a JSON file")
    given = parser.parse_args()
    out = given.output.absolute()
    import torch

    from yaie.bench.machine import head

    record = head(torch.device("cuda")) | {"cells": []}
    os.chdir(NOTEBOOKS)  # where cells run, in JupyterLab too
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.getenv("PYTHONPATH")]))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if given.notebooks and path.name[:2] not in given.notebooks:
            continue
        for number, chosen, missing in gpu_cells(path):
            row = run(path, number, chosen)
            record["cells"].append(row | {"missing": sorted(missing)})
            save(record, out)
            print(f"{path.stem}, cell {number}, {row['seconds']} s", row["said"], sep="\n")
            print(row["error"] or row["no model"] * "no model here", flush=True)
            torch.cuda.empty_cache()
    if any(row["error"] for row in record["cells"]):
        sys.exit("a cell failed: see the rows with an error")


if __name__ == "__main__":
    main()

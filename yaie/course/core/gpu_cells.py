"""The cell magic `%%gpu`: a cell that runs where there is a GPU and is skipped elsewhere."""

import ast
from typing import Any

FIRST_LINE = "%%gpu"
SKIPPED = "Skipped: no CUDA GPU here."


def register(shell: Any) -> None:
    """Make `%%gpu` known to an IPython shell."""
    shell.register_magic_function(lambda line, cell: gpu(shell, cell), "cell", "gpu")


def gpu(shell: Any, cell: str) -> None:
    """Run `cell` in the user's namespace if there is a GPU; say that it was skipped if not."""
    if not available():
        print(SKIPPED)
        return
    source = shell.transform_cell(cell)
    name = shell.compile.cache(source)  # so that a traceback shows the cell's lines
    body = ast.parse(source, name).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(shell.compile(ast.Module(body, []), name, "exec"), shell.user_ns)
    if last is not None:  # "single" shows an expression's value, unless a semicolon ends it
        exec(shell.compile(ast.Interactive([last]), name, "single"), shell.user_ns)


def available() -> bool:
    import torch

    return torch.cuda.is_available()

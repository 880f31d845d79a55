"""What an interrupted cell shows, and one that names an exercise that is not there: its own line.

The frames between that and the error, dozens of them when an engine was at work, teach nothing.
"""

import linecache
import traceback
from types import TracebackType
from typing import Any

from yaie.course.core.manifest import UnknownExercise


def register(shell: Any) -> None:
    """Let an IPython shell show these errors by `show`."""
    shell.set_custom_exc((KeyboardInterrupt, UnknownExercise), show)


def show(
    shell: Any, kind: type, error: BaseException, tb: TracebackType, tb_offset: int | None = None
) -> list[str]:
    """Show the lines of cells that led to an error. IPython calls it, with these arguments."""
    shown = []
    for frame, line in traceback.walk_tb(tb):
        file = frame.f_code.co_filename
        if cell := shell.compile.format_code_name(file):
            shown.append(f"{' '.join(cell)}, line {line}: {linecache.getline(file, line).strip()}")
    shown.append(f"{kind.__name__}: {error}".rstrip(": "))
    shell._showtraceback(kind, error, shown)
    return shown

"""Edit, run and test the course's notebooks. A tool for authors, and the gate of `make test`.

    python -m yaie.course.author text 02          notebook -> build/notebooks/02_radix_tree.py
    python -m yaie.course.author build FILE.py    text -> notebooks/, formatted, run, normalized
    python -m yaie.course.author run [02 ...]     run again and keep the outputs (default: all)
    python -m yaie.course.author check [02 ...]   what would be wrong with committing it
    python -m yaie.course.author objectives [02 ...]  its objectives, and what tests each
    python -m yaie.course.author minutes [02 ...] write how long they take, cards and README
    python -m yaie.course.author test [02 ...]    run by nbval and compare with the kept outputs

The notebook is the source; the text (jupytext's percent format) is only the form in which it is
comfortable to edit. Needs the development tools (`pip install -e .[dev]`).
"""

import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from yaie.course.author import minutes, objectives
from yaie.course.author.build import unsolved
from yaie.course.author.warm import warm
from yaie.course.core.gpu_cells import FIRST_LINE
from yaie.course.core.paths import NOTEBOOKS, ROOT

TEXTS = ROOT / "build" / "notebooks"
SANITIZER = ROOT / "tests" / "nbval_sanitize.cfg"
# jsonschema, which nbformat imports, would build parsers of international URLs: 2 s per process.
sys.modules.setdefault("rfc3987_syntax", None)
KERNELS_HAVE = ("IPython", "torch")  # ipykernel and matplotlib read the environment when imported
CELL_SECONDS = 120
LARGEST_BYTES = 1024 * 1024
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
PNG = "image/png"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Paths that exist on one machine only. Outputs and sources are searched for them.
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:home|root|Users|tmp|work|opt|mnt|var)/|site-packages/")


def find(name: str) -> Path:
    """The notebook called `name`: its number ("02"), its stem or its path."""
    path = Path(name)
    if path.suffix == ".ipynb" and path.is_file():
        return path
    found = sorted(NOTEBOOKS.glob(f"{path.stem}.ipynb")) or sorted(
        NOTEBOOKS.glob(f"{name}_*.ipynb")
    )
    if len(found) != 1:
        there = ", ".join(p.stem for p in committed()) or "none"
        raise ValueError(f"no notebook {name!r}; there are: {there}")
    return found[0]


def committed() -> list[Path]:
    return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def tags(cell) -> list[str]:
    return list(cell.metadata.get("tags", []))


# Normal form: what is worth committing, and nothing that changes by itself.


def normalize(notebook) -> None:
    """Bring a notebook into the form in which it is committed, in place.

    Machine metadata and timings go, alternative texts stay; the card says how long it takes.
    """
    from nbconvert.preprocessors import CoalesceStreamsPreprocessor

    join_streams = CoalesceStreamsPreprocessor()
    notebook.metadata = type(notebook.metadata)(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for cell in notebook.cells:
        if cell.cell_type == "code":
            join_streams.preprocess_cell(cell, {}, 0)  # how they were cut depends on timing
            for output in cell.outputs:
                if "metadata" in output:
                    alt = alternative_text(output)
                    output.metadata = type(cell.metadata)({PNG: {"alt": alt}} if alt else {})
        kept = {key: cell.metadata[key] for key in ("tags", "jupyter") if cell.metadata.get(key)}
        cell.metadata = type(cell.metadata)(kept)
    minutes.write(notebook)


def problems(notebook, size: int = 0) -> list[str]:
    """What is wrong with committing `notebook` (of `size` bytes) as it is; empty if nothing."""
    found = []
    if size > LARGEST_BYTES:
        found.append(f"{size:,} bytes: more than {LARGEST_BYTES:,}; draw fewer or smaller pictures")
    if notebook.metadata != METADATA:
        found.append(f"metadata {dict(notebook.metadata)} should be {METADATA}")
    expected_count = 0
    for index, cell in enumerate(notebook.cells):
        where = f"cell {index}"
        if extra := set(cell.metadata) - {"tags", "jupyter"}:
            found.append(f"{where}: metadata {sorted(extra)} should go")
        if MACHINE_PATH.search(cell.source):
            found.append(f"{where}: its source names a path of one machine")
        if "gpu" in tags(cell) and not re.match(rf"{FIRST_LINE}\s*\n", cell.source):
            found.append(
                f"{where}: tagged gpu, but its first line is not {FIRST_LINE}, which skips it in "
                "JupyterLab where there is no GPU"
            )
        if cell.cell_type != "code" or not cell.source.strip() or "gpu" in tags(cell):
            continue
        expected_count += 1
        if cell.execution_count != expected_count:
            found.append(
                f"{where}: execution count {cell.execution_count}, not {expected_count}: "
                "run the notebook from top to bottom"
            )
        found += [f"{where}: {problem}" for o in cell.outputs for problem in output_problems(o)]
    return found


def alternative_text(output) -> str | None:
    """What a picture says to readers who cannot see it."""
    return output.metadata.get(PNG, {}).get("alt")


def output_problems(output) -> list[str]:
    if output.output_type == "error":
        return [f"ends in {output.ename}: {output.evalue}"]
    found = []
    if output.get("name") == "stderr":
        found.append(f"writes to stderr: {output.text.strip()[:120]!r}")
    data = output.get("data", {})
    if WIDGET_VIEW in data:
        found.append("holds a widget, which needs a kernel: viz.slider needs none")
    if any(key.startswith("image/") for key in data) and not alternative_text(output):
        found.append("shows a picture without an alternative text: draw it with yaie.course.viz")
    texts = [output.get("text", ""), *(v for k, v in data.items() if k.startswith("text/"))]
    if any(MACHINE_PATH.search(text) or str(ROOT) in text for text in texts):
        found.append("prints a path of one machine")
    return found


# The commands.


def text(name: str) -> Path:
    """Write the notebook as percent-format text, to be edited and given to `build`."""
    import jupytext

    path = find(name)
    TEXTS.mkdir(parents=True, exist_ok=True)
    target = TEXTS / f"{path.stem}.py"
    notebook = jupytext.read(path)
    notebook.metadata.clear()
    jupytext.write(notebook, target, fmt="py:percent")
    return target


def build(source: str) -> Path:
    """Make or update a notebook from text: format, run, normalize. Cell ids are kept."""
    import jupytext
    import nbformat
    from jupytext.combine import combine_inputs_with_outputs

    source = Path(source)
    path = NOTEBOOKS / f"{source.stem}.ipynb"
    notebook = jupytext.read(source, fmt="py:percent")
    if path.exists():
        notebook = combine_inputs_with_outputs(notebook, nbformat.read(path, as_version=4))
    normalize(notebook)
    nbformat.write(notebook, path)
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(path)], check=True)
    run(str(path))
    return path


def run(name: str) -> float:
    """Run a notebook in place with this environment's kernel; returns the seconds it took."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    from traitlets.config import Config

    path = find(name)
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        config=Config(KernelManager={"transport_encryption": "auto"}),
        skip_cells_with_tag="gpu",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    started = time.perf_counter()
    try:
        with unsolved() as environment:  # the author's own exercises must not show
            client.execute(env=environment)
    except CellExecutionError as error:
        raise SystemExit(f"{path.name}: {error}") from None
    finally:
        # Written even after an error, so that the author sees it in the notebook.
        normalize(notebook)
        nbformat.write(notebook, path)
    return time.perf_counter() - started


def check(name: str) -> list[str]:
    import nbformat

    path = find(name)
    notebook = nbformat.read(path, as_version=4)
    found = problems(notebook, path.stat().st_size)
    return found + objectives.problems(notebook) + minutes.problems(notebook)


def write_minutes(names: list[str]) -> None:
    """Bring the cards of notebooks up to date, and the README's tables, without running them."""
    import nbformat

    totals = {}
    for path in map(find, names):
        notebook = nbformat.read(path, as_version=4)
        minutes.write(notebook)
        nbformat.write(notebook, path)
        totals[path.stem] = sum(minutes.minutes(notebook))
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(minutes.in_readme(text, totals), encoding="utf-8")


def test(names: list[str], pytest_args: list[str]) -> int:
    """Run notebooks by nbval and compare every output; returns pytest's exit status."""
    paths = [str(find(name)) for name in names] or [str(path) for path in committed()]
    if not paths:
        raise ValueError(f"no notebook in {NOTEBOOKS}")
    command = [sys.executable, "-m", "pytest", "-p", "yaie.course.author.notebooks", "--nbval"]
    command += ["--nbval-current-env", f"--nbval-cell-timeout={CELL_SECONDS}"]
    command += [f"--nbval-sanitize-with={SANITIZER}", *pytest_args, *paths]
    with unsolved() as environment:
        return subprocess.run(command, cwd=ROOT, env=environment).returncode


# This module is also a pytest plugin, see `test`.


def pytest_configure(config) -> None:
    """Kernels are forked from a process that has imported what takes them longest."""
    stack = ExitStack()
    stack.enter_context(warm("jupyter_client.launcher.Popen", KERNELS_HAVE))
    config.add_cleanup(stack.close)


def pytest_collection_modifyitems(items) -> None:
    """Cells tagged `gpu` need a GPU."""
    import pytest

    for item in items:
        cell = getattr(item, "cell", None)
        if cell is not None and "gpu" in tags(cell):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def main(argv: list[str]) -> int:
    command, *names = argv or ["help"]
    if command == "test":
        own = [name for name in names if not name.startswith("-")]
        return test(own, [name for name in names if name.startswith("-")])
    everything = [path.stem for path in committed()]
    if command == "text" and names:
        for name in names:
            print(text(name).relative_to(ROOT))
    elif command == "build" and names:
        for name in names:
            print(build(name).relative_to(ROOT))
    elif command == "run":
        for name in names or everything:
            print(f"{name}: {run(name):.1f} s")
    elif command == "check":
        found = [(name, problem) for name in names or everything for problem in check(name)]
        for name, problem in found:
            print(f"{name}: {problem}")
        return 1 if found else 0
    elif command == "minutes":
        write_minutes(names or everything)
    elif command == "objectives":
        import nbformat

        for name in names or everything:
            print(f"{name}\n{objectives.listing(nbformat.read(find(name), as_version=4))}\n")
    else:
        print(__doc__)
        return 2
    return 0

"""The learner's own record of `yaie bench engine --course`, beside those of notebook 28."""

from yaie.bench import files
from yaie.bench.bench import COURSE_SECTIONS
from yaie.bench.record import Row
from yaie.bench.sections import matrix_cases
from yaie.course.viz.style import count

NOTHING: Row = {"results": {}}
COMMAND = "yaie bench engine --course"


def own_record() -> tuple[Row, str]:
    """The record, a GPU's before a CPU's and one without rows if there is none; and a sentence."""
    path = next((p for p in map(files.own_path, ("cuda", "cpu")) if p.exists()), None)
    if path is None:
        return NOTHING, f"No record of your machine yet: `{COMMAND}` measures one."
    try:
        record = files.load(path, ("machine", "subject", "results"))
    except ValueError as error:
        return NOTHING, f"Your record cannot be drawn: {error}. Delete it and measure again."
    machine, subject, results = (record[name] for name in ("machine", "subject", "results"))
    threads = count(machine.get("threads", 1), "thread")
    name = machine.get("gpu") or f"{threads} of {machine.get('processor')}"
    words = f"Your record: {name}, {subject.get('model')}, {subject.get('dtype')}."
    there, missing = results.get("matrix", []), []
    if any("e2e_p99" not in row for row in there):
        return record, f"{words} An older version measured it: delete it and measure again."
    if "sizes" in subject and 0 < len(there) < (cells := len(matrix_cases(subject["sizes"]))):
        missing.append(f"{cells - len(there)} of {cells} cells of the matrix")
    wanted = [s for s in COURSE_SECTIONS if s != "cuda_graphs" or "gpu" in machine]
    missing += [section for section in wanted if not results.get(section)]
    if missing:
        words += f" It lacks {', '.join(missing)}: `{COMMAND}` goes on with it."
    return record, words


def has(record: Row, section: str, *figures: str) -> bool:
    """Whether a record has rows of a section, and each of them these figures."""
    rows = record["results"].get(section, [])
    return bool(rows) and all(row.get(figure) is not None for row in rows for figure in figures)


def in_both(mine: Row, kept: Row) -> list[tuple[Row, Row]]:
    """The rows of the matrix, of one record and another, whose cell both have measured."""
    keys = ("batch", "prompt", "output")
    cells = {tuple(row[key] for key in keys): row for row in kept["results"].get("matrix", [])}
    rows = (
        (row, cells.get(tuple(row[k] for k in keys))) for row in mine["results"].get("matrix", [])
    )
    return [(row, other) for row, other in rows if other is not None]

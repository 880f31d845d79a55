"""Results that grow row by row, and survive an interruption."""

import json
from pathlib import Path
from typing import Any

import torch

from yaie.bench import files
from yaie.bench.info import kernel_info
from yaie.bench.machine import head, model_files
from yaie.engine.parts import switch
from yaie.model.llama import OPERATORS

Row = dict[str, Any]
PARTS = ("subject", "machine", "versions", "code", "model")  # which must be the same to go on
TOLD = 3  # of the differences between two records


class Record:
    """The results of a benchmark: the machine, what ran, and rows by section.

    Args:
        path: where to keep them, as JSON; None keeps nothing. A file that is there already is gone
            on with, if it is of the same subject and model, measured by the same code on the same
            machine.
        subject: what was measured, with all that decides a figure: the benchmark, the model, its
            dtype, the options, the sizes.
        device: what it ran on.
        model: name or folder; two of one name are told apart by their files. None if it was drawn.

    Raises:
        ValueError: `path` cannot be had, or the file there holds something else.
    """

    def __init__(
        self,
        path: str | Path | None,
        subject: Row,
        device: torch.device,
        model: str | Path | None = None,
    ) -> None:
        self.path = None if path is None else files.output_path(path)
        self.content: Row = head(device) | {
            "subject": subject,
            "model": {} if model is None else {"its files": model_files(model)},
            "results": {},
        }
        if self.path is not None and self.path.exists():
            self._go_on(files.load(self.path, (*PARTS[:-1], "results")))

    def _go_on(self, before: Row) -> None:
        for name in PARTS:  # the model last: records of before it was noted are of other code
            there, new = (_flat(c.get(name, {})) for c in (before, self.content))
            different = [key for key in there | new if there.get(key) != new.get(key)]
            if different and different != ["commit"]:  # another commit may have the same code
                said = [f"{key}: {there.get(key)}, not {new.get(key)}" for key in different[:TOLD]]
                if len(different) > TOLD:
                    said.append(f"and {len(different) - TOLD} more")
                raise ValueError(
                    f"{self.path} has results of another {name} ({'; '.join(said)}); "
                    "name another file, or delete this one"
                )
        self.content |= {name: before[name] for name in ("results", "date", "code")}

    def rows(self, section: str) -> list[Row]:
        """The rows of a section, so far."""
        return self.content["results"].get(section, [])

    def find(self, section: str, case: Row) -> Row | None:
        """The row of a case, if it is there."""
        for row in self.rows(section):
            if all(row.get(name) == value for name, value in case.items()):
                return row
        return None

    def add(self, section: str, row: Row) -> None:
        """Add a row and save everything."""
        self.content["results"].setdefault(section, []).append(row)
        if self.path is not None:
            files.save(self.content, self.path)


def whose(device: torch.device) -> Row:
    """Who computes what a model is made of: the back end that `auto` takes for each operator, and
    whether the learner's exercises are asked for in place of these (`LLM` says which it takes)."""
    chosen = {entry.operator: entry.backend for entry in kernel_info(device) if entry.chosen}
    operators = {name: chosen[name] for name in OPERATORS}
    return {"operators": operators, "exercises": switch("YAIE_USE_EXERCISES")}


def rounded(row: Row) -> Row:
    """A row with four digits of each number that is not an integer; nan becomes null."""
    return {name: _rounded(value) for name, value in row.items()}


def _flat(content: Row) -> Row:
    """What a part of a record says, as JSON has it, with the entries of a mapping in it each by
    itself."""
    flat: Row = {}
    for name, value in json.loads(json.dumps(content)).items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat


def _rounded(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if value == value else None
    return value

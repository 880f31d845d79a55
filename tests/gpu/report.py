"""What the scripts here share: results that are on the disk as soon as they are known, words that
say when, and outputs that are known to have been NaN."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from yaie.bench.machine import code, describe, versions


class Report:
    """The results of a script, kept as JSON whenever there is something new.

    Args:
        path: where; None keeps nothing.
        device: what is measured.
        about: further fields at the head.
        seconds: how long the script may go on to something new.
    """

    def __init__(
        self, path: Path | None, device: torch.device, seconds: float | None = None, **about: Any
    ) -> None:
        self._path, self._seconds, self._begun = path, seconds, time.perf_counter()
        self.faults: list[str] = []
        self.content: dict[str, Any] = {
            "date": datetime.date.today().isoformat(),
            "machine": describe(device),
            "versions": versions(),
            "code": code(),
            **about,
        }

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._begun

    def has_time(self, what: str) -> bool:
        """Whether something new may be begun; if not, that is said, and it is a fault."""
        if self._seconds is None or self.elapsed < self._seconds:
            return True
        self.fault(f"no time for {what}")
        return False

    def say(self, words: str) -> None:
        """Print, with the time."""
        print(f"[{self.elapsed:6.1f} s] {words}", flush=True)

    def fault(self, words: str) -> None:
        """Print what is wrong; the script's status will say so."""
        self.faults.append(words)
        self.say(f"FAULT: {words}")

    def save(self) -> None:
        """Write what there is."""
        if self._path is None:
            return
        self.content["seconds"] = round(self.elapsed, 1)
        part = self._path.with_suffix(".part")
        text = json.dumps(self.content, indent=1, ensure_ascii=False)
        part.write_text(text + "\n", encoding="utf-8")
        os.replace(part, self._path)

    def end(self) -> int:
        """Save; the exit status."""
        self.save()
        self.say(f"done, {len(self.faults)} faults")
        return 1 if self.faults else 0


def arguments(about: str) -> argparse.ArgumentParser:
    """The options that all these scripts have."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--out", "--output", type=Path, help="where the results are kept")
    parser.add_argument("--only", help="parts of names, separated by commas: leave out the rest")
    parser.add_argument("--seconds", type=float, help="after so many nothing new is begun")
    return parser


def chosen(name: str, only: str | None) -> bool:
    """Whether `--only` lets a name through."""
    return only is None or any(part in name for part in only.split(","))


@contextmanager
def new_memory_is_nan() -> Iterator[list[torch.Tensor]]:
    """Fill what `new_empty` returns with NaN; yields the tensors that were.

    The engine's own functions take memory for their results in no other way.
    """
    new_empty, filled = torch.Tensor.new_empty, []

    def fill(*given: Any, **how: Any) -> torch.Tensor:
        tensor = new_empty(*given, **how)
        if tensor.is_floating_point():
            filled.append(tensor.fill_(torch.nan))
        return tensor

    with mock.patch.object(torch.Tensor, "new_empty", fill):
        yield filled


def into_nan(call: Any) -> tuple[tuple[torch.Tensor, ...], bool]:
    """The tensors that a call returns, and whether all of them are known to have been NaN."""
    with new_memory_is_nan() as filled:
        result = call()
    got = (result,) if isinstance(result, torch.Tensor) else tuple(result)
    addresses = {tensor.data_ptr() for tensor in filled}
    return got, all(tensor.data_ptr() in addresses for tensor in got)

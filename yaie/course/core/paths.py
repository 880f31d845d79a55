"""Where the course keeps its files: beside the package, unless the environment says otherwise."""

import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = ROOT / "notebooks"
DATA = NOTEBOOKS / "data"


def kept(name: str) -> dict[str, Any]:
    """The record of a measurement in `notebooks/data`, by its name without .json."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def exercises_dir() -> Path:
    """The folder that the learner edits: YAIE_EXERCISES_DIR, or `exercises/` beside the package."""
    return Path(os.environ.get("YAIE_EXERCISES_DIR") or ROOT / "exercises").expanduser().resolve()


def state_dir() -> Path:
    """Where progress and backups are kept: `YAIE_STATE`, or `.yaie/` beside the package."""
    return Path(os.environ.get("YAIE_STATE") or ROOT / ".yaie")

"""The JSON file in which a benchmark keeps its results."""

import argparse
import json
from pathlib import Path
from typing import Any

from yaie.build.cache import cache_root, write_whole

Content = dict[str, Any]


def own_path(device: str) -> Path:
    """Where `yaie bench engine --course` keeps what it measured on "cpu" or "cuda"."""
    return cache_root() / "bench" / f"engine_{device}.json"


class WrongPath(ValueError, argparse.ArgumentTypeError):
    """A path that cannot be written; argparse shows its message, too."""


def output_path(path: str | Path) -> Path:
    """The path for results, checked before anything is measured.

    Raises:
        WrongPath: it does not end in .json (plots go beside it, as .png), or has no folder.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise WrongPath(f"output must end in .json, got {str(path)!r}")
    check_folder("output", path)
    return path


def check_folder(name: str, path: Path) -> None:
    """Raise WrongPath, which says what `name` must be, unless the folder of a file exists."""
    if not (folder := path.parent).is_dir():
        wanted = f"{name} must be in a folder that exists, got {str(path)!r}"
        raise WrongPath(f"{wanted}: `mkdir -p {folder}` makes it")


def save(content: Content, path: Path) -> None:
    """Write results; a reader sees the old file or the new one, never half of one."""
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def load(path: Path, parts: tuple[str, ...]) -> Content:
    """Read results that have these parts, each a mapping.

    Raises:
        ValueError: the file is empty, cut short, or something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # no JSON, or no text
        raise ValueError(f"{path} holds no results of a benchmark ({error})") from error
    if not isinstance(content, dict) or not all(isinstance(content.get(p), dict) for p in parts):
        raise ValueError(f"{path} holds no results of this benchmark; name another file")
    return content

"""The JSON file in which a benchmark keeps its results."""

import json
import os
from pathlib import Path
from typing import Any

from yaie.build.cache import cache_root

Content = dict[str, Any]


def own_path(device: str) -> Path:
    """Where `yaie bench engine --course` keeps what it measured on "cpu" or "cuda"."""
    return cache_root() / "bench" / f"engine_{device}.json"


def output_path(path: str | Path) -> Path:
    """Where results are to be kept, looked at before anything is measured; its folder is made.

    Raises:
        ValueError: it does not end in .json (plots go beside it, as .png), or has no folder.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise ValueError(f"output must end in .json, got {str(path)!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"output {str(path)!r}: there is no folder {path.parent}, "
            f"and none can be made ({error.strerror})"
        ) from error
    return path


def save(content: Content, path: Path) -> None:
    """Write results; a reader sees the old file or the new one, never half of one."""
    partial = path.with_suffix(".partial")
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


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

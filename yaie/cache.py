"""Where models and built kernels are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root(cache_dir: str | Path | None = None) -> Path:
    """The folder: `cache_dir`, else $YAIE_CACHE, else $XDG_CACHE_HOME/yaie, else ~/.cache/yaie."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    if os.environ.get("YAIE_CACHE"):
        return Path(os.environ["YAIE_CACHE"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "yaie"

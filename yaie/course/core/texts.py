"""Texts of an exercise that are run, as files in the cache."""

import shutil
import time
from contextlib import suppress
from pathlib import Path

from yaie.build.cache import cache_root, content_hash, write_whole
from yaie.course.core.manifest import Exercise

UNUSED = 30 * 86_400.0  # seconds after which a text is removed


def kept_file(exercise: Exercise, text: str) -> Path:
    """A text as a file in the cache. It always lies in the same place, so that what was compiled of
    it is found again, and in no other's: checkouts that share the cache may have other texts. A new
    one removes those that were not used for a long time."""
    folder = cache_root() / "mistakes" / exercise.id / content_hash(text)
    is_new = not folder.exists()
    write_whole(folder / exercise.file.name, text)  # again, to note when it was last used
    for old in folder.parent.iterdir() if is_new else ():
        with suppress(FileNotFoundError):  # another process was faster
            if old.is_dir() and time.time() - old.stat().st_mtime > UNUSED:
                shutil.rmtree(old, ignore_errors=True)
    return folder / exercise.file.name

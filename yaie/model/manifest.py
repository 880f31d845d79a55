"""A record of a model folder's files: has anything been cut short or changed since `yaie pull`?"""

import hashlib
import json
from pathlib import Path
from typing import Any

from yaie.model.config import read_json

MANIFEST = "yaie.json"
GGUF_FILE = "model.gguf"  # in a folder that was made from a GGUF file


class DamagedModel(ValueError):
    """A file of a model folder is missing, cut short or not what was written there."""


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, whatever its size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def write_manifest(folder: Path, source: str) -> None:
    """Record size, time and SHA-256 of every file in `folder`; `source` says where it came from."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name != MANIFEST:
            stat = path.stat()
            files[path.name] = {
                "bytes": stat.st_size,
                "mtime_ns": stat.st_mtime_ns,
                "sha256": sha256(path),
            }
    record = json.dumps({"source": source, "files": files}, indent=2)
    (folder / MANIFEST).write_text(record + "\n", encoding="utf-8")


def verify(folder: str | Path) -> int:
    """Compare every file with the manifest, contents included; returns the number of files.

    Raises DamagedModel for a file that differs, ValueError if the folder has no manifest.
    """
    folder = Path(folder)
    if not (folder / MANIFEST).exists():
        raise ValueError(f"{folder} has no {MANIFEST}: only models fetched by `yaie pull` have one")
    return check(folder, hash_all=True)


def _is_record(files: Any) -> bool:
    kinds = {"bytes": int, "mtime_ns": int, "sha256": str}
    return isinstance(files, dict) and all(
        isinstance(entry, dict) and all(isinstance(entry.get(k), kind) for k, kind in kinds.items())
        for entry in files.values()
    )


def check(folder: Path, hash_all: bool = False) -> int:
    """Compare sizes with the manifest, and contents of the files whose time has changed, or of all;
    returns the number of files.

    Costs microseconds on an untouched folder, one read of the files on a copied one. A folder
    without a manifest (not made by `yaie pull`) passes. Raises DamagedModel.
    """
    if not (folder / MANIFEST).exists():
        return 0
    files = read_json(folder / MANIFEST).get("files")
    fix = f"delete {folder} and run `yaie pull` again"
    if not _is_record(files):
        raise DamagedModel(f"{folder / MANIFEST} is not what `yaie pull` writes: {fix}")
    for name, wanted in files.items():
        path = folder / name
        if not path.exists():
            raise DamagedModel(f"{path} is missing: {fix}")
        stat = path.stat()
        if stat.st_size != wanted["bytes"]:
            raise DamagedModel(f"{path} has {stat.st_size} bytes, wanted {wanted['bytes']}: {fix}")
        touched = hash_all or stat.st_mtime_ns != wanted["mtime_ns"]
        if touched and sha256(path) != wanted["sha256"]:
            raise DamagedModel(f"{path} is not the file that was written (SHA-256 differs): {fix}")
    return len(files)

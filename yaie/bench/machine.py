"""What a benchmark ran on, and which code and model it was, kept with its figures."""

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from yaie.build.cache import CSRC
from yaie.model.pull import find_model

PACKAGE = Path(__file__).resolve().parents[1]
BESIDE = ("course",)  # parts of the package that teach and draw: no figure depends on them
# Module -> its distribution.
PACKAGES = {
    "triton": "triton",
    "flashinfer": "flashinfer-python",
    "fa3_fwd": "fa3-fwd",
    "transformers": "transformers",
}
MODEL_FILES = ("config.json", "tokenizer.json", "*.safetensors")
PIECES, PIECE_BYTES = 256, 4096  # of a large file, what tells it from another


def head(device: torch.device) -> dict[str, Any]:
    """What every record begins with: when, where, and which code."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe(device),
        "versions": versions(),
        "code": code(),
    }


def describe(device: torch.device) -> dict[str, object]:
    """The device, and the processor beside it."""
    if device.type == "cpu":
        return {"processor": processor(), "threads": torch.get_num_threads()}
    properties = torch.cuda.get_device_properties(device)
    return {
        "gpu": properties.name,
        "compute capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory": f"{properties.total_memory / 2**30:.0f} GiB",
        "L2": f"{properties.L2_cache_size / 2**20:.0f} MiB",
        "processor": processor(),
    }


def versions() -> dict[str, str]:
    """The versions of Python, torch, CUDA, the driver, and of packages with kernels."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["CUDA"] = torch.version.cuda
    if shutil.which("nvidia-smi"):
        found["driver"] = _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return found | {module: version(module) for module in PACKAGES}


def busy() -> str | None:
    """What to say if programs used more than a quarter of this CPU's cores in the last minute. None
    if they did not."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= cores / 4:
        return None
    return f"programs used this CPU in the last minute (load {load:.1f}): times may be too long"


def code() -> dict[str, str]:
    """Which version of this code runs.

    Returns:
        commit: of the checkout, if git knows one. What is changed since is not in it.
        sources: a digest of the package and its kernels, as they are on the disk.
    """
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    commit = _said("git", "-C", str(PACKAGE), "rev-parse", "--short=12", "HEAD")
    return {"commit": commit, "sources": digest.hexdigest()[:12]}


def code_of(places: Iterable[str]) -> dict[str, str]:
    """Digests of the files of functions that were found by their places, "module:function"."""
    found = {}
    for place in places:
        file = getattr(sys.modules[place.partition(":")[0]], "__file__", None)  # none: built in
        if file is not None:
            found[place] = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
    return found


def _sources() -> list[Path]:
    python = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in BESIDE
    ]
    suffixes = (".cu", ".cuh", ".cpp", ".h")
    return python + sorted(path for path in CSRC.rglob("*") if path.suffix in suffixes)


def _said(*command: str) -> str:
    """The first line that a command prints, or "unknown"."""
    if shutil.which(command[0]) is None:
        return "unknown"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout.partition("\n")[0].strip() or "unknown"


def model_files(model: str | Path) -> str:
    """A digest of a model's files, which tells two of the same name apart. Raises ValueError if
    there is no such model.

    Of a file larger than 1 MiB, the size and pieces from all over it count: an 8B model has 16 GB
    to read, and weights that were trained further differ nearly everywhere.
    """
    folder = find_model(model)
    digest = hashlib.sha256()
    for path in sorted(path for pattern in MODEL_FILES for path in folder.glob(pattern)):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(PIECE_BYTES, size // PIECES)):
                file.seek(start)
                digest.update(file.read(PIECE_BYTES))
    return digest.hexdigest()[:12]


def version(module: str) -> str:
    """The version of one of `PACKAGES`, or "not installed"."""
    try:
        return importlib.metadata.version(PACKAGES[module])
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def installed(module: str) -> bool:
    """Whether one of `PACKAGES` is installed."""
    return version(module) != "not installed"


def processor() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

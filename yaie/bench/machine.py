"""What a benchmark ran on, kept with its figures."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from pathlib import Path

import torch

PACKAGES = {"triton": "triton", "flashinfer": "flashinfer-python"}  # module -> its distribution


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
    if smi := shutil.which("nvidia-smi"):
        command = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        found["driver"] = done.stdout.partition("\n")[0].strip() or "unknown"
    return found | {module: version(module) for module in PACKAGES}


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

"""NVIDIA's profilers and its sanitizer on this machine: where they are, and which versions."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

TOOLS = ("ncu", "nsys", "compute-sanitizer")
TOOLKIT = Path("/usr/local/cuda/bin")
SOURCE = (
    "ncu and compute-sanitizer are part of the CUDA toolkit, in its bin folder; nsys is, too, or "
    "comes from https://developer.nvidia.com/nsight-systems"
)


def find(tool: str) -> str | None:
    """The path of one of `TOOLS`: on the path, else in the toolkit; None if absent."""
    usual = TOOLKIT / tool
    return shutil.which(tool) or (str(usual) if usual.exists() else None)


def probe(run: Callable[[list[str]], tuple[int, str]], on_gpu: bool) -> tuple[str, ...]:
    """The doctor's finding; `run` returns a command's exit status and what it said."""
    words, missing = [], False
    for tool in TOOLS:
        path = find(tool)
        status, said = run([path, "--version"]) if path else (1, "")
        version = re.search(r"\d+(\.\d+)+", said)
        words.append(f"{tool} {version[0]} at {path}" if version and not status else f"no {tool}")
        missing |= status != 0
    if missing and not on_gpu:
        return "ok", f"{', '.join(words)}: needed on a GPU only, in notebook 23"
    if missing:
        return "note", f"{', '.join(words)}. Only notebook 23 uses them", SOURCE
    return "ok", ", ".join(words)

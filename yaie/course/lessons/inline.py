"""torch's load_inline and its setup.py, with what they built kept beside the course's kernels."""

import importlib.util
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yaie.build import nvcc
from yaie.build.cache import build_once, cache_root, content_hash
from yaie.emulator.compiler import compiler_version


def load_inline(name: str, cpp_sources: str, cuda_sources: str = "", **options: Any) -> Any:
    """`torch.utils.cpp_extension.load_inline`, built once for each content.

    torch's own cache has a file `lock` in each build folder, which a build that was killed leaves
    behind, and later ones wait for. Here every build has a folder of its own.

    Args:
        name: of the Python module, without its hash.
        cpp_sources: C++; cuda_sources: CUDA C++, which needs a GPU and the CUDA toolkit.
        options: as torch takes them, without `build_directory`.

    Returns:
        The Python module; the path of the library with `is_python_module=False`, whose operators
        are then registered.

    Raises:
        RuntimeError: the compiler refused the source, or nvcc is a Python package: torch wants the
            whole toolkit, with its libraries in lib64.
    """
    import torch
    from torch.utils import cpp_extension

    tools = [compiler_version(), torch.__version__, sysconfig.get_platform()]
    if cuda_sources:
        found = nvcc.nvcc()
        if nvcc.is_wheel(found):
            raise RuntimeError(f"torch needs the CUDA toolkit, and {found} is the compiler alone")
        tools += [nvcc.version(found), str(torch.cuda.get_device_capability())]
    name += "_" + content_hash(cpp_sources, cuda_sources, repr(sorted(options.items())), *tools)
    if shutil.which("ninja") is None:  # in an environment that is not activated
        os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")
    loaded: list[Any] = []

    def build(folder: Path) -> Path:
        loaded.append(
            cpp_extension.load_inline(
                name, cpp_sources, cuda_sources or None, build_directory=str(folder), **options
            )
        )
        return folder / f"{name}.so"

    built = build_once(cache_root() / "inline" / f"{name}.so", build).path
    if not options.get("is_python_module", True):
        if not loaded:
            torch.ops.load_library(built)
        return built
    if not loaded:
        spec = importlib.util.spec_from_file_location(name, built)
        loaded.append(importlib.util.module_from_spec(spec))
        spec.loader.exec_module(loaded[0])
    return loaded[0]


def build_extension(command: Sequence[str], files: Sequence[Path], made: str) -> Path:
    """Run a command that builds an extension in a folder with copies of files, once for each
    content, and return the path of what it made.

    Raises RuntimeError, with the end of the command's output, if it fails.
    """
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    texts = [file.read_text(encoding="utf-8") for file in files]

    def build(folder: Path) -> Path:
        for file in files:
            shutil.copy(file, folder)
        how = {"cwd": folder, "env": own_compiler(), "capture_output": True, "text": True}
        done = subprocess.run(command, **how)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-3000:]}")
        return folder / made

    name, suffix = made.split(".", 1)
    key = content_hash(*command, *texts, compiler_version(), torch.__version__, str(CUDA_HOME))
    return build_once(cache_root() / "extension" / f"{name}_{key}.{suffix}", build).path


def own_compiler() -> dict[str, str]:
    """An environment in which extensions are compiled and linked by the machine's own compiler: the
    one that Python was built with, or that CXX names, may bring a C++ library of its own, whose
    streams do not work beside torch's."""
    env = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX")}
    return env | {"LDCXXSHARED": "c++ -shared"}

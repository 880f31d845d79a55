"""CUDA C++ compiled for the GPU: the compiler, the architectures, and what it says of errors.

Nothing here needs a GPU or loads torch. What is built is a plain shared object.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from yaie.build.cache import Built, build_once, cache_root, content_hash, remembered
from yaie.emulator.compiler import CompileError
from yaie.emulator.rewrite import CSRC, line_mark, read_source, rewrite
from yaie.emulator.signature import find_launchers

# Kernels may call constexpr functions of the C++ library, such as std::max.
OPTIONS = ("-O3", "-std=c++17", "-lineinfo", "--expt-relaxed-constexpr")


def find() -> Path | None:
    """Where nvcc is: in $CUDA_HOME or $CUDA_PATH if set; else on the path, or in /usr/local/cuda,
    or among this Python's packages, where the wheel nvidia-cuda-nvcc puts it.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        places = [Path(home, "bin", "nvcc")]
    else:
        on_path = shutil.which("nvcc")
        places = [Path(on_path)] if on_path else [Path("/usr/local/cuda/bin/nvcc")]
        places += sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/cu*/bin/nvcc"))
    return next((place for place in places if place.is_file()), None)


def is_wheel(compiler: Path) -> bool:
    """Whether nvcc came as a Python package: then it does not find its libraries by itself."""
    return (compiler.parent.parent / "lib" / "libcudart_static.a").exists() and not (
        compiler.parent.parent / "lib64"
    ).exists()


def nvcc() -> Path:
    """The compiler. Raises CompileError that says how to get it."""
    found = find()
    if found is None:
        name = next((n for n in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(n)), None)
        if name:
            raise CompileError(
                f"no nvcc: {name} is {os.environ[name]}, which has no bin/nvcc; set it to the "
                "folder of the CUDA toolkit, or unset it, and nvcc is looked for on the path and "
                "among the Python packages"
            )
        raise CompileError(
            "no nvcc: pip install 'nvidia-cuda-nvcc==13.*' 'nvidia-cuda-cccl==13.*' (13 or what "
            "torch.version.cuda says), or install the CUDA toolkit from "
            "https://developer.nvidia.com/cuda-downloads and name its folder with CUDA_HOME if it "
            "is not on the path"
        )
    return found


def has_host_compiler() -> bool:
    """Whether there is a C++ compiler for what nvcc leaves to one: the part for the host."""
    if os.environ.get("NVCC_CCBIN"):  # a program or a folder: nvcc says if it is none
        return True
    names = (os.environ.get("CC"), os.environ.get("CXX"), "g++", "c++", "cl")
    return any(name and shutil.which(name) for name in names)


def host_compiler() -> list[str]:
    """The flag for the C++ compiler that $CC names, unless nvcc's own $NVCC_CCBIN names one."""
    chosen = None if os.environ.get("NVCC_CCBIN") else os.environ.get("CC")
    return [f"-ccbin={chosen}"] if chosen else []


@lru_cache(maxsize=4)
def version(compiler: Path) -> str:
    """The last line of `nvcc --version`. Raises CompileError if that fails or prints nothing."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True)
    if done.returncode or not done.stdout.strip():
        raise CompileError(f"{compiler} --version fails: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip().splitlines()[-1]


def architectures_of(capability: tuple[int, int]) -> tuple[str, ...]:
    """What to compile for a card: what it is, and no more.

    From Hopper on with the instructions that only this very architecture has (9.0a). Not what
    TORCH_CUDA_ARCH_LIST says: containers set it to all cards that torch was built for.
    """
    major, minor = capability
    return (f"{major}.{minor}{'a' if major >= 9 else ''}",)


def architecture_flags(architectures: Sequence[str]) -> list[str]:
    """The -gencode flags: machine code for each architecture, and PTX where +PTX is asked for."""
    flags = []
    for architecture in architectures:
        number = architecture.removesuffix("+PTX").replace(".", "")
        flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if architecture.endswith("+PTX"):
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return flags


def _parts(architecture: str) -> tuple[tuple[int, int], str]:
    """The version and the suffix: "a" for code that runs on this version alone; otherwise ""."""
    major, minor, suffix = re.match(r"(\d+)\.(\d)(a?)", architecture).groups()
    return (int(major), int(minor)), suffix


def sm(architecture: str) -> str:
    """As NVIDIA names it: sm_90a for 9.0a."""
    return f"sm_{architecture.replace('.', '')}"


def runs_on(architectures: Sequence[str], capability: tuple[int, int]) -> bool:
    """Whether a card can run what was compiled for these architectures.

    Machine code runs on cards of the same major version that are no older; that of 9.0a and its
    like on this very version only. The driver compiles PTX without a suffix for all newer cards.
    """
    for architecture in architectures:
        number, suffix = _parts(architecture)
        if number == capability:
            return True
        if suffix or number > capability:
            continue
        if number[0] == capability[0] or architecture.endswith("+PTX"):
            return True
    return False


def needs(source: str) -> str | None:
    """The architecture that a header line "// Needs     sm_90a …" asks for, as 9.0a.

    Files without such a line run on all cards since Turing, unless they include hopper.cuh.
    """
    found = re.search(r"^//\s*Needs\s+sm_(\d+)(\d)(a?)\b", source, re.MULTILINE)
    if found is None:
        return "9.0a" if '#include "hopper.cuh"' in source else None
    return f"{found[1]}.{found[2]}{found[3]}"


def emulated(source: str) -> bool:
    """Whether the emulator runs a source: it has the instructions of Hopper and earlier cards."""
    needed = needs(source)
    return needed is None or _parts(needed)[0] <= (9, 0)


def able(architectures: Sequence[str], source: str) -> tuple[str, ...]:
    """Those of the architectures that have what a source needs.

    9.0 stands for 9.0a, which a source that needs 9.0a is compiled for and no other.
    """
    needed = needs(source)
    if needed is None:
        return tuple(architectures)
    least, suffix = _parts(needed)
    if suffix:
        return (needed,) if any(_parts(a)[0] == least for a in architectures) else ()
    return tuple(a for a in architectures if _parts(a)[0] >= least)


def build(
    source: str, path: Path, architectures: Sequence[str], target: Path, flags: Sequence[str] = ()
) -> str:
    """Compile with nvcc alone; a target that ends in .o is only compiled, else it is linked.

    Needs no GPU and no torch. Returns what nvcc said, if anything. Raises CompileError.
    """
    unit = target.with_name(f"{target.stem}.cu")
    unit.write_text(marked(source, path), encoding="utf-8")
    compiler = nvcc()
    kind = ["-shared", "-cudart=shared"]
    if target.suffix == ".o":
        kind = ["-c"]
    elif is_wheel(compiler):
        kind = ["-shared", f"-L{compiler.parent.parent / 'lib'}"]
    headers = dict.fromkeys([path.resolve().parent, CSRC])  # where quoted headers are
    command = [
        *(str(compiler), *OPTIONS, *architecture_flags(architectures), "-Xcompiler", "-fPIC"),
        *host_compiler(),
        *(*flags, *(f"-I{folder}" for folder in headers)),
        *(*kind, str(unit), "-o", str(target)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"})
    unit.unlink()
    if done.returncode:
        raise CompileError(only_the_message(done.stdout + done.stderr, unit, path))
    return done.stdout + done.stderr


def build_for(source: str, path: Path, capability: tuple[int, int]) -> Built:
    """Compile for a card, and keep the shared object in the cache. Raises CompileError."""
    architectures = architectures_of(capability)
    if not able(architectures, source):
        version = ".".join(map(str, capability))
        raise CompileError(
            f"{path} needs {sm(needs(source))}: a card of version {version} cannot run it"
        )

    def compile_in(folder: Path) -> Path:
        build(source, path, architectures, folder / "kernel.so")
        return folder / "kernel.so"

    return build_once(kept(source, path, capability), compile_in)


def kept(source: str, path: Path, capability: tuple[int, int]) -> Path:
    """Where `build_for` keeps what it compiles.

    Without nvcc, what the last one compiled. Raises CompileError if there never was one.
    """
    key = content_hash(
        *(*read_all(source, path), str(path), *OPTIONS, *architectures_of(capability)),
        remembered("nvcc", lambda: version(nvcc())),
    )
    return cache_root() / "cuda" / f"{path.stem or 'kernel'}-{key}.so"


def read_all(source: str, path: Path) -> list[str]:
    """The text of a source, of every header of ours that it includes, and of its packed calls."""
    return [source, *map(read_source, rewrite(source, path).files[1:]), packed_calls(source)]


def marked(source: str, path: Path) -> str:
    """The source under its own name, so that the compiler's messages name the learner's file, and
    after it the functions that call its launchers with packed values."""
    return f'{line_mark(1, path)}{source}\n#line 1 "calls"\n{packed_calls(source)}'


def packed_calls(source: str) -> str:
    """The C++ functions that call the launchers of a source: see `Launcher.packed_call`."""
    return "".join(launcher.packed_call for launcher in find_launchers(source).values())


_SAID = re.compile(
    r"\S.*\(\d+\): (\w+ )?(error|warning)"  # nvcc
    r"|\S.*?:\d+:(\d+:)? "  # the C++ compiler behind it
    r"|(ptxas|nvlink) (error|fatal|warning)"
)
_OTHERS = re.compile(r"\d+ errors? detected|In file included")


def only_the_message(output: str, unit: Path, path: Path) -> str:
    """What nvcc says of the source, without commands, and with its own name."""
    kept, inside = [], False
    for line in output.splitlines():
        if _SAID.match(line):
            inside = True
        elif _OTHERS.match(line):
            inside = False
        if inside and line.strip():
            kept.append(line.replace(str(unit), str(path)))
    return "\n".join(kept) or output.strip()

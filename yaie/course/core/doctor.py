"""What works on this machine, what does not, and the command that fixes it.

`yaie doctor` and the first cell of notebook 00. Each probe looks at one thing and returns a
`Finding`; none of them changes anything outside a temporary folder.
"""

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from yaie.build import nvcc
from yaie.course.core import profilers
from yaie.course.core.paths import ROOT
from yaie.emulator.compiler import CompileError
from yaie.emulator.compiler import compiler as find_compiler

OK, NOTE, PROBLEM = "ok", "note", "problem"
INSTALL = "pip install -c constraints.txt -e '.[dev]'"
OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 9)
OLDEST_GPU = (7, 5)
LOCK_SECONDS = 600
COMPILE_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Finding:
    """The verdict on one thing: ok, note (something does without it) or problem."""

    name: str
    verdict: str
    detail: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Run every probe. One that fails in an unforeseen way is itself a problem."""
    findings = []
    for name, probe in PROBES.items():
        try:
            verdict, detail, *remedy = probe()
        except Exception as error:
            verdict, detail = PROBLEM, f"the probe failed: {type(error).__name__}: {error}"
            remedy = ["this is a mistake in yaie/course/core/doctor.py: please report it"]
        findings.append(Finding(name, verdict, detail, *remedy))
    return findings


def report() -> None:
    """Examine this machine and print the findings: the first cell of notebook 00."""
    print(as_text(examine()))


def has_problem(findings: list[Finding]) -> bool:
    return any(finding.verdict == PROBLEM for finding in findings)


def as_text(findings: list[Finding]) -> str:
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.verdict:8} {finding.name:{width}}  {finding.detail}")
        if finding.remedy:
            lines.append(f"{'':8} {'':{width}}  -> {finding.remedy}")
    problems = sum(finding.verdict == PROBLEM for finding in findings)
    if problems:
        lines.append(f"\n{problems} of {len(findings)} need fixing: see the lines after ->")
    else:
        lines.append("\nThis machine has what the course needs.")
    return "\n".join(lines)


def as_json(findings: list[Finding]) -> str:
    rows = [dataclasses.asdict(finding) for finding in findings]
    return json.dumps({"ok": not has_problem(findings), "findings": rows}, indent=2)


# Probes: each returns (verdict, detail) or (verdict, detail, remedy).


def probe_python() -> tuple[str, ...]:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        return PROBLEM, f"{found}, 3.10 or later is needed", "make lab PYTHON=python3.12"
    return OK, found


def probe_course() -> tuple[str, ...]:
    """The package must lie in the repository: it finds notebooks/ and exercises/ beside itself."""
    missing = [name for name in ("pyproject.toml", "notebooks") if not (ROOT / name).exists()]
    if missing:
        return (
            PROBLEM,
            f"yaie was installed as a copy: no {' and no '.join(missing)} beside it",
            "in a clone of the repository: pip install -e .",
        )
    course = ROOT / ".venv"
    if course.exists() and course.resolve() != Path(sys.prefix).resolve():
        return (
            NOTE,
            f"running in {shown(sys.prefix)}, not in the clone's .venv",
            "if that was not meant: make lab, or . .venv/bin/activate",
        )
    return OK, "installed in place"


def probe_torch() -> tuple[str, ...]:
    version = installed("torch")
    if version is None:
        return PROBLEM, "missing", INSTALL
    if release(version) < OLDEST_TORCH:
        return PROBLEM, f"{version}, 2.9 or later is needed", INSTALL
    import torch

    threads = torch.get_num_threads()
    return OK, f"{version}, {threads} {'thread' if threads == 1 else 'threads'}"


def probe_triton() -> tuple[str, ...]:
    if sys.platform != "linux":
        return NOTE, f"exists for Linux only, not for {sys.platform}: only Part III needs it"
    version = installed("triton")
    return (OK, version) if version else (PROBLEM, "missing", INSTALL)


def probe_compiler() -> tuple[str, ...]:
    remedy = "sudo apt-get install g++   (Fedora: sudo dnf install gcc-c++)"
    try:
        compiler = find_compiler()
    except CompileError as error:
        return PROBLEM, str(error).partition(":")[0], remedy
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cpp")
        source.write_text(
            "#include <cmath>\n"
            "template <class T> T probe(T x) { return std::exp(x); }\n"
            'extern "C" double entry(double x) { return probe(x); }\n'
        )
        command = [compiler, "-std=c++17", "-shared", "-fPIC", str(source)]
        status, said = run([*command, "-o", str(source.with_suffix(".so"))])
    if status != 0:
        last = said.splitlines()[-1] if said else "no message"
        return PROBLEM, f"{compiler} cannot compile: {last}", remedy
    return OK, f"{compiler} {first_version(run([compiler, '--version'])[1])}"


def probe_nvcc() -> tuple[str, ...]:
    """The toolkit's major version must be that of the CUDA that torch was built with."""
    wanted = torch_cuda()
    try:
        compiler = nvcc.nvcc()
    except CompileError as error:
        if wanted is None:
            return OK, "none, and none is needed: kernels run on the CPU's emulator"
        detail = f"none; torch uses CUDA {wanted}. Only Part IV on the GPU needs it"
        return NOTE, detail, str(error).removeprefix("no nvcc: ")
    found = re.search(r"release (\d+\.\d+)", run([str(compiler), "--version"])[1])
    if found is None:
        return (
            PROBLEM if wanted else NOTE,
            f"{shown(compiler)} does not say its version",
            "reinstall the CUDA toolkit, or set CUDA_HOME to another",
        )
    version = found[1]
    if wanted is None:
        return OK, f"{version}, not used: this torch is a CPU build"
    if version.split(".")[0] != wanted.split(".")[0]:
        return (
            PROBLEM,
            f"{version}, but torch was built for CUDA {wanted}",
            f"install the CUDA toolkit {wanted} and set CUDA_HOME to it",
        )
    return OK, f"{version} (torch: {wanted})"


def probe_ninja() -> tuple[str, ...]:
    beside = Path(sys.executable).parent / "ninja"
    ninja = str(beside) if beside.exists() else shutil.which("ninja")
    status, said = run([ninja, "--version"]) if ninja else (1, "")
    if status != 0:
        return PROBLEM, "missing", "pip install -c constraints.txt --force-reinstall ninja"
    return OK, first_version(said)


def probe_gpu() -> tuple[str, ...]:
    driver = Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None
    if installed("torch") is None:
        return NOTE, "unknown without torch"
    import torch

    if not torch.cuda.is_available():
        if not driver:
            return OK, "none, and none is needed"
        if torch_cuda() is None:
            return (
                NOTE,
                "there is one, but this torch is a CPU build and cannot use it",
                "make clean, then make lab without TORCH_INDEX",
            )
        return (
            NOTE,
            f"the driver does not work with torch's CUDA {torch_cuda()}",
            "run nvidia-smi, and update the driver if it answers",
        )
    capability = torch.cuda.get_device_capability()
    name = f"{torch.cuda.get_device_name()}, sm_{capability[0]}{capability[1]}"
    if capability < OLDEST_GPU:
        return NOTE, f"{name}: older than sm_75, the kernels use the CPU's emulator"
    built = {arch.removeprefix("sm_").rstrip("af") for arch in torch.cuda.get_arch_list()}
    majors = {int(arch[:-1]) for arch in built if arch.isdigit()}
    if majors and capability[0] not in majors:
        return (
            PROBLEM,
            f"{name}: this torch was built for sm_{', sm_'.join(sorted(built))} only",
            "install a build of torch for this GPU, see PyTorch's install page",
        )
    return OK, name


def probe_locks() -> tuple[str, ...]:
    """A killed build leaves its lock, and every later load of that extension waits forever."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(root) if root else cache / "torch_extensions"
    locks = sorted(folder.glob("*/lock")) + sorted(folder.glob("*/*/lock"))
    if not locks:
        return OK, "no stale lock"
    old = [lock for lock in locks if time.time() - lock.stat().st_mtime > LOCK_SECONDS]
    if not old:
        return NOTE, f"{shown(locks[0])} is being built, or its build has just been killed"
    return (
        PROBLEM,
        f"{len(old)} stale: loading {old[0].parent.name} would wait forever",
        "rm " + " ".join(f"'{shown(lock)}'" if " " in str(lock) else shown(lock) for lock in old),
    )


def probe_model() -> tuple[str, ...]:
    from yaie.model.manifest import DamagedModel, check
    from yaie.model.pull import DEFAULT_MODEL, find_model

    try:
        folder = find_model(DEFAULT_MODEL)
    except ValueError:
        return PROBLEM, f"{DEFAULT_MODEL} is not here yet", "yaie pull"
    try:
        check(folder)
    except DamagedModel as error:
        detail = str(error).split(": ")[0].replace(str(folder), shown(folder))
        return PROBLEM, detail, f"rm -r {shown(folder)} && yaie pull"
    size = sum(path.stat().st_size for path in folder.iterdir())
    return OK, f"{DEFAULT_MODEL}, {size / 1e6:.0f} MB"


def probe_disk() -> tuple[str, ...]:
    from yaie.build.cache import cache_root

    cache = cache_root()
    while not cache.exists():
        cache = cache.parent
    tightest = min((ROOT, cache), key=lambda folder: shutil.disk_usage(folder).free)
    free = shutil.disk_usage(tightest).free / 1e9
    detail = f"{free:.1f} GB free at {shown(tightest)}"
    if free < 0.5:
        return PROBLEM, detail, "free at least 2 GB"
    if free < 2:
        return NOTE, detail, "free at least 2 GB before you compile or fetch much"
    return OK, f"{free:.0f} GB free"


def probe_jupyter() -> tuple[str, ...]:
    missing = [name for name in ("jupyterlab", "ipykernel", "ipywidgets") if not installed(name)]
    if missing:
        return PROBLEM, f"{', '.join(missing)} missing", INSTALL
    return OK, f"JupyterLab {installed('jupyterlab')}"


def probe_kernel() -> tuple[str, ...]:
    """Jupyter's "Python 3" must start this environment's Python, not another one's."""
    if importlib.util.find_spec("jupyter_client") is None:
        return PROBLEM, "jupyter_client missing", INSTALL
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        spec = KernelSpecManager().get_kernel_spec("python3")
    except NoSuchKernel:
        return PROBLEM, "no kernel called python3", "pip install --force-reinstall ipykernel"
    program = spec.argv[0]
    # Jupyter replaces a bare "python" with the interpreter that it runs in itself.
    if (
        program in ("python", "python3")
        or Path(program).resolve() == Path(sys.executable).resolve()
    ):
        return OK, "this environment's Python"
    return (
        PROBLEM,
        f'"{spec.display_name}" starts {shown(program)}',
        "export JUPYTER_PREFER_ENV_PATH=1, or: jupyter kernelspec remove python3",
    )


PROBES: dict[str, Callable[[], tuple[str, ...]]] = {
    "Python": probe_python,
    "course": probe_course,
    "torch": probe_torch,
    "triton": probe_triton,
    "C++ compiler": probe_compiler,
    "ninja": probe_ninja,
    "GPU": probe_gpu,
    "nvcc": probe_nvcc,
    "profilers": lambda: profilers.probe(run, torch_cuda() is not None),
    "build locks": probe_locks,
    "model": probe_model,
    "disk": probe_disk,
    "Jupyter": probe_jupyter,
    "kernel": probe_kernel,
}


# What the probes share.


def installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def release(version: str) -> tuple[int, int]:
    """(2, 13) of "2.13.0+cpu"."""
    major, minor, *_ = version.split(".")
    return int(major), int(re.match(r"\d+", minor)[0])


def torch_cuda() -> str | None:
    """The CUDA version that torch was built with; None for a CPU build or no torch."""
    if installed("torch") is None:
        return None
    import torch

    return torch.version.cuda


def run(command: list[str]) -> tuple[int, str]:
    """Exit status and everything that the command said; a command that hangs has failed."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMPILE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout.strip()


def first_version(text: str) -> str:
    found = re.search(r"\d+(\.\d+)+", text)
    return found[0] if found else text.splitlines()[0] if text else "unknown version"


def shown(path: str | Path) -> str:
    """A path as a shell takes it, with ~ for the home folder."""
    path = Path(path)
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)

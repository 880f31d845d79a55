"""Make the course's environment: `python3 .ci/bootstrap.py .venv`.

Checks what the machine must bring, each with one line that says what is missing and how to mend
it; then creates the virtual environment and installs the pinned packages. An install that was
interrupted is thrown away and made again by the next call. Standard library only, and syntax that
an old Python can read, so that it can say "too old".
"""

import errno
import glob
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time

OLDEST = (3, 10)
NEWER = ("python3.13", "python3.12", "python3.11", "python3.10")
SPACE_GB = 4  # 2.2 GB installed, and the downloads on their way there
STARTED = time.time()
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

CUDA_NOTE = (
    "Note: this build of torch brings several GB of CUDA libraries, and no GPU is seen here. To "
    "spare them, interrupt and run: make lab TORCH_INDEX=<the index of CPU builds that PyTorch's "
    "install page names>"
)
DEBIAN_COMPILER = "Debian, Ubuntu: sudo apt-get install g++; Fedora: sudo dnf install gcc-c++"


def elapsed():
    return f"{time.time() - STARTED:3.0f} s"


def stop(problem, remedy):
    raise SystemExit(f"{problem}. {remedy}")


def say(step, text):
    print(f"[{step}/5 {elapsed()}] {text}", flush=True)


def starts(program):
    """Whether a program is there and runs; a version manager leaves names that do not."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return shutil.which(program) and not subprocess.call(
        [program, "-m", "pip", "--version"], **quiet
    )


def check_python(version=None):
    version = version or sys.version_info[:2]
    if version >= OLDEST:
        return
    newer = next(filter(starts, NEWER), None)
    remedy = "Install one, then name it: make lab PYTHON=python3.12"
    if newer:
        remedy = f"This machine has {newer}: make lab PYTHON={newer}"
    stop("Python 3.10 or later is needed, this is {}.{}".format(*version), remedy)


def check_venv():
    """The modules that Debian packages apart from Python itself."""
    try:
        import ensurepip
        import venv  # noqa: F401

        ensurepip.version()
    except ImportError:
        package = "python{}.{}-venv".format(*sys.version_info[:2])
        stop(
            "This Python has no venv module",
            f"Debian, Ubuntu: sudo apt-get install {package}",
        )


def check_compiler():
    """Triton and the course's kernels compile C++ while they run."""
    named = os.environ.get("CXX")
    compiler = named or shutil.which("g++") or shutil.which("clang++")
    remedy = "Unset CXX, or set it to a compiler that works" if named else DEBIAN_COMPILER
    if not compiler:
        stop("A C++ compiler is missing", remedy)
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "probe.cpp")
        with open(source, "w") as f:
            f.write('#include <cmath>\nextern "C" double probe(double x) { return exp(x); }\n')
        command = [*compiler.split(), "-shared", "-fPIC", source, "-o", source + ".so"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said = done.stdout.decode(errors="replace").strip()
        except OSError as error:
            done, said = None, str(error)
        if done is None or done.returncode != 0:
            last = said.splitlines()[-1] if said else "no message"
            stop(f"{compiler} cannot compile: {last}", remedy)


def check_headers():
    """Triton's launcher is compiled against Python's own headers."""
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    if not os.path.exists(header):
        print(
            "Note: Python.h is missing, Triton needs it to launch kernels on a GPU. "
            "Debian, Ubuntu: sudo apt-get install python3-dev",
            flush=True,
        )


def check_space(folder):
    free = shutil.disk_usage(folder).free / 1e9
    if free < SPACE_GB:
        stop(
            f"Not enough disk space: {free:.1f} GB free at {folder}, {SPACE_GB} GB needed",
            "Free some, or clone the repository to a larger disk",
        )


def update_pip(python):
    """One small package: an old pip cannot install the course, and no network shows here."""
    command = [python, "-m", "pip", "--retries", "1", "--timeout", "20", "install", "--quiet"]
    command += ["--upgrade", "pip", "-c", os.path.join(ROOT, "constraints.txt")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        stop(
            "The package index cannot be reached with pip",
            "Check the network; behind a proxy set HTTPS_PROXY, with a mirror set PIP_INDEX_URL",
        )


def has_gpu():
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")


def count_packages(target):
    return len(glob.glob(os.path.join(target, "lib", "python*", "site-packages", "*.dist-info")))


class Progress:
    """One line that stays alive while pip is silent: what it does now, and for how long."""

    def __init__(self, step, text, target):
        self.step, self.text, self.target = step, text, target
        self.now, self.fetched = "", 0
        self.packages = self.there = 0
        self.live = sys.stdout.isatty()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        say(self.step, self.text)
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.ended.set()
        self.thread.join()
        if self.live:
            print("\r\033[K", end="", flush=True)

    def run(self):
        while not self.ended.wait(0.5 if self.live else 15):
            line = "      {}  {}".format(elapsed(), self.now or "waiting for pip")
            if self.packages:
                done = min(count_packages(self.target) - self.there, self.packages)
                line += f" {done} of {self.packages} packages"
            elif self.fetched:
                line += f": {self.fetched / 1e6:.0f} MB"
            if self.live:
                width = shutil.get_terminal_size().columns - 1
                print("\r\033[K" + line[:width], end="", flush=True)
            else:
                print(line, flush=True)

    def installing(self, packages):
        """From here on pip says nothing, but each package that is done has a folder."""
        self.there, self.packages = count_packages(self.target), packages

    def note(self, text):
        print(("\r\033[K" if self.live else "") + text, flush=True)


def install(python, log):
    """pip's output goes to `log`; the screen shows the line that matters now."""
    command = [python, "-m", "pip", "install", "--progress-bar", "raw"]
    command += ["-c", os.path.join(ROOT, "constraints.txt"), "-e", ROOT + "[dev]"]
    if os.environ.get("TORCH_INDEX"):
        command += ["--extra-index-url", os.environ["TORCH_INDEX"]]
    warned = False
    target = os.path.dirname(log)
    with open(log, "w") as out, Progress(4, "install the pinned packages", target) as shown:
        pip = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
        )
        for line in pip.stdout:
            words = line.split()
            if len(words) == 4 and words[0] == "Progress":
                shown.fetched = int(words[1])
                continue
            out.write(line)
            if not words or words[0] not in ("Collecting", "Downloading", "Building", "Installing"):
                continue
            shown.now, shown.fetched = " ".join(words[:4])[:100], 0
            if line.startswith("Installing collected packages"):
                shown.now = "Installing"
                shown.installing(len(words) - 3)
            if words[0] == "Downloading" and "nvidia" in line and not warned and not has_gpu():
                warned = True
                shown.note(CUDA_NOTE)
        status = pip.wait()
    if status != 0:
        explain(log)


def explain(log):
    """Turn pip's failure into one line and its remedy, and end."""
    with open(log) as f:
        lines = [line.strip() for line in f if line.strip()]
    said = "\n".join(lines[-60:])
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no message"]
    remedy = f"The whole output is in {os.path.relpath(log, ROOT)}"
    if "No space left" in said:
        remedy = f"Free {SPACE_GB} GB and run the same command again"
    elif "Connection" in said or "timed out" in said or "Temporary failure" in said:
        remedy = "Check the network and run the same command again; what was fetched is kept"
    elif "No matching distribution" in said or "Could not find a version" in said:
        remedy = (
            "The course is tested on Python 3.10 to 3.13 on Linux (this is {}.{}); "
            "name another: make lab PYTHON=python3.12".format(*sys.version_info[:2])
        )
    stop("pip could not install: {}".format(errors[0].replace("ERROR: ", "")[:200]), remedy)


def quiet_jupyterlab(target):
    """JupyterLab in this environment neither asks about news nor looks for newer versions."""
    folder = os.path.join(target, "share", "jupyter", "lab", "settings")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "overrides.json"), "w") as f:
        settings = {"fetchNews": "false", "checkForUpdates": False}
        json.dump({"@jupyterlab/apputils-extension:notification": settings}, f)


def check_environment(python):
    """Import the packages that take longest to import. Meanwhile compile what all emulated kernels
    share: the first check of a kernel then compiles only its own file."""
    command = [python, "-c", "from yaie.emulator.build import build_shared; build_shared()"]
    emulator = subprocess.Popen(command, stderr=subprocess.PIPE, universal_newlines=True)
    subprocess.check_call([python, "-c", "import torch, jupyterlab, yaie"])
    said = emulator.communicate()[1].splitlines()
    if emulator.returncode != 0:
        first = next((line.strip() for line in said if "rror: " in line), "no message")
        note = "Note: the emulator does not compile, and exercises in CUDA C++ need it"
        print(f"{note}: {first[:200]}", flush=True)


def main(target):
    target = os.path.abspath(target)
    python = os.path.join(target, "bin", "python")
    unfinished = os.path.join(target, ".unfinished")

    say(1, "check the machine")
    check_python()
    check_venv()
    check_compiler()
    check_headers()

    if os.path.exists(unfinished):
        say(2, "an earlier install was cut short: start it afresh")
        shutil.rmtree(target)
    if starts(python):
        say(2, f"{os.path.basename(target)} is there")
    else:
        check_space(os.path.dirname(target))
        say(2, f"create {os.path.basename(target)}")
        shutil.rmtree(target, ignore_errors=True)
        subprocess.check_call([sys.executable, "-m", "venv", target])

    say(3, "update pip")
    update_pip(python)

    with open(unfinished, "w"):
        pass
    log = os.path.join(target, "install.log")
    install(python, log)

    quiet_jupyterlab(target)
    say(5, "check that it works, and compile the emulator")
    check_environment(python)
    os.remove(unfinished)
    with open(os.path.join(target, ".ready"), "w"):
        pass
    say(5, f"the environment is ready: {os.path.relpath(target)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else ".venv")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        stop("The disk is full", f"Free {SPACE_GB} GB and run the same command again")
    except KeyboardInterrupt:
        raise SystemExit("\nInterrupted. The same command goes on from here.") from None

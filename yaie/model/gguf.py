"""GGUF, the format of llama.cpp, into a Hugging Face-format folder.

A GGUF file keeps everything in one place: sizes as metadata, vocabulary and chat template too, and
weights quantized in small blocks (Q4_1: 32 weights share a scale and a minimum in half precision).
Converting undoes all three, once, into float32.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from yaie.ops.cpp.native import GROUPS, Rows, interleaved

LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def convert_gguf(path: str | Path, folder: str | Path, progress=None) -> None:
    """Write `config.json`, `model.safetensors` (float32) and the tokenizer's files into `folder`.

    Handles files of architecture `llama`. `progress(done, total)` is called after each tensor.
    Raises ValueError naming the file if it is no GGUF, or of another architecture.
    """
    from safetensors.numpy import save_file

    path, folder = Path(path), Path(folder)
    reader = open_gguf(path)
    config = gguf_config(reader, path)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights = {}
    for index, tensor in enumerate(reader.tensors):
        name, part = hugging_face_name(tensor.name, path)
        array = dequantize(tensor, path)
        if part in heads:
            array = unpermute(array, heads[part])
        weights[name] = np.ascontiguousarray(array)
        if progress is not None:
            progress(index + 1, len(reader.tensors))
    config["tie_word_embeddings"] = "lm_head.weight" not in weights

    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", config)
    ids = {name: config[name] for name in ("bos_token_id", "eos_token_id") if name in config}
    _write_json(folder / "generation_config.json", ids)
    convert_tokenizer(path, folder, reader)


def read_rows(path: Path) -> dict[str, Rows]:
    """The tensors of a GGUF file, left in the mapped file, by their Hugging Face names. Query and
    key projections are copied to reorder rows; `interleaved` copies the pages of 4-bit matrices.

    Raises ValueError for a format that the back end `cpp` does not multiply.
    """
    if not path.exists():
        raise ValueError(f'{path} is missing, which dtype "gguf" reads: pull the model again')
    reader = open_gguf(path, "c")  # copy on write: the file itself never changes
    found, heads = {}, {"attn_q": field(reader, "llama.attention.head_count")}
    heads["attn_k"] = field(reader, "llama.attention.head_count_kv", heads["attn_q"])
    floats = ("F32", "F16")
    for tensor in reader.tensors:
        name, part = hugging_face_name(tensor.name, path)
        kind, data = tensor.tensor_type.name, tensor.data
        if kind not in floats and kind.lower() not in GROUPS:
            known = ", ".join((*floats, *GROUPS))
            raise ValueError(f'{path}: {tensor.name} is {kind}; dtype "gguf" reads {known}')
        if part in heads:
            data = np.ascontiguousarray(unpermute(data, heads[part]))
        found[name] = interleaved(torch.from_numpy(data), None if kind in floats else kind.lower())
    return found


def quantize_rows(weight: np.ndarray, form: str) -> Rows:
    """A float32 matrix `[rows, size]` in one of the formats of GROUPS."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    data = quantize(np.ascontiguousarray(weight), GGMLQuantizationType[form.upper()])
    return interleaved(torch.from_numpy(data), form)


def open_gguf(path: Path, mode: str = "r"):
    """A `gguf.GGUFReader` over `path`, or a ValueError that names it."""
    from gguf import GGUFReader

    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        return GGUFReader(path, mode)
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a readable GGUF file ({error}): fetch it again") from error


def gguf_config(reader, path: Path) -> dict[str, Any]:
    """The contents of `config.json`, from the file's metadata."""
    architecture = field(reader, "general.architecture")
    if architecture != "llama":
        raise ValueError(f"{path}: architecture {architecture!r} is not supported, only 'llama'")
    if field(reader, "llama.rope.scaling.type", "none") != "none" or any(
        tensor.name == "rope_freqs.weight" for tensor in reader.tensors
    ):
        raise ValueError(
            f"{path}: a GGUF file with scaled rotary positions is not supported; "
            "take the model's safetensors instead (yaie pull --from-hub NAME)"
        )
    sizes = {
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "max_position_embeddings": "context_length",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    }
    config: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    for name, key in sizes.items():
        value = field(reader, f"llama.{key}")
        if value is None:
            raise ValueError(f"{path}: its metadata lacks llama.{key}")
        config[name] = value
    heads = config["num_attention_heads"]
    config |= {
        "num_key_value_heads": field(reader, "llama.attention.head_count_kv", heads),
        "head_dim": field(reader, "llama.attention.key_length", config["hidden_size"] // heads),
        "rope_theta": field(reader, "llama.rope.freq_base", 10000.0),
        "vocab_size": len(reader.fields["tokenizer.ggml.tokens"].data),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float32",
    }
    for name in ("bos_token_id", "eos_token_id"):
        if (token := field(reader, f"tokenizer.ggml.{name}")) is not None:
            config[name] = token
    return config


def field(reader, key: str, default: Any = None) -> Any:
    """The value of one metadata field, or `default`."""
    found = reader.get_field(key)
    return default if found is None else found.contents()


def hugging_face_name(name: str, path: Path) -> tuple[str, str]:
    """`blk.3.attn_q.weight` -> (`model.layers.3.self_attn.q_proj.weight`, `attn_q`)."""
    match name.split("."):
        case ["blk", layer, part, "weight"] if part in LAYER_TENSORS:
            return f"model.layers.{layer}.{LAYER_TENSORS[part]}.weight", part
        case [part, "weight"] if part in TENSORS:
            return f"{TENSORS[part]}.weight", part
    raise ValueError(f"{path}: tensor {name} has no place in a Llama model")


def dequantize(tensor, path: Path) -> np.ndarray:
    """One tensor of a GGUF file as float32, in PyTorch's order of dimensions."""
    from gguf.quants import dequantize as to_float

    try:
        return to_float(tensor.data, tensor.tensor_type)
    except NotImplementedError:
        what = f"tensor {tensor.name} is {tensor.tensor_type.name}"
        raise ValueError(f"{path}: {what}, which gguf cannot read") from None


def unpermute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo llama.cpp's reordering of the rows of a query or key projection.

    llama.cpp rotates neighboring pairs (0, 1), (2, 3), ...; Hugging Face rotates element i with
    i + head_dim/2. Within each head, GGUF's row 2i + h is Hugging Face's row h * head_dim/2 + i.
    """
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def convert_tokenizer(path: Path, folder: Path, reader) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`, with the chat template inside.

    The file is read alone in a folder: what lies beside it must not choose the tokenizer, least
    of all by code of its own.
    """
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as alone:
        Path(alone, "model.gguf").symlink_to(path.resolve())
        tokenizer = AutoTokenizer.from_pretrained(
            alone, gguf_file="model.gguf", trust_remote_code=False, local_files_only=True
        )
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": field(reader, "llama.context_length"),
        "clean_up_tokenization_spaces": False,
        **{name: str(token) for name, token in tokenizer.special_tokens_map.items()},
    }
    template = field(reader, "tokenizer.chat_template")
    if template is not None:
        settings["chat_template"] = template
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

"""Models of a known shape with random weights: as large and as fast as the real ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from yaie.model.config import ModelConfig
from yaie.model.llama import Llama
from yaie.model.pull import find_model

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "bfloat16",
}
SHAPES = {"llama-8b": LLAMA_8B}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def write_random_model(
    folder: str | Path, shape: str | dict, tokenizer: str | Path, device: str = "cpu"
) -> Path:
    """Write a model folder in Hugging Face format, its weights drawn at random in bfloat16.

    Args:
        shape: one of `SHAPES`, or the content of a `config.json`.
        tokenizer: the model whose tokenizer it gets; its vocabulary must not be larger.
        device: where the numbers are drawn.

    Raises:
        ValueError: `shape` is not known.
    """
    if isinstance(shape, str) and shape not in SHAPES:
        raise ValueError(f"shape must be one of {', '.join(SHAPES)}, got {shape!r}")
    raw = SHAPES[shape] if isinstance(shape, str) else shape
    folder, source = Path(folder), find_model(tokenizer)
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        if (source / name).exists():
            shutil.copy(source / name, folder / name)
    generator = torch.Generator(device).manual_seed(0)
    weights = {}
    for name, place in Llama(ModelConfig.from_dict(raw), device="meta").places().items():
        if "norm" in name:
            weights[name] = torch.ones(place.shape, dtype=torch.bfloat16)
        else:
            drawn = torch.randn(
                place.shape, generator=generator, device=device, dtype=torch.float32
            )
            weights[name] = (0.02 * drawn).to(torch.bfloat16).cpu()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    # Last, so that a folder with a configuration is whole.
    (folder / "config.json").write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    return folder

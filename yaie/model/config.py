"""What `config.json` says about a model of the Llama family."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARCHITECTURES = {
    # architecture -> do the query, key and value projections have a bias?
    "LlamaForCausalLM": False,
    "MistralForCausalLM": False,
    "Qwen2ForCausalLM": True,
}
REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
SIZES = (*REQUIRED, "num_key_value_heads", "head_dim", "max_position_embeddings")
# No model comes near these; without them a damaged file could ask for all memory, or loop forever.
# The radix tree holds a token as a character, so the vocabulary may have as many as Unicode.
LARGEST = 2**18
LARGEST_OF = {"vocab_size": 0x110000, "max_position_embeddings": 2**24, "num_hidden_layers": 2**12}
LLAMA3_SCALING = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3's stretch of the rotary wavelengths (Llama 3.1 report, section 3.4.3).

    Wavelengths above `original_max_positions / low_freq_factor` are multiplied by `factor`, those
    below `original_max_positions / high_freq_factor` kept, those between interpolated.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True)
class ModelConfig:
    """The sizes and constants that fix a model's forward pass.

    Names follow Hugging Face's `config.json`. `eos_token_ids` also collects those of
    `generation_config.json`, which is where chat models name their end-of-turn token.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self):
        for name in SIZES:
            _check_size(name, getattr(self, name))
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads ({self.num_attention_heads}) must be a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, got {self.head_dim}")
        for token in self.eos_token_ids:
            if not 0 <= token < self.vocab_size:
                raise ValueError(
                    f"eos_token_id must be from 0 to {self.vocab_size - 1}, the last of the "
                    f"vocabulary, got {token}: the model would never end an answer with it"
                )

    @classmethod
    def from_folder(cls, folder: str | Path) -> ModelConfig:
        """Read `config.json` (and `generation_config.json`, if there) of a model folder."""
        path, other = Path(folder, "config.json"), Path(folder, "generation_config.json")
        raw, more = read_json(path), read_json(other) if other.exists() else {}
        for file, ids in ((path, None), (other, more.get("eos_token_id"))):
            try:
                config = cls.from_dict(raw, ids)
            except ValueError as error:
                raise ValueError(f"{file}: {error}") from None
        return config

    @classmethod
    def from_dict(cls, raw: dict[str, Any], eos_token_id: int | list[int] | None = None):
        """Build from the contents of a `config.json`; ValueError names what is not supported.

        `eos_token_id` adds end tokens from elsewhere, in either of the two forms in use.
        """
        architecture = _architecture(raw)
        missing = [name for name in REQUIRED if raw.get(name) is None]
        if missing:
            raise ValueError(f"missing {', '.join(missing)}")
        for name in REQUIRED:
            _check_size(name, raw[name])
        theta, scaling = _rope(raw)
        heads = raw["num_attention_heads"]
        return cls(
            **{name: raw[name] for name in REQUIRED},
            num_key_value_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
            max_position_embeddings=raw.get("max_position_embeddings", 2048),
            rms_norm_eps=_positive("rms_norm_eps", raw.get("rms_norm_eps", 1e-6)),
            rope_theta=theta,
            rope_scaling=scaling,
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=ARCHITECTURES[architecture],
            eos_token_ids=_merge_ids(raw.get("eos_token_id"), eos_token_id),
        )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; a ValueError names the file when it holds anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing: a model folder in Hugging Face format has one"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}): fetch the model again") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a {type(value).__name__}, wanted a JSON object")
    return value


def _check_size(name: str, value: Any) -> None:
    largest = LARGEST_OF.get(name, LARGEST)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    if value > largest:
        raise ValueError(f"{name} must be at most {largest}, got {value}")


def _positive(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return float(value)


def _architecture(raw: dict[str, Any]) -> str:
    named = raw.get("architectures") or []
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise ValueError(f"architectures must be a list of names, got {named!r}")
    architecture = named[0] if named else f"(model_type {raw.get('model_type')!r})"
    if architecture not in ARCHITECTURES:
        raise ValueError(
            f"architecture {architecture} is not supported; known: {', '.join(ARCHITECTURES)}"
        )
    activation = raw.get("hidden_act", "silu")
    if activation != "silu":
        raise ValueError(f"hidden_act {activation!r} is not supported, only 'silu'")
    for name in ("attention_bias", "mlp_bias"):
        if raw.get(name):
            raise ValueError(f"{name}=true is not supported for {architecture}")
    window = raw.get("sliding_window")
    if window is not None and raw.get("use_sliding_window", True):
        raise ValueError(f"sliding_window={window} is not supported, only full attention")
    return architecture


def _rope(raw: dict[str, Any]) -> tuple[float, RopeScaling | None]:
    """Base and scaling, from `rope_parameters` (transformers 5) or the two older fields."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"rope_scaling must be an object, got {rope!r}")
    given = (rope.get("rope_theta"), raw.get("rope_theta"), 10000.0)
    theta = _positive("rope_theta", next(value for value in given if value is not None))
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if rope.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ValueError("partial_rotary_factor other than 1.0 is not supported")
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ValueError(f"rope scaling {kind!r} is not supported; known: 'default', 'llama3'")
    missing = [name for name in LLAMA3_SCALING if name not in rope]
    if missing:
        raise ValueError(f"rope scaling 'llama3' lacks {', '.join(missing)}")
    factor, low, high, original = (_positive(name, rope[name]) for name in LLAMA3_SCALING)
    if high <= low:
        raise ValueError(f"high_freq_factor must be above low_freq_factor ({low}), got {high}")
    return theta, RopeScaling(factor, low, high, int(original))


def _merge_ids(*sources: int | list[int] | None) -> tuple[int, ...]:
    ids: dict[int, None] = {}
    for source in sources:
        for token in source if isinstance(source, list) else [source]:
            if token is None:
                continue
            if not isinstance(token, int):
                raise ValueError(
                    f"eos_token_id must be a token id or a list of them, got {source!r}"
                )
            ids[token] = None
    return tuple(ids)

"""Models of a known shape whose weights are drawn: as large and as fast as the real ones."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from yaie.bench.bench import Bench
from yaie.bench.oracle import Oracle
from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.model.config import ModelConfig
from yaie.model.llama import STEP_OPERATORS, Llama
from yaie.model.weights import parse_dtype
from yaie.ops.registry import AUTO, choose

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
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
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SMOLLM2_135M = LLAMA_8B | {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "rope_theta": 100000.0,  # not tied as the real one: drawn, it would repeat its last token
}
SHAPES = {"llama-8b": LLAMA_8B, "smollm2-135m": SMOLLM2_135M}


def shape_of(name: str) -> dict[str, Any]:
    """The `config.json` of a shape. Raises ValueError if it is not known."""
    if name not in SHAPES:
        raise ValueError(f"shape must be one of {', '.join(SHAPES)}, got {name!r}")
    return SHAPES[name]


def in_transformers(raw: dict[str, Any], model: Llama) -> Any:
    """The same model in transformers, which shares the memory of its weights."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(**raw | {"dtype": model.dtype})
    with torch.device("meta"):
        theirs = LlamaForCausalLM(config)
    theirs.load_state_dict(model.places(), assign=True)
    theirs.model.rotary_emb = LlamaRotaryEmbedding(config=config).to(model.embed.device)
    return theirs.to(model.dtype).eval()


def draw_weights(places: Mapping[str, torch.Tensor], device: torch.device | str) -> None:
    """Fill the weights of a model, by their names: of a scale that keeps activations near 1, so
    that no logit overflows; those of norms with ones."""
    generator = torch.Generator(device).manual_seed(0)
    for name, place in places.items():
        if "norm" in name:
            place.fill_(1.0)
        else:
            place.normal_(0.0, place.shape[-1] ** -0.5, generator=generator)


def random_model(
    config: ModelConfig,
    dtype: str | torch.dtype = "float32",
    device: torch.device | str = "cpu",
    pack: bool = True,
) -> Llama:
    """A model of any size that knows nothing, for measuring: its weights are drawn. Without `pack`
    they stay where `Llama.places` finds them."""
    model = Llama(config, dtype=parse_dtype(dtype), device=device)
    draw_weights(model.places(), device)
    if pack:
        model.pack()
    return model.eval()


class DrawnBench(Bench):
    """A benchmark of a model that is drawn, once, for the engine and for transformers.

    Args:
        raw: its `config.json`.
        model: whose tokenizer it gets; the vocabulary must not be larger.
        others: as for `Bench`.
    """

    def __init__(self, raw: dict[str, Any], model: str | Path, *others: Any) -> None:
        super().__init__(model, *others)
        self.raw = raw
        config = ModelConfig.from_dict(raw)
        self.llama = random_model(config, self.torch_dtype, self.device, pack=False)

    def make_oracle(self) -> Oracle:
        """transformers, with the same weights in the same memory."""
        return Oracle.of(in_transformers(self.raw, self.llama))

    def make(self, **options: Any) -> SimpleNamespace:
        """What the benchmark uses of an `LLM` of the model."""
        self.llama.backends = choose(STEP_OPERATORS, options.get("backend", AUTO))
        engine = Engine(self.llama, self.tokenizer, EngineConfig(**options))
        return SimpleNamespace(engine=engine, tokenizer=self.tokenizer)

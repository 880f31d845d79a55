"""A tiny random model in Hugging Face format, and batches for it: every code path, in milliseconds.

Random weights, but a real byte-level BPE tokenizer, a chat template and every file that a model
folder has. Same seed, same model.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from yaie.model.batch import Batch
from yaie.model.config import ModelConfig
from yaie.model.llama import Llama

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXT = [
    "Once upon a time there was a small engine that answered every question it was asked.",
    "A block holds the keys and values of sixteen tokens, and a table says where each block is.",
    "The cache remembers what two prompts have in common, so that nobody computes it twice.",
    "What is the capital of France? The capital of France is Paris.",
    "You are a helpful assistant. Answer the question in one short sentence.",
]
QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False,
}  # fmt: skip
CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are tiny.<|im_end|>\n"
    "{% endif %}{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny_model(folder: str | Path, seed: int = 0, **overrides) -> Path:
    """Write the model into `folder`; `overrides` replace entries of its `config.json`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tiny_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    raw = tiny_config(vocab_size=tokenizer.get_vocab_size()) | overrides
    write_json(folder / "config.json", raw)
    write_json(folder / "generation_config.json", {"eos_token_id": raw["eos_token_id"]})
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[1],
        "eos_token": SPECIAL_TOKENS[2],
        "unk_token": SPECIAL_TOKENS[0],
        "pad_token": SPECIAL_TOKENS[2],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    write_json(folder / "tokenizer_config.json", settings)
    weights = random_weights(ModelConfig.from_dict(raw), seed)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def tiny_config(**overrides) -> dict:
    """The contents of the tiny model's `config.json`."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 384,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    } | overrides


def make_tiny_tokenizer() -> Tokenizer:
    """Byte-level BPE over all 256 bytes with some merges, so that any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=384,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def random_weights(config: ModelConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights by their Hugging Face names, scaled so that logits differ clearly."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, place in Llama(config, device="meta").places().items():
        tensor = torch.randn(place.shape, generator=generator)
        if "norm" in name:
            tensor = 1.0 + 0.1 * tensor
        elif "embed" not in name and tensor.ndim == 2:
            tensor = tensor * place.shape[1] ** -0.5
        weights[name] = tensor
    return weights


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def make_pools(config: ModelConfig, num_blocks: int, block_size: int, dtype=torch.float32):
    """Key and value pools, a list of each; NaN wherever nothing was written."""
    shape = (num_blocks, block_size, config.num_key_value_heads, config.head_dim)
    layers = range(config.num_hidden_layers)
    return tuple([torch.full(shape, float("nan"), dtype=dtype) for _ in layers] for _ in "kv")


def make_batch(sequences, block_size: int, logit_rows=None) -> Batch:
    """A ragged batch of `(new token ids, number of tokens before them, block table)` each.

    Logits are wanted for the last row of each sequence, or for `logit_rows`.
    """
    token_ids, positions, slots, lengths, starts = [], [], [], [], [0]
    for new, past, table in sequences:
        places = range(past, past + len(new))
        token_ids += new
        positions += places
        slots += [table[p // block_size] * block_size + p % block_size for p in places]
        lengths.append(past + len(new))
        starts.append(starts[-1] + len(new))
    widest = max(len(table) for _, _, table in sequences)
    tables = [list(table) + [0] * (widest - len(table)) for _, _, table in sequences]
    rows = [start - 1 for start in starts[1:]] if logit_rows is None else logit_rows
    return Batch(
        token_ids=torch.tensor(token_ids),
        positions=torch.tensor(positions),
        slot_mapping=torch.tensor(slots),
        block_tables=torch.tensor(tables, dtype=torch.int32),
        context_lens=torch.tensor(lengths, dtype=torch.int32),
        cu_seqlens=torch.tensor(starts, dtype=torch.int32),
        logit_rows=torch.tensor(list(rows), dtype=torch.int64),
    )


if __name__ == "__main__":  # for `yaie.course.author.gpu.two_gpus`: heads that two can share
    make_tiny_model(
        sys.argv[1], hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=4, head_dim=64, tie_word_embeddings=False,
    )  # fmt: skip

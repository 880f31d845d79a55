"""`config.json` of the Llama family, and everything in it that must be refused."""

import json

import pytest
import torch
from tiny import tiny_config, write_json

from yaie.model.config import ModelConfig
from yaie.model.llama import scaled_rotary_tables

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}


def test_sizes_are_read():
    config = ModelConfig.from_dict(tiny_config())
    assert (config.hidden_size, config.num_attention_heads, config.num_key_value_heads) == (
        64,
        4,
        2,
    )
    assert (config.head_dim, config.tie_word_embeddings, config.eos_token_ids) == (16, True, (2,))
    assert not config.qkv_bias and config.rope_scaling is None


def test_defaults_follow_transformers():
    raw = tiny_config()
    for name in ("head_dim", "num_key_value_heads", "rms_norm_eps", "tie_word_embeddings"):
        del raw[name]
    config = ModelConfig.from_dict(raw)
    assert (config.head_dim, config.num_key_value_heads) == (16, 4)
    assert (config.rms_norm_eps, config.tie_word_embeddings) == (1e-6, False)


def test_rope_theta_in_both_places():
    old = ModelConfig.from_dict(tiny_config(rope_theta=5e5))
    raw = tiny_config(rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    del raw["rope_theta"]
    assert old.rope_theta == ModelConfig.from_dict(raw).rope_theta == 5e5


def test_end_tokens_are_collected_from_both_files(tmp_path):
    write_json(tmp_path / "config.json", tiny_config(eos_token_id=[2, 0]))
    write_json(tmp_path / "generation_config.json", {"eos_token_id": [2, 7]})
    assert ModelConfig.from_folder(tmp_path).eos_token_ids == (2, 0, 7)
    write_json(tmp_path / "generation_config.json", {"eos_token_id": 384})
    with pytest.raises(ValueError, match=r"/generation_config\.json: eos_token_id must be .* 384"):
        ModelConfig.from_folder(tmp_path)


@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
def test_llama3_scaling_equals_transformers(field):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    raw = tiny_config(head_dim=64, **{field: LLAMA3 | {"rope_theta": 5e5}}, rope_theta=5e5)
    cos, sin = scaled_rotary_tables(ModelConfig.from_dict(raw))
    oracle = LlamaRotaryEmbedding(LlamaConfig.from_dict(raw))
    positions = torch.arange(raw["max_position_embeddings"])
    want_cos, want_sin = oracle(torch.zeros(1), positions[None])
    torch.testing.assert_close(cos, want_cos[0, :, :32])
    torch.testing.assert_close(sin, want_sin[0, :, :32])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel is not supported"),
        ({"architectures": [], "model_type": "gemma"}, "model_type 'gemma'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"sliding_window": 128}, "sliding_window=128"),
        ({"hidden_size": None}, "missing hidden_size"),
        ({"num_key_value_heads": 3}, "multiple of num_key_value_heads"),
        ({"head_dim": 15}, "head_dim must be even"),
        ({"vocab_size": "many"}, "vocab_size must be a positive integer"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "lacks low_freq_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"architectures": "LlamaForCausalLM"}, "architectures must be a list of names"),
        ({"architectures": [["LlamaForCausalLM"]]}, "architectures must be a list of names"),
        ({"rope_scaling": "x"}, "rope_scaling must be an object"),
        ({"rope_theta": -1}, "rope_theta must be a positive number"),
        ({"rope_theta": "x"}, "rope_theta must be a positive number"),
        ({"rope_theta": 0}, "rope_theta must be a positive number"),
        ({"rope_parameters": {"rope_theta": 0}}, "rope_theta must be a positive number"),
        ({"rms_norm_eps": []}, "rms_norm_eps must be a positive number"),
        ({"rope_scaling": LLAMA3 | {"factor": None}}, "factor must be a positive number"),
        (
            {"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}},
            r"high_freq_factor must be above low_freq_factor \(1.0\), got 1.0",
        ),
        ({"num_attention_heads": 0, "head_dim": None}, "num_attention_heads must be a positive"),
        ({"vocab_size": 10**12}, "vocab_size must be at most 1114112"),
        ({"max_position_embeddings": 10**10}, "max_position_embeddings must be at most"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers must be at most 4096"),
        ({"vocab_size": 2**20 + 2**17}, "vocab_size must be at most 1114112"),  # see `as_key`
        ({"eos_token_id": "x"}, "eos_token_id must be a token id"),
        ({"eos_token_id": [[1]]}, "eos_token_id must be a token id"),
        ({"eos_token_id": [2, 384]}, "eos_token_id must be from 0 to 383.*got 384"),
        ({"eos_token_id": -1}, "eos_token_id must be from 0 to 383.*got -1"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, change, message):
    write_json(tmp_path / "config.json", tiny_config(**change))
    with pytest.raises(ValueError, match=message) as error:
        ModelConfig.from_folder(tmp_path)
    assert "/config.json" in str(error.value)


def test_a_window_that_is_switched_off_is_no_window():
    raw = tiny_config(
        architectures=["Qwen2ForCausalLM"], sliding_window=128, use_sliding_window=False
    )
    assert ModelConfig.from_dict(raw).qkv_bias


@pytest.mark.parametrize("text", ["{", "[]", json.dumps("text")])
def test_a_file_that_is_no_json_object(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json"):
        ModelConfig.from_folder(tmp_path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing"):
        ModelConfig.from_folder(tmp_path)

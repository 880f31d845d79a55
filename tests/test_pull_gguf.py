"""GGUF into a Hugging Face-format folder: nothing lost, and what cannot be read is named."""

import errno
import hashlib
import json

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from tiny import (
    CHAT_TEMPLATE,
    make_tiny_model,
    make_tiny_tokenizer,
    random_weights,
    tiny_config,
    write_json,
)

from yaie.model.config import ModelConfig, read_json
from yaie.model.gguf import convert_gguf
from yaie.model.pull import find_model
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# Of SmolLM2-135M-Instruct.Q4_1.gguf as transformers 5.23 reads it, sorted by name.
REAL_TENSORS = "785e20b3e653276b0579b744214a1186d730ba80af04f397f642d6432e5e0154"


def make_tiny_gguf(path, kind=Kind.F32, architecture="llama", extra=(), **overrides):
    """Write the tiny model as llama.cpp's converter would; returns its weights."""
    tokenizer = make_tiny_tokenizer()
    raw = tiny_config(vocab_size=tokenizer.get_vocab_size()) | overrides
    weights = random_weights(ModelConfig.from_dict(raw), seed=3)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(raw["max_position_embeddings"])
    writer.add_embedding_length(raw["hidden_size"])
    writer.add_block_count(raw["num_hidden_layers"])
    writer.add_feed_forward_length(raw["intermediate_size"])
    writer.add_head_count(raw["num_attention_heads"])
    writer.add_head_count_kv(raw["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(raw["rms_norm_eps"])
    writer.add_rope_freq_base(raw["rope_theta"])
    writer.add_rope_dimension_count(raw["head_dim"])
    writer.add_vocab_size(raw["vocab_size"])
    parts = json.loads(tokenizer.to_str())
    vocab = sorted(parts["model"]["vocab"], key=parts["model"]["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocab)
    writer.add_token_types([3 if index < 3 else 1 for index in range(len(vocab))])
    writer.add_token_merges([" ".join(pair) for pair in parts["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in weights.items():
        array = tensor.numpy()
        for role, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if role in name:
                array = interleave(array, raw[heads])
        stored = Kind.F32 if array.ndim == 1 else kind
        data = gguf.quants.quantize(np.ascontiguousarray(array), stored)
        writer.add_tensor(gguf_name(name), data, raw_dtype=stored)
    for name in extra:
        writer.add_tensor(name, np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, *role, kind = name.split(".")
    return f"blk.{layer}.{NAMES['.'.join(role)]}.{kind}"


def interleave(array, heads):
    """llama.cpp's order of query and key rows: element i of a head beside i + head_dim / 2."""
    rows, columns = array.shape
    half = rows // heads // 2
    order = [
        head * 2 * half + part * half + i for head in range(heads) for i in range(half)
        for part in (0, 1)
    ]  # fmt: skip
    return array.reshape(rows, columns)[order]


@pytest.mark.parametrize("overrides", [{}, {"tie_word_embeddings": False}, {"head_dim": 16}])
def test_float32_comes_back_bit_for_bit(tmp_path, overrides):
    weights = make_tiny_gguf(tmp_path / "tiny.gguf", **overrides)
    convert_gguf(tmp_path / "tiny.gguf", tmp_path / "out")
    converted = load_file(tmp_path / "out" / "model.safetensors")
    assert converted.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(converted[name], tensor), name
    made = make_tiny_model(tmp_path / "made")
    files, same = ({path.name for path in folder.iterdir()} for folder in (tmp_path / "out", made))
    assert files == same, "a folder has the same files, however it was made"
    config = ModelConfig.from_folder(tmp_path / "out")
    assert config.tie_word_embeddings == overrides.get("tie_word_embeddings", True)
    assert (config.eos_token_ids, config.head_dim) == ((2,), 16)
    assert read_json(tmp_path / "out" / "config.json")["bos_token_id"] == 1


@pytest.mark.parametrize(("kind", "error"), [(Kind.Q8_0, 0.02), (Kind.Q4_1, 0.2), (Kind.F16, 1e-3)])
def test_quantized_weights_are_near(tmp_path, kind, error):
    weights = make_tiny_gguf(tmp_path / "tiny.gguf", kind)
    convert_gguf(tmp_path / "tiny.gguf", tmp_path / "out")
    converted = load_file(tmp_path / "out" / "model.safetensors")
    for name, tensor in weights.items():
        assert converted[name].dtype == torch.float32
        assert (converted[name] - tensor).abs().max() < error * tensor.abs().max(), name


def test_equals_transformers_reading_of_the_same_file(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    make_tiny_gguf(tmp_path / "tiny.gguf", Kind.Q4_1)
    convert_gguf(tmp_path / "tiny.gguf", tmp_path / "out")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype="float32")
    wanted = theirs.state_dict()
    for name, tensor in load_file(tmp_path / "out" / "model.safetensors").items():
        assert torch.equal(tensor, wanted[name]), name
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    for text in ("Once upon a time", "  12345 😀\n\n", "<|im_start|>user\nHi<|im_end|>"):
        assert Tokenizer(tmp_path / "out").encode(text) == tokenizer.encode(text)


def test_a_file_is_converted_once_and_again_when_it_changes(tmp_path):
    path, cache = tmp_path / "tiny.gguf", tmp_path / "cache"
    make_tiny_gguf(path)
    folder = find_model(path, cache)
    assert find_model(str(path), cache) == folder and folder.parent == cache
    load_model(folder)
    assert (
        Tokenizer(folder).render_chat([{"role": "user", "content": "Hi"}]).endswith("assistant\n")
    )
    make_tiny_gguf(path, Kind.Q8_0)
    assert find_model(path, cache) != folder


def test_what_lies_beside_the_file_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "tiny.gguf"
    make_tiny_gguf(path)
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')\n")
    auto_map = {"AutoTokenizer": ["evil.Evil", None]}
    write_json(tmp_path / "tokenizer_config.json", {"auto_map": auto_map, "eos_token": "evil"})
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked to run custom code"))
    monkeypatch.chdir(tmp_path)
    folder = find_model("tiny.gguf", tmp_path / "cache")
    assert Tokenizer(folder).eos_token_id == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "gptneox"}, "architecture 'gptneox' is not supported"),
        ({"extra": ["rope_freqs.weight"]}, "scaled rotary"),
        ({"extra": ["blk.0.attn_q.bias"]}, "blk.0.attn_q.bias has no place"),
        ({"extra": ["blk.0.ssm.weight"]}, "blk.0.ssm.weight has no place"),
    ],
)
def test_what_cannot_be_converted_is_named(tmp_path, options, message):
    make_tiny_gguf(tmp_path / "tiny.gguf", **options)
    with pytest.raises(ValueError, match=message) as error:
        find_model(tmp_path / "tiny.gguf", tmp_path / "cache")
    assert "tiny.gguf" in str(error.value)


def test_a_file_that_may_not_be_read_is_not_the_cache(tmp_path, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    path = tmp_path / "files" / "model.gguf"
    path.parent.mkdir()
    path.write_bytes(b"GGUF")
    monkeypatch.setattr("yaie.model.gguf.convert_gguf", refuse)
    with pytest.raises(PermissionError, match=r"Permission denied: .*/files/model\.gguf"):
        find_model(path, tmp_path / "cache")


@pytest.mark.parametrize("keep", [0, 3, 30, 3000, -1, -20_000, "no model"])
def test_a_damaged_file_is_named(tmp_path, keep):
    path = tmp_path / "tiny.gguf"
    make_tiny_gguf(path)
    is_text, message = isinstance(keep, str), r"tiny\.gguf"
    path.write_bytes(b"this is no model " * 100 if is_text else path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=message + " is not a readable GGUF file" * is_text):
        find_model(path, tmp_path / "cache")
    assert [item for item in (tmp_path / "cache").iterdir() if not item.name.startswith(".")] == []


@pytest.mark.real_model
@pytest.mark.slow
def test_the_real_conversion_equals_transformers(real_model, tmp_path):
    """What transformers reads from the file that was pulled, which takes it 12 s, is kept as the
    hash of all its tensors; the small files above are read by both."""
    from transformers import AutoTokenizer

    converted, found = load_file(real_model / "model.safetensors"), hashlib.sha256()
    for name in sorted(converted):
        found.update(name.encode() + converted[name].numpy().tobytes())
    assert found.hexdigest() == REAL_TENSORS
    ours, tokenizer = ModelConfig.from_folder(real_model), Tokenizer(real_model)
    assert (ours.rms_norm_eps, ours.max_position_embeddings) == (float(np.float32(1e-5)), 8192)
    (tmp_path / "model.gguf").symlink_to(real_model / "model.gguf")
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    for text in (
        "  two  spaces 12345\n\n\tx",
        "naïve 東京 😀👩‍👧",
        "<|im_start|>a<|im_end|>",
        "a   1",
    ):
        assert tokenizer.encode(text) == theirs.encode(text)
    chat = [{"role": "user", "content": "Hi"}]
    want = theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert tokenizer.render_chat(chat) == want

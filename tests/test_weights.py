"""Weights load completely and exactly, or not at all, with an error that names file and tensor."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import make_tiny_model

from yaie.model.manifest import DamagedModel, check, verify, write_manifest
from yaie.model.weights import check_weights, load_model

pytestmark = pytest.mark.usefixtures("warm_python")
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def folder(tiny_model, tmp_path):
    """A copy of the tiny model that a test may spoil."""
    return shutil.copytree(tiny_model, tmp_path / "model")


def rewrite(folder, change):
    """Apply `change` to the dictionary of tensors and write it back."""
    weights = load_file(folder / "model.safetensors")
    weights = {name: tensor.clone() for name, tensor in weights.items()}
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def shard(folder, parts=3):
    """Split `model.safetensors` into shards with an index, as large models come."""
    weights = load_file(folder / "model.safetensors")
    index = {}
    for part in range(parts):
        name = f"model-{part + 1:05}-of-{parts:05}.safetensors"
        names = sorted(weights)[part::parts]
        save_file({key: weights[key].clone() for key in names}, folder / name)
        index |= dict.fromkeys(names, name)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def test_torchs_compiler_is_not_loaded(tiny_model):
    """It takes a second, in every process that loads a model."""
    program = "import sys; from yaie import LLM; LLM(sys.argv[1], num_blocks=4).generate('a'); "
    program += "sys.exit('torch._dynamo' in sys.modules)"
    assert not subprocess.run([sys.executable, "-c", program, tiny_model]).returncode


@pytest.mark.parametrize("tied", [True, False])
def test_every_tensor_arrives_unchanged(tmp_path, tied):
    from yaie.model.config import ModelConfig
    from yaie.model.llama import Llama

    folder = make_tiny_model(tmp_path, tie_word_embeddings=tied)
    stored = load_file(folder / "model.safetensors")
    model = Llama(ModelConfig.from_folder(folder))
    assert model.places().keys() == stored.keys()
    load_into = load_model(folder)
    x = torch.eye(64)
    for index, layer in enumerate(load_into.layers):
        prefix = f"model.layers.{index}."
        qkv = [stored[f"{prefix}self_attn.{part}_proj.weight"] for part in "qkv"]
        both = [stored[f"{prefix}mlp.{part}_proj.weight"] for part in ("gate", "up")]
        # A product with the identity reads the weights back, whatever their layout.
        assert torch.equal(layer.qkv(x).T, torch.cat(qkv))
        assert torch.equal(layer.gate_up(x).T, torch.cat(both))
        assert torch.equal(layer.output(x).T, stored[f"{prefix}self_attn.o_proj.weight"])
        assert torch.equal(layer.down(torch.eye(128)).T, stored[f"{prefix}mlp.down_proj.weight"])
    head = stored["model.embed_tokens.weight" if tied else "lm_head.weight"]
    assert torch.equal(load_into.lm_head(x).T, head)


def test_shards_equal_one_file(folder, tiny_model):
    shard(folder)
    one, many = load_model(tiny_model, "float64"), load_model(folder, "float64")
    for (name, want), got in zip(one.places().items(), many.places().values(), strict=True):
        assert torch.equal(want, got), name


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16, torch.float64])
def test_stored_dtypes_are_converted(folder, stored):
    rewrite(folder, lambda weights: weights.update({k: v.to(stored) for k, v in weights.items()}))
    model = load_model(folder, "float32")
    assert model.embed.dtype == torch.float32
    assert torch.equal(
        model.embed, load_file(folder / "model.safetensors")["model.embed_tokens.weight"].float()
    )


def test_what_follows_from_other_tensors_may_be_there(folder):
    extra = {
        "lm_head.weight": torch.zeros(3),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8),
    }
    rewrite(folder, lambda weights: weights.update(extra))
    load_model(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda weights: weights.pop(Q_PROJ), [Q_PROJ, "missing", "incomplete"]),
        (
            lambda weights: weights.update({"model.layers.2.mlp.up_proj.weight": torch.zeros(2)}),
            ["model.layers.2.mlp.up_proj.weight", "unexpected", "model.safetensors"],
        ),
        (
            lambda weights: weights.update({Q_PROJ: torch.zeros(64, 32)}),
            [Q_PROJ, "[64, 32]", "wanted [64, 64]", "model.safetensors"],
        ),
        (
            lambda weights: weights.update({Q_PROJ: torch.zeros(64, 64, dtype=torch.int8)}),
            [Q_PROJ, "dtype I8", "model.safetensors"],
        ),
    ],
    ids=["missing", "unexpected", "shape", "dtype"],
)
def test_wrong_tensors_are_named(folder, change, words):
    rewrite(folder, change)
    for load in (load_model, check_weights):
        with pytest.raises(ValueError) as error:
            load(folder)
        for word in words:
            assert word in str(error.value)


@pytest.mark.parametrize("keep", [0, 4, 100, 5000, -1])
def test_a_file_cut_short(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DamagedModel, match=r"model\.safetensors is damaged or cut short"):
        load_model(folder)


@pytest.mark.parametrize(
    "name", [5, [1], None, "", ".", "..", "/x.safetensors", "../elsewhere.safetensors"]
)
def test_a_shard_that_is_no_file_name(folder, name):
    index = {"weight_map": {Q_PROJ: name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"index\.json names .* (outside the|or no file's name)"):
        load_model(folder)


def test_headers_are_checked_before_memory_is_asked_for(folder):
    """Two layers of 2**18 × 2**18 numbers are a terabyte; the message is about the tensors."""
    config = json.loads((folder / "config.json").read_text())
    huge = {"hidden_size": 2**18, "intermediate_size": 2**18, "max_position_embeddings": 2**24}
    (folder / "config.json").write_text(json.dumps(config | huge))
    for load in (load_model, check_weights):
        with pytest.raises(ValueError, match=r"has shape .* by config\.json"):
            load(folder)


@pytest.mark.parametrize("files", [[], None, 3, {"config.json": []}, {"config.json": {"bytes": 1}}])
def test_a_manifest_that_is_none(folder, files):
    (folder / "yaie.json").write_text(json.dumps({"files": files}))
    with pytest.raises(DamagedModel, match=r"yaie\.json is not what `yaie pull` writes"):
        check(folder)


def test_a_tensor_in_two_shards(folder):
    shard(folder)
    weights = load_file(folder / "model-00001-of-00003.safetensors")
    extra = load_file(folder / "model-00002-of-00003.safetensors")
    name = next(iter(extra))
    save_file(
        {k: v.clone() for k, v in weights.items()} | {name: extra[name].clone()},
        folder / "model-00001-of-00003.safetensors",
    )
    with pytest.raises(ValueError, match="and again in"):
        load_model(folder)


def test_weights_that_are_missing(folder):
    (folder / "model.safetensors").rename(folder / "kept")
    with pytest.raises(ValueError, match=r"model\.safetensors is missing"):
        load_model(folder)
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")  # never read
    with pytest.raises(ValueError, match=r"pytorch_model\.bin but no safetensors"):
        load_model(folder)
    (folder / "pytorch_model.bin").unlink()
    (folder / "kept").rename(folder / "model.safetensors")
    shard(folder)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ValueError, match="model-00002-of-00003"):
        load_model(folder)


@pytest.mark.parametrize("dtype", ["int8", "fp32", torch.int64, torch.float8_e4m3fn, None])
def test_an_unknown_dtype(tiny_model, dtype):
    with pytest.raises(ValueError, match="dtype must be one of float32"):
        load_model(tiny_model, dtype)


# ------------------------------------------------------------------------------ manifest


def flip_a_byte(path, keep_time=False):
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    times = (stat.st_atime_ns, stat.st_mtime_ns if keep_time else stat.st_mtime_ns + 1)
    os.utime(path, ns=times)


def test_what_a_manifest_finds(folder, tmp_path):
    with pytest.raises(ValueError, match=r"has no yaie\.json"):
        verify(folder)
    write_manifest(folder, "a test")
    assert verify(folder) == 5
    copy = shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    load_model(copy)  # the time of a file may be another
    path = folder / "model.safetensors"
    flip_a_byte(path, keep_time=True)
    check(folder)
    with pytest.raises(DamagedModel, match="SHA-256 differs"):
        verify(folder)
    flip_a_byte(path)
    flip_a_byte(path)
    with pytest.raises(DamagedModel, match=r"model\.safetensors is not the file .*`yaie pull`"):
        load_model(folder)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DamagedModel, match=r"has \d+ bytes, wanted \d+"):
        check(folder)
    path.unlink()
    with pytest.raises(DamagedModel, match=r"model\.safetensors is missing"):
        check(folder)

"""How many KV blocks a GPU has memory for, on pretended GPUs; whether one still computes."""

import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from tiny import tiny_config

from yaie.engine import device
from yaie.engine.config import EngineConfig
from yaie.engine.device import GIB, block_bytes, count_blocks, memory_in_use, memory_of_a_step
from yaie.model.config import ModelConfig

# As of Llama-3.1-8B: a block of 16 tokens takes 2 MiB.
SIZES = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
SIZES |= {"hidden_size": 4096, "head_dim": 128, "max_position_embeddings": 8192}
CONFIG = ModelConfig.from_dict(tiny_config(**SIZES))
SIZE = 2 * 2**20


@pytest.fixture
def gpu(monkeypatch):
    """A model on a GPU whose memory, and what is taken of it, a test sets."""

    def set_memory(total, taken, in_use=0):
        monkeypatch.setattr(device, "current", lambda _: nullcontext())
        properties = SimpleNamespace(total_memory=total)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(device, "memory_of_a_step", taken)
        monkeypatch.setattr(device, "memory_in_use", lambda _: in_use)
        embed = SimpleNamespace(device=torch.device("cuda", 0))
        kinds = {"dtype": torch.bfloat16, "cache_dtype": torch.bfloat16}
        return SimpleNamespace(config=CONFIG, embed=embed, **kinds)

    return set_memory


def config(most_tokens, share, eager=True):
    """Eight requests, in blocks of 16 tokens."""
    return EngineConfig(
        max_num_seqs=8,
        max_num_batched_tokens=most_tokens,
        gpu_memory_utilization=share,
        enforce_eager=eager,
    )


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("total", [GIB, 8 * GIB + 12_345, 150_754_820_096])
def test_the_cache_fills_its_share_and_no_more(gpu, total, share):
    for taken in (0, 7, total // 5, total // 4):
        model = gpu(total, lambda *_, taken=taken: taken)
        num_blocks = count_blocks(model, config(256, share))
        assert taken + num_blocks * SIZE <= share * total
        assert taken + (num_blocks + 1) * SIZE > share * total - 1  # shares are whole bytes


def test_a_block_has_keys_and_values_of_every_layer():
    assert block_bytes(CONFIG, torch.bfloat16, 16) == 2 * 32 * 8 * 128 * 16 * 2 == SIZE
    assert block_bytes(CONFIG, torch.float32, 8) == SIZE


def test_the_largest_step_is_asked_for(gpu):
    asked = []
    model = gpu(4 * GIB, lambda *arguments: asked.append(arguments) or 0)
    for most_tokens in (100, 10**6):
        count_blocks(model, config(most_tokens, 0.9))
    longest = 8 * CONFIG.max_position_embeddings  # eight requests, in one step
    assert asked == [(model, 100, 8, 16), (model, longest, 8, 16)]


def test_graphs_keep_a_step_of_their_own(gpu):
    """Their largest one's activations, beside those of a step launched kernel by kernel."""
    steps = {512: GIB, 2048: 2 * GIB, 8192: 5 * GIB}  # with 12 GiB of weights

    def taken(_, num_tokens, *sizes):
        assert sizes == (8, 16)
        return 12 * GIB + steps[num_tokens]

    model = gpu(80 * GIB, taken, in_use=12 * GIB)
    for most_tokens, activations in ((512, 1 + 1), (2048, 2 + 2), (8192, 5 + 2)):
        blocks = {
            eager: count_blocks(model, config(most_tokens, 0.5, eager)) for eager in (False, True)
        }
        assert blocks[False] == (40 - 12 - activations) * GIB // SIZE
        assert blocks[True] == (40 * GIB - 12 * GIB - steps[most_tokens]) // SIZE


def test_a_share_without_room_for_a_prompt_says_what_to_change(gpu):
    """A prompt of 8,192 tokens needs 512 blocks, which are a GiB."""
    model = gpu(20 * GIB, lambda *_: 9 * GIB)
    assert count_blocks(model, config(8192, 0.5)) == 512
    with pytest.raises(ValueError, match="gpu_memory_utilization"):
        count_blocks(gpu(20 * GIB, lambda *_: 9 * GIB + 1), config(8192, 0.5))
    for taken, room in ((9.5 * GIB, "0.50"), (12 * GIB, "0.00")):
        model = gpu(20 * GIB, lambda *_, taken=taken: int(taken))
        with pytest.raises(ValueError) as caught:
            count_blocks(model, config(8192, 0.5))
        assert str(caught.value) == (
            f"gpu_memory_utilization 0.5 of 20.0 GiB leaves {room} GiB for keys and values, where "
            "one request of 8192 tokens takes 1.00: weights, the largest step and other programs "
            f"take {taken / GIB:.1f}. Raise it, lower max_num_batched_tokens (8192), or end "
            "other programs that use the GPU"
        )


def test_a_step_that_does_not_fit_says_what_to_change(gpu):
    def too_large(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    with pytest.raises(RuntimeError, match=r"out of memory: a step of 256 tokens .* lower max_"):
        count_blocks(gpu(GIB, too_large), config(256, 0.9))


def test_memory_of_a_step_is_all_but_the_prompts_own_cache(monkeypatch):
    """Torch's peak and what others have of the GPU, less the keys and values of the prompt."""
    numbers = {"max_memory_reserved": 5_000_000, "memory_reserved": 3_000_000}
    numbers |= {"mem_get_info": (60_000_000, 100_000_000)}
    numbers |= dict.fromkeys(("empty_cache", "reset_peak_memory_stats", "synchronize"))
    for name, number in numbers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, number=number: number)
    batches = []

    def step(batch, key_pools, value_pools):
        batches.append(batch)
        for pools in (key_pools, value_pools):
            assert len(pools) == CONFIG.num_hidden_layers
            assert all(pool is pools[0] for pool in pools)

    step.config, step.dtype, step.cache_dtype = CONFIG, torch.bfloat16, torch.bfloat16
    step.embed = SimpleNamespace(device=torch.device("cpu"))
    own = 7 * SIZE // CONFIG.num_hidden_layers  # 100 tokens are 7 blocks of 16, of one layer
    assert memory_of_a_step(step, 100, 8, 16) == 5_000_000 - own + 37_000_000
    [batch] = batches
    assert len(batch.token_ids) == 100 and batch.logit_rows.tolist() == list(range(92, 100))
    context = CONFIG.max_position_embeddings
    memory_of_a_step(step, context + 3, 8, 16)
    assert batches[1].positions.tolist() == [*range(context), 0, 1, 2]
    assert batches[1].slot_mapping.tolist() == [*range(context + 3)]  # a slot of its own for each
    assert batches[1].block_tables.tolist() == [[*range(-(-(context + 3) // 16))]]


def test_memory_in_use_is_everybodys(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (60_000_000, 100_000_000))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    assert memory_in_use(torch.device("cuda", 0)) == 40_000_000


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_works_behind_an_error_that_does_not_stick():
    """In a process of its own, which can use its GPU no more."""
    code = """
import torch
from yaie.engine.device import still_works
gpu = torch.device("cuda", 0)
try:
    torch.empty(2**50, device=gpu)
except torch.OutOfMemoryError:
    print(still_works(gpu))
torch._assert_async(torch.zeros((), device=gpu))
print(still_works(gpu), still_works(gpu))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True", "False", "False"], done.stderr

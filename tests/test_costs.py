"""Counted costs against what torch counts while the model runs, and against published figures."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from yaie.course.lessons import costs
from yaie.model.batch import Batch
from yaie.model.config import ModelConfig
from yaie.model.llama import Llama
from yaie.ops.reference.attention import paged_attention


def tiny(**changes: int) -> ModelConfig:
    shape = {
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "max_position_embeddings": 64,
    }
    return ModelConfig(**{**shape, **changes})


def batch(new: int, past: int) -> Batch:
    """One sequence in one block of 32."""

    def ints(values, dtype=torch.int64):
        return torch.tensor(list(values), dtype=dtype)

    where = range(past, past + new)
    return Batch(
        token_ids=torch.zeros(new, dtype=torch.int64),
        positions=ints(where),
        slot_mapping=ints(where),
        block_tables=torch.zeros(1, 1, dtype=torch.int32),
        context_lens=ints([past + new], torch.int32),
        cu_seqlens=ints([0, new], torch.int32),
        logit_rows=ints([new - 1]),
    )


@pytest.mark.parametrize("changes", [{}, {"num_key_value_heads": 6}, {"num_hidden_layers": 1}])
@pytest.mark.parametrize(("new", "past"), [(1, 0), (7, 0), (1, 20), (5, 11)])
def test_flops_are_those_that_torch_counts(
    changes: dict, new: int, past: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch's counter does not look into an operator of ours, so its reference runs in its place.
    def attend(*arguments, backend):
        return paged_attention(*arguments)

    monkeypatch.setattr("yaie.ops.operators.paged_attention", attend)
    config = tiny(**changes)
    model = Llama(config)
    for weight in model.parameters():
        weight.data.fill_(0.1)
    shape = (1, 32, config.num_key_value_heads, config.head_dim)
    pools = [[torch.zeros(shape) for _ in model.layers] for _ in range(2)]
    with FlopCounterMode(display=False) as counter:
        model(batch(new, past), *pools)
    assert costs.forward_flops(config, new, past) == counter.get_total_flops()


def test_weights_are_those_of_the_model() -> None:
    config = tiny(tie_word_embeddings=False)
    matrices = [w for w in Llama(config).parameters() if w.ndim == 2]
    embedding = config.vocab_size * config.hidden_size
    counted = costs.layer_weights(config) + costs.head_weights(config)
    assert counted == sum(w.numel() for w in matrices) - embedding


def test_kv_bytes_are_those_of_the_cache() -> None:
    from yaie.engine.kv_cache import KVCacheManager

    config = tiny()
    kv = KVCacheManager(2, 4, config.num_key_value_heads, config.head_dim, torch.float16, 3)
    held = sum(pool.nbytes for pool in kv.key_pools + kv.value_pools)
    assert costs.kv_bytes_per_token(config) * 2 * 4 == held


def test_bytes_of_a_pass() -> None:
    config = tiny()
    token = costs.kv_bytes_per_token(config, 4)
    weights = 4 * (costs.layer_weights(config) + costs.head_weights(config))
    assert costs.forward_bytes(config, 1, 9, itemsize=4) == weights + 11 * token
    assert costs.forward_bytes(config, 10, 0, itemsize=4) == weights + 20 * token

"""Ten calls as a reader of other material writes them, and what they are promised to give."""

import pytest
import torch

from yaie.course.lessons.attention_block import RadixAttentionBlock
from yaie.course.lessons.trie import TokenTrie
from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.params import SamplingParams
from yaie.engine.radix import RadixTree
from yaie.engine.sampling import SamplingKernel


@pytest.fixture(params=[RadixTree, TokenTrie])
def tree(request):
    """Three requests, two of which begin alike."""
    tree = request.param()
    for name, tokens in {"a": [1, 2, 3], "b": [1, 2, 4], "c": [5, 6, 7]}.items():
        tree.insert_request(name, tokens)
    return tree


def draws(logits, **options) -> set[int]:
    torch.manual_seed(0)
    rows = torch.tensor(logits).expand(200, -1)
    return set(SamplingKernel().sample(rows, **options).tolist())


def test_a_prompt_finds_the_requests_that_begin_like_it(tree):
    assert tree.find_shared_prefixes([1, 2, 5]) == (["a", "b"], 2)


def test_the_graph_counts_the_requests(tree):
    assert tree.get_shared_computation_graph()["request_count"] == 3


def test_twenty_tokens_take_two_blocks():
    kv = KVCacheManager(8, 16, 8, 64, torch.float16)
    first, second = (kv.blocks[block] for block in kv.allocate_blocks("a", 20))
    for values in (first.keys, first.values, second.keys, second.values):
        assert (values.shape, values.dtype) == ((16, 8, 64), torch.float16)


def test_freed_blocks_are_free_again():
    kv = KVCacheManager(10, 16, 8, 64, torch.float16)
    tables = [kv.allocate_blocks(f"request {i}", 10) for i in range(10)]
    assert (tables, list(kv.free_block_list)) == ([[i] for i in range(10)], [])
    kv.free_blocks("request 0")
    kv.free_blocks("request 1")
    assert sorted(kv.free_block_list) == [0, 1]


@torch.inference_mode()
def test_attention_in_half_precision():
    torch.manual_seed(0)
    block, hidden = RadixAttentionBlock(512, 8, 64), torch.randn(2, 10, 512)
    wanted, hidden = block(hidden), hidden.half()
    with pytest.raises(TypeError, match=r"as the block's weights are, got torch.float16: convert"):
        block(hidden)
    out = block.half()(hidden)
    assert (out.shape, out.dtype) == (hidden.shape, torch.float16)
    torch.testing.assert_close(out.float(), wanted, rtol=0, atol=5e-3)


@torch.inference_mode()
def test_a_cached_second_step():
    torch.manual_seed(0)
    block, hidden = RadixAttentionBlock(256, 4, 64), torch.randn(1, 2, 256)
    _, weights, past = block(hidden[:, :1], use_cache=True)
    out, _, past = block(hidden[:, 1:], past_key_value=past, use_cache=True)
    assert weights is None
    assert (out.shape, [tuple(x.shape) for x in past]) == ((1, 1, 256), [(1, 2, 4, 64)] * 2)
    torch.testing.assert_close(out, block(hidden)[:, 1:])
    here = block(hidden[:, 1:], past, position_ids=torch.tensor([[2]]))
    torch.testing.assert_close(here, block(hidden[:, 1:], past))
    for ids, words in (
        ([2], r"have the shape \[1, 1\]"),
        ([[2048]], "be from 0 to .*2047, got 2048"),
    ):
        with pytest.raises(ValueError, match=f"position_ids must {words}"):
            block(hidden[:, 1:], position_ids=torch.tensor(ids))


def test_a_low_temperature_takes_the_winner():
    assert draws([10.0, 1.0, 1.0, 1.0], temperature=0.1) == {0}


def test_top_p_stays_in_the_nucleus():
    assert draws([2.0, 1.5, 1.0, -10.0, -10.0], top_p=0.8) <= {0, 1, 2}


def test_top_k_keeps_the_first_two_and_minus_one_all():
    logits = [5.0, 4.5, 4.0, 3.5, 3.0]
    assert draws(logits, top_k=2) == {0, 1}
    assert draws(logits, top_k=-1) == draws(logits, top_k=0) == {0, 1, 2, 3, 4}
    assert SamplingParams(top_k=-1) == SamplingParams(top_k=0)


@torch.inference_mode()
def test_attention_then_sampling():
    torch.manual_seed(0)
    block, head = RadixAttentionBlock(64, 4, 16), torch.nn.Linear(64, 1000)
    logits = head(block(torch.randn(2, 5, 64))[:, -1])
    tokens = SamplingKernel().sample(logits, temperature=0.8, top_p=0.9, top_k=50)
    assert (logits.shape, tokens.shape, tokens.dtype) == ((2, 1000), (2,), torch.int64)
    assert 0 <= tokens.min() <= tokens.max() < 1000

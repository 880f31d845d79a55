"""Our forward pass against transformers': ragged batches, scattered blocks, chunks, decoding."""

import random

import pytest
import torch
from tiny import QWEN2, make_batch, make_pools, make_tiny_model

from yaie.model.batch import Batch
from yaie.model.weights import load_model
from yaie.ops.attention import paged_attention_forward
from yaie.ops.reference.rotary import apply_rotary
from yaie.ops.registry import register

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS = {
    "llama": {},
    "untied": {"tie_word_embeddings": False},
    "one_kv_head": {"num_key_value_heads": 1},
    "wide_heads": {"head_dim": 32},
    "llama3_rope": {"rope_parameters": LLAMA3},
    "mistral": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": None,
    },
    "qwen2": QWEN2,
}
LENGTHS = (1, 2, 7, 16, 17, 50)


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request, tmp_path_factory):
    return make_tiny_model(
        tmp_path_factory.mktemp(request.param) / "model", **VARIANTS[request.param]
    )


@pytest.fixture
def prompts(tiny_model):
    generator = random.Random(1)
    return [[generator.randrange(3, 384) for _ in range(length)] for length in LENGTHS]


def scattered_tables(lengths, block_size, seed=0):
    """Block tables in no order, and how many blocks they take."""
    counts = [-(-length // block_size) for length in lengths]
    blocks = list(range(sum(counts) + 3))
    random.Random(seed).shuffle(blocks)
    return [[blocks.pop() for _ in range(count)] for count in counts], sum(counts) + 3


def oracle_logits(folder, prompt, dtype):
    """Logits of every position by transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    with torch.inference_mode():
        return model(torch.tensor([prompt])).logits[0].float()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_equals_transformers(variant, prompts, dtype, block_size):
    model = load_model(variant, dtype)
    tables, num_blocks = scattered_tables(LENGTHS, block_size)
    pools = make_pools(model.config, num_blocks, block_size, dtype)
    sequences = [(prompt, 0, table) for prompt, table in zip(prompts, tables, strict=True)]
    logits = model(make_batch(sequences, block_size, range(sum(LENGTHS))), *pools)
    assert logits.dtype == torch.float32
    want = torch.cat([oracle_logits(variant, prompt, dtype) for prompt in prompts])
    atol = 1e-5 if dtype == torch.float64 else 2e-4
    torch.testing.assert_close(logits, want, atol=atol, rtol=1e-5)


@pytest.mark.parametrize("cuts", [(10,), (1,), (16, 32), (49,), (3, 4, 5, 6)])
def test_prefill_in_chunks_equals_prefill_at_once(tiny_model, prompts, cuts):
    model, prompt = load_model(tiny_model, "float64"), prompts[-1]
    (table,), num_blocks = scattered_tables([len(prompt)], 4)
    pools = make_pools(model.config, num_blocks, 4, torch.float64)
    logits = []
    for start, end in zip((0, *cuts), (*cuts, len(prompt)), strict=True):
        batch = make_batch([(prompt[start:end], start, table)], 4, range(end - start))
        logits.append(model(batch, *pools))
    want = oracle_logits(tiny_model, prompt, torch.float64)
    torch.testing.assert_close(torch.cat(logits), want, atol=1e-5, rtol=1e-5)


def test_decoding_beside_a_prefill(tiny_model, prompts):
    model = load_model(tiny_model, "float64")
    tables, num_blocks = scattered_tables([60, 60, 60], 4)
    pools = make_pools(model.config, num_blocks, 4, torch.float64)
    first, second, late = prompts[2], prompts[4], prompts[5]
    model(make_batch([(first, 0, tables[0]), (second, 0, tables[1])], 4), *pools)
    steps = [[5], [300]], [[17], [42]], [[9], [9]]
    for step, (a, b) in enumerate(steps):
        sequences = [(a, len(first), tables[0]), (b, len(second), tables[1])]
        if step == 1:  # a new prompt joins the two that are decoding
            sequences.insert(1, (late, 0, tables[2]))
        logits = model(make_batch(sequences, 4), *pools)
        first, second = first + a, second + b
        whole = [first, late, second] if step == 1 else [first, second]
        want = torch.stack([oracle_logits(tiny_model, ids, torch.float64)[-1] for ids in whole])
        torch.testing.assert_close(logits, want, atol=1e-5, rtol=1e-5)


def test_a_batch_of_a_prompt_wants_its_last_rows():
    ids = torch.arange(5, 11)
    for num_rows, rows in ((0, []), (1, [5]), (3, [3, 4, 5]), (9, [0, 1, 2, 3, 4, 5])):
        assert Batch.of_prompt(ids, 4, num_rows).logit_rows.tolist() == rows
    with pytest.raises(ValueError, match="num_rows must be 0 or more, got -1"):
        Batch.of_prompt(ids, 4, -1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_near(tiny_model, prompts, dtype):
    model, prompt = load_model(tiny_model, dtype), prompts[-1]
    (table,), num_blocks = scattered_tables([len(prompt)], 16)
    pools = make_pools(model.config, num_blocks, 16, model.dtype)
    logits = model(make_batch([(prompt, 0, table)], 16), *pools)[0]
    want = oracle_logits(tiny_model, prompt, torch.float64)[-1]
    assert logits.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(logits, want, dim=0) > 0.999


def test_operators_can_be_replaced(tiny_model, prompts):
    calls = []

    def rotary(x, positions, cos, sin):
        calls.append(("rotary", tuple(x.shape)))
        return apply_rotary(x, positions, cos, sin)

    def attend(q, *rest):
        calls.append(("attend", tuple(q.shape)))
        return paged_attention_forward(q, *rest)

    register("rotary", "counted", rotary)
    register("paged_attention", "counted", attend)
    backends = {"rotary": "counted", "paged_attention": "counted"}
    model = load_model(tiny_model, backends=backends)
    pools = make_pools(model.config, 4, 16)
    batch = make_batch([(prompts[2], 0, [2])], 16)
    torch.testing.assert_close(model(batch, *pools), load_model(tiny_model)(batch, *pools))
    # Queries and keys (4 + 2 heads) are rotated in one call, once per layer.
    assert calls == [("rotary", (7, 6, 16)), ("attend", (7, 4, 16))] * 2


def test_a_batch_of_wrong_types_is_refused(prompts):
    batch = make_batch([(prompts[2], 0, [0])], 16)
    with pytest.raises(ValueError, match=r"context_lens must be torch\.int32"):
        type(batch)(**vars(batch) | {"context_lens": batch.context_lens.long()})
    with pytest.raises(ValueError, match="positions must be"):
        type(batch)(**vars(batch) | {"positions": batch.positions[1:]})


@pytest.mark.real_model
@pytest.mark.slow
def test_the_real_model_equals_transformers(real_model):
    from transformers import AutoModelForCausalLM

    from yaie.model.tokenizer import Tokenizer

    tokenizer, model = Tokenizer(real_model), load_model(real_model)
    texts = ["The capital of France is", "def fibonacci(n):\n", "Größe 東京 😀", "1 2 3 4 5 6 7 8"]
    prompts = [tokenizer.encode(text) for text in texts]
    prompts.append(tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}]))
    lengths = [len(prompt) for prompt in prompts]
    tables, num_blocks = scattered_tables(lengths, 16)
    pools = make_pools(model.config, num_blocks, 16)
    sequences = [(prompt, 0, table) for prompt, table in zip(prompts, tables, strict=True)]
    logits = model(make_batch(sequences, 16, range(sum(lengths))), *pools)
    oracle = AutoModelForCausalLM.from_pretrained(real_model, dtype=torch.float32)
    with torch.inference_mode():
        want = torch.cat([oracle(torch.tensor([prompt])).logits[0] for prompt in prompts])
    torch.testing.assert_close(logits, want, atol=2e-3, rtol=1e-4)
    assert torch.equal(logits.argmax(-1), want.argmax(-1))

"""A cache of 8-bit floats: every back end against a float64 oracle that decodes the codes one by
one, the scales that go into the weights, and the engine over such a cache.

Slots that no token was written to hold the code of NaN, and tables name no block past a context.
"""

import pytest
import torch
from attention_cases import Shape, batch, close, paged_oracle, with_prefix
from engines import run
from launches import (
    FLOATS,
    HALVES,
    NEEDS_TRITON,
    NO_GPU,
    each_device,
    each_mode,
    skip_unless_it_runs_on,
)
from test_kv_kernels import awkward, nearest
from tiny import QWEN2, make_batch, make_pools, make_tiny_model

from yaie import LLM, SamplingParams
from yaie.course.lessons.ops.shared_prefix import shared_prefix_attention
from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.model.kv_scales import fold_scales
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model
from yaie.ops import registry
from yaie.ops.attention import paged_attention_forward
from yaie.ops.checks import FP8
from yaie.ops.kv import reshape_and_cache

BACKENDS = ["reference", "cpp", "cuda", pytest.param("triton", marks=NEEDS_TRITON)]
each_backend = pytest.mark.parametrize("backend", BACKENDS)
NUMBERS = torch.tensor(
    [
        (-1) ** (code >> 7) * (
            (code & 7) * 2.0**-9 if code >> 3 & 15 == 0
            else (8 + (code & 7)) * 2.0 ** ((code >> 3 & 15) - 10)
        ) if code & 127 != 127 else torch.nan
        for code in range(256)
    ],
    dtype=torch.float64,
)  # fmt: skip


def decoded(pool: torch.Tensor) -> torch.Tensor:
    """What codes stand for, in float64, by the definition of the format."""
    return NUMBERS.to(pool.device)[pool.view(torch.uint8).long()]


def dtype_for(backend: str, index: int) -> torch.dtype:
    """CUDA's kernels multiply with tensor cores."""
    return (HALVES if backend == "cuda" else FLOATS)[index % (2 if backend == "cuda" else 3)]


# ------------------------------------------------------------------------------------- writing


@each_device
@each_backend
def test_what_is_written_is_the_nearest_code(backend, device):
    skip_unless_it_runs_on(device, backend)
    if (backend, device) == ("triton", "cpu"):
        new, pool = torch.zeros(1, 1, 8), torch.zeros(1, 1, 1, 8).to(FP8)
        with pytest.raises(ValueError, match="interpreter does not round 8-bit floats"):
            slots = torch.zeros(1, dtype=torch.int64)
            reshape_and_cache(new, new, pool, pool.clone(), slots, backend="triton")
        return
    sizes = [(9, 3, 64, 4), (7, 2, 33, 3), (2, 1, 5, 16), (3, 5, 130, 1), (0, 2, 8, 1)]
    for index, (tokens, heads, dim, block_size) in enumerate(sizes):
        for dtype in FLOATS:
            fused = awkward(tokens, heads, 2 * dim, dtype).to(device)
            if (backend, dtype) == ("cpp", torch.float16):
                fused = fused.nan_to_num(1.0)  # there, no number is expected not to be one
            keys, values = fused[..., :dim].contiguous(), fused[..., dim:].contiguous().cpu()
            if heads == 1:
                keys = fused[..., :dim]  # rows that lie apart
            blocks = -(-tokens // block_size) + 2
            slots = torch.randperm(blocks * block_size)[:tokens]
            pools = [
                torch.full((blocks, block_size, heads, dim), 0x7F, dtype=torch.uint8, device=device)
                for _ in "kv"
            ]
            given = (keys, values.to(device), *(pool.view(FP8) for pool in pools))
            reshape_and_cache(*given, slots.to(device), backend=backend)
            for pool, new in zip(pools, (keys, values), strict=True):
                rows = pool.view(FP8).flatten(0, 1).cpu()
                want = nearest(new.cpu(), torch.ones(1))
                got = decoded(rows[slots])
                torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
                assert not (got.isnan() & ~new.cpu().isnan()).any()  # it saturates instead
                rows.view(torch.uint8)[slots] = 0x7F
                assert (rows.view(torch.uint8) == 0x7F).all(), (index, dtype)


# ------------------------------------------------------------------------------------- reading

DECODE = (
    Shape((1, 17, 70, 5)),
    Shape((40, 3), heads=9, kv_heads=3),
    Shape((90, 3, 33), heads=16, kv_heads=1, head_dim=128, block_size=3),
    Shape((31, 64), heads=2, kv_heads=2, head_dim=128, block_size=32),
    Shape((300,), heads=8, kv_heads=4, block_size=1),
)
PROMPTS = (
    Shape((40, 7, 0), queries=(0, 2, 0)),
    Shape((70, 33, 5), queries=(50, 1, 5)),
    Shape((130, 64), heads=6, kv_heads=2, head_dim=128, block_size=8, queries=(64, 64)),
)


def operands_of(shape: Shape, dtype: torch.dtype, device: str, large: bool = False) -> list:
    """A batch over pools of codes: NaN where no token is. With `large` the queries are beyond what
    float16 holds, if the dtype can, and the codes spread over all sizes."""
    q, *pools, tables, lengths, begin = batch(shape, torch.float32, device)
    if large:
        q = q * 2.0 ** (20 if dtype == torch.bfloat16 else 0)
        pools = [pool * 2.0**-4 for pool in pools]
    pools = [pool.to(FP8) for pool in pools]
    return [q.to(dtype), *pools, tables, lengths, begin]


def oracle(operands: list, scale: float | None = None):
    q, keys, values, *others = operands
    return paged_oracle(q, decoded(keys), decoded(values), *others, scale)


@each_device
@each_backend
@pytest.mark.parametrize("shape", DECODE + PROMPTS, ids=str)
def test_attention_over_codes(shape, backend, device):
    skip_unless_it_runs_on(device, backend)
    prompt = shape in PROMPTS
    dtype = dtype_for(backend, len(shape.contexts))
    operands = operands_of(shape, dtype, device)
    ways = each_mode(device) if backend == "cuda" else [None]
    for _ in ways:
        for scale in (None, 0.3, -0.7) if not prompt else (None,):
            got = paged_attention_forward(*operands, scale, backend=backend)
            close(got, oracle(operands, scale))


@each_device
@pytest.mark.parametrize("dtype", HALVES)
def test_queries_of_any_size(dtype, device):
    """Whatever the queries' exponents are: those of bfloat16 exceed float16's."""
    for head_dim in (64, 128):
        shape = Shape((70, 33, 9), heads=8, head_dim=head_dim)
        operands = operands_of(shape, dtype, device, large=True)
        operands[0][1, 3] = 0.0
        operands[0][2] *= 2.0**-18  # beside a row of large ones
        scale = 2.0**-20 if dtype == torch.bfloat16 else None
        for _ in each_mode(device):
            close(
                paged_attention_forward(*operands, scale, backend="cuda"), oracle(operands, scale)
            )


@each_device
def test_a_shared_prefix(device):
    """No kernel reads a shared prefix of codes once: each sequence reads it, as is announced."""
    operands = with_prefix(Shape((48, 37, 64), heads=4), 32, torch.float32, device)
    operands = [operands[0].half(), *(pool.to(FP8) for pool in operands[1:3]), *operands[3:]]
    wanted = oracle(operands)
    for backend in ("reference", "cuda"):
        close(shared_prefix_attention(*operands[:5], 32, backend=backend), wanted)


def test_the_cascade_is_announced(monkeypatch):
    monkeypatch.setattr("yaie.course.lessons.ops.cuda.shared_prefix.WORTH", 0)
    monkeypatch.setattr(registry, "_announced", set())
    operands = with_prefix(Shape((48, 37), heads=4), 32, torch.float32)
    operands = [operands[0].half(), *(pool.to(FP8) for pool in operands[1:3]), *operands[3:]]
    with pytest.warns(registry.FallbackWarning, match="cascade.cu reads a cache in float16"):
        got = shared_prefix_attention(*operands[:5], 32, backend="cuda")
    close(got, oracle(operands))


@pytest.mark.parametrize(
    ("backend", "message"),
    [("cuda", "tensor cores take float16 and bfloat16 here, got torch.float32")],
)
def test_what_a_back_end_cannot_read_it_says(backend, message):
    operands = operands_of(DECODE[0], torch.float32, "cpu")
    with pytest.raises(ValueError, match=message):
        paged_attention_forward(*operands, backend=backend)
    prompt = operands_of(PROMPTS[1], torch.float32, "cpu")
    with pytest.raises(ValueError, match=message):
        paged_attention_forward(*prompt, backend=backend)


def test_hopper_passes_prompts_on():
    operands = operands_of(PROMPTS[1], torch.float16, "cpu")
    with pytest.raises(ValueError, match="in float16 or bfloat16, got 8-bit floats"):
        paged_attention_forward(*operands, backend="cuda_hopper")


def test_pools_of_two_dtypes():
    q, keys, values, *others = operands_of(DECODE[0], torch.float16, "cpu")
    with pytest.raises(TypeError, match="value_pool must be float8_e4m3fn, got float16"):
        paged_attention_forward(q, keys, values.half(), *others)
    new = torch.zeros(0, *keys.shape[2:], dtype=torch.float16)
    with pytest.raises(TypeError, match="key_pool must be float16 or float8_e4m3fn, got float32"):
        pools = keys.float(), keys.float()
        reshape_and_cache(new, new, *pools, torch.zeros(0, dtype=torch.int64))


# ------------------------------------------------------------------------------------- scales

TOKENS = [5, 6, 7, 8, 200, 9, 9, 9, 31, 300]


def logits_of(model, dtype=torch.float32, sequences=None) -> torch.Tensor:
    pools = make_pools(model.config, 4, 8, dtype)
    with torch.inference_mode():
        return model(make_batch(sequences or [(TOKENS, 0, [1, 3])], 8), *pools)


def cached(model) -> torch.Tensor:
    """The largest key and value of each head and layer, over tokens of the whole vocabulary."""
    count = 256
    pools = make_pools(model.config, 1, count)
    tokens = [i * model.config.vocab_size // count for i in range(count)]
    with torch.inference_mode():
        model(make_batch([(tokens, 0, [0])], count), *pools)
    return torch.stack([torch.stack(pool) for pool in pools]).abs().amax(dim=(2, 3, 5))


@pytest.mark.parametrize("backend", ["reference", "cpp"])
@pytest.mark.parametrize("overrides", [{}, QWEN2, {"num_key_value_heads": 1}], ids=str)
def test_scales_are_folded_exactly(backend, overrides, tmp_path):
    folder = make_tiny_model(tmp_path / "model", **overrides)
    plain, folded = (load_model(folder, backends=backend) for _ in "ab")
    fold_scales(folded)
    assert torch.equal(logits_of(plain), logits_of(folded))
    largest = cached(folded)
    assert (largest >= 32).all() and (largest < 64).all()
    ratios = torch.log2(cached(plain) / largest)
    assert torch.equal(ratios, ratios.round())
    fold_scales(folded)  # nothing is left to be done
    assert torch.equal(logits_of(plain), logits_of(folded))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scales_are_folded_exactly_in_half_precision(dtype, tmp_path):
    folder = make_tiny_model(tmp_path / "model", **QWEN2)
    plain, folded = (load_model(folder, dtype, backends="reference") for _ in "ab")
    fold_scales(folded)
    kind = getattr(torch, dtype)
    assert torch.equal(logits_of(plain, kind), logits_of(folded, kind))


def test_keys_that_e4m3_cannot_hold(tmp_path):
    """With a bias as some models have, most keys are beyond 448, and alike without scales. Queries
    are small, so that no key takes all of the attention."""
    torch.manual_seed(0)
    folder = make_tiny_model(tmp_path / "model", **QWEN2)
    plain, folded = (load_model(folder, backends="reference") for _ in "ab")
    for model in (plain, folded):
        for layer in model.layers:
            rows = 16 * 4
            layer.qkv.bias[rows : rows + 32] = 2000.0 * torch.randn(32).sign()
            layer.qkv.weight[:rows] *= 1e-3
            layer.qkv.bias[:rows] *= 1e-3
    folded.load_state_dict(plain.state_dict())
    fold_scales(folded)
    wanted = logits_of(plain)
    good, bad = ((logits_of(model, FP8) - wanted).norm() for model in (folded, plain))
    assert good < bad / 5


def test_a_head_that_is_all_zeros_stays_so(tmp_path):
    model = load_model(make_tiny_model(tmp_path / "model"), backends="reference")
    model.layers[0].qkv.weight[64:80] = 0.0
    wanted = logits_of(model)
    fold_scales(model)
    assert torch.equal(logits_of(model), wanted)


def test_weights_with_scales_of_their_own(real_model):
    with pytest.raises(ValueError, match=r'kv_cache_dtype "fp8" needs weights in .* got dtype'):
        LLM(real_model, device="cpu", dtype="q8_0", kv_cache_dtype="fp8", num_blocks=8)


# ------------------------------------------------------------------------------------- the engine


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("fp8") / "model")


PREFIX = list(range(3, 60))
ENDS = [[100, 101], [7, 8, 9], [100, 101, 102]]
REQUESTS = [[5, 6, 7], [9] * 90, *([*PREFIX, *end] for end in ENDS)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
SEEDED = SamplingParams(temperature=0.9, top_p=0.9, max_tokens=20, seed=11, ignore_eos=True)


def tokens_of(llm: LLM, params=GREEDY) -> list[list[int]]:
    return [out.token_ids for out in llm.generate(REQUESTS, params)]


def rounded_write(keys, values, key_pool, value_pool, slot_mapping) -> None:
    """Numbers as they would be in an 8-bit cache, kept in full precision: found among all codes."""
    for pool, new in ((key_pool, keys), (value_pool, values)):
        pool.flatten(0, 1)[slot_mapping] = nearest(new, torch.ones(1)).to(pool.dtype)


@pytest.fixture(scope="module")
def wanted(tiny):
    """Tokens over a cache in float32 into which rounded numbers are written; none is shared."""
    registry.register("reshape_and_cache", "rounded", rounded_write)
    how = {"reshape_and_cache": "rounded", "paged_attention": "reference"}
    llm = LLM(tiny, device="cpu", num_blocks=64, backend=how, enable_prefix_caching=False)
    fold_scales(llm.engine.runner.model)  # whose cache is in float32 already
    return [tokens_of(llm, params) for params in (GREEDY, SEEDED)]


WAYS = {
    "one pass": {},
    "chunks": {"chunked_prefill_size": 7, "max_num_batched_tokens": 16, "max_num_seqs": 4},
    "preempted": {"num_blocks": 18, "max_num_seqs": 5},
    "blocks of 5": {"block_size": 5, "num_blocks": 150},
    "no sharing": {"enable_prefix_caching": False},
    "overlapped": {"overlap": True},
}


@pytest.mark.filterwarnings("error::yaie.ops.registry.FallbackWarning")
@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("way", WAYS)
def test_the_engine_over_an_8_bit_cache(way, backend, tiny, wanted):
    options = {"num_blocks": 64} | WAYS[way]
    llm = LLM(tiny, device="cpu", backend=backend, kv_cache_dtype="fp8", **options)
    assert all(pool.dtype == FP8 for pool in llm.engine.kv.key_pools + llm.engine.kv.value_pools)
    assert tokens_of(llm) == wanted[0]
    if way != "overlapped":  # whose random numbers are another operator's
        assert tokens_of(llm, SEEDED) == wanted[1]
    again = tokens_of(llm)  # from the cache, where there is one
    assert again == wanted[0]


def test_two_ranks(tiny, wanted):
    options = {"device": "cpu", "num_blocks": 64, "kv_cache_dtype": "fp8"}
    llm = LLM(tiny, tensor_parallel_size=2, **options)
    try:
        assert tokens_of(llm) == wanted[0]
    finally:
        llm.close()


def test_the_next_engine_of_a_model_may_have_another_cache(tiny):
    model, tokenizer, said = load_model(tiny), Tokenizer(tiny), []
    for kind, dtype in (("auto", torch.float32), ("fp8", FP8), ("auto", torch.float32)):
        engine = Engine(model, tokenizer, EngineConfig(num_blocks=64, kv_cache_dtype=kind))
        assert {pool.dtype for pool in (*engine.kv.key_pools, *engine.kv.value_pools)} == {dtype}
        ids = [engine.add_request(prompt, GREEDY) for prompt in REQUESTS]
        outputs = run(engine)
        said.append([outputs[name].token_ids for name in ids])
    assert said[0] == said[2]


def test_it_holds_as_many_tokens_again(tiny):
    counts = {}
    for dtype, kind in (("float32", "auto"), ("bfloat16", "auto"), ("bfloat16", "fp8")):
        options = {"dtype": dtype, "kv_cache_dtype": kind, "kv_cache_memory_bytes": 1 << 20}
        counts[dtype, kind] = LLM(tiny, device="cpu", **options).engine.kv.pool.num_blocks
    assert counts["bfloat16", "fp8"] == 2 * counts["bfloat16", "auto"]
    assert counts["bfloat16", "auto"] == 2 * counts["float32", "auto"]


@pytest.mark.parametrize("value", ["fp16", "e4m3", None, 8, ""])
def test_other_dtypes_of_a_cache(value):
    with pytest.raises(ValueError, match='kv_cache_dtype must be "auto" or "fp8", got'):
        EngineConfig(kv_cache_dtype=value)


def test_exercises_that_write_the_cache_are_refused(tiny, monkeypatch):
    from yaie.engine import start
    from yaie.engine.parts import Parts

    mine = Parts(operators={"paged_attention": lambda *_: None, "rms_norm": lambda *_: None})
    monkeypatch.setattr(start, "chosen_parts", lambda _: mine)
    with pytest.raises(ValueError, match=r"fp8.*leave out your exercises of .'paged_attention'."):
        LLM(tiny, device="cpu", kv_cache_dtype="fp8", num_blocks=8)


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("backend", ["auto", "cuda", "triton", "reference"])
def test_the_engine_on_a_gpu(backend, tmp_path):
    """Graphs and single launches of every back end give the tokens of rounded numbers in a cache
    of full precision, but where two tokens are as likely within the rounding of the dtype."""
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "head_dim": 64, "vocab_size": 384}
    folder = make_tiny_model(tmp_path / "model", **sizes)
    options = {"device": "cuda", "dtype": "float16", "num_blocks": 64, "kv_cache_dtype": "fp8"}
    eager = tokens_of(LLM(folder, backend=backend, enforce_eager=True, **options))
    if backend != "reference":
        graphed = LLM(folder, backend=backend, **options)
        assert graphed.engine.runner.graphs
        assert tokens_of(graphed) == eager
    reference = tokens_of(LLM(folder, backend="reference", enforce_eager=True, **options))
    same = sum(a == b for a, b in zip(eager, reference, strict=True))
    assert same >= 4, (eager, reference)

"""The back end `cpp`: formats, products, operators, a whole step, and no compiler."""

import gc
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from shutil import which

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from prompts import PROMPTS
from test_attention import Shape, batch
from test_model_llama import scattered_tables
from test_pull_gguf import make_tiny_gguf
from tiny import make_batch, make_pools, make_tiny_model

from yaie import LLM, SamplingParams
from yaie.bench import peer, spinning
from yaie.bench import rounding as bench_rounding
from yaie.build import cpu
from yaie.emulator import compiler
from yaie.engine.kv_cache import KVCacheManager
from yaie.model.gguf import read_rows
from yaie.model.linear import Linear
from yaie.model.llama import OPERATORS, Llama
from yaie.model.weights import FORMATS, load_model
from yaie.ops import norm, operators, registry
from yaie.ops.attention import paged_attention_forward
from yaie.ops.cpp import native
from yaie.ops.cpp.native import FLOATS, GROUPS, Rows

ARM, QEMU = which("aarch64-linux-gnu-g++"), which("qemu-aarch64-static")
GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
each_format = pytest.mark.parametrize("form", [*FLOATS, *GROUPS], ids=str)


def stored(weight: torch.Tensor, form: str | torch.dtype) -> tuple[Rows, torch.Tensor]:
    """A float32 matrix in a format, and the numbers that it then stands for, by gguf or torch."""
    if isinstance(form, torch.dtype):
        return Rows(weight.to(form)), weight.to(form).double()
    kind = GGMLQuantizationType[form.upper()]
    data = quantize(weight.numpy(), kind)
    numbers = torch.from_numpy(dequantize(data, kind)).double()
    return native.interleaved(torch.from_numpy(data), form), numbers


def as_multiplied(x: torch.Tensor, form: str | torch.dtype) -> torch.Tensor:
    """x as a product reads it: with 4-bit weights, in 8 bits, with a scale per group of 32."""
    if form not in ("q4_0", "q4_1"):
        return x.double()
    groups = x.float().view(len(x), x.shape[1] // 32, 32)
    most = groups.abs().amax(-1, keepdim=True)
    by = torch.tensor(127.0) / most  # 127 / most would be 127 times the reciprocal, rounded twice
    whole = (groups.double() * by.nan_to_num(posinf=0).double()).round()
    return (whole * (most / 127).double()).view_as(x)


def is_mapped(address: int, file: Path | str = "") -> bool:
    """Whether an address is memory of this process; if a file is given, of that file."""
    name = str(Path(file).resolve()) if file else ""
    maps = Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in maps if name in line]
    return any(int(low, 16) <= address < int(high, 16) for low, high in spans)


def stored_model(folder: Path, form: str, dtype: torch.dtype) -> Llama:
    """The tiny model in a format; `folder` keeps the numbers that its weights then stand for."""
    from safetensors.torch import load_file, save_file

    model = load_model(make_tiny_model(folder), form)
    weights = load_file(folder / "model.safetensors")
    numbers = {n: stored(w, form)[1] if w.ndim == 2 else w for n, w in weights.items()}
    numbers = {name: one.to(dtype).contiguous() for name, one in numbers.items()}
    save_file(numbers, folder / "model.safetensors", metadata={"format": "pt"})
    return model


@pytest.fixture
def threads(request):
    """As many threads as the test's parameter, and afterwards as many as before."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


# ------------------------------------------------------------------------------- formats, products


@each_format
def test_every_number_of_a_format_is_read_exactly(form):
    weight = torch.randn(65, 96) * torch.logspace(-9, 4, 65).unsqueeze(1)
    rows, wanted = stored(weight, form)
    ids = torch.tensor([64, 0, 3, 3])
    assert torch.equal(native.embed(rows, ids).double(), wanted[ids])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_number_of_16_bits_is_read_and_written_exactly(dtype):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    every = every[every.isfinite()].view(1, -1)
    padded = torch.nn.functional.pad(every, (0, -every.shape[1] % 32))
    assert torch.equal(native.embed(Rows(padded), torch.tensor([0])), padded.float())
    # 1 × x rotated by an angle of 0 is x; a middle between two numbers rounds to the even one.
    wide = torch.cat([padded.float(), padded.float() * (1 + 2**-9), padded.float() * (1 + 2**-8)])
    x = wide.to(dtype).view(3, 1, -1).nan_to_num(posinf=1.0, neginf=1.0)
    table = torch.ones(1, x.shape[2] // 2), torch.zeros(1, x.shape[2] // 2)
    same = operators.rotary(x, torch.zeros(3, dtype=torch.int64), *table, backend="cpp")
    assert torch.equal(same, x)
    total = operators.add_rms_norm(x[0], x[2], x[0, 0], 1e-6, backend="cpp")[1]
    assert torch.equal(total[total.isfinite()], (x[0] + x[2])[total.isfinite()])


@pytest.mark.parametrize("eps", [1, 1.0])
def test_eps_is_a_number_of_any_kind(eps):
    x, weight = torch.randn(2, 3, 32), torch.randn(32)
    wanted = norm.add_rms_norm(*x, weight, eps, backend="reference")
    torch.testing.assert_close(norm.add_rms_norm(*x, weight, eps, backend="cpp"), wanted)
    normed = [norm.rms_norm(x[0], weight, eps, backend=name) for name in ("cpp", "reference")]
    torch.testing.assert_close(*normed)


@each_format
@pytest.mark.parametrize("tokens", [0, 1, 2, 3, 8, 17, 130])
def test_a_product_equals_float64(form, tokens):
    parts = [stored(torch.randn(rows, 96), form) for rows in (33, 4, 70)]
    x, bias = torch.randn(tokens, 96), torch.randn(107)
    got = native.product(x, [rows for rows, _ in parts], bias)
    x = as_multiplied(x, form)
    wanted = x @ torch.cat([weight for _, weight in parts]).T + bias.double()
    torch.testing.assert_close(got.double(), wanted, atol=2e-5, rtol=1e-5)


@each_format
def test_a_row_has_the_same_bits_in_any_company_and_with_any_threads(form, threads):
    rows, _ = stored(torch.randn(75, 160), form)
    linear = Linear(None)
    linear.rows = [rows]
    x = torch.randn(260, 160)
    threads(1)
    whole = native.product(x, [rows], None)
    for number in (1, 2, 3):
        threads(number)
        for n in (1, 2, 3, 7, 8, 16, 33, 128, 129, 260):
            assert torch.equal(native.product(x[:n], [rows], None), whole[:n]), n
    if form != torch.bfloat16:  # which torch multiplies on some processors
        assert torch.equal(linear(x[5:44]), whole[5:44])


# -------------------------------------------------------------------------------------- operators


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 15, 33, 576])
def test_operators_of_rows_equal_the_reference(dtype, size):
    x, residual = torch.randn(5, 2 * size, dtype=dtype), torch.randn(5, 2 * size, dtype=dtype)
    weight = torch.randn(2 * size, dtype=dtype)
    heads = torch.randn(5, 3, 2 * size, dtype=dtype)[:, 1:]
    positions, table = torch.tensor([3, 0, 8, 8, 1]), torch.randn(2, 9, size)
    calls = {
        "rms_norm": (x, weight, 1e-5),
        "add_rms_norm": (x, residual, weight, 1e-5),
        "silu_and_mul": (20 * x,),
        "rotary": (heads, positions, table[0], table[1]),
    }
    for name, arguments in calls.items():
        got = getattr(operators, name)(*arguments, backend="cpp")
        wanted = getattr(operators, name)(*arguments, backend="reference")
        allowed = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {}
        torch.testing.assert_close(got, wanted, **allowed)


def test_silu_of_any_number_is_finite():
    x = torch.tensor([[-3e38, -200.0, -88.0, -87.4, 0.0, 88.0, 200.0, 3e38] * 4 + [1.0] * 32])
    got = operators.silu_and_mul(x, backend="cpp")
    torch.testing.assert_close(got, torch.nn.functional.silu(x[:, :32]), atol=1e-30, rtol=1e-6)


SHAPES = [
    Shape((1, 300, 17, 513), head_dim=32, block_size=16, queries=(1, 1, 1, 1)),
    Shape((40, 9, 1, 21, 530), head_dim=16, block_size=7, queries=(17, 9, 1, 4, 270)),
    Shape((256, 257), head_dim=80, block_size=1, queries=(1, 2)),
    Shape((9, 3), heads=0, head_dim=16, queries=(1, 2)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=["decode", "mixed", "odd", "no heads"])
def test_attention_equals_float64_and_does_not_depend_on_its_company(shape, dtype, threads):
    operands = batch(shape, dtype)
    if shape.head_dim % native.call("lanes"):
        pytest.skip("such heads are the reference's on this processor")
    wide = [x.double() if x.is_floating_point() else x for x in operands]
    out, lse = paged_attention_forward(*operands, backend="cpp")
    want, want_lse = paged_attention_forward(*wide, backend="reference")
    tolerance = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    torch.testing.assert_close(out.double(), want, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse, want_lse.float(), atol=1e-4, rtol=1e-4)
    q, *pools, tables, lengths, begin = operands
    threads(3)
    for i, count in enumerate(shape.queries):
        mine = slice(begin[i], begin[i + 1])
        one = tables[i : i + 1], lengths[i : i + 1], torch.tensor([0, count], dtype=torch.int32)
        alone, _ = paged_attention_forward(q[mine], *pools, *one, backend="cpp")
        assert torch.equal(alone, out[mine])


def test_a_query_that_sees_no_key_gets_zeros():
    """Every back end does the same; these callers check nothing."""
    operands = batch(Shape((0, 300), head_dim=16), torch.float32)
    out, lse = operators.paged_attention(*operands, None, backend="cpp")
    assert not out[0].any() and lse[0].eq(-torch.inf).all() and lse[1].isfinite().all()


def test_what_it_was_not_made_for_is_the_references_without_a_warning(recwarn):
    x = torch.randn(2, 6, dtype=torch.float64)
    assert operators.silu_and_mul(x).dtype == torch.float64
    with pytest.raises(ValueError, match=r"backend 'cpp' cannot: .*float32, float16 and bfloat16"):
        operators.silu_and_mul(x, backend="cpp")
    assert not [w for w in recwarn if w.category is registry.FallbackWarning]


# ----------------------------------------------------------------------------------- a whole step


def logits_of(model: Llama, chunks: tuple[int, ...] = ()) -> torch.Tensor:
    """Of three prompts in scattered blocks; `chunks` of the first one are computed before."""
    prompts = [[7 + i % 90 for i in range(60)], [5, 6, 7], [9]]
    tables, blocks = scattered_tables([60, 3, 1], 16)
    pools = make_pools(model.config, blocks, 16, model.cache_dtype)
    start = 0
    for end in chunks:
        model(make_batch([(prompts[0][start:end], start, tables[0])], 16), *pools)
        start = end
    sequences = [(prompts[0][start:], start, tables[0])]
    sequences += [(prompt, 0, table) for prompt, table in zip(prompts[1:], tables[1:], strict=True)]
    return model(make_batch(sequences, 16), *pools)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_step_equals_the_operators_one_by_one(untied_model, dtype):
    whole, reference = (
        load_model(untied_model, dtype),
        load_model(untied_model, dtype, "cpu", "reference"),
    )
    assert whole.step is not None and reference.step is None
    single = load_model(untied_model, dtype)
    single.step = None
    exact = logits_of(load_model(untied_model, "float64", "cpu", "reference"))
    far = [(logits_of(m, (17, 40)) - exact).abs().max() for m in (whole, single, reference)]
    assert far[0] <= 1.5 * far[2] + 1e-4 and far[1] <= 1.5 * far[2] + 1e-4


@pytest.mark.parametrize("form", GROUPS)
def test_a_model_of_groups_equals_the_model_of_the_numbers_they_stand_for(
    tmp_path, form, monkeypatch
):
    model = stored_model(tmp_path, form, torch.float32)
    model.cache_dtype = torch.float32
    got, numbers = logits_of(model), load_model(tmp_path)
    if form != "q8_0":  # whose products round x

        def product(linear, x):
            weight = torch.cat([rows.data for rows in linear.rows])
            return (as_multiplied(x, form) @ weight.double().T).float()

        numbers.step = None
        monkeypatch.setattr(Linear, "forward", product)
    wanted = logits_of(numbers)
    monkeypatch.undo()
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    model.step = None  # as with a learner's operator
    torch.testing.assert_close(logits_of(model), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("form", ["float32", "float16", "bfloat16", *GROUPS])
def test_with_weights_in_groups_keys_and_values_are_float16(tiny_model, form):
    cached = torch.float16 if form in GROUPS else getattr(torch, form)
    llm = LLM(tiny_model, device="cpu", dtype=form, kv_cache_memory_bytes=2**18)
    engine, numbers = llm.engine, 2 * 2 * 2 * 16  # keys and values, layers, KV heads, head_dim
    assert {pool.dtype for pool in engine.kv.key_pools + engine.kv.value_pools} == {cached}
    words = f"weights in {form}, keys and values in {cached}".replace("torch.", "")
    assert engine.about.splitlines()[1] == words
    assert engine.kv.pool.num_blocks == 2**18 // (16 * numbers * cached.itemsize)
    with_another = load_model(tiny_model, form, backends={"paged_attention": "reference"})
    assert with_another.cache_dtype == with_another.dtype  # which every back end reads


def test_with_weights_in_groups_keys_and_values_are_rounded_to_float16(tmp_path):
    """The oracle computes in float64 with the numbers that the weights stand for, and torch rounds
    its keys and values to float16. Without that rounding the median distance of the logits is over
    a hundred times as large, and the largest over twenty times: there float32 may have rounded a
    key near a boundary to the other side, which depends on the processor."""
    model = stored_model(tmp_path, "q8_0", torch.float64)

    def write(keys, values, key_pool, value_pool, slots):
        key_pool.flatten(0, 1)[slots] = keys.half().double()
        value_pool.flatten(0, 1)[slots] = values.half().double()

    registry.register("reshape_and_cache", "rounded", write)
    own = {name: "reference" for name in OPERATORS} | {"reshape_and_cache": "rounded"}
    oracle, exact = (load_model(tmp_path, "float64", "cpu", who) for who in (own, "reference"))
    near, far = ((logits_of(model) - logits_of(m)).abs() for m in (oracle, exact))
    assert near.median() < far.median() / 100 and near.max() < far.max() / 20


@pytest.mark.parametrize("form", GROUPS)
def test_with_a_float16_cache_logits_do_not_depend_on_how_a_prompt_is_split(tiny_model, form):
    model = load_model(tiny_model, form)
    assert model.cache_dtype == torch.float16
    assert torch.equal(logits_of(model), logits_of(model, chunks=(17, 40)))


@pytest.mark.parametrize("forms", [("q8_0", "q4_1"), ("q4_1", "q8_0")], ids=" ".join)
def test_gate_and_up_may_have_different_formats(tiny_model, forms):
    """As a GGUF file may have them. For few tokens, panels of 8 and of 4 bits have different
    rows."""
    model = load_model(tiny_model)
    for layer in model.layers:
        parts = zip(layer.gate_up.rows, forms, strict=True)
        layer.gate_up.rows = [stored(rows.data, form)[0] for rows, form in parts]
    model.pack()
    got = []
    for _ in range(2):
        got.append(model(make_batch([([5, 6, 7], 0, [0])], 16), *make_pools(model.config, 1, 16)))
        model.step = None
    torch.testing.assert_close(*got, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1"])
def test_a_gguf_file_is_computed_with_as_it_is(tmp_path, form, monkeypatch):
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path))
    path = tmp_path / "tiny.gguf"
    make_tiny_gguf(path, GGMLQuantizationType[form])
    before = path.read_bytes()
    exact = LLM(path, backend="reference", num_blocks=80).generate([5, 6, 7], GREEDY)
    llm = LLM(path, dtype="gguf", num_blocks=80)
    assert llm.generate([5, 6, 7], GREEDY)[0].token_ids == exact[0].token_ids
    model = llm.engine.runner.model
    assert model.layers[0].down.rows[0].form == (None if form[0] == "F" else form.lower())
    address = model.layers[0].down.rows[0].data.data_ptr()
    assert is_mapped(address, path)  # rows of the mapped file, not copies of them
    assert path.read_bytes() == before  # rows are reordered in this process's copies of pages


def test_what_cannot_have_a_format_says_so(tiny_model, tmp_path):
    with pytest.raises(ValueError, match=r'model\.gguf is missing, which dtype "gguf" reads'):
        load_model(tiny_model, "gguf")
    with pytest.raises(ValueError, match="dtype 'q8_0' needs the back end 'cpp'"):
        load_model(tiny_model, "q8_0", backends="reference")
    odd = make_tiny_model(tmp_path, hidden_size=48)
    with pytest.raises(ValueError, match=r"'q8_0' needs .* sizes that are multiples of 32"):
        load_model(odd, "q8_0")
    assert {*GROUPS, "gguf"} == set(FORMATS)


def test_weights_stay_in_the_mapped_file(tiny_model):
    model = load_model(tiny_model)
    address = model.layers[1].gate_up.rows[1].data.data_ptr()
    assert is_mapped(address, tiny_model / "model.safetensors")


@pytest.mark.parametrize("huge", [True, False], ids=["pages of 2 MB", "no such pages"])
def test_converted_weights_lie_together_and_are_freed(tiny_model, monkeypatch, huge):
    if not huge:
        monkeypatch.delattr("mmap.MADV_HUGEPAGE", raising=False)
    wanted = load_model(tiny_model, "bfloat16", backends="reference").places()
    model = load_model(tiny_model, "bfloat16")
    found = [rows.data for layer in model.layers for rows in layer.qkv.rows + layer.gate_up.rows]
    names = [f"self_attn.{name}_proj" for name in "qkv"] + ["mlp.gate_proj", "mlp.up_proj"]
    for number, data in enumerate(found):
        layer, place = divmod(number, len(names))
        assert torch.equal(data, wanted[f"model.layers.{layer}.{names[place]}.weight"])
    assert all(data.data_ptr() % 64 == 0 for data in found)
    [memory] = {data.untyped_storage().data_ptr() for data in found}
    assert is_mapped(memory)
    del model, found, data
    gc.collect()
    assert not is_mapped(memory)


def test_numbers_outside_the_model_are_refused(tiny_model):
    model = load_model(tiny_model)
    pools = make_pools(model.config, 1, 16)
    for token in (-1, 384):
        with pytest.raises(ValueError, match="token_ids must be from 0 to 383"):
            model(make_batch([([5, token], 0, [0])], 16), *pools)
    with pytest.raises(ValueError, match="logit_rows must be from 0 to 1, got 2"):
        model(make_batch([([5, 6], 0, [0])], 16, [2]), *pools)


@pytest.mark.parametrize("backends", ["auto", "reference"])
def test_rows_are_those_asked_for_in_their_order(tiny_model, backends):
    model = load_model(tiny_model, backends=backends)
    assert (model.step is not None) == (backends == "auto")
    sequences = [([7, 8, 9, 10], 0, [0]), ([5, 6], 0, [1])]
    everything = model(make_batch(sequences, 16, range(6)), *make_pools(model.config, 2, 16))
    near = 0 if backends == "auto" else 1e-4  # torch's sums depend on the number of rows
    for rows in ([], [3], [5, 0, 2], [1] * 9):  # none, one, out of order, more than tokens
        found = model(make_batch(sequences, 16, rows), *make_pools(model.config, 2, 16))
        torch.testing.assert_close(found, everything[rows], atol=near, rtol=near)


def test_a_learners_operator_runs_among_those_of_cpp(tiny_model):
    calls = []

    def mine(x):
        calls.append(len(x))
        return registry.resolve("silu_and_mul", "reference")(x)

    registry.register("silu_and_mul", "mine", mine)
    model = load_model(tiny_model, backends={"silu_and_mul": "mine"})
    assert model.step is None and model.layers[0].down.rows
    wanted = logits_of(load_model(tiny_model))
    torch.testing.assert_close(logits_of(model), wanted, atol=1e-4, rtol=1e-4)
    assert calls == [64, 3]  # after the last layer's attention only the rows asked for go on
    calls.clear()
    model(make_batch([([7, 8, 9], 0, [0])], 16, []), *make_pools(model.config, 2, 16))
    assert calls == [3]  # where none is asked for, the last layer's operator is not called


def test_without_a_compiler_the_reference_computes_and_says_why(tiny_model, monkeypatch):
    def none():
        raise compiler.CompileError("no C++ compiler: install g++")

    wanted = logits_of(load_model(tiny_model))
    monkeypatch.setattr(cpu, "library", none)
    monkeypatch.setattr(registry, "_announced", set())
    with pytest.warns(
        registry.FallbackWarning, match="'cpp' passed over: no C.. compiler: install"
    ):
        model = load_model(tiny_model)
        got = logits_of(model)
    assert model.step is None and not model.lm_head.rows
    torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match=r"backend 'cpp' cannot: no C.. compiler"):
        operators.silu_and_mul(torch.ones(1, 2), backend="cpp")


def test_a_mistake_in_the_source_is_the_compilers_message(monkeypatch, tmp_path):
    (tmp_path / "step.cpp").write_text("int lanes() { return }\n")
    monkeypatch.setattr(cpu, "FOLDER", tmp_path)
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(
        compiler.CompileError, match=r"step.cpp:1:\d+: error: expected primary-expression"
    ):
        cpu.library.__wrapped__()


def test_a_pool_takes_the_memory_of_the_blocks_that_were_written():
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    kv = KVCacheManager(4096, 16, 8, 64, num_layers=2)
    size = sum(pool.nbytes for pool in kv.key_pools + kv.value_pools)
    assert size == 2**29 and resident() - before < size / 20
    kv.key_pools[1][7] = 1.0
    assert kv.key_pools[1].sum() == 16 * 8 * 64  # reading, a page is the one of all zeros


@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(
            "clang++", marks=pytest.mark.skipif(not which("clang++"), reason="no clang++")
        ),
        pytest.param(ARM, marks=pytest.mark.skipif(not (ARM and QEMU), reason="no arm64 tools")),
        *(pytest.param(f"g++ {flag}") for flag in ("-mavx2", "-msse2")),
    ],
    ids=["clang", "arm64", "avx2", "sse2"],
)
def test_other_compilers_and_processors_compute_the_same(compiler, tmp_path):
    """The driver compares products and attention in every format with its own plain loops."""
    driver = Path(__file__).parent / "cpu_driver.cpp"
    options = [option for option in cpu.OPTIONS if option[:2] not in ("-s", "-m", "-f")]
    command = [*compiler.split(), *options, f"-I{cpu.FOLDER}", str(driver), "-o"]
    subprocess.run([*command, str(tmp_path / "driver")], check=True)
    start = [QEMU, "-L", "/usr/aarch64-linux-gnu"] if compiler == ARM else []
    done = subprocess.run([*start, tmp_path / "driver"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("right") == 9, done.stdout + done.stderr


def test_a_peer_gets_the_same_weights_and_its_tokens_are_compared(tiny_model, tmp_path):
    from safetensors.torch import load_file

    peer.write_gguf(tiny_model, tmp_path / "tiny.gguf", "F32")
    found = read_rows(tmp_path / "tiny.gguf")  # which undoes the order of rotary pairs
    for name, tensor in load_file(tiny_model / "model.safetensors").items():
        assert torch.equal(found[name].data, tensor), name
    asked = [{"first": 9.0, "rest": 9.0}, {"first": 0.5, "rest": 1.0}, {"first": 0.5, "rest": 2.0}]
    asked = [one | {"tokens": 4, "answers": [[1, 2], [3, 4]]} for one in asked]
    other = [one | {"rest": 4.0, "answers": [[1, 2], [3, 5]]} for one in asked]
    row = peer._compared({"yaie": asked, "llama.cpp": other}, first=False)
    assert row["yaie"]["rate"] == 3 and row["ratio"] == 3 and row["same_tokens"] == 0.75
    assert peer._compared({"yaie": asked, "llama.cpp": other}, first=True)["ratio"] == 1


def test_a_record_keeps_each_format_beside_the_others(tmp_path):
    path = tmp_path / "record.json"
    peer.keep("q8_0", {"results": [1]}, path)
    peer.keep("float32", {"results": [2]}, path)
    record = peer.keep("q8_0", {"results": [3]}, path)
    assert record == json.loads(path.read_text()) and record["benchmark"] == "peer"
    assert (record["q8_0"]["results"], record["float32"]["results"]) == ([3], [2])
    assert record["q8_0"]["machine"]["threads"] == torch.get_num_threads()
    mine = peer.resident_mb(os.getpid())
    assert 0 < mine["pss"] <= mine["rss"]


def test_a_peers_record_is_looked_at_before_anything_is_measured(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(peer, "Engine", None)  # none starts
    other = tmp_path / "other.json"
    other.write_text('{"benchmark": "engine"}')
    for run in (partial(peer.run, str(tiny_model)), partial(spinning.run, str(tiny_model))):
        with pytest.raises(ValueError, match="output must be in a folder that exists"):
            run(output=tmp_path / "none" / "x.json")
        with pytest.raises(ValueError, match="holds no results of this benchmark"):
            run(output=other)
    assert other.read_text() == '{"benchmark": "engine"}'
    with pytest.raises(ValueError, match="only must name some of speed, memory, rounding, got 'x'"):
        peer.run(str(tiny_model), only="memory, x")


@pytest.mark.parametrize(
    "words", [["llama.cpp", "it needs `pip install llama-cpp-python`"], ["yaie"]]
)
def test_an_engine_that_ended_is_named(words):
    engine = peer.Engine(sys.executable, "-c", "", words[0])
    engine.process.wait()
    with pytest.raises(RuntimeError, match=f"the engine {'.*'.join(words)}") as told:
        try:
            engine.ask([[1]], 1)
        finally:
            engine.close()
    assert len(words) > 1 or "llama" not in str(told.value)


def test_rounding_is_none_in_float32_and_grows_with_fewer_bits(tiny_model, monkeypatch):
    monkeypatch.setattr(bench_rounding, "TEXTS", bench_rounding.TEXTS[:2])
    found = {
        form: bench_rounding.rounding(tiny_model, form) for form in ("float32", "q8_0", "q4_0")
    }
    assert found["float32"]["kl"] < 1e-6 and found["float32"]["same"] == 1
    assert found["float32"]["kl"] < found["q8_0"]["kl"] < found["q4_0"]["kl"]


def test_engines_that_spin_and_sleep_are_asked_alone_and_in_pairs(tmp_path, monkeypatch):
    class Asked:
        def __init__(self, *command, environment):
            self.rate = 2 if "GOMP_SPINCOUNT" in environment else 3

        def tell(self, prompts, max_tokens):
            assert len(prompts) == 1

        def hear(self):
            return {"tokens": 10 * self.rate, "rest": 10.0}

        def close(self):
            pass

    monkeypatch.setenv("GOMP_SPINCOUNT", "7")  # that of the process counts for neither
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(spinning.peer, "Engine", Asked)
    results = spinning.run("model", 2)["spinning"]["results"]
    rates = {(r["backend"], r["engines"]): (r["sleeping"], r["spinning"]) for r in results}
    assert rates == {(name, n): (2 * n, 3 * n) for name in ("cpp", "reference") for n in (1, 2)}


# --------------------------------------------------------------------------------- the real model


@pytest.fixture(scope="module")
def logprobs(real_model):
    """What the model says in a format after each token of six prompts."""
    from yaie.model.tokenizer import Tokenizer

    tokenizer = Tokenizer(real_model)
    texts = [text for text in PROMPTS.values() if isinstance(text, str)]
    prompts = [tokenizer.encode(text)[:200] for text in texts][:6]

    def each(dtype, backend):
        model = load_model(real_model, dtype, "cpu", backend)
        for prompt in prompts:
            blocks = -(-len(prompt) // 16)
            pools = make_pools(model.config, blocks, 16, model.cache_dtype)
            rows = range(len(prompt))
            sequence = [(prompt, 0, list(range(blocks)))]
            yield model(make_batch(sequence, 16, rows), *pools).log_softmax(-1)

    return lambda dtype, backend="auto": torch.cat([*each(dtype, backend)])


@pytest.fixture(scope="module")
def exact(logprobs):
    return logprobs("float32", "reference")


@pytest.mark.real_model
@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "divergence", "agreement"),
    [
        ("bfloat16", 2e-3, 0.95),
        ("float16", 1e-5, 0.99),
        ("q8_0", 3e-3, 0.94),
        ("q4_1", 0.12, 0.78),
        ("q4_0", 0.6, 0.6),
    ],
)
def test_fewer_bits_say_nearly_the_same(exact, logprobs, form, divergence, agreement):
    """KL divergence from float32, and how often the likeliest token is the same."""
    rounded = logprobs(form)
    found = (exact.exp() * (exact - rounded)).sum(-1).mean()
    same = (exact.argmax(-1) == rounded.argmax(-1)).float().mean()
    print(f"{form}: KL {found:.2e}, the same token {same:.3f}", file=sys.stderr)
    assert found < divergence and same > agreement


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="a system without smaps")
def test_pages_that_only_starting_has_read_are_given_back():
    code = (
        "import os, torch; from yaie.bench.peer import resident_mb\n"
        "from yaie.engine.threads import return_freed_memory\n"
        "before = resident_mb(os.getpid())['rss']; return_freed_memory(libraries=True)\n"
        "after = resident_mb(os.getpid())['rss']\n"
        "print(before - after, torch.ones(5, 7).mm(torch.ones(7, 2)).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    less, total = done.stdout.split()
    assert float(less) > 30 and total == "tensor(70.)"

"""The kernel for the products of a single token: which models use it, and what it waits for.

Its results are compared with float64 in tests/test_kernels.py, as a row of the table of kernels.
"""

import re
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from kernel_cases import RTOL
from launches import HALVES, captured, checked, each_device, each_dtype, gpu_only
from torch import nn
from torch.nn import functional

from yaie.build import jit
from yaie.build.cache import CSRC
from yaie.course.author.gpu.engine_steps import decode_batch
from yaie.model import llama
from yaie.model.config import ModelConfig
from yaie.model.linear import GEMV, Linear
from yaie.model.llama import Llama
from yaie.ops import norm
from yaie.ops.cuda import launching

CONFIG = ModelConfig(
    vocab_size=96, hidden_size=72, intermediate_size=136, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=1, head_dim=64, tie_word_embeddings=True,
    max_position_embeddings=64,
)  # fmt: skip


def layer(rows: int, size: int, dtype: torch.dtype, device: str, bias: bool = False) -> Linear:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(rows, size).to(device, dtype), requires_grad=False)
    linear = Linear(weight, torch.randn(rows).to(device, dtype) if bias else None)
    linear.by_gemv = True
    return linear


@each_device
@each_dtype(HALVES)
@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_multiplies_one_token_by_the_kernel(dtype, bias, device):
    linear = layer(33, 1064, dtype, device, bias)
    x = torch.randn(2, 1064).to(device, dtype)
    with checked(device) as launched:
        both, one = linear(x), linear(x[1:])
    assert device == "cuda" or [module.name for module in launched] == ["matmul/gemv.cu"]
    wanted = x[1:].double() @ linear.weight.double().T + (linear.bias.double() if bias else 0.0)
    assert one.dtype == dtype
    torch.testing.assert_close(one.double(), wanted, rtol=RTOL[dtype], atol=1e-4)
    assert torch.equal(both, functional.linear(x, linear.weight, linear.bias))


def test_torch_deals_with_what_is_no_token():
    """A wrong shape or dtype raises torch's error; a right one in other memory is multiplied."""
    linear, x = layer(5, 16, torch.bfloat16, "cpu"), torch.randn(3, 33).to(torch.bfloat16)
    wrong = [(x[:1, :8], "shapes"), (x[:1, :32], "shapes"), (x[:1, :16].half(), "dtype")]
    for tensor, message in wrong:
        with pytest.raises(RuntimeError, match=message):
            linear(tensor)
    several = x[:, :16].unsqueeze(0)
    for tensor in (x[:1, :32:2], x[:1, 1:17], several, x[:1, :16].clone().requires_grad_()):
        with checked("cpu") as launched:
            got = linear(tensor)
        assert not launched and got.requires_grad == tensor.requires_grad
        assert torch.equal(got, functional.linear(tensor, linear.weight))
    torch._dynamo.reset()
    compiled = torch.compile(linear, fullgraph=True, backend="eager")
    one = x[:1, :16].clone()
    with checked("cpu") as launched:
        assert torch.equal(compiled(one), functional.linear(one, linear.weight))
    assert not launched


def test_a_size_without_whole_chunks_is_refused():
    x, weight = torch.ones(12, dtype=torch.bfloat16), torch.ones(4, 12, dtype=torch.bfloat16)
    with pytest.raises(jit.KernelError, match="cudaErrorMisalignedAddress"):
        launching.launch(GEMV, "gemv", x.dtype, x, weight, None, x.new_empty(4), 4, 12)


def drawn(device: str, backend: str = "auto") -> Llama:
    """A small model in bfloat16 with random weights."""
    model = Llama(CONFIG, torch.bfloat16, device, backend)
    torch.manual_seed(0)
    for weight in model.parameters():
        weight.normal_(std=0.1)
    model.pack()
    return model


def products(model: Llama) -> set[bool]:
    return {linear.by_gemv for linear in model.linears()}


@gpu_only
@pytest.mark.parametrize(
    ("backends", "dtype", "taken"),
    [
        ("auto", torch.bfloat16, True), ("cuda", torch.float16, True),
        ({"rms_norm": "reference"}, torch.bfloat16, True), ("auto", torch.float32, False),
        ("reference", torch.bfloat16, False), ("triton", torch.bfloat16, False),
    ],
)  # fmt: skip
def test_a_model_takes_it_with_the_back_end(backends, dtype, taken, device):
    model = Llama(CONFIG, dtype, device, backends)
    model.pack()
    assert products(model) == {taken}


@gpu_only
def test_torch_multiplies_where_the_kernel_cannot_be_compiled(monkeypatch, device):
    monkeypatch.setattr(jit.Module, "how", lambda *_: jit.Availability("no nvcc", available=False))
    model = Llama(CONFIG, torch.bfloat16, device)
    model.pack()
    assert products(model) == {False}


def test_torch_multiplies_by_what_the_kernel_cannot_index(monkeypatch):
    """Its indices have 32 bits: a weight has fewer than 2^31 elements. These have no memory."""
    model = Llama(CONFIG, torch.bfloat16, "cpu", "cuda")
    monkeypatch.setattr(nn.Parameter, "is_cuda", True, raising=False)  # as on a GPU
    monkeypatch.setattr(jit.Module, "how", lambda *_: jit.Availability("", available=True))
    card = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    most, over, *others = model.linears()
    for linear, rows in ((most, 2**28 - 1), (over, 2**28)):
        linear.weight = nn.Parameter(torch.empty(rows, 8, device="meta"), requires_grad=False)
    model.pack()
    assert [most.by_gemv, over.by_gemv] == [True, False]
    assert all(linear.by_gemv for linear in others)


def test_a_model_on_a_cpu_does_not_take_it():
    model = Llama(CONFIG, torch.bfloat16, "cpu", "cuda")
    model.pack()
    assert products(model) == {False}


@torch.inference_mode()
def test_a_step_of_one_token_launches_few_kernels(monkeypatch):
    """In a layer, norms and the activation belong to the products, and rotating to the cache. One
    operator of another origin, or two tokens, and each is computed by itself."""
    monkeypatch.setattr(llama, "are_ours", lambda _: True)  # as if no test had replaced a back end
    model = drawn("cpu", "cuda")
    batch, pools = decode_batch(model, 1, 16)
    wanted = model(batch, *pools)
    model.has_kernels = True  # as on a GPU
    for linear in model.linears():
        linear.by_gemv = True
    with checked() as launched:
        got = model(batch, *pools)
    assert (got - wanted).norm() < 0.02 * wanted.norm()
    gemv, paged = "matmul/gemv.cu", "paged/split.cu"
    layer = [gemv, "rotary/rotary_and_cache.cu", paged, gemv, gemv, gemv]
    last = ["norm/rms_norm.cu", gemv]  # the logits
    assert [module.name for module in launched] == [*layer * CONFIG.num_hidden_layers, *last]

    for name in ("silu_and_mul", "rotary"):
        model.backends[name] = "reference"
        with checked() as launched:
            assert (model(batch, *pools) - wanted).norm() < 0.02 * wanted.norm()
        names = [module.name for module in launched]
        assert ("norm/rms_norm.cu" in names[:-2]) == (name == "silu_and_mul")
        assert ("rotary/rotary_and_cache.cu" in names) == (name == "silu_and_mul")
        model.backends[name] = "cuda"
    both, pools = decode_batch(model, 2, 16)
    with checked() as launched:
        model(both, *pools)
    assert gemv not in [module.name for module in launched]


@gpu_only
@each_dtype(HALVES)
def test_waits_for_the_kernel_that_computes_its_input(dtype, device):
    """In a graph, each kernel of a chain of norms and products is launched while the one before it
    runs. The results are those of the same kernels run one at a time."""
    size = 4096
    weights = [torch.randn(size, size, device=device).to(dtype) for _ in range(8)]
    scale, x = torch.ones(size, device=device, dtype=dtype), torch.randn(1, size, device=device)
    layers = [Linear(weight) for weight in weights]
    for linear in layers:
        linear.by_gemv = True

    def chain(x: torch.Tensor, wait: bool) -> list[torch.Tensor]:
        results = []
        for linear in layers:
            x = linear(norm.rms_norm(x, scale, backend="cuda"))
            results.append(x)
            if wait:
                torch.cuda.synchronize()
        return results

    given = x.to(dtype)
    wanted = chain(given, wait=True)
    results, replay = captured(lambda: chain(given, wait=False))
    for _ in range(50):
        for result in results:
            result.fill_(torch.nan)
        replay()
        assert all(map(torch.equal, results, wanted))


@gpu_only
@torch.inference_mode()
def test_a_step_of_one_token_in_a_graph(device):
    """Most kernels of a step begin before the one before them ends. The logits have the same bits
    as with a wait after each kernel, and are torch's within rounding."""
    model = drawn(device)
    batch, pools = decode_batch(model, 1, 48)
    kept = [pool.clone() for part in pools for pool in part]
    results, replay = captured(lambda: model(batch, *pools))
    with mock.patch.object(launching, "launcher", waiting(launching.launcher)):
        wanted = model(batch, *pools)
    for _ in range(20):
        results.fill_(torch.nan)
        replay()
        assert torch.equal(results, wanted)
    for linear in model.linears():
        linear.by_gemv = False
    assert (model(batch, *pools) - wanted).norm() < 0.02 * wanted.norm()
    for pool, old in zip((pool for part in pools for pool in part), kept, strict=True):
        changed = (pool != old).flatten(0, 1).any(dim=(1, 2)).nonzero()
        assert changed.flatten().tolist() == batch.slot_mapping.tolist()


def waiting(launcher):
    """Launchers that wait until their kernels have ended."""

    def waiting_one(*names):
        def launch(*arguments):
            launcher(*names)(*arguments)
            torch.cuda.synchronize()

        return launch

    return waiting_one


def _roles(body):
    """What the warps of pingpong.cu do after `__syncthreads`: that which finds work, that which
    loads keys and values, and the consumers."""
    return re.split(r"if \(threadIdx\.x >= WARP\) return;|increase_registers", body)


def test_kernels_that_begin_early_wait_before_they_end():
    """A kernel that is launched behind another must wait for it. Otherwise it could end first, and
    a third kernel, which waits only for the second, could read what the first has not written."""
    found = {}
    for path in CSRC.rglob("*.cu"):
        source = re.sub(r"//.*", "", path.read_text())
        if "launch_behind(" in source:
            head = r"__global__[^{;]*?(\w+)\((?:[^(){};]|\{\})*\)\s*"
            bodies = re.findall(head + r"\{(.*?)\n\}", source, re.DOTALL)
            found |= {name: body.partition("wait_for_last();") for name, body in bodies}
    del found["all_reduce_of_rows"]  # launched cooperatively: it overlaps with no other
    known = {"gemv", "rms_norm", "silu_and_mul_wide", "paged_mma", "paged_merge"}
    assert known | {"all_reduce_of_a_rank"} <= set(found)
    assert [name for name, (_, wait, _) in found.items() if not wait] == []
    # cascade.cu's reads what was there before mma.cu, which lets it begin after a wait of its own.
    before, _, after = found["paged_mma"]
    assert before.count("let_next_begin();") == before.count(
        "if (work.skip == 0) let_next_begin();"
    )
    assert "let_next_begin();" in after
    # The producer's two warps wait before they load, the consumers before all that they do.
    roles = [
        part.partition("wait_for_last();") for part in _roles("".join(found["flash_pingpong"]))
    ]
    assert len(roles) == 3 and all(wait for _, wait, _ in roles)
    assert not any(re.search(r"load_(?:queries|tile)<|store_rows", before) for before, *_ in roles)
    # Of gated.cu one thread of a block waits, and then loads x, for which the others wait.
    before, _, after = found["gated_product"]
    assert before.count("load_x") == 1 and after.count("load_x(") == 2
    store = r"\b(?:out|total|lse|\w*pool|to)\b[^=;]*\][^=;]*=[^=]|\bstore\w*\("
    for name in found.keys() - {"attend_prefix", "flash_pingpong", "gated_product"}:
        before = found[name][0]
        assert not re.search(rf"\breturn\b|__sync|{store}", before), name

"""Gate, up and activation in one kernel for Hopper: for which steps, and in the model.

Its results are compared with float64 in tests/test_kernels.py, as a row of the table of kernels.
"""

import pytest
import torch
from launches import captured, checked, gpu_only
from test_gemv import CONFIG, drawn
from torch import nn

from yaie.course.author.gpu.engine_steps import decode_batch
from yaie.course.core.paths import kept
from yaie.model import linear, llama
from yaie.model.linear import GATED, Linear
from yaie.ops.reference.elementwise import silu_and_mul
from yaie.ops.registry import HOPPER

ACTIVATION = "activation/silu_and_mul.cu"


def gate_up(inner: int, size: int, device: str = "meta") -> Linear:
    weight = torch.empty(2 * inner, size, dtype=torch.bfloat16, device=device)
    layer = Linear(nn.Parameter(weight, requires_grad=False))
    layer.gated_sms = 132
    return layer


@pytest.mark.parametrize(
    ("inner", "taken", "left"),
    [
        # 128 columns of tiles: a round for each 128 tokens; 80,000 have too many elements.
        (14336, [114, 128, 232, 256, 344, 384, 2048], [1, 112, 129, 224, 320, 336, 385, 80_000]),
        (8192, [2048, 8192], [128, 256, 384, 512]),  # 74 columns of tiles
        (1536, [8192, 16384], [128, 512, 1024, 2048, 4096]),
    ],
)
def test_it_is_taken_where_its_tiles_keep_the_card_busy(monkeypatch, inner, taken, left):
    monkeypatch.setattr(Linear, "_is_plain", lambda *_: True)  # these have no memory
    layer = gate_up(inner, 64)
    found = {n: layer.takes_gated(torch.empty(n, 64, device="meta")) for n in (*taken, *left)}
    assert found == dict.fromkeys(taken, True) | dict.fromkeys(left, False)


def test_where_it_is_taken_a_layer_was_faster(monkeypatch):
    monkeypatch.setattr(Linear, "_is_plain", lambda *_: True)
    record = kept("27_gated_h200")
    for shape in record["shapes"].values():
        layer = gate_up(shape["columns of gate"], shape["hidden"])
        layer.gated_sms = record["machine"]["multiprocessors"]
        for tokens, times in shape["tokens"].items():
            by_torch, gated = times["layer"]
            x = torch.empty(int(tokens), shape["hidden"], device="meta")
            assert gated < by_torch or not layer.takes_gated(x), tokens


def test_torch_multiplies_what_is_not_plain():
    layer = gate_up(14336, 64, "cpu")
    x = torch.zeros(256, 128, dtype=torch.bfloat16)
    assert layer.takes_gated(x[:, :64].contiguous())
    others = [x[:, :64], x[:, :64].contiguous().float(), x[:, :64].clone().requires_grad_()]
    assert not any(layer.takes_gated(other) for other in others)
    layer.bias = nn.Parameter(torch.zeros(2 * 14336, dtype=torch.bfloat16), requires_grad=False)
    assert not layer.takes_gated(x[:, :64].contiguous())
    layer.bias, layer.gated_sms = None, 0
    assert not layer.takes_gated(x[:, :64].contiguous())


@torch.inference_mode()
def test_a_step_of_many_tokens_launches_it(monkeypatch):
    monkeypatch.setattr(llama, "are_ours", lambda _: True)  # as if no test had replaced a back end
    monkeypatch.setattr(linear, "ENOUGH", 0.0)
    model = drawn("cpu", "cuda")
    batch, pools = decode_batch(model, 3, 16)
    wanted = model(batch, *pools)
    for layer in model.layers:
        layer.gate_up.gated_sms = 2
    with checked() as launched:
        got = model(batch, *pools)
    assert (got - wanted).norm() < 0.02 * wanted.norm()
    names = [module.name for module in launched]
    assert names.count(GATED) == CONFIG.num_hidden_layers and ACTIVATION not in names
    model.backends["silu_and_mul"] = "reference"
    with checked() as launched:
        model(batch, *pools)
    assert GATED not in [module.name for module in launched]


@gpu_only
@torch.inference_mode()
def test_a_model_on_hopper_has_it_in_its_graphs(monkeypatch, device):
    model = drawn(device)
    is_hopper = torch.cuda.get_device_capability() == HOPPER
    assert all(bool(layer.gate_up.gated_sms) == is_hopper for layer in model.layers)
    batch, pools = decode_batch(model, 3, 16)
    wanted = model(batch, *pools)
    monkeypatch.setattr(linear, "ENOUGH", 0.0)
    got, replay = captured(lambda: model(batch, *pools))
    for _ in range(20):
        got.fill_(torch.nan)
        replay()
        assert (got - wanted).norm() < 0.02 * wanted.norm()


@gpu_only
@pytest.mark.parametrize("tokens", [128, 250, 600])
def test_its_result_on_a_card(tokens, device):
    if torch.cuda.get_device_capability() != HOPPER:
        pytest.skip("it needs sm_90a")
    layer = gate_up(1816, 776, device)  # cut off: 16 and a half tiles
    layer.weight.normal_()
    x = torch.randn(tokens, 776, dtype=torch.bfloat16, device=device)
    got, replay = captured(lambda: layer.gated(x))
    replay()
    product = x.double() @ layer.weight.double().t()
    torch.testing.assert_close(got.double(), silu_and_mul(product), rtol=2**-8, atol=2e-3)

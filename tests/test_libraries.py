"""Which of torch's two libraries computes a product: the choice, and what a layer does with it."""

import pytest
import torch
from torch import nn

from yaie.course.core.paths import kept
from yaie.engine import libraries
from yaie.model.linear import Linear

OUT, IN = 512, 256
DTYPE = torch.bfloat16


def layers(count: int, out: int = OUT, device: str = "cpu") -> list[Linear]:
    weights = torch.randn(count, out, IN).to(device, DTYPE)
    return [Linear(nn.Parameter(weight, requires_grad=False)) for weight in weights]


def test_the_library_that_is_clearly_faster_is_taken(monkeypatch):
    """The choice is made per number of tokens, for all layers of a shape; only some are timed."""
    monkeypatch.setattr(libraries, "COLD", 3 * OUT * IN * DTYPE.itemsize - 1)
    ratios = {(OUT, 8): 0.95, (OUT, 16): 0.97, (OUT, 24): 1.2, (2 * OUT, 16): 0.5}
    timed = []

    def times(group, x, zeros):
        assert x.shape[1] == IN and x.dtype == zeros.dtype == DTYPE
        assert zeros.shape == (len(group[0].weight),) and not zeros.any()
        timed.append(len(group))
        return 2.0, 2.0 * ratios.get((len(zeros), len(x)), 1.0)

    monkeypatch.setattr(libraries, "times", times)
    few, many, (biased,) = layers(4), layers(2, 2 * OUT), layers(1)
    biased.bias = nn.Parameter(torch.ones(OUT, dtype=DTYPE), requires_grad=False)
    libraries.choose_libraries([*few, biased, *many], [8, 16, 24])
    assert [[*layer.zeros] for layer in few] == [[8]] * 4
    assert [[*layer.zeros] for layer in many] == [[16]] * 2
    assert biased.zeros == {}
    assert timed == [3] * 3 + [2] * 3  # 3 of 4: as many as COLD bytes need


def test_what_an_own_kernel_computes_is_not_timed(monkeypatch):
    monkeypatch.setattr(libraries, "times", lambda *_: (2.0, 1.0))
    gemv, gated = layers(2)
    gemv.by_gemv = True
    monkeypatch.setattr(gated, "takes_gated", lambda x: len(x) == 24)
    libraries.choose_libraries([gemv], [1, 8, 24])
    libraries.choose_libraries([gated], [1, 8, 24])
    assert [*gemv.zeros] == [8, 24] and [*gated.zeros] == [1, 8]


def test_a_bias_of_zeros_changes_no_product():
    (layer,) = layers(1)
    x = torch.randn(4, IN).to(DTYPE)
    wanted = layer(x), layer(x[:3])
    layer.zeros[3] = torch.zeros(OUT, dtype=DTYPE)
    assert torch.equal(layer(x), wanted[0]) and torch.equal(layer(x[:3]), wanted[1])
    layer.zeros[3] += 1  # shows that it is added
    assert torch.equal(layer(x), wanted[0]) and not torch.equal(layer(x[:3]), wanted[1])


def test_compiled_code_takes_any_number_of_tokens():
    """Also with zeros, which nothing that is compiled may look up by the number."""
    (layer,), graphs = layers(1), []
    layer.zeros[5] = torch.zeros(OUT, dtype=DTYPE)

    def keep(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(layer, backend=keep, fullgraph=True)
    for tokens in range(3, 20):
        x = torch.randn(tokens, IN).to(DTYPE)
        assert torch.equal(compiled(x), layer(x))
    assert len(graphs) <= 2


def test_the_text_on_the_record():
    record = kept("27_libraries_h200")
    assert record["machine"]["gpu"] == "NVIDIA H200"
    down = record["models"]["llama-3b"]["down"]["tokens"]
    for tokens, said in (("224", 0.76), ("184", 1.41)):
        cublas, cublaslt = down[tokens]
        assert round(cublaslt / cublas, 2) == said and str(said) in libraries.__doc__


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_both_libraries_multiply_and_one_is_chosen():
    sizes, group = (1, 8, 40, 384), layers(3, device="cuda")
    libraries.choose_libraries(group, sizes)
    assert {*group[0].zeros} <= {*sizes}
    zeros = torch.zeros(OUT, device="cuda", dtype=DTYPE)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.nn.functional.linear(group[1].weight[:40], group[0].weight, zeros)
    launched = {event.key for event in profile.key_averages()}
    assert launched and not any("elementwise" in name for name in launched)  # as cuBLAS adds a bias
    for size in sizes:
        x = torch.randn(size, IN, device="cuda", dtype=DTYPE)
        wanted = x.double() @ group[0].weight.double().T
        for bias in (None, zeros):
            group[0].zeros = {} if bias is None else {size: bias}
            assert (group[0](x) - wanted).norm() < 3e-3 * wanted.norm()

"""What a call of an operator costs the host, in functions entered, and who still sees the call."""

import pytest
import torch
from launches import Seen

from yaie.bench import host
from yaie.build import jit
from yaie.ops.attention import paged_attention_forward
from yaie.ops.kv import reshape_and_cache
from yaie.ops.norm import rms_norm

MOST_CALLS = {"rms_norm": 48, "add_rms_norm": 59, "silu_and_mul": 41}
MOST_CALLS |= {f"paged_attention, {keys} keys": 137 for keys in ("128", "2,048")}
X, WEIGHT = torch.randn(3, 8), torch.randn(8)


def test_a_call_enters_few_functions(capsys):
    """With the launch left out; where a GPU knows the values, it does not check them."""
    rows = host.run("cpu", launch=False, rounds=1)
    assert rows and all(row[key] > 0 for row in rows for key in ("us", "torch_us"))
    assert all(row["us"] == row["fastest_us"] for row in rows)  # there is but one round
    entered = {row["operator"]: row["python_calls"] for row in rows}
    assert entered.keys() == MOST_CALLS.keys()
    assert all(entered[name] <= most for name, most in MOST_CALLS.items()), entered
    assert capsys.readouterr().out.count("Python calls") == len(rows)


def test_a_recorded_call_is_left_out_like_a_first_one():
    kernels = jit.load("norm/rms_norm.cu")
    kernel = kernels.rms_norm_f32.kernel[1]
    with host.no_launches():
        again = kernels.repeat(kernel, 0, ())
    assert again.keys() == {"start", "pack", "first", "fail"}
    assert not again["start"](again["pack"](again["first"], 1, 2))


def test_torch_sees_a_call_wherever_it_looks():
    with Seen() as seen:
        want = rms_norm(X, WEIGHT)
    assert "yaie.rms_norm.default" in seen.names
    with torch.profiler.profile() as profile:
        assert torch.equal(rms_norm(X, WEIGHT), want)
    assert "yaie::rms_norm" in {event.key for event in profile.key_averages()}
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph

    assert torch.equal(torch.compile(rms_norm, backend=keep, fullgraph=True)(X, WEIGHT), want)
    assert "torch.ops.yaie.rms_norm.default" in graphs[0].code
    with torch.device("meta"):  # a mode, though all tensors are here
        assert torch.equal(rms_norm(X, WEIGHT), want)
    q, pool = torch.empty(2, 3, 4, device="meta"), torch.empty(5, 2, 3, 4, device="meta")
    tables, ends = (torch.empty(n, dtype=torch.int32, device="meta") for n in ((2, 2), (3,)))
    out, lse = paged_attention_forward(q, pool, pool, tables, ends[1:], ends)
    assert out.is_meta and (out.shape, lse.shape) == (q.shape, q.shape[:2])


def test_past_the_dispatcher_gradients_and_versions_are_kept():
    leaf = WEIGHT.clone().requires_grad_()
    with pytest.raises(NotImplementedError, match="has no gradient here"):
        rms_norm(X, leaf).sum().backward()
    with torch.no_grad():
        assert not rms_norm(X, leaf).requires_grad
    pools = [torch.zeros(2, 4, 1, 2) for _ in range(2)]
    keys = torch.randn(3, 1, 2)
    before = [pool._version for pool in pools]
    reshape_and_cache(keys, keys, *pools, torch.tensor([0, 5, 2]))
    assert [pool._version for pool in pools] == [version + 1 for version in before]

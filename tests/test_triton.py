"""What only the Triton back end has: configurations, tiles, large strides, and the interpreter.

Its kernels are interpreted on a CPU and compiled on a GPU. `test_kernels`, `test_kv_kernels` and
the tests of attention compare them with float64 together with the other back ends'.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from attention_cases import (
    GPU,
    Shape,
    attend,
    attend_paged,
    batch,
    paged_oracle,
    ragged,
    ragged_oracle,
)
from attention_cases import close as close_states
from launches import each_dtype, ints, near

triton = pytest.importorskip("triton", reason="Triton exists for Linux only")

from yaie.course.lessons.ops.attention import attention_forward  # noqa: E402
from yaie.course.lessons.ops.matrix import matmul  # noqa: E402
from yaie.course.lessons.ops.rows import softmax  # noqa: E402
from yaie.course.lessons.ops.triton import matmul as matmul_module  # noqa: E402
from yaie.ops import registry  # noqa: E402
from yaie.ops.attention import paged_attention_forward  # noqa: E402
from yaie.ops.elementwise import silu_and_mul  # noqa: E402
from yaie.ops.interpreter import how_triton_runs  # noqa: E402
from yaie.ops.kv import reshape_and_cache  # noqa: E402
from yaie.ops.norm import rms_norm  # noqa: E402
from yaie.ops.reference.rotary import rotary_tables  # noqa: E402
from yaie.ops.rotary import rotary  # noqa: E402
from yaie.ops.triton import flash, norm, paged, runtime  # noqa: E402

DEVICE = "cuda" if GPU else "cpu"
INF = float("inf")
pytestmark = [pytest.mark.usefixtures("poison", "warm_python"), *([pytest.mark.gpu] if GPU else [])]


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype)


# ------------------------------------------------------------------------------------- rows


def test_silu_of_what_overflows():
    x = ints([[1e4, -1e4, 1.0, 1.0]], DEVICE, torch.float32)
    assert silu_and_mul(x, backend="triton").tolist() == [[1e4, 0.0]]


@pytest.mark.parametrize("columns", [5, 40000], ids=["in registers", "long"])
def test_softmax_of_extremes(columns):
    x = draw(4, columns)
    x[0] = -INF
    x[1] = 1e4 + x[1]
    x[2, 1:] = -INF
    out = softmax(x, backend="triton")
    assert (out[0] == 0).all()
    near(out[1:], x[1:].double().softmax(1))
    x = draw(2, columns, dtype=torch.float16)
    near(softmax(x, backend="triton"), x.double().softmax(1))
    x = torch.full((2, columns), torch.finfo(torch.float32).min, device=DEVICE)  # a usual mask
    x[1, -1] = 1.0
    near(softmax(x, backend="triton"), x.double().softmax(1))


@pytest.mark.parametrize("programs", [0, 1, 3])
def test_programs_that_take_several_rows(programs, monkeypatch):
    config = {"num_warps": 4, "programs": programs, "STAGES": 2}
    monkeypatch.setattr(norm, "_row_configs", lambda block: [config])
    monkeypatch.setattr(norm, "multiprocessors", lambda device: 2)
    runtime.TUNED.clear()
    x, weight = draw(11, 33), draw(33)
    near(softmax(x, backend="triton"), x.double().softmax(1))
    wanted = F.rms_norm(x.double(), (33,), weight.double(), 1e-6)
    near(rms_norm(x, weight, backend="triton"), wanted)


def test_a_norm_of_rows_that_are_too_long_says_so():
    x, weight = torch.zeros(1, 40000, device=DEVICE), torch.ones(40000, device=DEVICE)
    with pytest.raises(ValueError, match="rows have at most 32768 elements, got 40000"):
        rms_norm(x, weight, backend="triton")


# ------------------------------------------------------------------------------------- rotary


FAR = 1 << 30  # elements from one head to the next: the third is beyond what 32 bits count


def far_apart(*shape: int) -> torch.Tensor:
    """Heads of one token in memory that is not touched between them; `empty` would fill it here."""
    memory = torch.empty_strided(shape, (64, FAR, 1), dtype=torch.float16, device=DEVICE)
    return memory.copy_(draw(*shape))


@pytest.mark.parametrize("operator", ["rotary", "paged_attention", "reshape_and_cache"])
def test_heads_that_lie_far_apart(operator):
    x = far_apart(1, 3, 64)
    near = x.contiguous()
    if operator == "rotary":
        cos, sin = (table.to(DEVICE) for table in rotary_tables(64, 8))
        rest = (ints([5], DEVICE, torch.int64), cos, sin)
        assert torch.equal(
            rotary(x, *rest, backend="triton"), rotary(near, *rest, backend="triton")
        )
    elif operator == "paged_attention":
        pools = [draw(2, 4, 3, 64, dtype=torch.float16) for _ in range(2)]
        rest = (*pools, *(ints(x, DEVICE) for x in ([[1]], [3], [0, 1])))
        out, wanted = (paged_attention_forward(q, *rest, backend="triton")[0] for q in (x, near))
        assert torch.equal(out, wanted)
    else:
        pools = [torch.zeros(2, 4, 3, 64, dtype=torch.float16, device=DEVICE) for _ in range(2)]
        reshape_and_cache(x, x, *pools, ints([6], DEVICE, torch.int64), backend="triton")
        assert all(torch.equal(pool[1, 2], near[0]) for pool in pools)


# ------------------------------------------------------------------------------------- matmul

SIZES = [(1, 1, 1), (65, 130, 33), (128, 64, 96), (200, 136, 72), (0, 3, 4), (3, 0, 4), (3, 4, 0)]
if GPU:
    SIZES += [(1823, 781, 345), (1, 4096, 4096), (1024, 1024, 1024), (513, 2056, 264)]


@each_dtype()
@pytest.mark.parametrize("large", [False, True], ids=["pointers", "descriptors"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul(size, large, dtype, monkeypatch):
    monkeypatch.setattr(matmul_module, "LARGE", 0 if large else 1 << 60)
    for configs in ("CONFIGS", "DESCRIPTOR_CONFIGS"):
        monkeypatch.setattr(matmul_module, configs, getattr(matmul_module, configs)[:1])
    m, n, k = size
    a, b = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype)
    near(matmul(a, b, backend="triton"), a.double() @ b.double())


@pytest.mark.parametrize("index", range(len(matmul_module.DESCRIPTOR_CONFIGS)))
def test_every_tile_of_matmul(index, monkeypatch):
    if not GPU and index % 5:
        pytest.skip("interpreted, the configurations differ little")
    config = matmul_module.DESCRIPTOR_CONFIGS[index]
    monkeypatch.setattr(matmul_module, "LARGE", 0)
    monkeypatch.setattr(matmul_module, "DESCRIPTOR_CONFIGS", [config])
    runtime.TUNED.clear()
    a, b = draw(300, 136, dtype=torch.float16), draw(136, 520, dtype=torch.float16)
    near(matmul(a, b, backend="triton"), a.double() @ b.double())


def test_grouped_order_visits_every_tile_once():
    """The order of the grid in plain Python, with a last group that is lower than the others."""
    order = matmul_module.grouped_tile.fn
    tiles = [order(i, 11, 7, 4) for i in range(77)]
    assert sorted(tiles) == [(m, n) for m in range(11) for n in range(7)]
    assert [m for m, _ in tiles[:8]] == [0, 1, 2, 3, 0, 1, 2, 3]


# ------------------------------------------------------------------------------------- attention

# A configuration takes tens of seconds to compile: each is a test of its own.
FLASH_TILES = [(d, i) for d in (64, 128, 256) for i in range(len(flash._configs(d, 2)))]
if not GPU:
    FLASH_TILES = [(d, len(flash._configs(d, 2)) - 1) for d in (64, 128, 256)]


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize(("dim", "index"), FLASH_TILES)
def test_every_tile_of_flash_attention(dim, index, causal, monkeypatch):
    config = flash._configs(dim, 2)[index]
    monkeypatch.setattr(flash, "_configs", lambda *_: [config])
    runtime.TUNED.clear()
    lengths = [(300, 300), (0, 7), (1, 1), (129, 513), (20, 10), (0, 0)]
    operands = ragged(lengths if GPU else lengths[2:], 2, 1, dim, torch.float16, DEVICE)
    close_states(attend("triton", *operands, causal), ragged_oracle(*operands, causal))


@pytest.mark.parametrize("dim", [3, 512])
def test_flash_attention_says_what_it_cannot(dim):
    q = torch.zeros(2, 1, dim, device=DEVICE)
    with pytest.raises(ValueError, match="'triton' cannot: head_dim is at most 256"):
        attention_forward(q, q, q, backend="triton")


@pytest.mark.parametrize("index", range(len(paged._configs(16, 64, 2))))
def test_every_tile_of_paged_attention(index, monkeypatch):
    if not GPU and index % 8:
        pytest.skip("interpreted, the configurations differ little")
    config = paged._configs(16, 64, 2)[index]
    monkeypatch.setattr(paged, "_configs", lambda *_: [config])
    runtime.TUNED.clear()
    operands = batch(Shape((300, 513, 1), 4, 1), torch.float16, DEVICE)
    close_states(attend_paged("triton", operands), paged_oracle(*operands))


def test_splits_are_no_more_than_the_tiles():
    assert paged._num_splits(1, 0, 1000) == 1
    assert paged._num_splits(512, 64, 132 * 16) == 8
    assert paged._num_splits(1, 512, 132 * 16) == 128
    assert paged._num_splits(5000, 512, 132 * 16) == 1


def test_paged_attention_says_what_it_cannot():
    operands = batch(Shape((3,), 1, 1, 512), torch.float32, DEVICE)
    with pytest.raises(ValueError, match="'triton' cannot: head_dim is at most 256"):
        paged_attention_forward(*operands, backend="triton")


# ------------------------------------------------------------------------------------- runtime


def test_where_triton_runs():
    if runtime.INTERPRETED:
        assert "interpreter" in how_triton_runs()
    else:
        assert torch.cuda.get_device_name() in how_triton_runs()


def test_float64_is_refused_and_auto_passes_on(monkeypatch):
    x = draw(2, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="'triton' cannot: the kernels compute in float32"):
        softmax(x, backend="triton")
    monkeypatch.setitem(registry.ORDER, DEVICE, ("triton", "reference"))
    monkeypatch.setattr(registry, "_announced", set())
    with pytest.warns(registry.FallbackWarning, match="compute in float32"):
        out = softmax(x)
    torch.testing.assert_close(out, x.softmax(1))


@pytest.mark.skipif(GPU, reason="about the interpreter")
def test_threads_take_turns_in_the_interpreter():
    """It keeps the program that it computes, and what `tl` means, in variables of its module."""
    rows = [draw(5 + i % 4, 64) for i in range(24)]
    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(lambda x: silu_and_mul(x, backend="triton"), rows))
    for x, out in zip(rows, got, strict=True):
        near(out, F.silu(x[:, :32].double()) * x[:, 32:].double())


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | environment,
    )


@pytest.mark.skipif(GPU, reason="about machines without a GPU")
def test_triton_that_came_too_early_is_an_error_that_says_how():
    done = run("import triton; import yaie.ops.triton.runtime")
    assert "triton was imported before TRITON_INTERPRET=1 was set" in done.stderr


def test_where_triton_does_not_exist_it_is_said():
    done = run(
        "import sys; sys.modules['triton'] = None\n"
        "import importlib.util as u; u.find_spec = lambda name: None\n"
        "import torch\n"
        "from yaie.ops.interpreter import how_triton_runs; print(how_triton_runs())\n"
        "from yaie.course.lessons.ops.rows import softmax\n"
        "try: softmax(torch.ones(2, 2), backend='triton')\n"
        "except ValueError as error: print(error)\n"
    )
    said = "Triton is not installed (it exists for Linux only): the reference is used instead."
    first, second = done.stdout.splitlines()
    assert first == said and second == f"softmax: backend 'triton' cannot: {said}"


def test_a_configuration_is_timed_once_a_key(monkeypatch):
    monkeypatch.setattr(runtime, "INTERPRETED", False)
    monkeypatch.setattr(runtime, "TUNED", {})
    timed = []

    def time(launch, config):
        timed.append(config["n"])
        return {1: 3.0, 2: 1.0, 3: 2.0}[config["n"]]

    monkeypatch.setattr(runtime, "_time", time)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    configs = [{"n": 1}, {"n": 2}, {"n": 3}]
    choose = runtime.fastest
    assert choose(("small",), configs, print, large=False) == {"n": 1} and not timed
    assert choose(("k", 7), configs, print, large=True) == {"n": 2}
    assert choose(("k", 7), configs, print, large=False) == {"n": 2} and timed == [1, 2, 3]
    assert runtime.TUNED == {("k", 7): ({"n": 2}, 1.0)}

"""Which code computes an operator: what `auto` passes over, where it looks, and what it keeps."""

import os
import shutil
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from attention_cases import Shape, batch
from launches import each_dtype

from yaie.build import jit, nvcc
from yaie.course.core.cuda import operator_by
from yaie.course.lessons.ops.cuda import matrix
from yaie.course.lessons.ops.matrix import transpose
from yaie.course.lessons.ops.reference.matrix import transpose as plain_transpose
from yaie.course.lessons.ops.rows import softmax
from yaie.model import llama
from yaie.ops import registry
from yaie.ops.cuda import flash, launching, paged
from yaie.ops.norm import rms_norm
from yaie.ops.reference.online_softmax import safe_softmax

DOUBLED = """
#include "common.cuh"
extern "C" cudaError_t rms_norm_f32(const float* x, const float* weight, float* out, int rows,
                                    int columns, float eps, cudaStream_t stream) {
  return cudaErrorInvalidValue;
}
"""


@pytest.fixture
def kernels(monkeypatch, tmp_path):
    """A copy of csrc/ in place of it."""
    shutil.copytree(jit.CSRC, tmp_path / "csrc")
    monkeypatch.setattr(jit, "CSRC", tmp_path / "csrc")
    launching.launcher.cache_clear()
    yield tmp_path / "csrc"
    launching.launcher.cache_clear()


# ------------------------------------------------------------------------------------- kernels


def test_kernels_of_the_present_folder_are_not_the_engines(monkeypatch, tmp_path):
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "rms_norm.cu").write_text(DOUBLED)
    monkeypatch.chdir(tmp_path)
    launching.launcher.cache_clear()
    x = torch.ones(2, 8)
    torch.testing.assert_close(rms_norm(x, x[0], backend="cuda"), x, rtol=1e-5, atol=0)
    assert jit.load("norm/rms_norm.cu").path == tmp_path / "norm" / "rms_norm.cu"  # a user's load


def test_an_edited_kernel_is_loaded_again(kernels):
    """When the launchers are asked for anew, as an edited module of Python is."""
    x = torch.ones(1, 8)
    file, name = "transpose/transpose.cu", "transpose_f32"
    assert torch.equal(transpose(x, backend="cuda"), x.t())
    before = launching.launcher(file, name)
    (kernels / file).write_text((kernels / file).read_text() + "// edited\n")
    assert launching.launcher(file, name) is before
    launching.launcher.cache_clear()
    assert launching.launcher(file, name) is not before
    assert torch.equal(transpose(x, backend="cuda"), x.t())


def test_a_learners_edited_file_is_taken_by_the_next_engine(tmp_path):
    file = tmp_path / "mine.cu"
    file.write_text(DOUBLED.replace("rms_norm_f32", "rms_norm_simple_f32"))
    fit, x = operator_by("yaie.ops.cuda.norm:rms_norm", name="rms_norm_simple"), torch.ones(2, 8)
    with pytest.raises(jit.KernelError, match=r"invalid argument|InvalidValue"):
        fit(file)(x, x[0], 1e-6)
    file.write_text((jit.CSRC / "norm" / "rms_norm_simple.cu").read_text())
    torch.testing.assert_close(fit(file)(x, x[0], 1e-6), x, rtol=1e-5, atol=0)


def test_a_kernel_is_not_looked_at_for_every_call(kernels, monkeypatch):
    launcher = launching.launcher("norm/rms_norm.cu", "rms_norm_f32")
    monkeypatch.setattr(os, "stat", None)
    assert launching.launcher("norm/rms_norm.cu", "rms_norm_f32") is launcher


def test_constants_are_read_from_the_kernels_file(kernels):
    (kernels / "some.cuh").write_text(
        "constexpr int A = 8, THREADS = A * WARP;  // a comment, B = 3\n"
        "constexpr int SIZE = Vec<int>::SIZE;\nvoid f() {\n    constexpr int INSIDE = 1;\n}\n"
    )
    assert launching.constants("some.cuh") == {"WARP": 32, "A": 8, "THREADS": 256}


@pytest.mark.parametrize("missing", ["nvcc", "host compiler"])
def test_where_a_compiler_is_missing_auto_goes_on(missing, monkeypatch):
    """On a GPU; whose tensors these pretend to be."""

    def broken(*arguments):
        raise jit.CompileError("no such program")

    class OnGpu:
        is_cuda = True

    monkeypatch.setattr(launching, "launcher", lambda file, name: broken)
    monkeypatch.setattr(nvcc, "find", lambda: None if missing == "nvcc" else "nvcc")
    monkeypatch.setattr(nvcc, "has_host_compiler", lambda: missing == "nvcc")
    with pytest.raises(registry.Unsupported, match="no such program"):
        launching.call("x.cu", "f", OnGpu())
    with pytest.raises(jit.CompileError):
        launching.call("x.cu", "f", torch.ones(1))
    monkeypatch.setattr(nvcc, "find", lambda: "nvcc")
    monkeypatch.setattr(nvcc, "has_host_compiler", lambda: True)
    with pytest.raises(jit.CompileError):  # the source is wrong: that is for who wrote it
        launching.call("x.cu", "f", OnGpu())


# ------------------------------------------------------------------------------------- rungs


@pytest.fixture
def launched(monkeypatch) -> list[str]:
    """The files whose launchers were called; nothing is launched."""
    files: list[str] = []
    monkeypatch.setattr(launching, "launcher", lambda file, name: lambda *_: files.append(file))
    return files


@pytest.fixture
def on_card(monkeypatch):
    """Make CPU tensors pass for tensors of a GPU with a given compute capability."""

    def pretend(capability: tuple[int, int]) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.Tensor, "is_cuda", True)

    return pretend


@pytest.mark.parametrize("card", [(7, 0), (7, 5), (8, 0), (9, 0)])
@pytest.mark.parametrize("size", [36, 64, 65, 80, 128, 136])
@each_dtype()
def test_the_best_rung_that_fits_is_taken(card, size, dtype, launched, on_card):
    a, b, q = (torch.zeros(shape, dtype=dtype) for shape in ((3, 64), (64, size), (3, 2, size)))
    operands = batch(Shape((9,), head_dim=size), dtype)
    on_card(card)
    matrix.matmul(a, b)
    flash.best(q, q, q, True, None, flash.Sequences())
    paged.paged_attention(*operands, None)
    tensor_cores = card >= (8, 0) and dtype != torch.float32
    product = "mma" if tensor_cores else "register_tile"
    if tensor_cores and card == (9, 0):
        product = "hopper/shares"
    if dtype == torch.float16 and card == (7, 5):
        product = "wmma"
    tiles = "shared_tile" if size <= 128 else "row"
    assert launched == [
        f"matmul/{product if size % 8 == 0 else 'register_tile'}.cu",
        f"flash/{'mma' if tensor_cores and size % 8 == 0 and size <= 128 else tiles}.cu",
        f"paged/{'mma' if tensor_cores and size in (64, 128) else 'split'}.cu",
    ]


@pytest.mark.parametrize(
    ("more", "shape", "dtype", "taken"),
    [
        (0, {}, torch.float16, "paged/mma"),
        (1, {}, torch.float16, "flash/mma"),
        (0, {"head_dim": 80}, torch.float16, "flash/mma"),
        (0, {"heads": 34}, torch.float16, "flash/mma"),
        (0, {}, torch.float32, "flash/shared_tile"),
    ],
)
def test_a_few_queries_are_computed_like_a_decode_step(
    more, shape, dtype, taken, launched, on_card
):
    """On tensor cores: no other rung of decode steps is as fast as the prompts' kernels."""
    queries = (paged.FEW_QUERIES - 9 + more, 9)
    operands = batch(Shape((90, 9), queries=queries, **shape), dtype)
    paged.paged_attention(*operands, None)
    on_card((9, 0))
    paged.paged_attention(*operands, None)
    assert launched == ["flash/shared_tile.cu", f"{taken}.cu"]


# ------------------------------------------------------------------------------------- auto


def test_a_fallback_is_said_once_whatever_the_sizes(monkeypatch):
    def never(x):
        raise registry.Unsupported(f"rows have at most 5 elements, got {x.shape[1]} of {x.dtype}")

    monkeypatch.setitem(registry._FUNCTIONS["softmax"], "mine", never)
    monkeypatch.setitem(registry.ORDER, "cpu", ("mine", "reference"))
    monkeypatch.setattr(registry, "_announced", set())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for columns in range(6, 12):
            softmax(torch.ones(1, columns))
        softmax(torch.ones(1, 6, dtype=torch.float16))  # another reason
    assert [str(w.message) for w in said] == [
        "softmax: 'mine' passed over: rows have at most 5 elements, got 6 of torch.float32",
        "softmax: 'mine' passed over: rows have at most 5 elements, got 6 of torch.float16",
    ]
    assert len(registry._announced) == 2


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ((8, 0), "paged_attention, sample by cuda"),
        ((9, 0), "paged_attention by cuda_hopper; sample by cuda"),
    ],
)
def test_a_back_end_for_other_cards_is_not_named(card, words, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: card)
    chosen = {"paged_attention": "auto", "sample": "auto"}
    assert registry.in_words(chosen, torch.device("cuda", 0)) == words


def test_a_device_without_a_list_has_the_reference():
    assert registry.order("add", "mps") == ["reference"]
    assert registry.compute("add", "auto", "mps", torch.ones(2), torch.ones(2)).tolist() == [2, 2]


# ------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1), (0, 1), (3, 4)], ids=str)
@pytest.mark.parametrize("backend", ["reference", "cuda"])
def test_a_transposed_matrix_is_a_copy(shape, backend):
    x = torch.randn(shape)
    before = x.clone()
    out = transpose(x, backend=backend)
    assert out.is_contiguous() and torch.equal(out, x.t())
    out.zero_()
    assert torch.equal(x, before)
    assert plain_transpose(x).data_ptr() != x.data_ptr() or not x.numel()


def test_weights_of_no_keys_are_a_copy():
    scores = torch.ones(3, 0)
    assert safe_softmax(scores)[0] is not scores


# ------------------------------------------------------------------------------------- one's own

MINE = """
def rotate(x, positions, cos, sin): return x
def too_few(x): return x
number = 5
"""


def test_a_function_by_its_place_is_a_back_end(monkeypatch, tmp_path):
    (tmp_path / "mine_to_plug.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(registry._FUNCTIONS, "rotary", dict(registry._FUNCTIONS["rotary"]))
    place = "mine_to_plug:rotate"
    chosen = registry.choose(["rotary", "sample"], {"rotary": place})
    assert chosen == {"rotary": place, "sample": "auto"}
    assert registry.resolve("rotary", place)(1, 2, 3, 4) == 1
    assert registry.in_words(chosen, "cpu") == f"rotary by {place}; sample by reference"
    for place, error, words in (
        (
            "no_such_module:f",
            ValueError,
            "'cuda' or .*got 'no_such_module:f': No module",
        ),
        (
            "mine_to_plug:nothing",
            ValueError,
            "or module:function, .* no attribute 'nothing'",
        ),
        ("mine_to_plug:too_few", TypeError, r"\(x, positions, cos, sin\), got .*: too many pos"),
        ("torch:relu", TypeError, "a function of .*, got 'torch:relu': no signature found"),
        ("mine_to_plug:number", TypeError, "a function of .*, got 'mine_to_plug:number': 5 is not"),
    ):
        with pytest.raises(error, match=f"backend of rotary must be .*{words}"):
            registry.choose(["rotary"], {"rotary": place})
        assert place not in registry.backends("rotary")
    with pytest.raises(ValueError, match="operators are 'rotary', got 'rotation'"):
        registry.choose(["rotary"], {"rotation": "mine_to_plug:rotate"})
    with pytest.raises(ValueError, match=r"backend of rotary must be .*, got None"):
        registry.choose(["rotary"], {"rotary": None})


def test_a_back_end_of_ones_own_leaves_the_others_as_they_are(monkeypatch):
    """An engine with a learner's operator must not slow down the next engine in the process."""
    monkeypatch.setattr(registry, "replaced", replaced := set())
    monkeypatch.setitem(registry._FUNCTIONS, "rotary", dict(registry._FUNCTIONS["rotary"]))

    def uses_the_engines_kernel(backend="auto"):
        return llama.Llama._is_own(SimpleNamespace(backends={"rotary": backend}), "rotary")

    for _ in range(2):
        registry.register("rotary", "mine", print)
    assert uses_the_engines_kernel() and not uses_the_engines_kernel("mine")
    registry.register("rotary", "cuda", print)
    assert not uses_the_engines_kernel() and not uses_the_engines_kernel("cuda")
    replaced.clear()
    registry.prefer("rotary", "mine")
    assert not uses_the_engines_kernel()
    registry.prefer("rotary", None)
    assert uses_the_engines_kernel()

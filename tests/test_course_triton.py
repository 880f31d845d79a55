"""Exercises in Triton: how kernels are watched and judged, and what happens without Triton."""

import os
import subprocess
import sys

import pytest
import torch

from yaie.course.core import exercise, notebook, render
from yaie.course.core.manifest import find
from yaie.course.core.observe import Found, Observer, Stop
from yaie.course.core.paths import ROOT
from yaie.course.core.triton import HAS_TRITON, can_watch, launch, run, tl, triton, watch
from yaie.course.core.verdict import Verdict, judge
from yaie.course.lessons import measure

FIRST = find("11.1")
SOLVED = (ROOT / "solutions" / FIRST.file).read_text()

if not HAS_TRITON:
    pytest.skip("Triton is not installed", allow_module_level=True)
from yaie.course.lessons.ops.triton import elementwise, rows  # noqa: E402
from yaie.ops.triton import norm  # noqa: E402

needs_interpreter = pytest.mark.skipif(not can_watch(), reason="kernels are compiled here")


pytestmark = pytest.mark.usefixtures("folders", "warm_python")


@needs_interpreter
def test_checks_of_other_exercises_do_not_keep_triton_from_its_interpreter() -> None:
    """As in `yaie check all`: PyTorch's counter of FLOPs, which 08.1 uses, imports Triton."""
    code = """
from yaie.course.core import exercise, judge
from yaie.course.core.manifest import find
list(find("08.1").cases())
found = find("12.3")
assert judge.first_failure(found, exercise.load_reference(found)) is None
"""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


@needs_interpreter
def test_the_quicker_interpreter_replaces_every_function_and_gives_all_of_them_back() -> None:
    from triton.runtime import interpreter

    packages = (tl, tl.math, tl.tensor, tl.core.tensor_descriptor_base)

    def builtins() -> list[tuple]:
        every = [(package, name) for package in packages for name in dir(package)]
        return [place for place in every if tl.core.is_builtin(getattr(*place))]

    before = builtins()
    for _ in range(2):
        scope = interpreter._patch_lang(elementwise.add_kernel.fn)
        inner = interpreter._patch_lang(elementwise.add_kernel.fn)  # of a kernel that it calls
        assert before and not builtins()
        inner.restore()
        scope.restore()
        assert builtins() == before
    for dtype in (tl.int1, tl.uint16, tl.bfloat16, tl.float32, tl.pointer_type(tl.float32)):
        block = tl.block_type(dtype, [8])
        of_pointers = isinstance(dtype, tl.pointer_type)
        size = 8 if of_pointers else max(1, dtype.primitive_bitwidth // 8)
        assert interpreter._get_np_dtype(dtype) == interpreter._get_np_dtype(block)
        assert interpreter._get_np_dtype(dtype).itemsize == size


def verdict(old: str, new: str) -> Verdict:
    """Of the solution with one piece of it replaced."""
    assert old in SOLVED
    exercise.learner_path(FIRST).write_text(SOLVED.replace(old, new))
    return judge(FIRST)


# ------------------------------------------------------------------------------------ judging


def test_stub_compiles_and_is_not_started_until_a_line_is_written() -> None:
    text, path = render.stub(FIRST), exercise.learner_path(FIRST)
    assert "@triton.jit\ndef add_kernel(" in text
    assert text.rstrip().endswith(f"pass  # Exercise 11.1: {FIRST.title}")
    out = torch.zeros(8)
    if can_watch():
        exercise.load(FIRST, path)[(1,)](out, out, out, 8, BLOCK=8)
    assert not out.any() and judge(FIRST).state == "not started"
    path.write_text(text + "# edited\n")
    assert judge(FIRST).state == "not started"
    path.write_text(text.replace("    pass", "    offsets = 0"))
    got = judge(FIRST)
    assert got.state == "fails" and "no program has stored anything" in got.message


def test_kernel_must_stay_a_kernel_of_the_file() -> None:
    got = verdict("@triton.jit\n", "")
    assert got.state == "broken" and "@triton.jit above add_kernel is gone" in got.message
    exercise.learner_path(FIRST).write_text(
        "from yaie.course.lessons.ops.triton.elementwise import add_kernel\n"
    )
    assert "no longer defines add_kernel" in judge(FIRST).message


@needs_interpreter
def test_crash_names_the_learners_line() -> None:
    got = verdict("offsets < size", "offset < size")
    assert got.crashed and "in add_kernel" in got.message
    assert "NameError: name 'offset' is not defined" in got.message
    assert "InterpreterError" not in got.message


SLIPS = [  # a line of the solution, its replacement, a part of the message
    ("x = tl.load(x_ptr + offsets, mask=inside)", "x = x_ptr[offsets]", "a pointer has no index"),
    ("tl.store(out_ptr + offsets, x + y, mask=inside)", "out_ptr[offsets] = x + y", "has no index"),
    ("inside = offsets < size", "first = offsets[0]", "only `:` and `None` index a block"),
    ("out_ptr + offsets, x + y,", "x + y, out_ptr + offsets,", "tl.store(addresses, block, mask"),
    ("tl.load(x_ptr + offsets, mask=inside)", "tl.load(x_ptr, offsets)", "tl.load(addresses, ma"),
    ("out_ptr + offsets, x + y, mask=inside", "out_ptr, x + y", "is a block of addresses"),
    ("inside = offsets < size", "if offsets < size: return", "a block of 32 values is neither"),
    ("offsets < size", "0 <= offsets < size", "Instead of `and`, `or`, `not` write &"),
    ("offsets < size", "not (offsets >= size)", "Instead of `and`, `or`, `not` write &"),
]


@needs_interpreter
@pytest.mark.parametrize(("old", "new", "said"), SLIPS)
def test_slips_are_told_with_what_to_write(old: str, new: str, said: str) -> None:
    """Triton's compiler refuses all but `not`, which its interpreter gets wrong."""
    got = verdict(old, new)
    assert got.crashed and said in got.message and "raised in" not in got.message


@needs_interpreter
def test_one_value_decides_as_in_the_compiler() -> None:
    first = "tl.program_id(0) * BLOCK"
    text = SOLVED.replace("offsets < size", f"(offsets < size) & (not {first} >= size)")
    exercise.learner_path(FIRST).write_text(text)
    assert judge(FIRST).state == "passes"


def test_another_process_judges_in_the_interpreter(monkeypatch) -> None:
    monkeypatch.setattr("yaie.course.core.verdict._interprets", lambda: False)
    exercise.learner_path(FIRST).write_text(SOLVED)
    assert judge(FIRST).state == "passes"
    got = verdict("offsets < size", "offsets <= size")
    assert got.state == "fails" and "one lane too many" in got.message


WITHOUT = """
import importlib.util, sys
there = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "triton" else there(name, *more)
sys.modules["triton"] = None
from yaie.course.core.triton import HAS_TRITON, or_reference, tl, triton
from yaie.course import check, use

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, 1.0)

kernel[(triton.cdiv(10, 4),)](None, BLOCK=triton.next_power_of_2(3))
print(HAS_TRITON, triton.cdiv(10, 4), triton.next_power_of_2(3), triton.next_power_of_2(1))
print(or_reference(abs)(print)(-2))
check("11.1")
use("11.1")[(1,)](BLOCK=3)
"""


def test_without_triton_it_is_said_and_nothing_breaks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, env={**os.environ}
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "False 3 4 1",
        "2",
        f"11.1 {FIRST.title}: cannot be checked.",
        "  Triton is not installed (it exists for Linux only): the reference is used instead.",
        "11.1 add_kernel: the reference, yours cannot be loaded.",
    ]


@needs_interpreter
def test_use_gives_the_learners_kernel() -> None:
    from yaie.course.lessons.ops.triton.elementwise import add_kernel

    assert notebook.use("11.1") is add_kernel
    exercise.learner_path(FIRST).write_text(SOLVED)
    assert notebook.use("11.1") is not add_kernel


# ------------------------------------------------------------------------------------ watching


@triton.jit
def shift_kernel(x_ptr, out_ptr, by, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets + by)
    tl.store(out_ptr + offsets, x)


@triton.jit
def half_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < BLOCK // 2)
    tl.store(out_ptr + offsets, x)


@needs_interpreter
def test_strays_are_seen_and_kept_from_memory() -> None:
    room, out = torch.arange(40.0), torch.zeros(40)
    with watch(y=room[8:24]) as trace:
        shift_kernel[(5,)](room[8:24], out[:16], 3, BLOCK=4)
    assert not out[16:].any(), "a store beyond the end reached its neighbor"
    assert out[:13].tolist() == list(range(11, 24)) and out[13:16].isnan().all()
    loads = [(a.program[0], a.elements[a.stray].tolist()) for a in trace.of("y", "load")]
    assert {a.name for a in trace.of("out")} == {"out"} and not trace.of("x")
    assert loads[2:] == [(2, []), (3, [16, 17, 18]), (4, [19, 20, 21, 22])]
    assert trace.num_bytes("load") == 4 * 13 and trace.num_bytes("store") == 4 * 16
    assert trace.strays[0].text == "x = tl.load(x_ptr + offsets + by)"
    with watch() as after:
        pass
    shift_kernel[(1,)](room, out, 0, BLOCK=4)
    assert not after.accesses, "watching goes on after its end"


@triton.jit
def count_kernel(out_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(out_ptr + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32) + 1)


@needs_interpreter
def test_atomic_operations_are_watched_as_stores() -> None:
    room = torch.zeros(8)
    with watch() as trace:
        count_kernel[(2,)](room[:5], BLOCK=8)
    assert room.tolist() == [2.0] * 5 + [0.0] * 3
    assert [(a.kind, a.elements[a.stray].tolist()) for a in trace.strays] == [
        ("store", [5, 6, 7])
    ] * 2


@triton.jit
def swap_kernel(out_ptr, old_ptr, first, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    zeros = tl.zeros((BLOCK,), tl.int32)
    tl.store(old_ptr + lanes, tl.atomic_cas(out_ptr + first + lanes, zeros, zeros + 7))


@triton.jit
def lock_kernel(out_ptr, first):
    while tl.atomic_cas(out_ptr + first, 0, 1) != 0:
        pass


@needs_interpreter
def test_compare_and_swap_beyond_the_end_reaches_no_memory() -> None:
    """Past the end it finds a zero, so a lock that does not exist is free for every program."""
    old, room = torch.zeros(2, 8, dtype=torch.int32)  # `room` is nearer to far addresses
    old[:], room[1] = 5, 3
    with watch() as trace:
        swap_kernel[(1,)](room[:5], old, 0, BLOCK=8)
        swap_kernel[(1,)](room[:5], old, 10**9, BLOCK=8)
        lock_kernel[(2,)](room[:5], 10**9)
    assert room.tolist() == [7, 3, 7, 7, 7, 0, 0, 0] and not old.any()
    strays = [(a.kind, a.name, a.elements[a.stray].tolist()) for a in trace.strays]
    far = [("store", "out", [*range(10**9, 10**9 + 8)])] + [("store", "out", [10**9])] * 2
    assert strays == [("store", "out", [5, 6, 7]), *far]


@needs_interpreter
def test_a_tensor_without_elements_is_watched() -> None:
    with watch() as trace:
        shift_kernel[(1,)](torch.ones(0), torch.ones(0), 0, BLOCK=4)
    assert [(a.kind, a.elements[a.stray].tolist()) for a in trace.strays] == [
        ("load", [0, 1, 2, 3]), ("store", [0, 1, 2, 3])
    ]  # fmt: skip


@needs_interpreter
def test_masked_lanes_without_a_value_are_nan() -> None:
    for dtype in (torch.float32, torch.float16):
        x, out = torch.ones(8, dtype=dtype), torch.zeros(8, dtype=dtype)
        half_kernel[(1,)](x, out, BLOCK=8)
        assert out.tolist() == [1.0] * 4 + [0.0] * 4
        with watch():
            half_kernel[(1,)](x, out, BLOCK=8)
        assert out[:4].tolist() == [1.0] * 4 and out[4:].isnan().all()


@needs_interpreter
def test_run_notes_and_explains_a_stray() -> None:
    x, out = torch.ones(6), torch.ones(6)
    see = Observer()
    with pytest.raises(Stop):
        run(see, shift_kernel, (1,), {"x": x, "out": out, "by": 0}, lambda a: "Masks.", BLOCK=8)
    seen, found = see.facts
    assert seen.got == {("load", "x"): (6, 7), ("store", "out"): (6, 7)} and not seen.is_wrong
    assert found.got == Found("stray load of x", "x = tl.load(x_ptr + offsets + by)")
    assert found.problem.splitlines() == [
        "program 0 loads x[6] to [7], but x has 6 elements.",
        "    x = tl.load(x_ptr + offsets + by)",
    ]
    assert found.because == "Masks."


@needs_interpreter
def test_traffic_of_the_norm_is_what_its_formulas_give() -> None:
    from yaie.course.lessons.traffic import fused_bytes, unfused_bytes

    rows, size = 5, 48
    n = rows * size
    unfused = unfused_bytes(rows, size)
    # add, square, mean, + eps, rsqrt, × scale, × weight
    assert unfused["read"] == 4 * (2 * n + n + n + rows + rows + (n + rows) + (n + size))
    assert unfused["written"] == 4 * (n + n + rows + rows + rows + n + n)
    fused = fused_bytes(norm.add_rms_norm_kernel, rows, size)
    assert fused == {"read": 4 * (2 * n + size), "written": 4 * 2 * n}


@needs_interpreter
def test_pictures_of_programs() -> None:
    from yaie.course.viz.grid import Programs, draw_programs, programs_of

    x, out = torch.ones(14), torch.ones(14)
    with watch() as trace:
        shift_kernel[(2,)](x, out, 0, BLOCK=8)
    state = programs_of(trace, "x", "load")
    assert [program for program, _ in state.blocks] == [0, 1] and state.num_elements == 14
    assert state.blocks[1][1][-1] == (15, True)
    with pytest.raises(ValueError, match="got none"):
        programs_of(trace, "y", "load")
    with pytest.raises(ValueError, match="can be drawn"):
        draw_programs(Programs("x", 64, ((0, tuple((i, True) for i in range(64))),)))


RECORD = {
    "date": "2026-01-01",
    "machine": {"gpu": "A GPU"},
    "versions": {"torch": "2.0"},
    "results": [
        {"operator": "softmax", "shape": "8 × 8", "dtype": "float32", "who": who, "ours": ours,
         "ms": ms, "fraction": 0.5}
        for who, ours, ms in (("triton", True, 0.125), ("peer", False, 0.25), ("none", False, None))
    ],
}  # fmt: skip


def test_picture_of_a_benchmark_leaves_out_what_has_no_time() -> None:
    from yaie.course.viz import draw_bench

    words = [text.get_text() for ax in draw_bench(RECORD, ["softmax"]).axes for text in ax.texts]
    assert "A GPU, 2026-01-01, torch 2.0" in words and "softmax, 8 × 8, float32" in words
    assert {"triton", "peer", "0.125 ms, 50%", "0.250 ms, 50%"} <= set(words)
    assert "none" not in words
    with pytest.raises(ValueError, match="times of add, got none"):
        draw_bench(RECORD, ["add"])


@needs_interpreter
def test_measuring_puts_what_passes_in_the_place_of_the_engines_kernel(monkeypatch, capsys) -> None:
    from yaie.course.lessons.ops.triton import rows as norm

    kept = elementwise.add_kernel, rows.softmax_kernel
    monkeypatch.setattr(elementwise, "add_kernel", kept[0])
    monkeypatch.setattr(norm, "softmax_kernel", kept[1])
    exercise.learner_path(FIRST).write_text(SOLVED)
    assert measure.plug_in("11.1", "11.2") == ["add", "softmax"]
    assert elementwise.add_kernel is not kept[0] and rows.softmax_kernel is kept[1]
    assert torch.equal(elementwise.add(torch.ones(5), torch.ones(5)), torch.full((5,), 2.0))
    with pytest.raises(ValueError, match=r"02\.2 is not a kernel"):
        measure.plug_in("02.2")
    capsys.readouterr()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    measure.main(["11.1", "11.2"])
    assert capsys.readouterr().out == "No GPU here: nothing to time.\n"


# ------------------------------------------------------------------------------------ products


def test_waves_count_their_strips() -> None:
    from yaie.course.lessons.tile_order import (
        asked_bytes,
        grouped,
        loaded_bytes,
        row_major,
        strips,
        waves,
    )

    for tiles_m, tiles_n, group in ((5, 3, 2), (3, 7, 8), (9, 9, 3), (1, 1, 1)):
        assert sorted(grouped(tiles_m, tiles_n, group)) == row_major(tiles_m, tiles_n)
    assert grouped(4, 3, 1) == row_major(4, 3)
    assert [strips(w) for w in waves(row_major(9, 9), 9)] == [(1, 9)] * 9
    assert [strips(w) for w in waves(grouped(9, 9, 3), 9)] == [(3, 3)] * 9
    # a program at a time shares nothing, so that it loads what it asks for
    alone = loaded_bytes(row_major(4, 2), 1, k=64, block_m=32, block_n=16)
    assert alone == asked_bytes(128, 32, 64, 32, 16) == 8 * (32 + 16) * 64 * 2
    # all at once load both matrices once
    assert loaded_bytes(grouped(4, 2, 3), 8, 64, 32, 16) == (128 + 32) * 64 * 2
    with pytest.raises(ValueError, match="together must be at least 1, got 0"):
        waves(row_major(2, 2), 0)


@needs_interpreter
def test_pictures_of_products() -> None:
    from yaie.course.lessons.ops.triton.matmul import matmul_kernel
    from yaie.course.lessons.tile_order import grouped, row_major
    from yaie.course.viz.tile_order import draw_product, draw_waves, record_product, record_waves

    m, n, k = 20, 24, 40
    a, b, c = torch.ones(m, k), torch.ones(k, n), torch.ones(m, n)
    arguments = {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k}
    blocks = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}
    trace = launch(matmul_kernel, (4,), arguments, **blocks, GROUP=2, PRECISION="ieee")
    steps = record_product(trace, m, n, k)
    assert len(steps) == 4 * 3 and steps[-1].program == 3
    assert (steps[2].a, steps[2].b) == (((0, 16), (32, 40)), ((32, 40), (0, 16)))
    assert steps[-1].c == ((16, 20), (16, 24)) and len(steps[-1].done) == 3
    assert steps[-1].a[0] == (16, 20), "rows that wrap around are not drawn"
    assert steps[0].loaded == 2 * 256
    words = [text.get_text() for ax in draw_product(steps[2]).axes for text in ax.texts]
    assert "program 0, k from 32 to 39" in words
    states = record_waves({"rows": row_major(4, 4), "groups": grouped(4, 4, 2)}, 4, 4, together=4)
    assert [state.before for state in states] == [(0, 0), (5, 4), (10, 8), (15, 12)]
    words = [text.get_text() for ax in draw_waves(states[1]).axes for text in ax.texts]
    assert "programs 4 to 7: 1 + 4 = 5 strips" in words and "8 strips so far" in words

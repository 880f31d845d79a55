"""Pictures of attention's programs, drawn from launches; exercises 12 in the engine's kernels."""

from __future__ import annotations

import pytest
import torch

from yaie.course.author import build
from yaie.course.core import exercise
from yaie.course.core.manifest import find
from yaie.course.core.paths import ROOT
from yaie.course.core.triton import HAS_TRITON, can_watch
from yaie.course.viz.attention_programs import (
    Occupied,
    ProgramTiles,
    draw_occupied,
    draw_program_tiles,
    tiles_of,
)
from yaie.course.viz.splits import Part, draw_splits

needs_interpreter = pytest.mark.skipif(
    not (HAS_TRITON and can_watch()), reason="kernels are not interpreted here"
)


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_tiles_are_counted_by_program():
    tiles = ((0, (0, 4), (0, 8)), (1, (4, 8), (0, 8)), (1, (4, 8), (8, 16)))
    said = texts(draw_program_tiles(ProgramTiles(8, 16, tiles, causal=True)))
    assert {"program 0: 1 tile", "program 1: 2 tiles"} <= set(said)
    assert draw_program_tiles(ProgramTiles(8, 16, (), causal=False)) is not None


@pytest.mark.parametrize(
    ("programs", "words", "note"),
    [
        (1, "1 program, 1 of 132 processors", "a color is a KV head"),
        (132, "132 programs, 132 of 132 processors", "a color is a KV head"),
        (264, "264 programs, 132 of 132 processors", "2.0 programs for each processor"),
    ],
)
def test_processors_that_are_occupied(programs, words, note):
    said = texts(draw_occupied(Occupied(tuple(range(programs)), 132)))
    assert words in said and any(note in text for text in said)


def test_splits_name_their_keys_and_blocks():
    parts = [Part(0, tuple(range(80, 96)) + tuple(range(0, 16))), Part(32, (48, 49))]
    said = texts(draw_splits(parts, num_blocks=7, block_size=16))
    assert {"split 0: keys 0 to 31", "split 1: keys 32 to 33"} <= set(said)
    assert {"block 5", "block 0", "block 3"} <= set(said)


@needs_interpreter
def test_tiles_of_a_launch():
    from yaie.course.core.triton import tl, triton, watch

    @triton.jit
    def kernel(q_ptr, k_ptr, SIZE: tl.constexpr):
        offsets = tl.arange(0, SIZE * 2)
        tl.load(q_ptr + tl.program_id(0) * SIZE * 2 + offsets)
        for start in range(0, tl.program_id(0) + 1):
            tl.load(k_ptr + start * SIZE * 2 + offsets)

    with watch() as trace:
        kernel[(2, 1)](torch.zeros(8, 2), torch.zeros(8, 2), SIZE=4)
    found = tiles_of(trace, 0, 8, 8, 2, 2, causal=True)
    assert found.tiles == ((0, (0, 4), (0, 4)), (1, (4, 8), (0, 4)), (1, (4, 8), (4, 8)))


@needs_interpreter
def test_what_a_learner_wrote_runs_in_the_attention_kernels(tmp_path, monkeypatch):
    from yaie.course.lessons.measure import plug_in
    from yaie.ops.triton import flash, online, paged

    monkeypatch.setenv("YAIE_EXERCISES_DIR", str(tmp_path / "exercises"))
    monkeypatch.setenv("YAIE_STATE", str(tmp_path / "state"))
    build.write_stubs(tmp_path / "exercises")
    names = {
        online: ("online_step", "finish"),
        flash: ("online_step", "finish", "seen_keys"),
        paged: ("online_step", "finish", "find_queries", "find_slots", "merge_kernel"),
    }
    kept = {(module, name): getattr(module, name) for module in names for name in names[module]}
    for (module, name), function in kept.items():
        monkeypatch.setattr(module, name, function)  # put back at the end
    for exercise_id in ("12.1", "12.2", "12.3", "12.4"):
        each = find(exercise_id)
        exercise.learner_path(each).write_text((ROOT / "solutions" / each.file).read_text())
    operators = plug_in("12.1", "12.2", "12.3", "12.4")
    assert operators == ["ragged_attention", "paged_attention"]
    for (module, name), function in kept.items():
        assert getattr(module, name) is not function
    assert flash.online_step is paged.online_step is online.online_step
    q = torch.randn(5, 2, 16, generator=torch.Generator().manual_seed(0))
    out, _ = flash.attention(q, q, q, True, None)
    torch.testing.assert_close(out[0], q[0])

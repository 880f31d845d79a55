"""Pictures of a launch: which thread takes which element, what was written, when the GPU works."""

from __future__ import annotations

import pytest
import torch

from yaie.course.viz import Call, Launch, draw_grid, draw_launches, draw_written


def words(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_grid_numbers_every_thread_and_counts_those_past_the_end():
    drawn = words(draw_grid(Launch(num_elements=150, threads=64)))
    assert {"thread block 2", "warp 1", "149", "191"} <= set(drawn)
    assert "3 thread blocks of 64 threads for 150 elements" in drawn
    assert "42 threads past the end (gray)" in drawn
    assert not any("past the end" in word for word in words(draw_grid(Launch(64, 64))))


def test_grid_follows_another_rule():
    drawn = words(draw_grid(Launch(150, 32, 1, element=lambda block, thread: 10 * thread)))
    assert "310" in drawn and "17 threads past the end (gray)" in drawn


@pytest.mark.parametrize(
    "launch", [Launch(10, 0), Launch(10, 2048), Launch(10_000, 256), Launch(0, 32)]
)
def test_launch_that_cannot_be_drawn_is_refused(launch):
    with pytest.raises(ValueError, match=r"threads must be|can be drawn"):
        draw_grid(launch)


def test_written_tells_right_from_wrong_from_untouched():
    want = torch.arange(100.0)
    got = want.clone()
    got[40:50] = torch.nan
    got[3] = -1.0
    drawn = words(draw_written(got, want, "out"))
    assert {"out", "right: 89", "wrong: 1", "never written: 10"} <= set(drawn)
    want[5] = got[5] = torch.nan  # a NaN that is wanted
    assert "right: 89" in words(draw_written(got, want))
    with pytest.raises(ValueError, match="got must have 100 elements"):
        draw_written(got[:50], want)


def bars(calls: list[Call]) -> list[str]:
    return words(draw_launches(calls))


def test_nothing_runs_after_a_kernel_that_fails():
    calls = [
        Call("one<<<>>>", runs=2.0),
        Call("two<<<>>>", runs=2.0),
        Call("three<<<>>>", runs=1.0),
    ]
    assert bars(calls).count("two") == bars(calls).count("three") == 1
    calls[1] = Call("two<<<>>>", runs=2.0, fails=True)
    drawn = bars([*calls, Call("wait", waits=True)])
    assert "two" in drawn and "three" not in drawn and "wait" in drawn

"""A profiler's timeline: its kernels read from a trace, shares of the time, faster kernels."""

import json
import random

import pytest
import torch

from yaie.course.lessons.timeline import Kernel, faster, find_gaps, of_trace, recorded, shares


def event(category: str, number: int, time: float, took: float) -> dict:
    return {"cat": category, "ts": time, "dur": took, "args": {"correlation": number}}


def test_a_trace_gives_kernels_with_the_end_of_their_launches():
    events = [
        {"cat": "cpu_op", "ts": 0, "dur": 50, "args": {}},
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        event("cuda_runtime", 1, 2, 3),
        event("kernel", 1, 9, 4),
        event("cuda_driver", 2, 6, 1),
        event("kernel", 2, 13, 2),
        event("cuda_runtime", 3, 8, 2),
        event("gpu_memcpy", 3, 20, 5),
        {"cat": "cuda_runtime", "ts": 30, "dur": 5, "args": {}},  # cudaDeviceSynchronize
    ]
    assert of_trace(events) == [Kernel(5, 9, 13), Kernel(7, 13, 15), Kernel(10, 20, 25)]


def test_a_trace_of_the_cpu_has_no_kernels(tmp_path):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        torch.ones(3).sum()
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    assert of_trace(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) == []


def test_rows_of_a_kept_profile_are_read():
    assert recorded([(30.0, 4.0, 10.0, 6.0)]) == [Kernel(16.0, 30.0, 34.0)]


def test_the_shares_add_up_to_one():
    kernels = [Kernel(0, 0, 10), Kernel(14, 20, 30)]
    found = shares(kernels, find_gaps(kernels))
    assert found == pytest.approx({"works": 20 / 30, "CPU": 4 / 30, "GPU": 6 / 30})


@pytest.mark.parametrize("factor, wanted", [(1.0, 23.0), (0.5, 21.5), (0.0, 20.0)])
def test_faster_kernels_by_hand(factor, wanted):
    """The second waits for its launch and begins a microsecond later, the third for the second."""
    kernels = [Kernel(0, 0, 10), Kernel(19, 20, 22), Kernel(20, 22, 23)]
    assert faster(kernels, factor) == pytest.approx(wanted)


def test_a_busy_gpu_gains_all_and_an_idle_one_nothing():
    generator = random.Random(0)
    takes = [generator.uniform(1, 9) for _ in range(50)]
    ends = [sum(takes[: i + 1]) for i in range(50)]
    busy = [Kernel(0, end - length, end) for end, length in zip(ends, takes, strict=True)]
    assert faster(busy, 0.25) == pytest.approx(0.25 * sum(takes))
    idle = [Kernel(10 * i, 10 * i, 10 * i + length) for i, length in enumerate(takes)]
    assert faster(idle, 0.25) == pytest.approx(490 + 0.25 * takes[-1])
    for kernels in (busy, idle):
        assert faster(kernels, 1) == pytest.approx(kernels[-1].ends - kernels[0].begins)

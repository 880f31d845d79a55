"""The measurements that notebook 09 draws: read, and put under the roof."""

import pytest
import torch

from yaie.bench import kernels
from yaie.course.core.paths import NOTEBOOKS
from yaie.course.lessons import working_sets
from yaie.course.lessons.data_nb09 import SMALL, flops, from_record, kept, points
from yaie.course.lessons.impossible import Claim, why_impossible
from yaie.course.lessons.ops.cases import bench_cases


def test_kept_figures_are_below_the_roof():
    machine = kept()
    assert machine.name == "NVIDIA H200" and machine.versions["torch"] and machine.when
    assert 4e12 < machine.bandwidth < 4.8e12  # what is published
    assert 600e12 < machine.peak < 990e12
    shown = points(machine)
    assert {point.group for point in shown} == {"libraries", "plain PyTorch", "this engine"}
    for point in shown:
        assert point.rate < 1.05 * min(machine.peak, point.intensity * machine.bandwidth), point


def test_texts_of_other_notebooks_name_the_kept_figures():
    machine = kept()
    peak, ridge = f"{machine.peak / 1e12:.0f}", f"{machine.peak / machine.bandwidth:.0f}"
    moved = f"{machine.bandwidth / 1e12:.2f} · 10¹²"
    rate = f"{machine.bandwidth / 1e9:,.0f} GB of memory per second"
    for name, wanted in (
        ("01_attention_and_kv_cache", (f"{peak} TFLOP/s", rate, f"{ridge} operations in the")),
        ("08_flash_attention", (f"{peak} · 10¹²", moved, f"ratio of {ridge}")),
        ("09_gpu_memory_and_roofline", (f"{ridge} operations per byte",)),
        ("13_triton_attention", (f"{ridge} operations per byte", f"reached {peak} ")),
        ("19_paged_attention_cuda", (f"could perform {ridge} per byte",)),
    ):
        text = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
        assert [words for words in wanted if words not in text] == [], name


def test_kept_rows_count_as_the_benchmark_does():
    every = kernels.all_cases(torch.bfloat16, True) + bench_cases(torch.bfloat16, True)
    cases = {(c.operator, c.shape): c for c in every}
    for row in kept().results:
        case = cases[row["operator"], row["shape"]]
        assert (row["num_bytes"], row["flops"]) == (case.num_bytes, case.flops), row
        assert row["error"] < 1e-2


@pytest.mark.parametrize(
    ("operator", "shape", "wanted"),
    [("rms_norm", "10 × 7", 280), ("silu_and_mul", "10 × 2·7", 280), ("rotary", "3 × 2 × 5", 90)],
)
def test_operations_of_small_operators(operator, shape, wanted):
    assert flops({"operator": operator, "shape": shape, "flops": 0}) == wanted


def test_a_run_can_be_drawn():
    class Clock:
        def times(self, call, count):
            call()
            return [1.0] * count

    machine = from_record(
        kernels.run(device="cpu", say=lambda line: None, clock=Clock(), more=bench_cases)
    )
    assert machine.find("rms_norm", "61") and not machine.find("rms_norm", "6")
    without = {row["operator"] for row in machine.results if not row["flops"]} - set(SMALL)
    assert without >= {"transpose", "reshape_and_cache", "copy_blocks"}  # they only move
    assert not without & {"matmul", "softmax", "rms_norm", "ragged_attention", "paged_attention"}
    assert [point.label for point in points(machine)][:1] == ["matmul 4096³"]


def test_working_sets_are_measured_and_compared_with_the_largest(monkeypatch):
    class Clock:
        def times(self, call, count):
            call()
            return [0.001] * count

    saved = []
    kib = 1 << 10
    record = working_sets.measure(
        torch.device("cpu"), [64 * kib, 256 * kib], Clock(), lambda r: saved.append(len(r["rows"]))
    )
    assert [(row["what"], row["num_bytes"], row["of_memory"]) for row in record["rows"]] == [
        ("read", 256 * kib, 1.0), ("copy", 256 * kib, 1.0),
        ("read", 64 * kib, 0.25), ("copy", 64 * kib, 0.25),
    ]  # fmt: skip
    assert record["rows"][0]["gb_s"] == round(256 * kib / 1e3, 1) and saved == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="multiples of 64 KiB, got 1000"):
        working_sets.measure(torch.device("cpu"), [1000], Clock())


def test_the_kernels_that_go_over_a_working_set(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(working_sets, "LAUNCHES", ((64, 4, 2),))
    x = torch.randint(2, (640,)).float()
    for make, arguments in (
        (working_sets.read_launches, (x, 3)),
        (working_sets.copy_launches, (x, torch.empty_like(x), 3)),
    ):
        assert list(make(*arguments, sms=2)) == ["64 floats, 4 warps, 2 per SM"]  # checked


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"ms": 0.0}, "ms must be above 0, got 0.0"),
        ({"ms": 1.0, "peer_ms": 2.0}, "peer_ms and times_as_fast must both be given"),
    ],
)
def test_a_claim_that_cannot_be_judged_is_refused(claim, message):
    with pytest.raises(ValueError, match=message):
        Claim(1000, gb_s=0.001, **claim)


def test_every_half_precision_has_a_peak():
    claim = Claim(10**6, 1.0, 1.0, 10**12, 1000.0, "float16")
    assert why_impossible(claim) == "operations"

"""The benchmark of kernels: its protocol with a clock that pretends, and what it counts."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from yaie.bench import cases, commands, kernels
from yaie.bench.cases import Case, Draw
from yaie.bench.cases_attention import attention_flops, cache_write, decode, prefill
from yaie.bench.ceilings import Ceilings
from yaie.bench.measure import benchmark_kernel, profile_kernel
from yaie.bench.protocol import (
    FEWEST_CALLS,
    MOST_CALLS,
    TOLERANCE,
    CpuClock,
    InARow,
    compare,
    poison,
    relative_error,
    row_error,
    running_order,
    was_poisoned,
    why_wrong,
)
from yaie.cli import app
from yaie.course.core.paths import kept
from yaie.course.lessons import ladders
from yaie.course.lessons.ops.cases import bench_cases, block_copies
from yaie.course.lessons.ops.cuda import attention_hopper, attention_paged
from yaie.course.lessons.variants import Variants, variant
from yaie.ops.cuda import flash
from yaie.ops.reference.attention import causal_mask

CPU = torch.device("cpu")
BEST = Ceilings(copy=4000.0, read=5000.0, matmul={4096: 700.0, 8192: 650.0})
pytestmark = pytest.mark.usefixtures("short_reads")


class FakeClock:
    """Calls cost what they return, and a little more each time: a machine that gets warm."""

    def __init__(self, drift: float = 0.0) -> None:
        self.drift, self.turn, self.log = drift, 0, []

    def times(self, call, count):
        self.log.append((call, count))
        cost = call()
        cost = cost if isinstance(cost, float) else 1.0
        self.turn += 1
        return [cost + self.drift * self.turn] * count


class OnceClock(FakeClock):
    """It calls each function once: emulated, a call takes seconds, and other tests check it."""

    def times(self, call, count):
        known = any(call is other for other, _ in self.log)
        return [1.0] * count if known else super().times(call, count)


# ------------------------------------------------------------------------------------- protocol


def test_rounds_alternate_so_that_a_drift_favors_none():
    assert running_order("ab", 4) == list("abbaabba")
    assert running_order("abc", 2) == list("abccba")
    timings = compare({"a": lambda: 1.0, "b": lambda: 1.0}, FakeClock(drift=0.5))
    assert timings["a"].median == timings["b"].median
    assert timings["a"].fastest < timings["b"].fastest  # it went first of all


def test_the_median_of_the_rounds_counts():
    costs = iter([3.0, 5.0, 100.0, 1.0, 7.0])  # the first is the estimate
    timing = compare({"a": lambda: next(costs)}, FakeClock())["a"]
    assert (timing.median, timing.fastest, timing.slowest) == (6.0, 1.0, 100.0)


@pytest.mark.parametrize(
    ("cost", "count"), [(0.0, MOST_CALLS), (0.01, MOST_CALLS), (2.5, 10), (500.0, FEWEST_CALLS)]
)
def test_a_round_takes_about_as_long_for_everybody(cost, count):
    clock = FakeClock()
    compare({"a": lambda: cost}, clock)
    assert [calls for _, calls in clock.log[1:]] == [count] * 4


@pytest.mark.parametrize("rounds", [0, 1, 3, -2])
def test_rounds_are_even(rounds):
    with pytest.raises(ValueError, match=f"rounds must be even and at least 2, got {rounds}"):
        compare({"a": lambda: 1.0}, FakeClock(), rounds)


def test_errors_are_relative_to_the_whole_or_to_the_worst_row():
    wanted = torch.tensor([[3.0, 4.0], [30.0, 40.0]])
    assert relative_error((wanted, wanted * 1.5), (wanted, wanted)) == 0.5
    assert row_error(wanted + torch.tensor([[0.0, 0.0], [0.0, 5.0]]), wanted) == 5 / 50
    assert row_error(wanted + torch.tensor([[0.0, 5.5], [0.0, 0.0]]), wanted) == 5.5 / 27.5
    assert row_error(torch.tensor([7.0, 6.0]), torch.tensor([7.0, 5.0])) == 1 / 6
    assert row_error((wanted, wanted + 1), (wanted, wanted)) == row_error(wanted + 1, wanted)
    assert row_error(torch.tensor(1.5), torch.tensor(1.0)) == 0.5
    for error in (relative_error, row_error):
        assert error(torch.zeros(3, 2), torch.zeros(3, 2)) == 0.0
        for bad in (math.nan, math.inf):
            assert error(torch.tensor([1.0, bad]), torch.ones(2)) == math.inf
            assert error((torch.ones(2),) * 2, (torch.ones(2), torch.full((2,), bad))) == math.inf
    assert row_error(torch.zeros(0, 2), torch.zeros(0, 2)) == 0.0
    # Sums near zero need not be more exact than the rest of their row; integers must be equal.
    wanted = torch.tensor([64.0, -64.0, 1e-9, 64.0], dtype=torch.float64)
    assert row_error(wanted.float() + 1e-6, wanted) < 1e-7
    assert row_error(wanted.int() - 1, wanted) == math.inf


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((4096, 512), (slice(640, 656), slice(16, 32))),  # of a product
        ((4096, 8, 64), (slice(4080, 4096), 3)),  # the last queries of one head
        ((4096, 512), (slice(9, 10), slice(64, 72))),  # what one thread stores at once
        ((16384, 256), 1234),  # a row
    ],
)
def test_one_bad_tile_is_wrong(shape, tile):
    wanted = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).bfloat16()
    got = wanted.clone()
    assert why_wrong(relative_error(got, wanted), row_error(got, wanted), torch.bfloat16) is None
    got[tile] = 0
    whole, row = relative_error(got, wanted), row_error(got, wanted)
    assert whole < 0.025 and row > 0.08  # in the whole it does not show
    reason = f"relative error {row:.1e} of a row, {whole:.1e} of the whole"
    reason = reason if whole < 0.01 else f"relative error {whole:.1e}"
    assert why_wrong(whole, row, torch.bfloat16) == reason


def test_outputs_of_another_shape_are_no_error_but_a_mistake():
    with pytest.raises(ValueError, match=r"output 1 must have shape \[2\], got \[2, 1\]"):
        relative_error((torch.ones(1), torch.ones(2, 1)), (torch.ones(1), torch.ones(2)))
    with pytest.raises(ValueError, match="1 output came, 2 are wanted"):
        relative_error(torch.ones(1), (torch.ones(1), torch.ones(2)))


def test_poison_says_where_it_is():
    other = torch.zeros(5)  # made first: later memory may lie where the poison was
    addresses = poison([torch.empty(7, device="meta"), torch.empty(3, 2, device="meta")], CPU)
    assert [len(r) for r in addresses] == [28, 28, 24, 24]
    assert not was_poisoned([other], addresses)
    assert was_poisoned([other], [range(other.data_ptr(), other.data_ptr() + 1)])


# ------------------------------------------------------------------------------------- ceilings


def test_the_floor_is_the_slower_of_moving_and_computing():
    assert BEST.floor_ms(4_000_000_000, 0) == 1.0
    assert BEST.floor_ms(4_000_000_000, 0, writes=False) == 0.8
    assert BEST.floor_ms(4_000_000, 700_000_000_000) == 1.0
    assert BEST.floor_ms(4_000_000, 7_000_000_000_000) == 10.0
    assert BEST.binding(4_000_000_000, 0) == "a copy"
    assert BEST.binding(4_000_000_000, 0, writes=False) == "a read"
    assert BEST.binding(4_000_000, 7_000_000_000_000) == "a product"


# ------------------------------------------------------------------------------------- counting


def all_cases(*how, **named) -> list[Case]:
    """Those of the engine's operators and of the lessons'."""
    return kernels.all_cases(*how, **named) + bench_cases(*how, **named)


@pytest.mark.parametrize(
    ("name", "num_bytes", "flops"),
    [
        ("add 16384 × 4096", 402_653_184, 0),
        ("add_relu 16384 × 4096", 402_653_184, 0),
        ("silu_and_mul 16384 × 2·4096", 402_653_184, 0),
        ("rotary 16384 × 32 × 128", 268_435_456 + 131_072 + 4_194_304, 0),
        ("row_sum 16384 × 4096", 134_217_728 + 65_536, 0),
        ("softmax 16384 × 4096", 268_435_456, 0),
        ("rms_norm 16384 × 4096", 268_443_648, 0),
        ("add_rms_norm 16384 × 4096", 536_879_104, 0),
        ("transpose 8192 × 8192", 268_435_456, 0),
        ("matmul 4096 × 4096 × 4096", 100_663_296, 137_438_953_472),
        ("reshape_and_cache 16384 tokens, 8 × 128", 134_217_728 + 131_072, 0),
        ("copy_blocks 64 blocks of 16, 32 layers", 268_435_456 + 1024, 0),
        (
            "paged_attention B64 ctx4096 heads 32/8 d128 block 16",
            1_073_741_824 + 1_048_576 + 8_192 + 66_052,
            4_294_967_296,
        ),
        (  # keys and values of 8192 + 64·256 tokens; q and out; log-sum-exp; tables and lengths
            "shared_prefix_attention B64 shared 8192 own 256 heads 32/8 d128",
            100_663_296 + 1_048_576 + 8_192 + 64 * (528 + 1) * 4,
            64 * 8448 * 32 * 128 * 4,
        ),
        ("ragged_attention B4 H32 S4096 d128 full", 538_968_104, 1_099_511_627_776),
        ("ragged_attention B4 H32 S4096 d128 causal", 538_968_104, 549_890_031_616),
        ("fill_draft_extend_metadata batch 32", 4 * (2 * 32 + 2 * 62), 0),
    ],
)
def test_bytes_and_operations_by_hand(name, num_bytes, flops):
    cases = all_cases(torch.bfloat16, on_gpu=True)
    full_size = {f"{case.operator} {case.shape}": case for case in cases}
    assert len(full_size) == len(cases) > len(all_cases(torch.bfloat16, on_gpu=True, quick=True))
    assert (full_size[name].num_bytes, full_size[name].flops) == (num_bytes, flops)


def tiny(dtype: torch.dtype) -> list[Case]:
    whole_blocks = decode(3, 40, 4, 2, 16, 4, dtype)
    return [*all_cases(dtype, on_gpu=False), whole_blocks]


@pytest.mark.parametrize(
    "case", tiny(torch.float32), ids=lambda case: f"{case.operator} {case.shape}"
)
def test_bytes_are_those_of_inputs_and_outputs(case):
    arguments = case.arguments(Draw.on(CPU, torch.float32))
    inputs = [x for x in arguments if isinstance(x, torch.Tensor)]
    if case.operator == "copy_blocks":
        pools, mapping = [*arguments[0], *arguments[1]], arguments[2]
        wanted = sum(2 * pool[mapping[:, 1]].nbytes for pool in pools) + mapping.nbytes
    elif case.operator == "reshape_and_cache":
        keys, values, _, _, slots = inputs
        wanted = 2 * (keys.nbytes + values.nbytes) + slots.nbytes
    elif case.operator == "fill_draft_extend_metadata":
        wanted = sum(x.nbytes for x in inputs)  # its outputs among them
    else:
        outputs = case.ours("reference")(*arguments)()
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        wanted = sum(x.nbytes for x in (*inputs, *outputs))
    if "ctx37" in case.shape:  # the last of each sequence's blocks is not full
        wanted -= 2 * 3 * 3 * 2 * 16 * 4
    assert case.num_bytes == wanted


@pytest.mark.parametrize(("num_q", "num_k"), [(1, 1), (1, 9), (5, 5), (3, 8)])
@pytest.mark.parametrize("causal", [False, True])
def test_operations_of_attention_are_those_of_the_visible_scores(num_q, num_k, causal):
    visible = causal_mask(num_q, num_k).sum().item() if causal else num_q * num_k
    assert attention_flops(2, 3, num_q, num_k, 7, causal) == 2 * 3 * visible * (2 * 7 + 2 * 7)


@pytest.mark.parametrize("causal", [False, True])
def test_the_oracle_of_attention_is_right(causal):
    case = prefill(2, 2, 9, 4, causal, torch.float64)
    q, k, v, *rest = case.arguments(Draw.on(CPU, torch.float64))
    out, _ = case.oracle(q, k, v, *rest)
    parts = [x.unflatten(0, (2, 9)).transpose(1, 2) for x in (q, k, v)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=causal)
    torch.testing.assert_close(out, wanted.transpose(1, 2).flatten(0, 1))


# ------------------------------------------------------------------------------------- a case


def sums(**peers) -> Case:
    return Case(
        "add", "5", lambda draw: (draw.normal(5), draw.normal(5)), 60, 0,
        oracle=lambda x, y: x.double() + y.double(), peers=peers,
    )  # fmt: skip


def measure(case):
    rows = kernels.measure_case(case, torch.float32, CPU, BEST, FakeClock())
    return {row.who: row for row in rows}


def test_a_wrong_result_has_no_time():
    def crash(x, y):
        raise RuntimeError("no such kernel")

    rows = measure(
        sums(
            right=lambda x, y: lambda: x + y,
            wrong=lambda x, y: lambda: x - y,
            unwritten=lambda x, y: lambda: torch.full_like(x, math.nan),
            shape=lambda x, y: lambda: (x + y)[:4],
            crash=lambda x, y: lambda: crash(x, y),
        )
    )
    assert rows["right"].ms == 1.0 and rows["right"].failure is None
    assert rows["right"].gb_s == 60 / 1e6 and rows["right"].fraction == 60 / 4000e9 * 1e3
    assert rows["right"].tflop_s is None
    failures = {who: row.failure for who, row in rows.items() if row.ms is None}
    assert failures["wrong"].startswith("wrong: relative error")
    assert failures["unwritten"] == "wrong: relative error inf"
    assert "must have shape [5], got [4]" in failures["shape"]
    assert failures["crash"] == "RuntimeError: no such kernel"
    assert set(failures) == {"wrong", "unwritten", "shape", "crash"}


def test_one_that_writes_nothing_in_place_is_caught():
    """Though the one before it has written the right values there."""
    copies = block_copies(2, 5, 2, 16, 4, torch.float32)
    for case in (cache_write(40, 2, 16, 4, torch.float32), copies):
        lazy = case.wrap(lambda *arguments: None)
        rows = measure(Case(**{**vars(case), "peers": {"lazy": lazy}}))
        assert rows["reference"].ms == 1.0
        assert rows["lazy"].failure == "wrong: relative error inf"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_reference_and_its_peers_are_right(dtype):
    """Far from the limits, in rows that differ more than those of a real model."""
    exact = dtype == torch.float32
    limits = (1e-6, 1e-5) if exact else (TOLERANCE[dtype], TOLERANCE[dtype] / 2)
    for case in tiny(dtype):
        for row in kernels.measure_case(case, dtype, CPU, BEST, FakeClock()):
            assert row.failure is None, row
            assert row.error < limits[0] and row.row_error < limits[1], row


def test_a_result_with_one_bad_row_has_no_time():
    def spoiled(x):
        out = x.t().contiguous()
        out[700] = 0
        return out

    case = Case(
        "transpose", "1 × 65536", lambda draw: (draw.normal(4, 65536),), 8 * 65536, 0,
        oracle=lambda x: x.double().t(),
        peers={"spoiled": lambda x: lambda: spoiled(x)}, compiled=False,
    )  # fmt: skip
    rows = kernels.measure_case(case, torch.bfloat16, CPU, BEST, FakeClock())
    assert rows[0].ms == 1.0 and rows[0].ceiling == "a copy"
    assert rows[-1].ms is None and rows[-1].error < 1e-2
    assert rows[-1].failure.endswith("of the whole")


# ------------------------------------------------------------------------------------- a run


def test_a_run_saves_machine_versions_and_results(tmp_path):
    path = tmp_path / "run.json"
    command = ["bench", "kernels", "--only", "norm", "--device", "cpu", "--output", str(path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "rms_norm" in done.output
    record = json.loads(path.read_text())
    assert set(record) == {"date", "machine", "versions", "code", "ceilings", "results"}
    assert record["machine"]["processor"] and record["versions"]["torch"] == torch.__version__
    assert {row["operator"] for row in record["results"]} == {"rms_norm", "add_rms_norm"}
    assert not any(row["failure"] for row in record["results"])
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "tiny shapes" in done.output
    assert not list(path.parent.glob("*.partial"))


OWN = """
from yaie.bench.cases import Case

def kernel(x):
    return x * x.sigmoid() + WRONG

def cases(dtype, on_gpu, quick):
    return [
        Case("silu", "61 × 130", lambda draw: (draw.normal(61, 130),), 2 * 61 * 130 * 4, 0,
             oracle=lambda x: x.double() * x.double().sigmoid(),
             rungs={"mine": lambda x: lambda: kernel(x)})
    ]
"""


@pytest.mark.parametrize(("wrong", "status"), [(0, 0), (1, 1)])
def test_a_case_of_ones_own_becomes_a_row(wrong, status, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    Path(f"own_{wrong}.py").write_text(OWN.replace("WRONG", str(wrong)))
    command = ["bench", "kernels", "--device", "cpu", "--case", f"own_{wrong}:cases"]
    done = CliRunner().invoke(app, [*command, "--output", "own.json"])
    assert done.exit_code == status, done.output
    (row,) = json.loads(Path("own.json").read_text())["results"]
    assert (row["operator"], row["who"], row["ours"]) == ("silu", "mine", True)
    assert (row["failure"] or "").startswith("wrong" * wrong) and (row["ms"] is None) == bool(wrong)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("nowhere:cases", "case must be module:function, got 'nowhere:cases'"),
        ("math:nothing", "got 'math:nothing': .*no attribute"),
        ("math:pi", "case must be module:function, got 'math:pi': 3.14"),
        ("builtins:max", "builtins:max must return a list of Case"),
    ],
)
def test_cases_that_are_none(case, message, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ValueError, match=message):
        cases.own_cases(case)("a", "b", "c")
    with pytest.raises(ValueError, match="no --case nowhere"):
        ladders.command("flash", None, "auto", "cpu", None, True, None, "nowhere")


def test_one_kernel_is_timed_by_the_benchmarks_clock():
    calls = []
    clock = CpuClock(now=lambda: float(len(calls)))
    got = benchmark_kernel(calls.append, 1, clock=clock, num_bytes=2 * 10**9, flops=3 * 10**12)
    assert len(calls) == 23 and (got.ms, got.gb_s, got.tflop_s) == (1000.0, 2.0, 3.0)


def test_a_profile_names_the_operators_of_a_call():
    rows = profile_kernel(torch.softmax, torch.ones(3, 5), -1)
    assert {row.name: row.calls for row in rows}["aten::_softmax"] == 1
    assert not any(row.on_gpu for row in rows) and rows[0].us >= rows[-1].us > 0


def test_a_run_that_is_cut_short_keeps_what_it_has(tmp_path, monkeypatch):
    seen, path = [], tmp_path / "run.json"
    measure_case = kernels.measure_case

    def interrupted(case, *rest):
        if seen:
            raise KeyboardInterrupt
        seen.append(case)
        return measure_case(case, *rest)

    monkeypatch.setattr(kernels, "measure_case", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kernels.run("norm", device="cpu", output=path, say=lambda line: None, clock=FakeClock())
    assert {r["operator"] for r in json.loads(path.read_text())["results"]} == {"rms_norm"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"only": "nothing"}, "only must be part of the name of an operator, got 'nothing'"),
        ({"device": "cpu", "dtype": "int8"}, "dtype must be one of .*, got 'int8'"),
        ({"device": "tpu"}, "device must be .* got 'tpu'"),
        ({"output": "x.png"}, r"output must end in \.json, got 'x\.png'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        kernels.run(**arguments)


def row(who, ours, ms, **changes):
    base = {
        "operator": "softmax", "shape": "2 × 3", "dtype": "bfloat16", "who": who, "ours": ours,
        "ms": ms, "gb_s": 4000.0, "tflop_s": None, "fraction": 0.9, "error": 1e-3,
        "poisoned": True, "failure": None,
    }  # fmt: skip
    return base | changes


def test_table_and_summary():
    results = [
        row("triton", True, 0.5),
        row("torch.compile", False, 0.6),
        row("torch.softmax", False, 0.8, poisoned=False),
        row("cuda", True, None, failure="wrong: relative error 3.0e-01"),
    ]
    lines = kernels.table(results)
    assert lines[1] == "softmax 2 × 3, bfloat16" and len(lines) == 7
    assert lines[2].split()[4:] == ["of", "ceiling", "error", "worst", "row"]
    assert "0.5000" in lines[3] and "90%" in lines[3] and lines[3].endswith("1e-03")
    assert lines[5].endswith("output not poisoned")
    assert lines[6].split()[:3] == ["cuda", "wrong:", "relative"]
    assert kernels.summary(results)[2:] == [
        "  softmax 2 × 3: triton 90%, 1.20× torch.compile",
        "  softmax 2 × 3: cuda wrong: relative error 3.0e-01",
    ]
    assert kernels.summary(results[1:3]) == []
    named = row("triton", True, 0.5, ceiling="a copy", row_error=2e-3, fraction=1.02)
    lines = kernels.table([named])
    assert lines[2].split()[4:7] == ["of", "a", "copy"]
    assert "102%" in lines[3] and lines[3].endswith("2e-03")
    assert kernels.summary([named])[2:] == ["  softmax 2 × 3: triton 102% of a copy"]


def test_kept_results_are_still_read():
    """Those that were kept before rows were compared have no error of a row."""
    results = kept("bench_kernels_h200")["results"]
    assert all(row["error"] <= TOLERANCE[torch.bfloat16] for row in results if row["ms"])
    assert len(kernels.table(results)) > len(results)
    assert kernels.summary(results)


# ------------------------------------------------------------------------------------- ladders


KEYS = {
    "elementwise": ("operators", "add_relu", {"cuda", "launcher, streaming"}, {"of_copy"}),
    "matmul": ("products", "float32", {"naive", "register_tile"}, {"of_library", "tflop_s"}),
    "hopper": ("products", "5 × 16 × 24", {"mma", "tma", "persistent"}, {"of_library", "tflop_s"}),
    "flash": ("problems", "B2 H2 S33 d64 causal", {*flash.RUNGS}, {"tflop_s"}),
    "flash_hopper": (
        "problems",
        "B2 H2 S33 d64 causal",
        {"mma", *attention_hopper.RUNGS, "pingpong, no turns"},
        {"tflop_s"},
    ),
    "gemv": ("products", "33 × 264", {"gemv"}, {"of_library", "of_copy"}),
    "search": ("search", "2560 tokens of 5 requests", {"cuda_linear", "cuda_binary"}, {"fastest"}),
    "paged": (
        "decode",
        "B2 skewed",
        {*attention_paged.RUNGS, "mma, 2 stages"},
        {"gb_s", "of_copy"},
    ),
    "naive": ("problems", "B2 H2 S33 d64 causal", {"cuda"}, {"tflop_s"}),
    "selected": ("selected", "B2 ctx40", {"selected", "slots, then mma"}, {"gb_s"}),
    "fp8": ("decode", "B2 ctx40", {"mma, bfloat16", "mma, e4m3"}, {"gb_s"}),
    "groups": ("groups", "40 × 40 × 40", {"groups of 1", "groups of 64"}, {"tflop_s"}),
}


@pytest.mark.parametrize("ladder", KEYS)
def test_a_ladder_is_kept_as_the_notebooks_draw_it(ladder, tmp_path, monkeypatch):
    """Emulated at tiny sizes: every rung is right, and wrote all of its output."""
    part, step, names, keys = KEYS[ladder]
    for name, variants in ladders.VARIANTS.items():
        changes = {who: change for who, change in variants.changes.items() if who in names}
        few = dataclasses.replace(variants, changes=changes)
        monkeypatch.setitem(ladders.VARIANTS, name, few)
    path, clock = tmp_path / "ladder.json", OnceClock()
    ladders.run(ladder, step, "cpu", path, rounds=2, say=lambda line: None, clock=clock)
    record = json.loads(path.read_text())
    assert record["faults"] == [] and record["copy_gb_s"] > 0 and record["code"]["sources"]
    assert list(record[part]) == [step]
    rows = record[part][step]
    rows = rows.get("rows", rows)
    assert names <= set(rows)
    for name in names:
        assert keys | {"ms", "graph_ms", "error"} <= set(rows[name]) and rows[name]["was_nan"]


def test_calls_in_a_row_are_kept_in_microseconds(tmp_path):
    path = tmp_path / "ladder.json"
    ladders.run("metadata", None, "cpu", path, say=lambda line: None, clock=FakeClock())
    rows = json.loads(path.read_text())["microseconds"]["5"]
    assert list(rows) == ["Python, a loop over requests", "reference", "cuda"]
    assert rows["cuda"] == {"call": 1000.0, "kernel": 20.0}
    assert rows["Python, a loop over requests"] == {"call": 1000.0}  # it waits for the device


def test_every_variant_still_applies():
    for variants in ladders.VARIANTS.values():
        for name, module in variants.modules().items():
            assert all(launcher.endswith("_bf16") for launcher in module.launchers), name
    with pytest.raises(ValueError, match=r"add_relu\.cu no longer has 'nothing'"):
        variant("elementwise/add_relu.cu", "x", {"nothing": "something"})


def test_what_is_skipped_is_not_built():
    built = {module.path.stem for module in ladders.modules("hopper", "tma, stages,persistent")}
    assert built == {"wgmma", "producer", "consumers", "store", "cluster", "shares"}
    assert len(ladders.modules("hopper", None)) == len(ladders.modules("hopper", "stages")) + 2
    assert ladders.modules("metadata", None) == []


def test_a_wrong_rung_gives_status_1(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(ladders, "save", lambda record, path: kept.append(len(record["products"])))
    monkeypatch.setitem(ladders.VARIANTS, "matmul", Variants("matmul/mma.cu", print, {}))
    monkeypatch.setitem(ladders.matrix.RUNGS, "shared_tile", lambda a, b: a @ b + 1)
    command = ["bench", "kernels", "--ladder", "matmul", "--device", "cpu", "--skip", "mma"]
    done = CliRunner().invoke(app, [*command, "--output", str(tmp_path / "x.json")])
    assert done.exit_code == 1, done.output
    assert "FAULT: float32: shared_tile wrong: relative error" in done.output
    assert "naive wrong" not in done.output and kept == [1, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("walls",), "ladder must be one of elementwise, .* got 'walls'"),
        (("flash", "B9"), "no step of the ladder flash here has one of the words 'B9'"),
    ],
)
def test_ladders_that_are_not_there(given, message):
    assert tuple(ladders.LADDERS) == commands.LADDERS
    with pytest.raises(ValueError, match=message):
        ladders.run(*given, device="cpu")


def test_a_clock_of_calls_in_a_row():
    clock, calls = InARow(CPU, each=5), []
    assert len(clock.times(lambda: calls.append(1), 3)) == 3 == len(clock.asking)
    assert len(calls) == 15


@pytest.mark.usefixtures("warm_python")
def test_the_kernels_that_a_sanitizer_watches():
    """Emulated, those on integers; the others take a minute."""
    command = [sys.executable, str(Path(__file__).with_name("sanitize.py"))]
    done = subprocess.run([*command, "integers"], capture_output=True, text=True)
    assert done.stdout == "integers: 8 cases as they should be, on cpu\n", done.stderr
    done = subprocess.run([*command, "no such group"], capture_output=True, text=True)
    assert done.returncode == 1 and "groups are table, flash," in done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_quick_run_on_a_gpu():
    record = kernels.run("norm,paged", device="cuda", quick=True)
    ours = [row for row in record["results"] if row["ours"]]
    assert ours and all(row["failure"] is None for row in ours)

"""The kept figures of notebook 28: all answers right, all cases there, and what the text says."""

import json
import statistics
from dataclasses import asdict

import pytest

from yaie.bench import files
from yaie.bench.bench import COURSE_CPU
from yaie.bench.load import knee, requests_that_fit
from yaie.bench.oracle import TOLERANCE
from yaie.bench.protocol import TOLERANCE as TOLERANCES
from yaie.course.author.gpu.offline import workload
from yaie.course.core.paths import DATA, kept
from yaie.course.lessons.own_record import NOTHING, has, in_both, own_record
from yaie.course.lessons.simulate import Arrival, Simulation
from yaie.engine.scheduler import Scheduler
from yaie.model.weights import parse_dtype

FILES = sorted(p for p in DATA.glob("28_*.json") if '"subject"' in p.read_text())


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def record(request):
    return json.loads(request.param.read_text())


def test_there_are_figures_of_both_machines():
    assert {"28_engine_cpu.json", "28_engine_h200.json"} <= {path.name for path in FILES}


def test_no_time_is_kept_of_a_wrong_answer(record):
    allowed = TOLERANCE[parse_dtype(record["subject"]["dtype"])]
    attention = record["results"].get("attention", [])
    wrong = TOLERANCES[parse_dtype(record["subject"]["dtype"])]
    errors = [row[name] for row in attention for name in row if name.startswith("error of")]
    assert all(error <= wrong for error in errors) and len(errors) >= 3 * len(attention)
    sections = record["results"].items()
    rows = [row for section, rows in sections if section != "attention" for row in rows]
    assert rows and {"machine", "versions", "date"} <= set(record)
    for row in rows:
        assert row["checked_answers"] > 0
        assert row.get("worst_gap", 0.0) <= allowed, row
        if record["subject"]["dtype"] == "float32":
            assert row["same_answers"] == row["checked_answers"]


def test_littles_law_holds(record):
    for row in record["results"].get("arrivals", []):
        assert row["finished"] * row["wait_mean"] == pytest.approx(row["in_system"], rel=0.01)


def test_no_request_is_preempted_where_all_fit(record):
    for row in record["results"].get("memory", []):
        fit = requests_that_fit(row["num_blocks"], 16, row["prompt"], row["output"])
        assert row["preemptions"] == 0 or row["at_once"] > fit
        assert row["most_blocks"] <= row["num_blocks"]


def test_the_knee_lies_among_what_was_measured(record):
    rates = {row["at_once"]: row["finished"] for row in record["results"].get("at_once", [])}
    if rates:
        assert min(rates) < knee(rates) < max(rates)


# What the notebook's text says and no cell of it prints.
CPU, H200, LARGE = (
    kept(f"28_engine_{name}")["results"] for name in ("cpu", "h200", "h200_llama8b")
)

CELLS, CELLS_CPU, CELLS_LARGE = (
    kept(f"28_course_{name}")["results"] for name in ("h200", "cpu", "h200_llama8b")
)


def row_of(rows, **case):
    [row] = [row for row in rows if all(row[name] == value for name, value in case.items())]
    return row


def test_the_text_on_load():
    most = (row_of(CPU["matrix"], batch=32, prompt=128, output=n) for n in (64, 256))
    assert [round(row["tokens_per_second"]) for row in most] == [102, 107]
    for batch, least, most in ((1, 0.78, 0.82), (8, 0.85, 0.95)):
        short, long = (
            row_of(CPU["matrix"], batch=batch, prompt=128, output=output) for output in (64, 256)
        )
        assert least < long["tokens_per_second"] / short["tokens_per_second"] < most
    for results, polite, strangers in ((CPU, 7.1, 4.8), (H200, 504, 435)):
        for section, said in (("at_once", polite), ("arrivals", strangers)):
            most = max(row["finished"] for row in results[section])
            assert most == pytest.approx(said, rel=0.01)
    assert round(1e3 * row_of(H200["at_once"], at_once=64)["itl_p50"], 1) == 1.4
    assert round(1e3 * row_of(H200["arrivals"], fraction=0.85)["itl_p50"], 1) == 2.4
    waits = [row_of(CPU["at_once"], at_once=n)["ttft_p50"] for n in (8, 32)]
    waits += [1e3 * row_of(H200["at_once"], at_once=n)["ttft_p50"] for n in (64, 128)]
    assert waits == pytest.approx([0.4, 1.5, 9, 125], rel=0.02)
    at_eight = row_of(H200["at_once"], at_once=8)["finished"]
    assert at_eight > 0.95 * 8 * row_of(H200["at_once"], at_once=1)["finished"]
    for results, clients in ((CPU, 8), (H200, 32)):
        most = max(row["finished"] for row in results["at_once"])
        assert 0.65 < row_of(results["at_once"], at_once=clients)["finished"] / most < 0.71


def test_the_text_on_memory():
    over = [row for row in H200["memory"] if row["preemptions"]]
    assert {row["preemptions"] for row in over} == {21, 26}
    assert {(row["tokens"] - row["requests"]) // 100 for row in over} == {118}
    assert max(row["most_running"] for row in over) == 45
    fits, dip = (row_of(H200["memory"], at_once=n) for n in (32, 40))
    took = [row["tokens"] / row["tokens_per_second"] for row in (fits, dip)]
    assert took[1] - took[0] == pytest.approx(0.14, rel=0.05)
    assert dip["preemptions"] * (dip["prompt"] + dip["output"]) == pytest.approx(8000, rel=0.01)
    assert 0.01 < row_of(H200["first_token"], prompt=8000)["ttft_p50"] < 0.03
    assert [round(1e3 * row["itl_p50"], 1) for row in (fits, dip)] == [1.2, 2.5]
    assert [round(1e3 * row["itl_p99"], 1) for row in (fits, dip)] == [3.3, 3.7]


SERVED, INDEPENDENT = (kept(f"28_{name}") for name in ("served_h200", "arrivals_h100"))


def test_the_text_on_the_server():
    assert max(row["tokens_per_second"] for row in LARGE["matrix"]) == pytest.approx(7400, rel=0.01)
    one, eight, some, many = SERVED["rows"]
    assert [row["clients"] for row in SERVED["rows"]] == [1, 8, 64, 256]
    assert {len(row["server"]) for row in SERVED["rows"]} == {6} and SERVED["workers"] == 10
    assert SERVED["apart"] and SERVED["spread"] == [32, 96]
    spread = SERVED["spread rows"]
    assert [row["clients"] for row in spread] == [64, 256]
    ratios = [round(row["tokens_per_second ratio"], 2) for row in SERVED["rows"] + spread]
    assert ratios == [0.95, 0.96, 0.95, 0.89, 0.9, 0.95]
    rates = [
        [run["tokens_per_second"] for run in row[who]]
        for row in (some, many)
        for who in ("engine", "server")
    ]
    ends = [round(end(of) / 100) for of in rates for end in (min, max)]
    assert ends == [355, 436, 321, 380, 349, 416, 284, 401]
    alone = [round(row["engine tokens_per_second"] / 100) for row in (some, spread[0])]
    assert alone == [386, 289]
    assert round(some["engine tokens_per_second"] / SERVED["output"]) == 603
    assert [round(1e3 * some[f"{who} ttft_p50"]) for who in ("server", "engine")] == [11, 7]
    gaps = [round(row["itl_p99 ratio"], 2) for row in SERVED["rows"] + spread]
    assert gaps == [1.17, 1.02, 0.93, 1.36, 1.23, 1.43]
    assert round(1e3 * statistics.median(run["e2e_p50"] for run in one["engine"])) == 49
    waits = [1e3 * (row["server ttft_p50"] - row["engine ttft_p50"]) for row in (one, eight)]
    assert [round(wait) for wait in waits] == [2, 3]
    runs = [run for row in (one, eight, some, many, *spread) for run in row["server"]]
    assert round(100 * max(1 - run["pieces"] / run["tokens"] for run in runs)) == 2
    (cpu,) = kept("28_served_cpu")["rows"]
    assert cpu["clients"] == 8 and round(cpu["tokens_per_second ratio"], 2) == 0.97
    assert round(1e3 * cpu["engine itl_p50"]) == 44
    assert all(one["same answers"] == cpu["requests"] for one in cpu["server"])


def test_the_text_on_the_other_engine():
    beside = kept("28_offline_h200")
    assert [run["engine"] for run in beside["runs"]] == ["yaie", "mini-sglang", "yaie"]
    assert [beside["requests"], *beside["tokens"]] == [256, 100, 1024]
    ours, theirs, again = (statistics.median(run["rates"]) for run in beside["runs"])
    assert beside["ratios"]["llama-8b"] == pytest.approx((ours + again) / 2 / theirs, abs=1e-3)
    assert round((ours + again) / 2 / theirs, 2) == 1.04
    seconds = [sum(workload(0)[1]) / run["rates"][0] for run in beside["runs"][:2]]
    assert [round(one, 1) for one in seconds] == [13.2, 13.6]
    assert seconds[1] == pytest.approx(10.2 * 4 / 3, rel=0.01)


def test_the_text_on_the_record_with_the_longest_first():
    beside, arrived = (kept(f"28_{name}_h200") for name in ("longest", "offline"))
    assert [(run["engine"], run["policy"], run["batched"]) for run in beside["runs"]] == [
        ("yaie", "longest", 384), ("mini-sglang", "fcfs", 16_384), ("yaie", "longest", 384)
    ]  # fmt: skip
    ours, theirs, again = (run["rates"] for run in beside["runs"])
    ratio = statistics.median(ours + again) / statistics.median(theirs)
    assert round(ratio, 3) == beside["ratios"]["llama-8b"] == 1.107
    each = [one / their for run in (ours, again) for one, their in zip(run, theirs, strict=True)]
    assert (round(min(each), 3), round(max(each), 3)) == (1.106, 1.110)
    for one, said in zip(beside["earlier"], (1.098, 1.100, 1.086, 1.077), strict=True):
        rates = [statistics.median(one["rates"][name]) for name in ("yaie", "mini-sglang")]
        assert round(rates[0] / rates[1], 3) == one["ratios"]["llama-8b"] == said
    seconds = [
        sum(workload(0)[1]) / run["rates"][0] for run in (*beside["runs"], arrived["runs"][0])
    ]
    assert [round(one, 1) for one in seconds] == [12.4, 13.7, 12.4, 13.2]


def test_the_text_on_the_schedules():
    """Counted by the engine's scheduler; the notebook replays it in a few lines."""
    prompts, answers = workload(0)
    lengths = enumerate(zip(map(len, prompts), answers, strict=True))
    arrivals = {i: Arrival(0, *both) for i, both in lengths}
    copies = 1e9 * kept("19_paged_h200")["copy_gb_s"]
    products = kept("16_matmul_h200")["products"]["bfloat16"]
    multiplies = 1e12 * products["cuBLAS"]["tflop_s"]
    layers = 32 * 4096 * (6144 + 4096 + 28672 + 14336)
    last = answers.index(max(answers))  # the request with the longest answer
    for schedule, said in {
        ("fcfs", 16_384): (1032, 9, 704, 6.2, 527),
        ("fcfs", 384): (1561, 546, 1009, 7.1, 762),
        ("longest", 384): (1026, 605, 345, 5.7, 778),
    }.items():
        policy, budget = schedule
        options = {"max_num_seqs": 256, "max_num_batched_tokens": budget, "policy": policy}
        simulation = Simulation(Scheduler, num_blocks=256, block_size=2048, **options)
        done = simulation.run(arrivals, limit=2000)
        rows = [step.num_tokens for step in done]
        kinds = [{kind for _, kind, _ in step.work} for step in done]
        seconds = sum(2 * layers * max(n / multiplies, 1 / copies) for n in rows)
        ends = [number for number, step in enumerate(done, 1) for _ in step.finished]
        few = sum(n < multiplies / copies for n in rows)
        found = len(done), sum("prefill" in of for of in kinds), few
        assert (*found, round(seconds, 1), round(statistics.mean(ends))) == said
        assert "prefill" in kinds[found[1] - 1], "the steps with prompts are not the first ones"
        if schedule == ("longest", 384):
            assert (ends[0], sum(len(of) == 2 for of in kinds)) == (663, 602)
            assert done[0].work[0][0] == last and answers[last] == 1024
        if schedule == ("fcfs", 384):
            begins = [any(one == last for one, *_ in step.work) for step in done]
            assert (begins.index(True) + 1, done[-1].finished) == (534, (last,))
            assert sum(n < 30 for n in rows) == 395
    assert round(multiplies / copies) == 180


def test_the_text_on_independent_clients_of_the_server():
    arrivals, output = INDEPENDENT["arrivals"], INDEPENDENT["output"]
    rows = [row["runs"] for row in arrivals]
    assert {len(runs) for runs in rows} == {3} and arrivals[0]["seconds"] == 60
    assert INDEPENDENT["closed loop"]["clients"] == SERVED["rows"][-1]["clients"] == 256
    many = INDEPENDENT["closed loop"]["tokens_per_second"] / output
    parts = [round(row["rate"] / many, 2) for row in arrivals]
    assert parts == [0.5, 0.7, 0.85, 1.0] and round(many) == 438
    assert round(SERVED["rows"][-1]["server tokens_per_second"] / SERVED["output"]) == 523
    sent = [run["requests"] + run["refused"] for runs in rows for run in runs]
    assert round(min(sent), -3) == 13_000 and round(max(sent), -3) == 26_000
    waits = [sorted(1e3 * run["ttft_p50"] for run in runs) for runs in rows]
    assert max(waits[0]) / min(waits[0]) < 1.1
    assert waits[1][1] / waits[0][1] == pytest.approx(4, rel=0.1)
    assert max(waits[1]) / min(waits[1]) == pytest.approx(4 / 3, rel=0.02)
    assert [round(wait) for wait in waits[2]] == [116, 145, 311]
    assert all(640 < wait < 700 for wait in waits[3])
    answered = [[run["tokens_per_second"] / output for run in runs] for runs in rows]
    for row, rates in zip(arrivals[:2], answered, strict=False):
        assert min(rates) > 0.99 * row["rate"]
    assert [round(rate) for rate in (min(answered[3]), max(answered[3]))] == [373, 392]
    refused = [run["refused"] / (run["refused"] + run["requests"]) for run in rows[3]]
    assert [round(100 * part) for part in (min(refused), max(refused))] == [9, 14]
    assert not any(run["refused"] for runs in rows[:2] for run in runs)
    assert all(run["late_p99"] < 0.003 for runs in rows for run in runs)  # of the clients
    good = [
        statistics.median(rate for run in runs for *of, rate in run["goodput"] if of == [0.2, 0.01])
        for runs in rows
    ]
    assert good[0] < good[1] > good[2] > good[3] and good[3] < 10


def test_the_text_on_first_tokens():
    first = {row["prompt"]: row["ttft_p50"] for row in CPU["first_token"]}
    assert [round(first[n] / first[128]) for n in (1024, 4096)] == [8, 68]
    long, short = (row_of(H200["first_token"], prompt=n)["ttft_p50"] for n in (1024, 128))
    assert long / short == pytest.approx(4 / 3, rel=0.02)
    asked = [
        row_of(H200["workloads"], workload="no sharing", prefix_cache=c) for c in (True, False)
    ]
    assert asked[0]["ttft_p50"] / asked[1]["ttft_p50"] == pytest.approx(1.25, rel=0.02)


def test_the_text_on_transformers():
    served = kept("28_serve_cpu")["results"]["transformers"]
    assert [round(s, 2) for s in served[0]["seconds"][0]] == [3.65, 3.35, 3.4]
    assert [round(s, 2) for s in served[0]["seconds"][1]] == [4.84, 4.84, 5.03]
    row = row_of(LARGE["matrix"], batch=64, prompt=128, output=64)
    assert round(1e3 * row["ttft_p99"] / 64) == 3  # the prompts' share of a token
    assert round(1e3 * row["itl_p50"], 1) == 5.7
    rates = [row["rates"] for row in CPU["block_size"]]
    assert 1.15 < max(max(of) / min(of) for of in rates) < 1.25


def test_the_text_on_attention_kernels():
    for results, said in ((CELLS, {1024: 11, 8000: 34}), (CELLS_LARGE, {1024: 15, 8000: 32})):
        for prompt, times in said.items():
            row = row_of(results["attention"], prompt=prompt)
            assert round(row["math"] / row["FlashAttention"]) == times
        for row in results["attention"]:
            assert row["error of math"] == min(row[name] for name in row if "error" in name)
            assert 0.6 < row["this engine"] / row["FlashAttention"] < 1.05
            if row["prompt"] >= 1024:
                assert 1.5 < row["memory-efficient"] / row["FlashAttention"] < 2.2
    for prompt, times in ((128, 1.5), (2048, 6.7)):
        row = row_of(CELLS_CPU["attention"], prompt=prompt)
        assert round(row["math"] / row["FlashAttention"], 1) == times
    assert 1.0 < row["this engine"] / row["math"] < 1.1
    for results in (CELLS, CELLS_LARGE):
        assert all(0.08 < row["math"] < 0.3 for row in results["attention"][:3])


def test_the_text_on_whole_requests():
    rows, rate, whole = CELLS["memory"], "tokens_per_second", "e2e_p50"
    fit, most = (row_of(rows, at_once=n) for n in (64, 128))
    assert requests_that_fit(fit["num_blocks"], 16, fit["prompt"], fit["output"]) == 64
    assert most[rate] / fit[rate] == pytest.approx(7 / 8, rel=0.01)
    assert [round(most[name] / fit[name], 1) for name in (whole, "e2e_p99")] == [2.1, 2.5]
    few, many = (row_of(CELLS_CPU["memory"], at_once=n) for n in (8, 16))
    assert [round(many[name] / few[name], 1) for name in (whole, "e2e_p99")] == [1.8, 2.3]
    for results, case, gain, wait in (
        (CELLS, {"prompt": 128, "output": 64}, 46, 1.3),
        (CELLS, {"prompt": 4096, "output": 64}, 5.5, 10),
        (CELLS_CPU, {"prompt": 64, "output": 32}, 8, 8),
    ):
        one, many = (row_of(results["matrix"], batch=n, **case) for n in (1, 64))
        assert many[rate] / one[rate] == pytest.approx(gain, rel=0.04)
        assert many[whole] / one[whole] == pytest.approx(wait, rel=0.04)
    seconds = [many["ttft_p50"] + 31 * many["tpot_p50"], many[whole]]
    assert [round(1e3 * s) for s in seconds] == [15_265, 19_450]
    assert many["batch"] * many["prompt"] == 2 * 2048


def test_the_text_on_launches():
    steps = kept("27_engine_h200")["steps"]
    for step in steps:
        assert step["graph ms"] == pytest.approx(step["gpu ms"], rel=0.05)
        step["launches"] = sum(count for _, count, _ in step["kernels"])
        assert 35 < 1e3 * step["eager ms"] / step["launches"] < 50
    small, eight = (
        row_of(steps, model=model, batch=batch)
        for model, batch in (
            ("SmolLM2-135M, bfloat16", 1),
            ("Llama-8B-shaped, random weights, bfloat16", 8),
        )
    )
    said = [small["launches"], round(small["eager ms"], 1), round(small["gpu ms"], 1)]
    assert said == [339, 13.6, 1.1] and round(small["eager over graph"]) == 12
    assert 1.5 < 5e-3 * small["launches"] / small["gpu ms"] < 1.6
    assert [round(5e-3 * eight["launches"], 1), round(eight["gpu ms"], 1)] == [2.1, 6.2]


CELL = {"batch": 1, "prompt": 64, "output": 32}
ROW = CELL | {"tokens_per_second": 9.0, "e2e_p99": 3.0}
MINE = {
    "machine": {"processor": "Z80", "threads": 2},
    "subject": {
        "model": "m",
        "dtype": "float32",
        "sizes": json.loads(json.dumps(asdict(COURSE_CPU))),
    },
    "results": {"matrix": [ROW] * 13, "first_token": [{}], "memory": [{}], "attention": [{}]},
}


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ({}, "Your record: 2 threads of Z80, m, float32."),
        ({"matrix": [ROW]}, "It lacks 12 of 13 cells of the matrix: `yaie bench engine --course`"),
        ({"attention": []}, "It lacks attention: `yaie bench engine --course` goes on with it."),
        ({"matrix": []}, "It lacks matrix: `yaie"),
        ({"matrix": [CELL] * 13}, "An older version measured it: delete"),
    ],
)
def test_a_record_of_ones_own_says_what_it_lacks(monkeypatch, tmp_path, results, said):
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path))
    assert own_record() == (
        NOTHING, "No record of your machine yet: `yaie bench engine --course` measures one."
    )  # fmt: skip
    path = files.own_path("cpu")
    path.parent.mkdir()
    path.write_text('{"results":')  # the disk was full
    record, words = own_record()
    assert record == NOTHING and words.endswith("Delete it and measure again.")
    mine = MINE | {"results": MINE["results"] | results}
    files.save(mine, path)
    record, words = own_record()
    assert record == mine and said in words and ("lacks" in words) == ("lacks" in said)
    assert has(record, "matrix", "e2e_p99") == (record["results"]["matrix"][:1] == [ROW])
    files.save(mine, files.own_path("cuda"))  # a GPU's record comes before that of a CPU
    files.own_path("cpu").write_text("")
    assert own_record() == (record, words)


def test_records_of_other_cells_have_none_in_common():
    other = {"results": {"matrix": [ROW | {"prompt": 65}]}}
    assert in_both(MINE, other) == in_both(NOTHING, MINE) == in_both(MINE, NOTHING) == []
    assert in_both(other, {"results": {"matrix": [ROW, ROW | {"prompt": 65, "x": 1}]}}) == [
        (ROW | {"prompt": 65}, ROW | {"prompt": 65, "x": 1})
    ]

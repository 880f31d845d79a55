"""`yaie bench engine` and `serve` on a tiny model: rows, checks of answers, records that go on."""

import argparse
import asyncio
import importlib
import json
import math
import os
import random
import shutil
import sys
import threading
import time
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from unittest.mock import Mock

import pytest
import torch
from servers import serving
from tiny import make_tiny_model
from typer.testing import CliRunner

from yaie.bench import bench, engine, machine, process, sections, serve, soak
from yaie.bench.attention import OURS, TORCH
from yaie.bench.client import Client, ClientError
from yaie.bench.compare import compare
from yaie.bench.drawn import DrawnBench
from yaie.bench.drive import greedy, run_batch, run_closed, run_open
from yaie.bench.files import output_path
from yaie.bench.load import (
    Trace,
    in_system,
    poisson_arrivals,
    requests_that_fit,
    summarize,
    under_way,
)
from yaie.bench.oracle import Oracle, WrongAnswer
from yaie.bench.record import Record, rounded
from yaie.bench.right import Right
from yaie.bench.workloads import (
    different_chats,
    few_shot_chats,
    long_prompts,
    mixed_lengths,
    next_turn,
    shared_prompts,
    shared_system_chats,
)
from yaie.cli import app
from yaie.course.core.paths import kept
from yaie.course.viz import benchmark, draw_benchmark
from yaie.engine.llm import LLM
from yaie.model.pull import model_name

pytestmark = pytest.mark.usefixtures("short_reads")
CPU = torch.device("cpu")
LONG = os.environ.get("YAIE_LONG_TESTS") == "1"
MOST_GROWTH = 2**20  # bytes per minute of a server, when its cache has been full for ten minutes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    # Untied: a random tied model says its last token again and again, whatever came before.
    options = {"max_position_embeddings": 2048, "tie_word_embeddings": False}
    return make_tiny_model(tmp_path_factory.mktemp("bench") / "tiny", **options)


@pytest.fixture(scope="module")
def llm(folder):
    return LLM(folder, num_blocks=120, device="cpu")


@pytest.fixture(scope="module")
def oracle(folder):
    return Oracle(folder)


# ------------------------------------------------------------------------------------- workloads


def test_prompts_have_exactly_so_many_tokens_and_share_what_they_say(llm):
    encode = llm.tokenizer.encode
    prompts = long_prompts(40, 300, encode)
    assert {len(prompt) for prompt in prompts} == {300}
    assert len({tuple(prompt[:16]) for prompt in prompts}) == 40
    shared = shared_prompts(5, 100, 164, encode)
    assert {len(prompt) for prompt in shared} == {164}
    assert len({tuple(prompt[:100]) for prompt in shared}) == 1
    assert len({tuple(prompt[100:116]) for prompt in shared}) == 5
    with pytest.raises(ValueError, match="shared must be at least 0 and below 10, got 10"):
        shared_prompts(2, 10, 10, encode)
    assert len({chat[0]["content"] for chat in different_chats(70)}) == 70
    assert len(few_shot_chats(33)) == len(shared_system_chats(33, 40, encode)) == 33
    roles = [m["role"] for m in next_turn([{"role": "user", "content": "?"}], "!", 0)]
    assert roles == ["user", "assistant", "user"]


# ------------------------------------------------------------------------------------- driving


def test_every_token_has_its_time(llm):
    prompts = long_prompts(5, 40, llm.tokenizer.encode)
    run = run_batch(llm.engine, prompts, 7)
    assert [len(trace.tokens) for trace in run.traces] == [7] * 5
    assert all(trace.tokens == sorted(trace.tokens) for trace in run.traces)
    assert all(trace.due <= trace.tokens[0] for trace in run.traces)
    assert run.most_running == 5 and run.preemptions == 0 and run.cached_fraction == 0
    again = run_closed(llm.engine, prompts, [greedy(7)] * 5, at_once=2)
    assert again.answers == run.answers
    assert again.most_running == 2 and again.cached_fraction > 0.5


def test_an_open_loop_counts_from_when_a_request_was_due(llm):
    prompts = long_prompts(6, 20, llm.tokenizer.encode)
    times = [0.0, 0.0, 0.05, 0.05, 0.1, 0.1]
    run = run_open(llm.engine, prompts, [greedy(3)] * 6, times)
    start = run.traces[0].due
    assert [round(trace.due - start, 6) for trace in run.traces] == times
    series = under_way(run.traces)
    assert series[-1][1] == 0 and max(number for _, number in series) <= 6
    seconds = max(t.tokens[-1] for t in run.traces) - start
    area = sum(n * (b[0] - a) for (a, n), b in pairwise(series))
    assert in_system(run.traces) == pytest.approx(area / seconds)


@pytest.mark.parametrize("shared", [0, 33])
def test_as_many_fit_as_is_said(folder, shared):
    llm = LLM(folder, num_blocks=40, device="cpu")
    prompts = shared_prompts(30, shared, 50, llm.tokenizer.encode) if shared else None
    prompts = prompts or long_prompts(30, 50, llm.tokenizer.encode)
    fit = requests_that_fit(40, 16, 50, 15, shared)
    run_closed(llm.engine, prompts[:1], [greedy(1)], 1)  # so that what is shared is in the cache
    run = run_closed(llm.engine, prompts[:fit], [greedy(15)] * fit, fit)
    assert run.most_running == fit and run.preemptions == 0
    more = run_closed(llm.engine, prompts[-fit - 1 :], [greedy(15)] * (fit + 1), fit + 1)
    assert more.preemptions or more.most_running == fit


# ------------------------------------------------------------------------------------- answers


def test_an_oracle_knows_right_from_wrong(llm, oracle):
    prompts = long_prompts(3, 30, llm.tokenizer.encode)
    answers = run_batch(llm.engine, prompts, 8).answers
    verdict = oracle.demand("right", prompts, answers)
    assert (verdict.answers, verdict.same, verdict.worst) == (3, 3, 0.0)
    assert oracle.generate(prompts, 8) == answers
    with pytest.raises(WrongAnswer, match=r"mixed up: a token lies .* below the likeliest"):
        oracle.demand("mixed up", prompts, answers[1:] + answers[:1])
    damaged = [*answers[0][:5], (answers[0][5] + 1) % 384, *answers[0][6:]]
    with pytest.raises(WrongAnswer):
        oracle.demand("one token", prompts[:1], [damaged])


def test_a_text_is_right_if_it_departs_at_a_token_as_likely(llm, oracle, monkeypatch):
    prompts = long_prompts(2, 30, llm.tokenizer.encode)
    right = Right(oracle, llm.tokenizer)
    outputs = run_batch(llm.engine, prompts, 8).outputs
    texts = [output.text for output in outputs]
    assert right.check(prompts, texts, 8) == {"checked_answers": 2, "same_answers": 2}
    with pytest.raises(WrongAnswer, match="is not the model's, which is"):
        right.check(prompts, texts[::-1], 8)
    with pytest.raises(WrongAnswer):
        right.check(prompts[:1], [texts[0] + " more"], 8)
    other = next(t for t in range(200, 384) if llm.tokenizer.decode([t]).isalpha())
    departed = right.text(prompts[0], [*outputs[0].token_ids[:3], other])
    with pytest.raises(WrongAnswer):
        right.check(prompts[:1], [departed], 8)
    monkeypatch.setattr(oracle, "nearly_as_likely", lambda prompt, answer: [other])
    assert right.check(prompts[:1], [departed], 8)["same_answers"] == 0


def test_no_time_is_kept_of_a_wrong_answer(folder, tmp_path, monkeypatch):
    def lies(self, prompt, answer):
        raise WrongAnswer("wrong")

    monkeypatch.setattr(Oracle, "judge", lies)
    path = tmp_path / "record.json"
    with pytest.raises(WrongAnswer):
        engine.run(folder, device="cpu", only="first_token", quick=True, output=path)
    assert not path.exists()


# ------------------------------------------------------------------------------------- records


def test_a_record_goes_on_where_it_was(tmp_path):
    path, subject = tmp_path / "record.json", dict.fromkeys("abcde", 1)
    Record(path, subject, CPU).add("matrix", {"batch": 1, "requests": 1})
    second = Record(path, subject, CPU)
    assert second.find("matrix", {"batch": 1}) == {"batch": 1, "requests": 1}
    assert second.find("matrix", {"batch": 2}) is None
    second.add("matrix", {"batch": 2, "requests": 2})
    content = json.loads(path.read_text())
    assert [row["batch"] for row in content["results"]["matrix"]] == [1, 2]
    assert {"date", "machine", "versions", "subject"} <= set(content)
    told = r"another subject \(a: 1, not 2; b: 1, not 2; c: 1, not 2; and 2 more\)"
    with pytest.raises(ValueError, match=told):
        Record(path, dict.fromkeys("abcde", 2), CPU)


def test_a_record_is_of_one_model_whatever_the_name_of_its_folder(folder, tmp_path):
    path = tmp_path / "record.json"
    Record(path, {}, CPU, folder).add("matrix", {"batch": 1})
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "tiny")
    assert Record(path, {}, CPU, copy).rows("matrix")
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1  # of the same architecture and size
    weights.write_bytes(content)
    with pytest.raises(ValueError, match=r"results of another model \(its files: \w+, not \w+\)"):
        Record(path, {}, CPU, copy)
    with pytest.raises(ValueError, match=r"results of another model \(its files: \w+, not None\)"):
        Record(path, {}, CPU)


def test_a_model_is_called_as_its_folder_is(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for model in (".", folder, f"{folder}/", "../tiny", "tiny", "org/tiny"):
        assert model_name(model) == "tiny"


@pytest.mark.parametrize("content", [b"", b'{"a":', b"\xff", b"[]", b'{"results": [1]}'])
def test_a_file_that_holds_no_results_is_named(tmp_path, content):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"record\.json holds no results of (a|this) benchmark"):
        Record(path, {}, CPU)
    assert path.read_bytes() == content


def test_a_file_is_looked_at_before_anything_is_measured(tmp_path):
    with pytest.raises(ValueError, match=r"output must end in \.json, got '.*x\.png'"):
        Record(tmp_path / "x.png", {}, CPU)
    (tmp_path / "file").write_text("")
    for name in "new", "file":
        folder = tmp_path / name
        told = (
            rf"output must be in a folder .*, got '{folder}/x\.json': `mkdir -p {folder}` makes it"
        )
        with pytest.raises(ValueError, match=told):
            Record(folder / "x.json", {}, CPU)
    assert os.listdir(tmp_path) == ["file"]


def test_a_tool_of_the_authors_says_what_is_wrong_with_a_file(capsys):
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=output_path)
    with pytest.raises(SystemExit):
        parser.parse_args(["--output", "nowhere/x.json"])
    assert "argument --output: output must be in a folder that" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "case", "told"),
    [
        ("block_size", {"block_size": 4, "batch": 8}, "block size 4, batch 8"),
        ("workloads", {"workload": "chat", "output": 9}, "workload chat, output 9"),
        ("matrix", {"batch": 4, "prompt": 9}, "matrix: batch 4, prompt 9"),
    ],
)
def test_a_case_is_told_without_a_word_twice(section, case, told):
    assert bench.title(section, case) == told


def test_a_record_is_of_one_version_of_the_code(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    monkeypatch.setattr(machine, "code", lambda: {"commit": "a", "sources": "1"})
    Record(path, {}, CPU).add("matrix", {"batch": 1})
    monkeypatch.setattr(machine, "code", lambda: {"commit": "b", "sources": "1"})
    assert Record(path, {}, CPU).content["code"]["commit"] == "a"  # the sources are the same
    monkeypatch.setattr(machine, "code", lambda: {"commit": "b", "sources": "2"})
    with pytest.raises(ValueError, match=r"another code \(commit: a, not b; sources: 1, not 2\)"):
        Record(path, {}, CPU)


def test_the_code_of_plugged_operators_counts(tmp_path, monkeypatch):
    file = tmp_path / "mine_for_a_digest.py"
    file.write_text("def silu(x): return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    place = "mine_for_a_digest:silu"
    importlib.import_module("mine_for_a_digest")
    before = machine.code_of([place])
    assert list(before) == [place] and machine.code_of([place]) == before
    file.write_text("def silu(x): return 2 * x\n")
    assert machine.code_of([place]) != before


def test_the_code_is_that_of_the_engine_and_its_kernels(tmp_path, monkeypatch):
    package = shutil.copytree(machine.PACKAGE, tmp_path / "yaie")
    before = machine.code()["sources"]
    monkeypatch.setattr(machine, "PACKAGE", package)
    assert machine.code() == {"commit": "unknown", "sources": before}
    (package / "course" / "viz" / "style.py").write_text("")
    assert machine.code()["sources"] == before
    kernels = shutil.copytree(machine.CSRC, tmp_path / "csrc")
    monkeypatch.setattr(machine, "CSRC", kernels)
    assert machine.code()["sources"] == before
    for file in (kernels / "cpu" / "step.cpp", package / "engine" / "radix.py"):
        text = file.read_text()
        file.write_text("")
        assert machine.code()["sources"] != before
        file.write_text(text)


def test_numbers_are_kept_short_and_nan_is_null():
    row = rounded({"a": 0.123456, "b": math.nan, "c": 7, "d": [1.23456, 2], "e": "x"})
    assert row == {"a": 0.1235, "b": None, "c": 7, "d": [1.235, 2], "e": "x"}


SMALL = replace(bench.QUICK, batches=(1, 3), memory=(32, 16, 2, (1, 3)), chats=4)


def test_every_section_gives_rows_whose_answers_were_checked(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(engine, "QUICK", SMALL)
    path = tmp_path / "record.json"
    record = engine.run(folder, device="cpu", quick=True, output=path)
    on_a_gpu_only = {"cuda_graphs", "back_ends"}
    assert set(record["results"]) == set(engine.SECTIONS) - on_a_gpu_only
    attention = record["results"]["attention"]
    for row in attention:  # on a CPU torch has two kernels of three
        there = {name for name in (OURS, *TORCH) if row[name] is not None}
        assert there == {OURS, "FlashAttention", "math"}
        assert all(row[f"error of {name}"] < 1e-4 for name in there)
    assert [row["prompt"] for row in attention] == list(SMALL.lengths)
    for section, rows in record["results"].items():
        if section != "attention":
            assert rows and all(row["checked_answers"] == row["same_answers"] > 0 for row in rows)
    assert [row["kv_bytes"] for row in record["results"]["matrix"]] == [
        batch * 5 * 16 * 2 * 2 * 2 * 16 * 4 for batch in SMALL.batches
    ]  # 79 tokens in blocks of 16: 2 layers, keys and values, 2 heads of 16 float32
    roomy, tight = record["results"]["memory"]
    assert roomy["preemptions"] == 0 and tight["most_blocks"] <= tight["num_blocks"]
    mixed = record["results"]["transformers"][-1]
    assert mixed["requests"] == mixed["equal_answers"] == 8
    assert mixed["tokens"] == sum(mixed_lengths(8, 4, 8, seed=1))
    on, off = record["results"]["prefix_cache"]
    assert on["cached_fraction"] > 0.8 and off["cached_fraction"] == 0
    said = capsys.readouterr().out
    assert "all are transformers' own, token for token" in said
    assert said.splitlines()[-1] == engine.WORDS
    before = path.read_text()
    engine.run(folder, device="cpu", quick=True, output=path)  # nothing is measured again
    assert path.read_text() == before
    with pytest.raises(ValueError, match=r"another subject \(rounds: 1, not 2\)"):
        engine.run(folder, device="cpu", quick=True, rounds=2, output=path)
    other = make_tiny_model(tmp_path / folder.name, num_hidden_layers=1)
    with pytest.raises(ValueError, match="another model"):
        engine.run(other, device="cpu", quick=True, output=path)


def test_the_course_has_its_sections_and_its_place(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path))
    monkeypatch.setattr(engine, "COURSE_CPU", SMALL)
    options = ["bench", "engine", "--course", "--device", "cpu", "--model", str(folder)]
    done = CliRunner().invoke(app, options)
    path = tmp_path / "bench" / "engine_cpu.json"
    assert done.exit_code == 0 and f"what this measures: {path}" in done.stderr
    record = json.loads(path.read_text())
    assert list(record["results"]) == ["matrix", "first_token", "memory", "attention"]
    assert "cell 2 of 2" in done.stderr
    for row in record["results"]["matrix"]:
        assert row["ttft_p50"] <= row["e2e_p50"] <= row["e2e_p99"] and row["tpot_p50"] > 0


def test_a_matrix_leaves_out_what_is_too_much():
    sizes = asdict(bench.COURSE_CPU)
    cells = sections.matrix_cases(sizes)
    assert len(cells) == 13 and {cell["batch"] for cell in cells} == {1, 8, 32, 64}
    assert len(sections.matrix_cases(asdict(bench.COURSE_GPU))) == 4 * 3 * 2
    assert sections.matrix_cases(sizes | {"most_tokens": 96}) == [
        {"batch": 1, "prompt": 64, "output": 32}
    ]


def test_an_attention_that_is_wrong_has_no_time(folder, monkeypatch):
    monkeypatch.setattr("yaie.bench.attention.sdpa", lambda *_: lambda q, *__: lambda: 2 * q)
    told = r"attention of 64 tokens, FlashAttention: relative error"
    with pytest.raises(WrongAnswer, match=told):
        engine.run(folder, device="cpu", only="attention", quick=True)


def test_the_operator_that_draws_tokens_is_chosen_and_recorded(folder, monkeypatch):
    monkeypatch.setitem(engine.SECTIONS, "attention", lambda bench: bench.llm())
    options = {"device": "cpu", "only": "attention", "quick": True}
    chosen = engine.run(folder, backend={"sample": "cuda", "rotary": "reference"}, **options)
    operators = chosen["subject"]["operators"]
    assert (operators["sample"], operators["rotary"]) == ("cuda", "reference")
    chosen = engine.run(folder, backend="reference", **options)
    assert "sample" not in chosen["subject"]["operators"]
    with pytest.raises(ValueError, match=r"operators are .*'sample', got 'drawing'"):
        engine.run(folder, backend={"drawing": "cuda"}, **options)


def test_a_table_names_units_and_rows_that_were_disturbed(capsys):
    checked = {"checked_answers": 1, "same_answers": 1}
    row = {"workload": "chats", "requests": 2, "yaie": 40.0, "transformers": 20.0, "ratio": 2.0}
    steady = row | checked | {"seconds": [[1.0, 1.9], [2.0, 3.9]]}
    batch = {"batch": 1, "requests": 1, "ttft_p50": 0.0125, "rates": [30.0, 61.0]} | checked
    for section, rows, words, others in (
        ("transformers", [steady], ["yaie tokens/s", "transformers tokens/s"], ["differ", "ms"]),
        ("transformers", [steady, steady | {"seconds": [[1.0, 1.0], [2.0, 5.0]]}],
         ["2.5 times", "Rounds that differ 2 times or more"], []),
        ("matrix", [batch], ["matrix (times in ms)", "12.5", "2.0 times"], []),
    ):  # fmt: skip
        engine.show(section, rows)
        said = capsys.readouterr().out
        assert all(word in said for word in words)
        assert not any(word in said for word in others)


@pytest.mark.parametrize(
    ("names", "is_told"),
    [(["memory"], True), (["attention", "matrix"], True), (["attention"], False)],
)
def test_the_words_of_the_tables_are_explained_once(capsys, names, is_told):
    """A word of latency that a table may have is one of those that are explained."""
    engine.explain(names)
    said = capsys.readouterr().out
    assert said.count("\n") == said.count("ttft: time to first token") == is_told
    for word in {part for name in engine.MILLISECONDS for part in name.split("_")}:
        assert not said or f"{word}: " in said or word in ("wait", "mean")


@pytest.mark.parametrize(
    "sizes, counts",
    [(bench.CPU, [8, 16, 32, 32, 32, 32]), (serve.CPU_LOAD, [2, 16, 64, 128])],
)
def test_clients_send_as_many_requests_as_they_should(llm, sizes, counts):
    subject = Mock(sizes=sizes, tokenize=llm.tokenizer.encode)
    subject.record.find.return_value, subject.at_once.return_value = None, {}
    sections.at_once(subject)
    assert [len(call.args[1]) for call in subject.at_once.call_args_list] == counts
    said = [call.args[0].partition(",")[0] for call in subject.say.call_args_list]
    assert said == ["1 client", *(f"{number} clients" for number in sizes.clients[1:])]


def test_an_engine_is_built_before_transformers_answers():
    subject = Mock(sizes=bench.QUICK, clock=bench.WALL, judge=lambda *_: {})
    subject.record.find.return_value, subject.oracle.generate.return_value = None, [[1]]
    compare(subject, "one prompt", bench.Asked([[5]], [1], 1))
    watched = {"prepare", "ask", "oracle.generate"}
    calls = [name for name, *_ in subject.method_calls if name in watched]
    assert calls == ["prepare", "oracle.generate", "ask", "ask", "oracle.generate"]


def test_a_model_of_a_shape_is_the_same_in_transformers(folder, monkeypatch):
    raw = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": False}
    record = Record(None, {}, CPU)
    drawn = DrawnBench(raw, folder, "float32", CPU, SMALL, record, {"num_blocks": 60})
    prompts = long_prompts(2, 30, drawn.tokenize)
    engine_ = drawn.llm(enable_prefix_caching=True).engine
    assert engine_ is drawn.llm().engine  # the default is nothing else
    answers = run_batch(engine_, prompts, 6).answers
    assert drawn.oracle.demand("drawn", prompts, answers).same == 2
    drawn.options = {}  # no number of blocks: memory says, and graphs take some of it
    monkeypatch.setattr(
        "yaie.engine.engine.count_blocks", lambda _, config: 62 if config.enforce_eager else 61
    )
    for eager, blocks in ((True, 62), (False, 61)):
        assert drawn.llm(enforce_eager=eager, max_num_seqs=2).engine.kv.pool.num_blocks == blocks
    with pytest.raises(
        ValueError, match="shape must be one of llama-8b, smollm2-135m, got 'llama-9b'"
    ):
        engine.run(folder, shape="llama-9b", device="cpu")


# ------------------------------------------------------------------------------------- servers


def test_a_client_notes_pieces_and_says_what_went_wrong(folder, llm, oracle):
    prompt = long_prompts(1, 30, llm.tokenizer.encode)[0]
    with serving(LLM(folder, num_blocks=120, device="cpu"), api_key="key") as running:

        async def talk():
            client = Client(running.url + "/v1", "tiny", api_key="key")
            heard = []
            whole = await client.stream(
                prompt, 8, ignore_eos=True, on_piece=lambda answer: heard.append(answer.text)
            )
            part = await client.stream(prompt, 60, ignore_eos=True, leave_after=1)
            with pytest.raises(ClientError, match=r"401.*valid API key"):
                await Client(running.url, "tiny").stream(prompt, 8)
            with pytest.raises(ClientError, match=r"404.*is not served here"):
                await Client(running.url, "other", api_key="key").stream(prompt, 8)
            return whole, part, heard

        whole, part, heard = asyncio.run(talk())
        running.wait_until_idle()
    assert Right(oracle, llm.tokenizer).check([prompt], [whole.text], 8)["same_answers"] == 1
    assert whole.usage["completion_tokens"] == 8 and whole.finish_reason == "length"
    assert heard[-1] == whole.text and len(part.trace.tokens) == 1
    with pytest.raises(ClientError, match=r"no server answers at 127\.0\.0\.1 port 9"):
        asyncio.run(Client("http://127.0.0.1:9", "tiny").get("/health"))
    with pytest.raises(ValueError, match="url must look like http://"):
        Client("ftp://x", "tiny")


def test_a_benchmark_that_was_stopped_after_one_rate_is_drawn():
    record = kept("28_engine_cpu")
    titles = [
        [chart.title for chart in benchmark._arrivals(record["results"]["arrivals"][:rates])]
        for rates in (1, 2)
    ]
    assert titles[0] == titles[1][:2] and len(titles[1]) == 3
    record["results"] = {"arrivals": record["results"]["arrivals"][:1]}
    assert draw_benchmark(record)


def test_a_server_that_runs_already_is_asked_for_its_models_name(folder, llm):
    with serving(llm, api_key="key") as running:
        assert serve.served_name(running.url, "key") == "tiny"
        with pytest.raises(ClientError, match="401 Unauthorized: a valid API key is needed"):
            serve.served_name(running.url, None)
    with pytest.raises(ClientError, match="no server answers"):
        serve.run(folder, url="http://127.0.0.1:9")
    with pytest.raises(ValueError, match="options are for a server that is started"):
        serve.run(folder, url="http://127.0.0.1:9", options=["--max-num-seqs", "2"])


SEPARATORS = "\u2028\u2029\x85"  # end a line for Python, not for server-sent events


class Stub(BaseHTTPRequestHandler):
    """Answers with two events, each in two parts; the answer to the prompt "breaks" has no end."""

    protocol_version = "HTTP/1.1"
    connections, under_way, most = 0, 0, 0

    def setup(self):
        super().setup()
        Stub.connections += 1

    def do_POST(self):
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        Stub.under_way += 1
        Stub.most = max(Stub.most, Stub.under_way)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for text in ("a", SEPARATORS):
            event = {"choices": [{"text": text, "finish_reason": None}]}
            event = f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
            for part in (event[:9], event[9:]):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                time.sleep(0.2 if b"slow" in sent else 0.02)
        Stub.under_way -= 1
        self.wfile.write(
            (b"" if b"breaks" in sent else b"e\r\ndata: [DONE]\n\n\r\n") + b"0\r\n\r\n"
        )

    def log_message(self, *_):
        pass


def test_connections_are_used_again_and_none_waits_for_another():
    """Two requests at a time, three times: two connections. Each piece has its own time."""

    async def talk(url):
        async with Client(url, "tiny") as client:
            for _ in range(3):
                found = await asyncio.gather(*(client.stream("x", 2) for _ in "12"))
            slow = await client.stream("slow", 2)
            with pytest.raises(ClientError, match="broke off: the server closed the connection"):
                await client.stream("breaks", 2)
        return [*found, slow]

    with ThreadingHTTPServer(("127.0.0.1", 0), Stub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answers = asyncio.run(talk(f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()
    assert [answer.text for answer in answers] == ["a" + SEPARATORS] * 3
    assert Stub.connections == 2 == Stub.most
    first, second = answers[-1].trace.tokens
    assert second - first > 0.1


PRETENDED = """#!/bin/sh
echo loading
echo "serving my model at http://127.0.0.1:9/v1   (Ctrl-C ends it)"
exec sleep 1000
"""


def test_a_server_of_any_name_is_found_and_ended_with_the_benchmark(tmp_path, monkeypatch):
    pretended = tmp_path / "python"
    pretended.write_text(PRETENDED)
    pretended.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pretended))
    with pytest.raises(SystemExit), process.serving("my model") as server:  # what SIGTERM raises
        assert (server.name, server.url) == ("my model", "http://127.0.0.1:9")
        os.kill(server.pid, 0)  # it is there
        sys.exit(143)
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_nothing_is_found_that_an_earlier_benchmark_has_left_in_a_server(folder, monkeypatch):
    salts = []
    monkeypatch.setattr(serve, "closed_loop", lambda *given: salts.append(given[-1]))
    for _ in "ab":
        clients = serve.Clients(None, folder, None, bench.QUICK, None)
        clients.ask(bench.Asked([], [], 1), "chats 0")
    assert len({*salts}) == 2 and all(salt.endswith("chats 0") for salt in salts)


def test_a_server_is_measured(folder, tmp_path, capsys):
    path, options = tmp_path / "s.json", ["--num-blocks", "99", "--name", "of my own"]
    record = serve.run(folder, device="cpu", quick=True, output=path, options=options)
    assert capsys.readouterr().out.splitlines()[-1] == engine.WORDS
    assert set(record["results"]) == {"transformers", "at_once", "arrivals"}
    for rows in record["results"].values():
        assert rows and all(row["checked_answers"] == row["same_answers"] > 0 for row in rows)
    assert record["subject"]["sizes"]["clients"] == (1, 4) and "url" not in record["subject"]
    one, four = record["results"]["at_once"]
    assert (one["requests"], four["requests"], four["tokens"]) == (2, 8, 64)
    other = make_tiny_model(tmp_path / folder.name, num_hidden_layers=1)
    with pytest.raises(ValueError, match="another model"):
        serve.run(other, device="cpu", quick=True, output=path, options=options)


@pytest.mark.timeout(1800)
def test_a_soak_finds_nothing_left(folder):
    record = soak.run(folder, 20 if LONG else 0.03, device="cpu")
    (row,) = record["results"]["soak"]
    assert row["answered"] > 0 and row["checked_answers"] == row["same_answers"]
    assert row["gauges"]["num_requests_running"] == 0
    assert "no request and no block is left" in soak.told(row)
    if LONG:
        assert row["growth"] < MOST_GROWTH, soak.told(row)


def test_growth_is_that_of_the_second_half():
    flat = [(60.0 * minute, 1000 + 500 * min(minute, 5)) for minute in range(11)]
    assert soak.growth(flat) == 0
    assert soak.growth([(60.0 * minute, 7 * minute) for minute in range(11)]) == pytest.approx(7)
    with pytest.raises(ValueError, match="at least 3 points, got 1"):
        soak.growth([(0.0, 1)])


def test_a_summary_of_what_a_poisson_process_meets():
    times = poisson_arrivals(50.0, 400, random.Random(3))
    traces = [Trace(due, [due + 0.1, due + 0.1 + 0.02]) for due in times]
    seen = summarize(traces)
    assert seen.ttft_p50 == pytest.approx(0.1) and seen.itl_p99 == pytest.approx(0.02)
    assert in_system(traces) == pytest.approx(400 * 0.12 / (times[-1] + 0.12 - times[0]))

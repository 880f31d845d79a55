"""The C++ of notebook 10: its products, its norm and its attention beside float64, what a check
of it finds, and its kept figures."""

import ctypes
import os
import re
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from yaie.course.core import native, verdict
from yaie.course.core.cuda import poisoned
from yaie.course.core.exercise import learner_path
from yaie.course.core.limit import TimeUp, time_limit
from yaie.course.core.manifest import exercises, find
from yaie.course.core.observe import Case, first_wrong, observed
from yaie.course.core.paths import ROOT
from yaie.course.core.verdict import judge
from yaie.course.exercises.nb10.ex3_add_rms_norm import normalize
from yaie.course.lessons import data_nb10, own_roof
from yaie.course.lessons.own_roof import BYTES, FOLDER, RUNGS
from yaie.emulator import CompileError
from yaie.emulator.compiler import compiler
from yaie.model.config import ModelConfig
from yaie.model.linear import Linear
from yaie.ops.cpp.native import Rows

KEPT = own_roof.kept()


@pytest.fixture(scope="module")
def functions():
    return {path.stem: native.load(path) for path in FOLDER.glob("*.cpp")}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_agrees_with_float64(functions, name, threads):
    file, function, form, _ = RUNGS[name]
    weights, x, out = drawn(96, 160), drawn(160, seed=1), poisoned(96)
    stored, want = weights, weights.double()
    if function == "packed_product":
        stored = weights.view(3, 32, 160).transpose(1, 2).contiguous()
    if form == "bfloat16":
        stored, want = weights.bfloat16().view(torch.int16), weights.bfloat16().double()
    if form.startswith("q"):
        kind = GGMLQuantizationType[form.upper()]
        stored = torch.from_numpy(quantize(weights.numpy(), kind))
        want = torch.from_numpy(dequantize(stored.numpy(), kind)).double()
    assert stored.nbytes == BYTES[form] * weights.numel()
    getattr(functions[file], function)(stored, x, out, 96, 160, threads)
    torch.testing.assert_close(out.double(), want @ x.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows, size", [(1, 1), (3, 15), (5, 17), (4, 0), (31, 129), (2, 576)])
def test_rows_of_any_length_agree_with_float64(functions, rows, size):
    weights, x = drawn(rows, size), drawn(size, seed=1)
    for threads in (1, 4):
        out = poisoned(rows)
        functions["row_product"].row_product(weights, x, out, rows, size, threads)
        want = weights.double() @ x.double()
        torch.testing.assert_close(out.double(), want, rtol=1e-4, atol=1e-4)


def test_the_roof_copies_and_adds_all_numbers(functions):
    roof, numbers = functions["rungs"], drawn(8 * 16 * 6)
    for threads in (1, 2, 3):
        copied, sums = poisoned(len(numbers)), poisoned(threads)
        roof.copy_numbers(numbers, copied, len(numbers), threads)
        roof.read_numbers(numbers, sums, len(numbers), threads)
        assert torch.equal(copied, numbers)
        torch.testing.assert_close(sums.double().sum(), numbers.double().sum(), atol=1e-3, rtol=0)


def test_the_operator_of_10_3_takes_what_the_model_gives(functions):
    x, residual, weight = drawn(3, 70), drawn(3, 70, seed=1), drawn(70, seed=2)
    for dtype in (torch.float32, torch.bfloat16):
        given = [tensor.to(dtype) for tensor in (x, residual)]
        out, total = normalize(functions["add_rms_norm"], *given, weight, 1e-5)
        wide = given[0].float() + given[1].float()
        want = torch.nn.functional.rms_norm(wide, (70,), weight, 1e-5)
        assert out.dtype == total.dtype == dtype
        torch.testing.assert_close(total, wide.to(dtype))
        torch.testing.assert_close(out.float(), want, rtol=1e-2, atol=1e-2)


def test_a_split_context_has_the_same_bits_with_any_threads(functions):
    q, keys, values = drawn(32), drawn(1000, 32, seed=1), drawn(1000, 32, seed=2)
    found = []
    for threads in (1, 2, 5):
        out, lse = poisoned(32), poisoned(1)
        functions["split_attention"].split_attention(
            q, keys, values, out, lse, 1000, 32, 0.3, 0, threads
        )
        found.append(torch.cat([out, lse]))
    scores = 0.3 * keys.double() @ q.double()
    want = torch.cat([scores.softmax(0) @ values.double(), scores.logsumexp(0, keepdim=True)])
    torch.testing.assert_close(found[0].double(), want, rtol=1e-4, atol=1e-5)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("form", ["float32", "q8_0"])
def test_a_linear_layer_of_several_parts_is_multiplied_part_by_part(functions, form):
    weights = drawn(11, 64)
    data = weights if form == "float32" else torch.from_numpy(
        quantize(weights.numpy(), GGMLQuantizationType.Q8_0)
    )  # fmt: skip
    want = weights if form == "float32" else torch.from_numpy(
        dequantize(data.numpy(), GGMLQuantizationType.Q8_0)
    )  # fmt: skip
    linear = Linear(None)
    linear.rows = [Rows(part, None if form == "float32" else form) for part in data.split([7, 4])]
    named = {"float32": ("row_product", "row_product"), "q8_0": ("q8_0_product", "q8_0_product")}
    file, function = named[form]
    x = drawn(3, 64, seed=1)
    out = own_roof.multiply(getattr(functions[file], function), linear, x)
    torch.testing.assert_close(out.double(), x.double() @ want.double().T, rtol=1e-4, atol=1e-4)


def test_the_weights_of_a_model_are_those_of_its_matrices():
    size = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    config = ModelConfig(**size, **heads, max_position_embeddings=64)
    layer = 32 * (32 + 16 + 16) + 32 * 32 + 3 * 32 * 48
    assert own_roof.weights_of_model(config) == 2 * layer + 100 * 32


# ------------------------------------------------------------------------------------- a check


HEAD = "#include <atomic>\n#include <cstdint>\n#include <cstring>\n#include <thread>\n"
SIGNATURE = 'extern "C" void f(const float* x, float* out, int64_t n) {\n'


def finding(tmp_path, body: str):
    """What a check finds in a function of eight numbers and eight results; and what it moved."""
    path = tmp_path / "f.cpp"
    path.write_text(HEAD + SIGNATURE + body + "\n}\n")
    traffic, x, out = {}, drawn(8), poisoned(8)

    def observe(path, case, see):
        traffic.update(native.run(see, path, "f", x, out, 8))

    wrong = first_wrong(observed(observe, path, Case("eight numbers")))
    return wrong and wrong.problem, traffic, out


def test_loads_and_stores_are_counted(tmp_path):
    body = "for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i];"
    wrong, traffic, out = finding(tmp_path, body)
    assert traffic["x"] == native.Traffic(8, 32, 0, 0) and traffic["out"].stored == 32
    assert torch.equal(out, 2 * drawn(8)) and wrong is None
    _, traffic, _ = finding(tmp_path, "memcpy(out, x, n * sizeof(float));")
    assert traffic["x"].loaded == traffic["out"].stored == 32


@pytest.mark.parametrize(
    "body, words",
    [
        ("out[n] = x[0];", "a store of 4 bytes ends 4 bytes past the end of out"),
        ("out[0] = x[n + 2];", "a load of 4 bytes ends 12 bytes past the end of x"),
        ("out[0] = x[-1];", "a load of 4 bytes begins 4 bytes before the start of x"),
        ("memcpy(out, x, 8 * n);", "a load of 64 bytes ends 32 bytes past the end of x"),
        ("out[0] = *(volatile float*)8;", "a segmentation fault"),
        ("out[0] = (int)n / (int)(n - 8);", "a division of integers by zero"),
    ],
)
def test_a_fault_is_told_with_its_line(tmp_path, body, words):
    wrong, _, _ = finding(tmp_path, "    out[1] = n;\n    " + body)
    assert words in wrong and "line 7" in wrong and body in wrong


def test_signals_go_where_they_went_however_a_call_ends(tmp_path, monkeypatch):
    def handlers() -> list[bytes]:
        found = [ctypes.create_string_buffer(1024) for _ in native.SIGNALS]  # for struct sigaction
        for number, place in zip(native.SIGNALS, found, strict=True):
            assert ctypes.CDLL(None).sigaction(number, None, place) == 0
        return [place.raw[:8] for place in found]  # the handler comes first

    def no_memory(*arguments):
        assert handlers() != before
        raise MemoryError

    before = handlers()
    for body in ("out[0] = x[0];", "out[0] = *(volatile float*)8;", "out[n] = 1;"):
        finding(tmp_path, body)
        assert handlers() == before
    monkeypatch.setattr(native, "_arena", no_memory)
    assert "MemoryError" in finding(tmp_path, "out[0] = x[0];")[0]
    assert handlers() == before


def test_a_loop_without_end_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "SECONDS", 0.2)
    wrong, _, _ = finding(tmp_path, "for (volatile int64_t i = 0; i < n;) out[0] = x[i];")
    assert "did not end within 0.2 s" in wrong


POOLED = """    static std::atomic<int> todo{0};
    static const float* from;
    static float* to;
    static auto* worker = new std::thread([] {
        for (;;) {
            while (!todo) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            for (int i = 0; i < 8; ++i) to[i] = from[i] + 1;
            todo = 0;
        }
    });
    from = x, to = out, todo = 1;
    while (todo) std::this_thread::yield();"""


def test_a_thread_of_a_pool_works_for_one_call_after_another(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "SECONDS", 2.0)
    for _ in range(3):
        wrong, _, out = finding(tmp_path, POOLED)
        assert wrong is None and torch.equal(out, drawn(8) + 1)


def test_a_call_that_was_left_on_its_way_back_into_python_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "SECONDS", 0.1)
    before = set(threading.enumerate())
    wrong, _, _ = finding(tmp_path, "std::this_thread::sleep_for(std::chrono::milliseconds(400));")
    assert "did not end within 0.1 s" in wrong
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


STORES = "for (volatile int64_t i = 0; i < n;) out[i & 7] += 1;"
COMPUTES = 'for (int64_t i = 0; n; ++i) asm volatile("");'


@pytest.mark.parametrize("body", [STORES, COMPUTES])
def test_a_call_that_is_interrupted_stores_no_more_and_sleeps(tmp_path, body):
    native.build(HEAD + SIGNATURE + body + "\n}\n", tmp_path / "f.cpp", checked=True)
    before = set(os.listdir("/proc/self/task"))
    with pytest.raises(TimeUp), time_limit(0.2):
        finding(tmp_path, body)
    new = set(os.listdir("/proc/self/task")) - before
    stats = [Path(f"/proc/self/task/{thread}/stat") for thread in new]
    for _ in range(1000):  # 10 s, where it takes a millisecond
        if "R" not in [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]:
            break
        time.sleep(0.01)
    else:
        raise AssertionError("it goes on")
    assert native._ABANDONED, "its memory is kept"
    kept = native._ABANDONED[-1]
    assert torch.equal(kept, kept.clone())


@pytest.mark.parametrize(
    "number, old, new, told",
    [
        *[("10.1", "Floats sums[ROWS] = {};", n, "`Floats sums[ROWS] = {};`")
          for n in ("Floats sums[ROWS];", "Floats zero = {}, sums[ROWS];")],
        ("10.1", "int64_t k = 0;", "int64_t k;", "`int64_t k = 0;`"),
        ("10.3", "Floats squares = {};", "Floats squares;", "`Floats squares = {};`"),
        ("10.4", ", total = 0.0f;", ", total;", "`float total = 0;`"),
    ],
)  # fmt: skip
def test_a_variable_that_nothing_sets_is_the_cause_that_is_told(
    number, old, new, told, folders, warm_python
):
    """Even if a known mistake has such results too: NaN has many causes."""
    each = find(number)
    text = (ROOT / "solutions" / each.file).read_text()
    assert text.count(old) == 1
    learner_path(each).write_text(text.replace(old, new))
    got, line = judge(each), 1 + text[: text.index(old)].count("\n")
    first, quoted = got.message.splitlines()[:2]
    name = told.rpartition(" = ")[0].split()[-1].partition("[")[0]
    assert got.state == "fails" and not got.mistake and quoted.strip().endswith(new)
    assert first.startswith(f"{each.shown}, line {line}: the compiler warns: `{name}` may be used")
    assert first.endswith(f"so its first value is arbitrary. Write {told}.")


def test_a_right_solution_is_not_warned_of(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in exercises():
            if each.is_native:
                text = (ROOT / "solutions" / each.file).read_text()
                native.build(text, tmp_path / "right.cpp", checked=True)


def test_what_clang_says_of_a_variable_without_a_value_is_understood():
    said = (
        "f.cpp:3:12: warning: variable 'k' is uninitialized when used here [-Wuninitialized]\n"
        "f.cpp:2:10: note: initialize the variable 'k' to silence this warning\n"
    )
    source = "int f(int n) {\n    int k;\n    return k + n;"
    [(line, told)] = native._unset(said, source, Path("f.cpp"))
    assert line == 2 and told.startswith("`k` may be used") and told.endswith("`int k = 0;`.")


@pytest.mark.parametrize(
    "declaration, written",
    [
        ("float k;", "Write `float k = 0;`."),
        ("Floats a = {}, k[4], b;", "Write `Floats k[4] = {};`."),
        *((other, "Give it a value where it is declared.") for other in (
            "const float *k;", "float *k;", "for (int64_t k; k < 4; ++k)", "long long k;",
            "unsigned long k;", "float a = f(1), k;",
        )),
    ],
)  # fmt: skip
def test_only_a_declaration_that_is_understood_is_written_for_the_learner(declaration, written):
    said = "f.cpp:1:9: note: 'k' was declared here\n"
    [(_, told)] = native._unset(said, declaration, Path("f.cpp"))
    assert told.endswith(written)


def test_a_variable_that_only_seems_unset_hides_no_mistake(folders, warm_python):
    """Its first value changes nothing, and g++ warns of it; the warning is not told."""
    each = find("10.4")
    text = (ROOT / "solutions" / each.file).read_text()
    for old, new in (
        ("float scores[PART];", "float scores[PART], largest;"),
        (
            "        if (scores[k - first] > state.maximum) state.maximum = scores[k - first];\n",
            "        if (k == first || scores[k - first] > largest) largest = scores[k - first];\n"
            "        state.maximum = largest;\n",
        ),
        ("expf(scores[k - first] - state.maximum)", "expf(scores[k - first])"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    with pytest.warns(UserWarning, match="`largest` may be used"):
        native.build(text, learner_path(each), checked=True)
    learner_path(each).write_text(text)
    got = judge(each)
    assert got.state == "fails" and got.mistake == "no_maximum" and "warns" not in got.message


def test_a_warning_of_another_file_is_not_taken_for_the_learners(folders):
    each = find("10.4")
    text = (ROOT / "solutions" / each.file).read_text()
    old = "expf(scores[k - first] - state.maximum)"
    learner_path(each).write_text(text.replace(old, "expf(scores[k - first])"))
    other = warnings.WarningMessage("an old driver", UserWarning, "driver.py", 1)
    got = verdict._judge_here(each, learner_path(each), 60.0, earlier=[other])
    assert got.mistake == "no_maximum"


def test_a_compiler_that_is_missing_is_named_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    compiler.cache_clear()
    try:
        said = native.compile_errors('extern "C" void g() {}\n', tmp_path / "g.cpp", find("10.1"))
        assert "sudo apt-get install g++" in said
    finally:
        compiler.cache_clear()


# ------------------------------------------------------------------------------------- figures


def test_the_kept_record_is_whole_and_right():
    assert {"date", "machine", "versions", "code"} <= set(KEPT)
    assert [row["name"] for row in data_nb10.rungs(KEPT)] == list(RUNGS)
    rows = KEPT["rungs"] + KEPT["norm"] + KEPT["split"]
    assert all(row["error"] < 1e-5 for row in rows)
    for row in KEPT["rungs"]:
        assert row["bytes"] == BYTES[row["form"]] * own_roof.ROWS * own_roof.SIZE
    for row in rows:
        assert row["gb_s"] == pytest.approx(row["bytes"] / row["ms"] / 1e6)
    texts = {row["form"]: [] for row in KEPT["answers"]}
    for row in KEPT["answers"]:
        texts[row["form"]].append(row["text"])
    for answers in texts.values():
        assert all(max(answers, key=len).startswith(answer) for answer in answers)


def test_without_a_compiler_the_kept_record_is_shown(capsys):
    def measure():
        raise CompileError("no C++ compiler: install g++")

    assert own_roof.or_kept(measure) == KEPT
    assert "install g++. Nothing can be measured here" in capsys.readouterr().out


def test_the_engines_product_is_measured_in_every_format():
    record = own_roof.measure_engine(rounds=1, rows=64) | {"copy": {"1": 10.0}}
    assert [row["name"] for row in record["engine"]] == list(data_nb10.FORMATS)
    sizes = [row["bytes"] / (64 * own_roof.SIZE) for row in record["engine"]]
    assert sizes == [4, 2, 2, 34 / 32, 18 / 32, 20 / 32]
    record["engine"][3]["gb_s"] = 8.5
    assert data_nb10.engine_rates(record)[3] == "q8_0        8.5 GB/s,  85% of copying"


def test_the_engines_product_has_the_rate_of_a_copy_in_every_format():
    record = own_roof.kept_products()
    rows, copy = record["engine"], data_nb10.copy_rate(record)
    assert [row["name"] for row in rows] == list(data_nb10.FORMATS)
    assert all(1e9 * row["gb_s"] > 0.85 * copy and row["error"] < 1e-5 for row in rows)
    assert min(row["bytes"] for row in rows) == 18 / 32 * 8 * own_roof.ROWS * own_roof.SIZE
    page = (own_roof.ROOT / "docs/benchmarks.md").read_text()
    shares = sorted(1e9 * row["gb_s"] / copy for row in rows)
    assert f"{shares[0]:.2f} to {shares[-1]:.2f} times" in " ".join(page.split())


def test_a_line_for_each_format_and_case_beside_llama():
    rates = {"yaie": {"rate": 30.0}, "llama.cpp": {"rate": 20.0}, "ratio": 1.5}
    memory = {"yaie serve": {"rss": 130.0, "engine": 110.0}, "llama.cpp": {"rss": 100.0}}
    memory["llama.cpp's server"] = {"rss": 120.0}
    one = {
        "results": [{"case": "1 stream"} | rates, {"case": "first token of 512"} | rates],
        "memory_mb": memory,
        "rounding": {"kl": 0.00123, "same": 0.97},
    }
    record = dict.fromkeys(data_nb10.FORMATS, one)
    lines = data_nb10.beside_llama(record)
    told = "float32 1 stream 30.0 and 20.0 tokens/s 1.50 times as fast"
    assert len(lines) == 13 and " ".join(lines[1].split()) == told
    assert lines[0].split() == ["yaie", "llama.cpp"] and "30.00 and   20.00 prompts/s" in lines[2]
    assert data_nb10.memory_and_rounding(record)[3] == (
        "q8_0      130 (110) and 120 (100) MB; KL 1.2e-03, the same token 97.0%"
    )


def test_the_benchmarks_have_the_kept_figures_and_fewer_bits_move_the_model_further():
    record, page = own_roof.kept_beside(), (own_roof.ROOT / "docs/benchmarks.md").read_text()
    for form in data_nb10.FORMATS:
        one, eight, chats, short, long = (row["ratio"] for row in record[form]["results"])
        memory = record[form]["memory_mb"]
        serve, engine = (memory["yaie serve"][what] for what in ("rss", "engine"))
        server, bare = (memory[who]["rss"] for who in ("llama.cpp's server", "llama.cpp"))
        name = form.capitalize() if form.startswith("q") else form
        told = f"| {name} | {one:.2f} | {eight:.2f} | {chats:.2f} | {short:.2f} and {long:.2f} |"
        told += f" {serve / server:.2f} | {serve / bare:.2f} and {engine / bare:.2f} |"
        assert told in page
    for row in record["spinning"]["results"]:
        told = f"{row['sleeping']:.0f}( tokens/s)? instead of {row['spinning']:.0f}"
        assert re.search(rf"\b{told}\b", " ".join(page.split())), told
    moved = [record[form]["rounding"]["kl"] for form in ("float16", "bfloat16", "q8_0", "q4_1")]
    assert moved == sorted(moved) and moved[-1] < record["q4_0"]["rounding"]["kl"]


@pytest.mark.parametrize("draw", ["rungs", "roof", "threads", "norm", "split", "answers"])
def test_a_picture_names_the_machine_of_its_figures(draw):
    figure = getattr(data_nb10, f"draw_{draw}")(KEPT)
    words = [text.get_text() for ax in figure.axes for text in (*ax.texts, ax.title)]
    assert any(data_nb10.machine(KEPT) in text for text in words), words

"""The roof of a CPU, the rungs of a matrix-vector product below it, and a model that answers with
each: `python -m yaie.course.lessons.own_roof --output 10_roofline_cpu.json`; with `--products`, the
engine's products of one token: `10_products_cpu.json`.

The product is the one by the largest matrix of the course's model. Every result is compared with
float64 before it is timed, and caches are emptied before each call, as in `yaie bench`. The fastest
call counts, as in STREAM: what else runs on a machine only slows a call down.
"""

import argparse
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from torch.nn import functional

from yaie.bench import files
from yaie.bench.machine import head
from yaie.bench.protocol import relative_error
from yaie.course.core import native, paths
from yaie.course.core.paths import ROOT
from yaie.course.lessons.costs import head_weights, layer_weights
from yaie.course.lessons.timed_products import Record, checked, compared, fastest, timed
from yaie.course.viz.style import count
from yaie.emulator import CompileError
from yaie.engine.llm import LLM
from yaie.engine.params import SamplingParams
from yaie.model.config import ModelConfig
from yaie.model.linear import Linear
from yaie.model.pull import find_model
from yaie.ops.cpp.native import GROUPS, Rows, interleaved, matrix, struct
from yaie.ops.cpp.native import call as call_engine

kept = partial(paths.kept, "10_roofline_cpu")  # the record of one machine
kept_products = partial(paths.kept, "10_products_cpu")  # with weights that no cache holds
kept_beside = partial(paths.kept, "10_engine_cpu")  # of `yaie bench engine --peer ...`, by format
FOLDER = ROOT / "csrc" / "roofline"
ROWS, SIZE = 49_152, 576  # of lm_head of SmolLM2-135M
BYTES = {"float32": 4.0, "bfloat16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}  # of a weight
MODEL, PROMPT = "SmolLM2-135M-Instruct", "The roof"
# Each rung: the file, the function, the format of the weights, whether all threads work.
RUNGS = {
    "one number at a time": ("rungs", "naive_product", "float32", False),
    "vectors, one sum": ("rungs", "vector_product", "float32", False),
    "vectors, four rows": ("row_product", "row_product", "float32", False),
    "all threads": ("row_product", "row_product", "float32", True),
    "packed in panels": ("rungs", "packed_product", "float32", True),
    "bfloat16": ("rungs", "bfloat16_product", "bfloat16", True),
    "Q8_0": ("q8_0_product", "q8_0_product", "q8_0", True),
    "Q4_0": ("rungs", "q4_0_product", "q4_0", True),
}
Paths = Mapping[str, Path]  # of a learner's files, in place of those of FOLDER


def or_kept(measure: Callable[[], Record]) -> Record:
    """What `measure` returns; without a C++ compiler, or the model, the kept record, and a sentence
    that says so."""
    try:
        return measure()
    except (CompileError, FileNotFoundError) as error:
        print(f"{error}. Nothing can be measured here, so the kept figures are shown.")
        return kept()


def weights_of_model(config: ModelConfig) -> int:
    """The weights that a decode step multiplies: all matrices of the layers, and lm_head."""
    return layer_weights(config) + head_weights(config)


# ------------------------------------------------------------------------------------- measuring


def measure_roof(rounds: int = 8) -> Record:
    """GB/s of a copy and of reading, by threads, and GFLOP/s of arithmetic in registers.

    Returns:
        `yaie.bench.machine.head`; `copy` and `read`: threads -> GB/s; `gflop_s` of all threads.
    """
    functions, most = native.load(FOLDER / "rungs.cpp"), torch.get_num_threads()
    numbers, steps = 16 << 20, 1 << 16
    data, target, sums = torch.rand(numbers), torch.empty(numbers), torch.empty(most)
    calls: dict[str, Callable[[], None]] = {}
    for threads in range(1, most + 1):
        calls[f"copy {threads}"] = partial(functions.copy_numbers, data, target, numbers, threads)
        calls[f"read {threads}"] = partial(functions.read_numbers, data, sums, numbers, threads)
    calls["registers"] = partial(functions.multiply_add, sums.clone(), steps, most)
    for call in calls.values():
        call()
    if not torch.equal(target, data) or relative_error(sums.sum(), data.double().sum()) > 1e-4:
        raise RuntimeError("a copy or a sum of it is wrong, so nothing was timed")
    took = fastest(calls, rounds)
    chains = 12 * 2 * _lanes(functions) * steps * most  # as in rungs.cpp
    record = head(torch.device("cpu")) | {"gflop_s": chains / took["registers"] / 1e6}
    for what, each in (("copy", 8), ("read", 4)):
        record[what] = {
            str(threads): each * numbers / took[f"{what} {threads}"] / 1e6
            for threads in range(1, most + 1)
        }
    return record


def _lanes(functions: native.Functions) -> int:
    lanes = torch.zeros(1, dtype=torch.int64)
    functions.count_lanes(lanes)
    return int(lanes)


def measure_rungs(
    mine: Paths | None = None,
    forms: Collection[str] = tuple(BYTES),
    rounds: int = 4,
    rows: int = ROWS,
) -> Record:
    """Time every rung, and the threads of two of them.

    Args:
        mine: a learner's files by the stem of their name in `FOLDER`.
        forms: of which weights.

    Returns:
        `rungs`, a row for each: `name`, `form`, `threads`, `bytes`, `ms`, `gb_s`, `gflop_s`, and
        the relative `error` against float64 of the weights that the format stands for; `beside`,
        GB/s of reading float32 weights in the same rounds.

    Raises:
        RuntimeError: a result is wrong.
    """
    most, calls, rows_of = torch.get_num_threads(), {}, {}
    x = torch.randn(SIZE)
    stored, stand_for = _stored(rows)
    runs = [(name, *rung[:3], most if rung[3] else 1) for name, rung in RUNGS.items()]
    runs += [(name, *RUNGS[name][:3], t) for name in ("all threads", "Q8_0")
             for t in range(1, most)]  # fmt: skip
    for name, file, function, form, threads in (run for run in runs if run[3] in forms):
        weights = stored["packed" if function == "packed_product" else form]
        out, run = torch.full((rows,), torch.nan), getattr(_functions(file, mine), function)
        call = partial(run, weights, x, out, rows, SIZE, threads)
        error = checked(name, call, out, stand_for[form] @ x.double())
        calls[f"{name} {threads}"] = call
        rows_of[f"{name} {threads}"] = {"name": name, "form": form, "threads": threads,
                                        "bytes": weights.nbytes, "error": error}  # fmt: skip
    sums, read = torch.empty(most), _functions("rungs", None).read_numbers
    calls["reading"] = partial(read, stored["float32"], sums, rows * SIZE, most)
    rows_of["reading"] = {"bytes": stored["float32"].nbytes}
    *found, beside = timed(calls, rows_of, rounds)
    found = [{**row, "gflop_s": 2 * rows * SIZE / row["ms"] / 1e6} for row in found]
    return {"rungs": found, "beside": beside["gb_s"]}


def _functions(file: str, mine: Paths | None) -> native.Functions:
    return native.load((mine or {}).get(file, FOLDER / f"{file}.cpp"))


def _stored(rows: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Random weights in each format, and in float64 what they stand for."""
    weights = 0.05 * torch.randn(rows, SIZE)
    stored = {"float32": weights, "bfloat16": weights.bfloat16().view(torch.int16)}
    stand_for = {"float32": weights.double(), "bfloat16": weights.bfloat16().double()}
    stored["packed"] = weights.view(rows // 32, 32, SIZE).transpose(1, 2).contiguous()
    for form in ("q8_0", "q4_0"):
        stored[form], exact = _quantized(weights, form)
        stand_for[form] = exact.double()
    return stored, stand_for


def _quantized(weights: torch.Tensor, form: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights in a format of GGUF, and the numbers that they stand for."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    kind = GGMLQuantizationType[form.upper()]
    data = quantize(weights.numpy(), kind)
    return torch.from_numpy(data), torch.from_numpy(dequantize(data, kind))


def measure_engine(rounds: int = 4, rows: int = ROWS) -> Record:
    """Time the engine's own product of one token, with weights of each format.

    Returns:
        `engine`, a row for each format: `name`, `bytes` of the weights, `ms`, `gb_s`, `error`.
    """
    weights, out, calls, found = 0.05 * torch.randn(rows, SIZE), torch.empty(1, rows), {}, {}
    kept_alive = []
    x = torch.randint(-127, 128, (1, SIZE)) / 64  # 8 bits hold these numbers exactly
    x[:, ::32] = 127 / 64
    for form in ("float32", "float16", "bfloat16", *GROUPS):
        if form in GROUPS:
            data, stand_for = _quantized(weights, form)
            stored = interleaved(data, form)
        else:
            stand_for = weights.to(getattr(torch, form))
            stored = Rows(stand_for)
        kept_alive.append(stored)
        one = struct(matrix([stored], None)), x, 1, out.fill_(torch.nan)
        calls[form] = partial(call_engine, "product", *one)
        error = checked(form, calls[form], out[0], stand_for.double() @ x[0].double())
        found[form] = {"name": form, "bytes": stored.data.nbytes, "error": error}
    return {"engine": timed(calls, found, rounds)}


def measure_norm(mine: Paths | None = None, rounds: int = 4) -> Record:
    """Time x + residual and its norm for 8,192 tokens, in two operators of torch and in one.

    Returns:
        `norm`, a row for each way: `name`, `bytes` that must move, `ms`, `gb_s`, `error`.
    """
    tokens, eps, most = 8192, 1e-5, torch.get_num_threads()
    x, residual = torch.randn(2, tokens, SIZE)
    weight, total, out = torch.rand(SIZE), torch.empty_like(x), torch.full_like(x, torch.nan)
    whole = x.double() + residual.double()
    want = whole / torch.sqrt(whole.square().mean(-1, keepdim=True) + eps) * weight.double()
    fused = _functions("add_rms_norm", mine).add_rms_norm

    def with_torch() -> None:
        torch.add(x, residual, out=total)
        out.copy_(functional.rms_norm(total, (SIZE,), weight, eps))

    calls: dict[str, Callable[[], object]] = {"torch, two operators": with_torch}
    for threads in sorted({1, most}):
        name = f"10.3, {count(threads, 'thread')}"
        calls[name] = partial(fused, x, residual, weight, out, total, tokens, SIZE, eps, threads)
    return {"norm": compared(calls, out, want, 4 * x.nbytes, rounds)}


def measure_split(mine: Paths | None = None, rounds: int = 4, length: int = 131_072) -> Record:
    """Time one query over a long context, by torch and split among 1, 2, … threads.

    Returns:
        `split`, a row for each way: `name`, `bytes` of the keys and values, `ms`, `gb_s`, `error`.
    """
    size, scale = 64, 64**-0.5
    q, keys, values = torch.randn(size), *torch.randn(2, length, size)
    out, lse = torch.empty(size), torch.empty(1)
    want = torch.softmax(keys.double() @ q.double() * scale, 0) @ values.double()
    split = _functions("split_attention", mine).split_attention
    wide = [tensor.view(1, 1, -1, size) for tensor in (q, keys, values)]

    def with_torch() -> None:
        out.copy_(functional.scaled_dot_product_attention(*wide).flatten())

    calls: dict[str, Callable[[], object]] = {"torch": with_torch}
    for threads in range(1, torch.get_num_threads() + 1):
        name = f"10.4, {count(threads, 'thread')}"
        calls[name] = partial(split, q, keys, values, out, lse, length, size, scale, 0, threads)
    return {"split": compared(calls, out, want, 2 * keys.nbytes, rounds)}


# ------------------------------------------------------------------------------------- a model


def measure_answers(mine: Paths | None = None) -> Record:
    """Let the model answer with each product in place of the engine's.

    Returns:
        `answers`, a row for each product: `name`, `form`, `text`, `tokens_per_second`.

    Raises:
        CompileError: there is no C++ compiler.
        FileNotFoundError: the model is not here.
    """
    ways = {
        "float32": {
            "one number at a time": _functions("rungs", mine).naive_product,
            "10.1, float32": _functions("row_product", mine).row_product,
            "the engine, float32": None,
        },
        "q8_0": {
            "10.2, Q8_0": _functions("q8_0_product", mine).q8_0_product,
            "the engine, Q8_0": None,
        },
    }
    rows = []
    for form, products in ways.items():
        llm = _model(form)
        for name, function in products.items():
            rows.append({"name": name, "form": form, **answer_with(llm, function)})
    return {"answers": rows}


def _model(form: str) -> LLM:
    try:
        llm = LLM(find_model(MODEL), num_blocks=16, dtype=form, exercises=False)
    except ValueError as error:
        raise FileNotFoundError(str(error)) from None
    if llm.engine.runner.model.step is None:
        raise CompileError("the back end 'cpp' is missing")
    return llm


def answer_with(llm: LLM, function: Callable[..., None] | None) -> Record:
    """An answer for which all products of the model are computed by a function of C++. It ends
    with token 24, or with the first one from token 5 on that comes more than 1.5 s after token 1.

    Args:
        function: as `row_product` or `q8_0_product`; None: the engine's own, a step in one call.

    Returns:
        `text` of the answer, and `tokens_per_second` by its fastest token.
    """
    model = llm.engine.runner.model
    linears = list(model.linears())
    step, text, times = model.step, "", []
    if function is not None:
        model.step = None  # which would multiply by itself
        for linear in linears:
            linear.forward = partial(multiply, function, linear)
    greedy = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=24)
    try:
        with llm.stream(PROMPT, greedy) as stream:
            for piece in stream:
                times.append(time.perf_counter())
                text += piece
                if len(times) > 4 and times[-1] - times[0] > 1.5:
                    break
    finally:
        model.step = step
        for linear in linears:
            linear.__dict__.pop("forward", None)
    fastest = min(after - before for before, after in pairwise(times))
    return {"text": text, "tokens_per_second": 1 / fastest}


def multiply(function: Callable[..., None], linear: Linear, x: torch.Tensor) -> torch.Tensor:
    """`Linear.forward` with a function of C++, one token and one part of the rows at a time."""
    out = torch.empty(len(x), sum(len(part.data) for part in linear.rows))
    wide, threads = x.float().contiguous(), torch.get_num_threads()
    for token, row in zip(wide, out, strict=True):
        first = 0
        for part in linear.rows:
            last = first + len(part.data)
            function(part.data, token, row[first:last], last - first, part.size, threads)
            first = last
    return out.to(x.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, type=files.output_path)
    parser.add_argument("--products", action="store_true", help="only the engine's, of more rows")
    options, rounds = parser.parse_args(), 12
    record = measure_roof(rounds)
    if options.products:
        record |= measure_engine(rounds, 8 * ROWS)
    else:
        record |= measure_rungs(rounds=rounds) | measure_norm(rounds=rounds)
        record |= measure_split(rounds=rounds) | measure_answers()
    files.save(record, options.output)


if __name__ == "__main__":
    main()

"""`yaie bench engine --peer llama.cpp`: the same weights in both engines, round by round in turn.

Each engine is a process of its own, which waits for its turn: so neither's threads or memory are
the other's. llama.cpp comes with the package llama-cpp-python, in this Python or in the one that
YAIE_PEER_PYTHON names; the course does not need it. Both choose greedily, and their tokens are
compared. Beside the times stand the memory of `yaie serve`, of a process of llama.cpp and of
llama.cpp's server, each with room for as many tokens, and how far the format of the weights moves
the model from float32.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

PEER_PYTHON = os.environ.get("YAIE_PEER_PYTHON", sys.executable)
Prompts = list[list[int]]
CASES = {  # prompts, tokens of each, tokens of each answer
    "1 stream": (1, 16, 64),
    "8 prompts together": (8, 16, 32),
    "16 chats": (16, 100, 32),
    "first token of 512": (1, 512, 1),
    "first token of 2,048": (1, 2048, 1),
}
CONTEXT = 4096  # tokens for which there is room in both caches when memory is compared
WORDS = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "as")  # a token each
SECTIONS = ("speed", "memory", "rounding")
GGUF_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def run(
    model: str,
    dtype: str = "float32",
    rounds: int = 5,
    output: str | Path | None = None,
    only: str | None = None,
) -> dict[str, Any]:
    """Measure, print a line per case, and return the record of all that `output` has then.

    Args:
        model: a name or folder.
        dtype: float32, float16, bfloat16, q8_0, q4_0 or q4_1, of the weights in both.
        rounds: of each case, in each engine; the median counts.
        output: where the record is kept as JSON, for one dtype beside the others.
        only: some of SECTIONS, separated by commas; what `output` has of the others stays. A busy
            machine disturbs the speed alone.
    """
    from yaie.bench.engine import sections
    from yaie.bench.protocol import running_order
    from yaie.bench.rounding import rounding
    from yaie.model.pull import find_model

    wanted = sections(only, SECTIONS)
    kept(output)
    folder, measured, results = find_model(model), {}, []
    with tempfile.TemporaryDirectory() as scratch:
        path, kind = Path(scratch, "model.gguf"), GGUF_NAMES.get(dtype, dtype.upper())
        write_gguf(folder, path, kind)
        engines = {
            "yaie": Engine(sys.executable, "-m", __name__, "yaie", str(folder), dtype),
            "llama.cpp": Engine(PEER_PYTHON, __file__, "llama.cpp", str(path), dtype),
        }
        try:
            if "memory" in wanted:
                served = Path(scratch, "served.gguf")
                write_gguf(folder, served, kind, has_vocabulary=True)
                found = memory_of(folder, dtype, engines["llama.cpp"], served)
                measured["memory_mb"] = about() | found
            for case, (count, length, answer) in CASES.items() if "speed" in wanted else ():
                prompts = [[5 + (7 * i + 3 * n) % 400 for i in range(length)] for n in range(count)]
                taken: dict[str, list[dict]] = {name: [] for name in engines}
                for name in running_order([*engines], rounds + 1):  # the first warms up
                    taken[name].append(engines[name].ask(prompts, answer))
                results.append({"case": case, **_compared(taken, answer == 1)})
                print(_told(dtype, results[-1]), flush=True)
        finally:
            for engine in engines.values():
                engine.close()
    if "speed" in wanted:
        measured |= {"rounds": rounds, "results": results}
    if "rounding" in wanted:
        measured["rounding"] = rounding(folder, dtype)
    return keep(dtype, measured, output)


def kept(output: str | Path | None) -> dict[str, Any]:
    """The record in `output`, or a new one. Raises ValueError if `output` is not a path to a JSON
    file in a folder that exists, or holds the results of another benchmark."""
    from yaie.bench import files

    record = {"benchmark": "peer"}
    if output is not None and (path := files.output_path(output)).exists():
        record = files.load(path, ())
        if record.get("benchmark") != "peer":
            raise ValueError(f"{path} holds no results of this benchmark; name another file")
    return record


def keep(name: str, measured: dict[str, Any], output: str | Path | None) -> dict[str, Any]:
    """What was measured, beside what `output` has already. Times have their date and machine, which
    need not be those of the memory."""
    from yaie.bench import files

    record = kept(output)
    record[name] = record.get(name, {}) | (about() if "results" in measured else {}) | measured
    if output is not None:
        files.save(record, Path(output))
    return record


def about() -> dict[str, Any]:
    """The date and the machine of a measurement."""
    import torch

    from yaie.bench.machine import describe

    return {"date": time.strftime("%Y-%m-%d"), "machine": describe(torch.device("cpu"))}


def memory_of(folder: Path, dtype: str, other: Engine, peer: Path) -> dict[str, dict[str, float]]:
    """RSS and PSS in MB after 8 prompts, one by one: of `yaie serve`, of another engine, and of
    llama.cpp's server with the model `peer`, a GGUF file with a vocabulary. "engine" is the RSS of
    our server's engine process: the other engine has no HTTP either."""
    from yaie.bench.process import Server, family, running, serving

    def ask(server: Server) -> dict[str, float]:
        for n in range(8):
            prompt = "".join(f" {WORDS[(n + i * i) % len(WORDS)]}" for i in range(100))
            asked = {"model": server.name, "prompt": prompt, "max_tokens": 16, "temperature": 0}
            request = urllib.request.Request(
                f"{server.url}/v1/completions",
                json.dumps(asked).encode(),
                {"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request).read()
        return resident_mb(server.pid)

    found = {}
    options = ["--dtype", dtype, "--device", "cpu", "--num-blocks", str(CONTEXT // 16)]
    with serving(str(folder), options) as server:
        found["yaie serve"] = ask(server)
        found["yaie serve"]["engine"] = round(max(family(server.pid).values()) / 2**20, 1)
    for n in range(8):
        other.ask([[9 + 5 * i + n for i in range(100)]], 16)
    found["llama.cpp"] = resident_mb(other.process.pid)
    with running(server_of(peer), r"running on (?P<url>http://\S+)") as server:
        found["llama.cpp's server"] = ask(server)
    for name, mb in found.items():
        told = ", ".join(f"{what.upper()} {size:.0f} MB" for what, size in mb.items())
        print(f"{dtype:9} memory of {name:18} {told}")
    return found


def server_of(path: Path) -> list[str]:
    """The command that starts llama.cpp's server, which needs `pip install
    llama-cpp-python[server]`. It keeps no logits of prompts, and the weights in the mapped file."""
    options = {"model": path, "port": 0, "n_ctx": CONTEXT, "logits_all": False, "use_mlock": False}
    threads = len(os.sched_getaffinity(0))
    options |= {"verbose": False, "n_threads": threads, "n_threads_batch": threads}
    flags = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    return [PEER_PYTHON, "-m", "llama_cpp.server", *flags]


def resident_mb(pid: int) -> dict[str, float]:
    """The memory of a process and of those that it has started. RSS counts all of their pages; PSS
    divides a shared page among the processes that share it. One that has ended counts as 0."""
    from yaie.bench.process import family

    found = {"rss": 0.0, "pss": 0.0}
    for member in family(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = {line.split()[0]: line.split()[1] for line in lines[1:]}
        for name in found:
            found[name] += int(fields[f"{name.capitalize()}:"]) / 1024
    return {name: round(mb, 1) for name, mb in found.items()}


def _compared(taken: dict[str, list[dict]], first: bool) -> dict[str, Any]:
    """Medians of what two engines took, after a round of warming up; how many tokens agree."""
    row: dict[str, Any] = {}
    for name, asked in taken.items():
        seconds = [one["first" if first else "rest"] for one in asked[1:]]
        row[name] = {
            "seconds": [round(s, 5) for s in seconds],
            "rate": statistics.median(asked[0]["tokens"] / s for s in seconds),
        }
    pairs = zip(*(asked[-1]["answers"] for asked in taken.values()), strict=True)
    same = [a == b for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True)]
    row["same_tokens"] = sum(same) / len(same)
    ours, theirs = (row[name]["rate"] for name in taken)
    row["ratio"] = ours / theirs
    return row


def _told(dtype: str, row: dict[str, Any]) -> str:
    ours, theirs = row["yaie"], row["llama.cpp"]
    return (
        f"{dtype:9} {row['case']:20} yaie {ours['rate']:8.2f}/s  llama.cpp {theirs['rate']:8.2f}/s"
        f"  ratio {row['ratio']:.2f}  tokens alike {row['same_tokens']:.0%}"
    )


class Engine:
    """A process that answers prompts, one JSON object per line."""

    def __init__(self, *command: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def close(self) -> None:
        """End the process."""
        self.process.communicate()

    def ask(self, prompts: Prompts, max_tokens: int) -> dict[str, Any]:
        """The answers, and what they took: see `_serve`."""
        self.tell(prompts, max_tokens)
        return self.hear()

    def tell(self, prompts: Prompts, max_tokens: int) -> None:
        """Let the process begin."""
        with suppress(BrokenPipeError):  # the process has ended, and `hear` says so
            self.process.stdin.write(json.dumps([prompts, max_tokens]) + "\n")
            self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for the answers."""
        line = self.process.stdout.readline()
        if not line:
            if "llama.cpp" in self.process.args:
                raise RuntimeError(
                    "the engine llama.cpp ended: it needs `pip install llama-cpp-python`"
                )
            raise RuntimeError("the engine yaie ended")
        return json.loads(line)


# ------------------------------------------------------------------------------- in the processes


def _answer_as_yaie(folder: str, dtype: str, backend: str = "auto") -> Any:
    from yaie import LLM
    from yaie.bench.drive import run_batch

    llm = LLM(folder, dtype=dtype, exercises=False, device="cpu", backend=backend)
    engine = llm.engine

    def answer(prompts: Prompts, max_tokens: int) -> tuple[Prompts, float, float]:
        start = time.perf_counter()
        run = run_batch(engine, prompts, max_tokens)
        first = max(trace.tokens[0] for trace in run.traces)
        return run.answers, first - start, time.perf_counter() - first

    return answer


def _answer_as_llama(path: str, _: str) -> Any:
    import llama_cpp as api
    import numpy as np

    quiet = api.llama_log_callback(lambda *_: None)
    api.llama_log_set(quiet, None)
    model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
    params = api.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_seq_max = CONTEXT, 2048, 16
    params.kv_unified = True
    params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
    context = api.llama_init_from_model(model, params)
    vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
    batch = api.llama_batch_init(2048, 0, 1)

    def decode(tokens: Sequence[tuple[int, int, int, bool]]) -> list[int]:
        """Compute (token, position, sequence, whether a token is wanted); the likeliest ones."""
        batch.n_tokens, wanted = len(tokens), []
        for i, (token, position, sequence, is_last) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, is_last
            wanted += [i] * is_last
        if api.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        rows = (api.llama_get_logits_ith(context, i) for i in wanted)
        return [int(np.ctypeslib.as_array(row, (vocabulary,)).argmax()) for row in rows]

    def answer(prompts: Prompts, max_tokens: int) -> tuple[Prompts, float, float]:
        api.llama_log_set(quiet, None)  # which keeps the callback alive, too
        api.llama_memory_clear(api.llama_get_memory(context), True)
        start = time.perf_counter()
        flat = [(token, i, n, i == len(prompt) - 1)
                for n, prompt in enumerate(prompts) for i, token in enumerate(prompt)]  # fmt: skip
        answers = [[token] for token in decode(flat)]
        first = time.perf_counter()
        for step in range(max_tokens - 1):
            places = [len(prompt) + step for prompt in prompts]
            last = [
                (a[-1], place, n, True)
                for n, (a, place) in enumerate(zip(answers, places, strict=True))
            ]
            for mine, token in zip(answers, decode(last), strict=True):
                mine.append(token)
        return answers, first - start, time.perf_counter() - first

    return answer


def write_gguf(folder: Path, path: Path, kind: str, has_vocabulary: bool = False) -> None:
    """A model folder as a GGUF file, its matrices in a format such as F16. The vocabulary is that
    of the GGUF file that the folder came from, or none."""
    import gguf
    import numpy as np
    from safetensors.torch import load_file

    from yaie.model.config import ModelConfig
    from yaie.model.gguf import LAYER_TENSORS, TENSORS, open_gguf
    from yaie.model.manifest import GGUF_FILE

    config, form = ModelConfig.from_folder(folder), gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    if has_vocabulary:
        for name, field in open_gguf(folder / GGUF_FILE).fields.items():
            if name.startswith("tokenizer."):
                of = field.types[-1] if len(field.types) > 1 else None
                writer.add_key_value(name, field.contents(), field.types[0], of)
    else:
        writer.add_tokenizer_model("no_vocab")
    parts = {theirs: ours for ours, theirs in (LAYER_TENSORS | TENSORS).items()}
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            array, words = tensor.float().numpy(), name.removesuffix(".weight").split(".")
            if words[-1] in ("q_proj", "k_proj"):  # rotary pairs lie side by side there
                heads = len(array) // config.head_dim
                halves = array.reshape(heads, 2, config.head_dim // 2, -1)
                array = halves.swapaxes(1, 2).reshape(array.shape)
            layer = f"blk.{words[2]}." if words[1] == "layers" else ""
            own = ".".join(words[3:] if layer else words)
            stored = gguf.GGMLQuantizationType.F32 if array.ndim == 1 else form
            data = gguf.quants.quantize(np.ascontiguousarray(array), stored)
            writer.add_tensor(f"{layer}{parts[own]}.weight", data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _serve(name: str, path: str, *options: str) -> None:
    """Answer the lines of standard input until it ends: with tokens, with the seconds up to the
    first token of all prompts and from there on, and with how many tokens came in those."""
    answer = (_answer_as_yaie if name == "yaie" else _answer_as_llama)(path, *options)
    for line in sys.stdin:
        prompts, max_tokens = json.loads(line)
        answers, first, rest = answer(prompts, max_tokens)
        tokens = len(prompts) * max(max_tokens - 1, 1)
        told = {"answers": answers, "first": first, "rest": rest, "tokens": tokens}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])

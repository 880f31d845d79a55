"""The `yaie` command. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from yaie import __version__
from yaie.chat import TEMPERATURE, TOP_P
from yaie.course.core.commands import app as course_app
from yaie.engine.threads import share_processors

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Build the engine of an LLM server, one notebook at a time.",
)
DEFAULT_MODEL = "SmolLM2-135M-Instruct"
Model = Annotated[str, typer.Argument(help="A pulled model's name, or a folder.")]
ModelOption = Annotated[str, typer.Option("--model", help="A pulled model's name, or a folder.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N; auto takes a GPU.")]
Dtype = Annotated[
    str,
    typer.Option(
        help="auto, float32, bfloat16 or float16; auto is float32 on a CPU, else half precision."
    ),
]
Backend = Annotated[
    str, typer.Option(help="Who computes the operators: auto, reference, triton or cuda.")
]
Exercises = Annotated[
    bool, typer.Option("--exercises", help="Answer with the exercises you have solved.")
]
OneExercise = Annotated[
    list[str] | None,
    typer.Option(metavar="ID", help="Answer with this one of them; may be repeated."),
]


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"yaie {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error was raised.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """What holds for every command. `main` reads --debug itself."""


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Examine this machine: what works, what does not, and how to mend it."""
    from yaie.course.core import doctor

    findings = doctor.examine()
    typer.echo(doctor.as_json(findings) if as_json else doctor.as_text(findings))
    raise typer.Exit(1 if doctor.has_problem(findings) else 0)


@app.command()
def pull(
    name: Annotated[str | None, typer.Argument(help=f"A known model: {DEFAULT_MODEL}.")] = None,
    from_hub: Annotated[
        str | None,
        typer.Option(metavar="ORG/NAME", help="Take a Llama-family model from the hub instead."),
    ] = None,
    cache_dir: Annotated[
        str | None, typer.Option(help="Where models are kept.", show_default="~/.cache/yaie")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also compare every file with what was fetched.")
    ] = False,
) -> None:
    """Fetch the model, once; a second call only says where it is."""
    from yaie.model import manifest
    from yaie.model.pull import pull as fetch

    folder = fetch(name, cache_dir=cache_dir, from_hub=from_hub, progress=sys.stderr.isatty())
    typer.echo(f"model: {folder}")
    if verify:
        typer.echo(f"verified: {manifest.verify(folder)} files are as they were fetched")


@app.command()
def chat(
    model: Model = DEFAULT_MODEL,
    temperature: Annotated[
        float, typer.Option(help="0 always takes the likeliest token.")
    ] = TEMPERATURE,
    top_p: Annotated[
        float, typer.Option(help="Draw from the likeliest tokens of this mass.")
    ] = TOP_P,
    max_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 256,
    system: Annotated[str | None, typer.Option(help="A system prompt.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the answers repeatable.")] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    backend: Backend = "auto",
    exercises: Exercises = False,
    exercise: OneExercise = None,
) -> None:
    """Talk with the model in the terminal."""
    from yaie.chat import Chat, load

    mine = exercise or exercises
    llm = load(model, exercises=mine, device=device, dtype=dtype, backend=backend)
    Chat(
        llm, system=system, temperature=temperature, top_p=top_p, max_tokens=max_tokens, seed=seed
    ).run()


@app.command()
def serve(
    model: Model = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    name: Annotated[
        str | None, typer.Option(help="What requests call the model.", show_default="the model")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="YAIE_API_KEY", help="Demand this key under /v1.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name by which a proxy calls the server.")
    ] = None,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Requests that run at once.")] = 64,
    max_num_batched_tokens: Annotated[
        int,
        typer.Option(
            min=1,
            help="Tokens of a step. Fewer (256 on a CPU) delay others less beside a long prompt.",
        ),
    ] = 2048,
    max_queued: Annotated[
        int, typer.Option(min=0, help="Requests that may wait; more are answered 429.")
    ] = 256,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest answer.", show_default="the context")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    num_blocks: Annotated[
        int | None, typer.Option(min=1, help="KV blocks.", show_default="as memory allows")
    ] = None,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens of a KV block.")] = 16,
    kv_cache_memory_bytes: Annotated[
        int | None,
        typer.Option(min=1, help="Memory of all of them, instead.", show_default="as is free"),
    ] = None,
    gpu_memory_utilization: Annotated[
        float, typer.Option(help="Part of a GPU's memory for weights, activations and KV blocks.")
    ] = 0.9,
    max_model_len: Annotated[
        int | None,
        typer.Option(min=2, help="Most tokens of a request.", show_default="the model's context"),
    ] = None,
    enforce_eager: Annotated[
        bool, typer.Option("--enforce-eager", help="Capture no CUDA graphs.")
    ] = False,
    enable_prefix_caching: Annotated[bool, typer.Option(help="Share what prompts share.")] = True,
    enable_chunked_prefill: Annotated[
        bool, typer.Option(help="Compute a long prompt in several steps.")
    ] = True,
    policy: Annotated[
        str, typer.Option(help="Who is next: fcfs, or lpm for the longest cached prefix.")
    ] = "fcfs",
    tensor_parallel_size: Annotated[
        int, typer.Option(min=1, help="Processes that share the model, on a GPU each.")
    ] = 1,
    shutdown_timeout: Annotated[
        int, typer.Option(min=0, help="Seconds that answers may still take at the end.")
    ] = 30,
    backend: Backend = "auto",
    exercises: Exercises = False,
    exercise: OneExercise = None,
) -> None:
    """Serve the model over HTTP, in the form of OpenAI's API."""
    from yaie.model.pull import model_name
    from yaie.server.app import Settings
    from yaie.server.run import serve as run

    run(
        model,
        Settings(
            name or model_name(model),
            api_key,
            max_queued=max_queued,
            max_tokens=max_tokens,
            allowed_hosts=tuple(allowed_host) if allowed_host else None,
        ),
        host=host,
        port=port,
        shutdown_timeout=shutdown_timeout,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        device=device,
        dtype=dtype,
        num_blocks=num_blocks,
        block_size=block_size,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        gpu_memory_utilization=gpu_memory_utilization,
        max_model_len=max_model_len,
        enforce_eager=enforce_eager,
        enable_prefix_caching=enable_prefix_caching,
        enable_chunked_prefill=enable_chunked_prefill,
        policy=policy,
        tensor_parallel_size=tensor_parallel_size,
        backend=backend,
        exercises=exercise or exercises or None,
    )


# As in yaie.bench.sections, which loads more than a help text should.
ENGINE_SECTIONS = (
    *("transformers", "matrix", "first_token", "memory", "at_once", "arrivals", "workloads"),
    *("prefix_cache", "chunked_prefill", "block_size", "cuda_graphs", "back_ends"),
)
bench_app = typer.Typer(no_args_is_help=True, help="Measure what this machine achieves.")


@contextmanager
def measuring(
    output: Path | None = None, *, keeps: bool = True, alone: bool = True
) -> Iterator[None]:
    """Say at the start if this machine is busy, and at a Ctrl-C what was kept.

    Args:
        output: where results go.
        keeps: the command has an option for that.
        alone: times are wrong if other programs use the CPU.
    """
    try:
        from yaie.bench.machine import busy

        if alone and (words := busy()):
            typer.echo(words, err=True)
        yield
    except KeyboardInterrupt:
        if output is None:
            kept = f"nothing was kept{' without --output' if keeps else ''}"
        elif output.exists():
            kept = f"results so far are in {output}"
        else:
            kept = f"there were no results yet to keep in {output}"
        typer.echo(f"stopped; {kept}", err=True)
        raise typer.Exit(128 + signal.SIGINT) from None


@bench_app.command("engine")
def bench_engine(
    model: ModelOption = DEFAULT_MODEL,
    shape: Annotated[
        str | None, typer.Option(help="Draw a model of this shape instead: llama-8b.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="WORDS", help=f"Some of {', '.join(ENGINE_SECTIONS)}.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Small sizes, for a look: two to three minutes on two idle cores."
        ),
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Of each case.", show_default="as the sizes say")
    ] = None,
    cpu_time: Annotated[
        bool,
        typer.Option("--cpu-time", help="Count what one thread computes: others use this CPU."),
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Keep the results as JSON; go on with those there.")
    ] = None,
) -> None:
    """Throughput and latency, what each idea is worth, and transformers' `generate` beside it."""
    with measuring(output, alone=not cpu_time):
        from yaie.bench import engine

        record = engine.run(
            model,
            shape=shape,
            device=device,
            dtype=dtype,
            only=only,
            quick=quick,
            rounds=rounds,
            cpu_time=cpu_time,
            output=output,
        )
        save_plot(record, output)


@bench_app.command("serve")
def bench_serve(
    model: ModelOption = DEFAULT_MODEL,
    url: Annotated[
        str | None, typer.Option(help="Of a server that runs.", show_default="start one")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="YAIE_API_KEY", help="What that server demands.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="WORDS", help="transformers, at_once, arrivals.")
    ] = None,
    soak: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", min=0.1, help="Keep it busy, and watch its memory."),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Little load, for a look: one to two minutes on two idle cores."
        ),
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Against transformers.", show_default="3")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Keep the results as JSON; go on with those there.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Argument(help="Of the server that is started, behind --.")
    ] = None,
) -> None:
    """What the clients of a server see: throughput and latency, up to where it is saturated."""
    if soak is not None:
        if url or only or options:
            raise ValueError("--soak starts a server of its own: no --url, --only or options")
        with measuring(output, alone=False):
            from yaie.bench import soak as bench

            record = bench.run(model, soak, device=device, dtype=dtype, output=output)
        typer.echo(bench.told(record["results"]["soak"][-1]))
        return
    with measuring(output):
        from yaie.bench import serve

        record = serve.run(
            model, device=device, dtype=dtype, url=url, api_key=api_key, only=only, quick=quick,
            rounds=rounds, output=output, options=options or (),
        )  # fmt: skip
        save_plot(record, output)


def save_plot(record: dict, output: Path | None) -> None:
    """Draw the results beside their JSON, if there is anything to draw."""
    from yaie.course.viz import benchmark

    if output is not None and benchmark.can_draw(record):
        picture = output.with_suffix(".png")
        benchmark.draw_benchmark(record).savefig(picture)
        typer.echo(f"results: {output}, plots: {picture}")


@bench_app.command("jit")
def bench_jit(
    rounds: Annotated[int, typer.Option(min=1, help="Of which the least counts.")] = 5,
) -> None:
    """What compiling, launching, emulating and checking a kernel take, beside their targets."""
    with measuring(keeps=False):
        from yaie.bench import jit

        jit.run(rounds)


@bench_app.command("radix")
def bench_radix() -> None:
    """What matching and eviction cost, by length of the prompt and size of the tree."""
    with measuring(keeps=False):
        from yaie.bench import radix

        radix.run()


@bench_app.command("kernels")
def bench_kernels(
    only: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Operators with these words: norm,matmul.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="bfloat16 (GPU), float16 or float32 (CPU).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cuda or cpu.")] = "auto",
    output: Annotated[
        Path | None, typer.Option(help="Also save the results as JSON, and a plot beside it.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller shapes.")] = False,
) -> None:
    """Every operator in every back end, against its peers and the device's ceilings."""
    with measuring(output):
        from yaie.bench import kernels
        from yaie.course.lessons.ops.cases import bench_cases

        record = kernels.run(only, dtype, device, output, quick, more=bench_cases)
    wrong = [row for row in record["results"] if row["ours"] and row["failure"]]
    raise typer.Exit(1 if wrong else 0)


app.add_typer(bench_app, name="bench")
app.add_typer(course_app)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as an exception does, so that what it started is ended, too.

    `serve` puts a handler of its own in place. One that is there already stays, and so does
    everything in a thread that is not the main one, where Python sets none.
    """

    def end(number: int, frame: object) -> NoReturn:
        sys.exit(128 + number)  # as a shell says that a signal ended a process

    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def main() -> None:
    """Run the command; an error becomes one line, unless --debug is given."""
    debug = "--debug" in sys.argv[1:]
    share_processors(os.environ)
    try:
        with ended_by_sigterm():
            app(prog_name="yaie")
    except Exception as error:
        if debug:
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        typer.echo(f"yaie: {message}", err=True)
        if not isinstance(error, ValueError | TypeError | RuntimeError | OSError):
            typer.echo(f"({type(error).__name__}; `yaie --debug ...` shows where)", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

"""The `yaie` command. Everything heavy is imported by the command that needs it."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer import Option
from typer.models import OptionInfo

from yaie import __version__
from yaie.bench import commands
from yaie.bench.commands import DEFAULT_MODEL, Backend, CacheDtype, Device, Dtype, back_ends
from yaie.chat import TEMPERATURE, TOP_P
from yaie.course.core.commands import app as course_app
from yaie.course.core.plug import check_ids
from yaie.engine.threads import share_processors

app = typer.Typer(
    cls=commands.Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # whose tables cut the names of options
    help="Build the engine of an LLM server, one notebook at a time.",
)
Model = Annotated[str, typer.Argument(help="A pulled model's name, or a folder.")]
Exercises = Annotated[bool, Option("--exercises", help="Use your code for all passing exercises.")]
OneExercise = Annotated[
    list[str] | None,
    Option(metavar="ID", callback=check_ids, help="Use your code for this exercise; repeatable."),
]


def refuse_model_option(context: typer.Context, name: str | None) -> None:
    if name is not None:
        context.fail(f"the model is an argument, not an option: {context.command_path} {name}")


NoModelOption = Annotated[str | None, Option("--model", hidden=True, callback=refuse_model_option)]


def least(number: int, help: str, default: str | bool = True) -> OptionInfo:
    """An option that is at least some number."""
    return Option(min=number, help=help, show_default=default)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"yaie {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, Option("--debug", help="Show where an error was raised.")] = False,
    version: Annotated[
        bool, Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """What holds for every command. `main` reads --debug itself."""


@app.command()
def doctor(
    as_json: Annotated[bool, Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Examine this machine: what works, and how to fix what does not."""
    from yaie.course.core import doctor

    findings = doctor.examine()
    typer.echo(doctor.as_json(findings) if as_json else doctor.as_text(findings))
    raise typer.Exit(1 if doctor.has_problem(findings) else 0)


@app.command()
def pull(
    name: Annotated[str | None, typer.Argument(help=f"A known model: {DEFAULT_MODEL}.")] = None,
    from_hub: Annotated[
        str | None,
        Option(metavar="ORG/NAME", help="Take a Llama-family model from the hub instead."),
    ] = None,
    cache_dir: Annotated[
        str | None, Option(help="Where models are kept.", show_default="~/.cache/yaie")
    ] = None,
    verify: Annotated[bool, Option("--verify", help="Compare files with those fetched.")] = False,
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
    temperature: Annotated[float, Option(help="0 always takes the likeliest token.")] = TEMPERATURE,
    top_p: Annotated[float, Option(help="Draw from the likeliest tokens up to this mass.")] = TOP_P,
    max_tokens: Annotated[int, Option(help="Longest answer, in tokens.")] = 256,
    system: Annotated[str | None, Option(help="A system prompt.")] = None,
    seed: Annotated[int | None, Option(help="Makes the answers repeatable.")] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    kv_cache_dtype: CacheDtype = "auto",
    backend: Backend = None,
    exercises: Exercises = False,
    exercise: OneExercise = None,
    no_model: NoModelOption = None,
) -> None:
    """Talk with the model in the terminal."""
    from yaie.chat import Chat, load
    from yaie.engine.params import SamplingParams

    sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed}
    params = SamplingParams(**sampling)  # refuses wrong values before the model is loaded
    options = {"device": device, "dtype": dtype, "kv_cache_dtype": kv_cache_dtype}
    llm = load(model, exercises=exercise or exercises, **options, backend=back_ends(backend))
    Chat(llm, params, system).run()


@app.command()
def serve(
    context: typer.Context,
    model: Model = DEFAULT_MODEL,
    host: Annotated[str, Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    name: Annotated[
        str | None, Option(help="The model's name in requests.", show_default="model")
    ] = None,
    api_key: Annotated[
        str | None, Option(envvar="YAIE_API_KEY", help="Demand this key; other users can see it.")
    ] = None,
    api_key_file: Annotated[
        Path | None, Option(help="Demand the key in this file.", exists=True, dir_okay=False)
    ] = None,
    allowed_host: Annotated[list[str] | None, Option(help="Accept requests for this name.")] = None,
    max_num_seqs: Annotated[int, Option(min=1, help="Requests that run together.")] = 64,
    max_num_batched_tokens: Annotated[
        int, least(1, "Most tokens per step. With fewer (256 on a CPU) prompts delay others less.")
    ] = 2048,
    max_queued: Annotated[int, Option(min=0, help="Requests that may wait; others get 429.")] = 256,
    max_tokens: Annotated[int | None, least(1, "Longest answer.", "the context")] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    kv_cache_dtype: CacheDtype = "auto",
    num_blocks: Annotated[int | None, least(1, "How many KV blocks.", "as memory allows")] = None,
    block_size: Annotated[int, Option(min=1, help="Tokens per KV block.")] = 16,
    kv_cache_memory_bytes: Annotated[
        int | None, least(1, "Or the bytes of all KV blocks.", "1 GiB on a CPU, else what is free")
    ] = None,
    gpu_memory_utilization: Annotated[
        float, Option(help="Share of a GPU's memory for weights, activations and KV blocks.")
    ] = 0.9,
    max_model_len: Annotated[
        int | None, least(2, "Most tokens per request.", "the model's context")
    ] = None,
    enforce_eager: Annotated[bool, Option("--enforce-eager", help="No CUDA graphs.")] = False,
    enable_prefix_caching: Annotated[bool, Option(help="Reuse common prefixes.")] = True,
    enable_chunked_prefill: Annotated[bool, Option(help="Cut long prompts in chunks.")] = True,
    chunked_prefill_size: Annotated[int | None, least(1, "Most tokens per chunk.")] = None,
    policy: Annotated[
        str,
        Option(help="fcfs; lpm: longest cached prefix first; longest: longest answer first."),
    ] = "fcfs",
    tensor_parallel_size: Annotated[
        int | None, least(1, "Processes that share the model.", "1, or as torchrun has started")
    ] = None,
    shutdown_timeout: Annotated[int, Option(min=0, help="Seconds that answers get to end.")] = 30,
    max_connections: Annotated[
        int | None, least(1, "Most open connections.", "as many as files can be open")
    ] = None,
    access_log: Annotated[bool, Option("--access-log", help="Log every request.")] = False,
    restart: Annotated[bool, Option("--restart", help="Restart the engine if it dies.")] = False,
    backend: Backend = None,
    exercises: Exercises = False,
    exercise: OneExercise = None,
    no_model: NoModelOption = None,
) -> None:
    """Serve the model over HTTP, in the form of OpenAI's API."""
    from yaie.engine.config import OPTIONS, EngineConfig
    from yaie.engine.sending import check_launched, launched_ranks
    from yaie.model.pull import model_name
    from yaie.server.app import Settings
    from yaie.server.run import serve as run

    if api_key_file is not None:
        if api_key:
            raise ValueError("api_key: give it, or api_key_file, not both")
        api_key = api_key_file.read_text(encoding="utf-8").strip()
    elif context.get_parameter_source("api_key").name == "COMMANDLINE":
        said = "--api-key shows in the list of processes: YAIE_API_KEY or --api-key-file hide it"
        typer.echo(said, err=True)
    size = tensor_parallel_size or launched_ranks()
    check_launched(size)  # or this rank would serve alone
    if restart and launched_ranks() > 1:
        raise ValueError("restart: torchrun starts the other ranks only once; leave it out")
    given = context.params | {"backend": back_ends(backend), "tensor_parallel_size": size}
    config = EngineConfig(**{name: value for name, value in given.items() if name in OPTIONS})
    if launched_ranks() > 1 and os.environ["RANK"] != "0":
        from yaie.engine.start import start_engine

        start_engine(model, config, exercise or exercises or None)  # and exit when rank 0's ends
    settings = Settings(
        name or model_name(model), api_key, max_queued=max_queued, max_tokens=max_tokens,
        allowed_hosts=tuple(allowed_host) if allowed_host else None, access_log=access_log,
        max_connections=max_connections,
    )  # fmt: skip
    run(
        model, settings, config, host=host, port=port, shutdown_timeout=shutdown_timeout,
        exercises=exercise or exercises or None, restart=restart,
    )  # fmt: skip


app.add_typer(commands.app, name="bench")
app.add_typer(course_app)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as an exception does, so that the processes it started
    end, too: in the main thread, and if no other handler is in place. (`serve` sets its own.)"""

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
    """Run the command; an error becomes one line, unless --debug is given, and status 1. (Status 2
    says that typer could not parse the command line.)"""
    debug = "--debug" in sys.argv[1:]
    share_processors(os.environ)
    try:
        with ended_by_sigterm():
            app(prog_name="yaie")
    except Exception as error:
        if debug:
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        typer.echo(f"yaie: {commands.name_options(message, app, sys.argv)}", err=True)
        if not isinstance(error, ValueError | TypeError | RuntimeError | OSError):
            typer.echo(f"({type(error).__name__}; `yaie --debug ...` shows where)", err=True)
        sys.exit(1)

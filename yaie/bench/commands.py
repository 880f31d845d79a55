"""The commands `yaie bench ...`, and the options that they share with other commands."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
ModelOption = Annotated[str, typer.Option("--model", help="A pulled model's name, or a folder.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N; auto takes a GPU.")]
Dtype = Annotated[
    str,
    typer.Option(
        help="auto, float32, bfloat16, float16 or float64; auto is float32 on a CPU, else half "
        "precision. On a CPU also q8_0, q4_0, q4_1, or gguf: as the GGUF file has the weights."
    ),
]
CacheDtype = Annotated[
    str,
    typer.Option(
        help="Format of keys and values: auto is dtype, or float16 beside weights of 8 or 4 bits; "
        "fp8 is 8-bit floats, half the memory of bfloat16."
    ),
]
Backend = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[OPERATOR=]NAME", show_default="auto",
        help="Who computes the operators: auto, reference, cpp, triton or cuda. OPERATOR=NAME "
        "chooses for one of them, OPERATOR=MODULE:FUNCTION a function of yours; may be repeated.",
    ),
]  # fmt: skip
Output = Annotated[
    Path | None, typer.Option(help="Keep the results as JSON; go on with those there.")
]

# As in yaie.bench.sections, which loads more than a help text should.
ENGINE_SECTIONS = (
    *("transformers", "matrix", "first_token", "memory", "at_once", "arrivals", "workloads"),
    *("prefix_cache", "chunked_prefill", "attention"),
    *("block_size", "cuda_graphs", "back_ends"),
)
# As in yaie.course.lessons.ladders.
LADDERS = (
    *("elementwise", "matmul", "flash", "paged", "naive", "selected", "fp8", "metadata", "search"),
    *("blocks", "groups", "triton", "hopper", "flash_hopper", "gemv"),
)


class Commands(TyperGroup):
    """Commands. If a name is not one of theirs, the error lists theirs."""

    def get_command(self, context: typer.Context, name: str) -> Any:
        """The command of this name; if there is none, the program ends with an error."""
        if name not in self.commands:
            known = ", ".join(self.commands)
            context.fail(f"there is no command {name!r}; the commands are {known}")
        return self.commands[name]


app = typer.Typer(cls=Commands, no_args_is_help=True, help="Measure what this machine achieves.")


def back_ends(words: list[str] | None) -> str | dict[str, str]:
    """What `--backend` says: a back end for all operators, or one for each that is named.

    Raises ValueError if the words are neither.
    """
    words = words or ["auto"]
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    chosen: dict[str, str] = {}
    for word in words:
        operator, _, name = word.partition("=")
        if not operator or not name or operator in chosen:
            wanted = "one name, or OPERATOR=NAME once for each of some operators"
            raise ValueError(f"backend must be {wanted}, got {' and '.join(words)}")
        chosen[operator] = name
    return chosen


def name_options(message: str, program: typer.Typer, words: list[str]) -> str:
    """An error of a command line, with options in place of the arguments that it names:
    `max_tokens` anywhere; a common word, such as `only`, at the beginning and before "=".
    `--backend` has pairs where Python has a mapping. An exercise given as a model is sent to
    `--exercise`."""
    command = get_command(program)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    options = {p.name: max(p.opts, key=len) for p in command.params if p.opts[0].startswith("-")}
    names = [
        rf"^{name}\b|\b{name}(?==)" + (rf"|(?<![\w/.-]){name}(?![\w/-])" if "_" in name else "")
        for name in options
    ]
    message = re.sub("a mapping, such as {.*?}", "OPERATOR=NAME for one", message)
    if exercise := re.match(r"unknown model '(\d+\.\d+)'", message):
        message += f"; to run a model with your exercise, pass --exercise {exercise[1]}"
    return re.sub("|".join(names), lambda found: options.get(found[0], ""), message)


@contextmanager
def measuring(
    output: Path | None = None, *, keeps: bool = True, alone: bool = True
) -> Iterator[None]:
    """Say at the start if this machine is busy, and at a Ctrl-C what was kept.

    Args:
        output: where results go; `keeps` says whether the command has an option for that.
        alone: whether times are wrong if other programs use the CPU.
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


@app.command("engine")
def bench_engine(
    context: typer.Context,
    model: ModelOption = DEFAULT_MODEL,
    shape: Annotated[
        str | None, typer.Option(help="Draw a model of this shape instead: llama-8b, smollm2-135m.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="WORDS", help=f"Some of {', '.join(ENGINE_SECTIONS)}.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: two to three minutes on two idle cores.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Rounds of each case.", show_default="as the sizes say"),
    ] = None,
    backend: Backend = None,
    cpu_time: Annotated[
        bool,
        typer.Option(
            "--cpu-time", help="Measure the CPU time of one thread, for a machine that others use."
        ),
    ] = False,
    course: Annotated[
        bool,
        typer.Option("--course", help="Measure what notebook 28 draws, in minutes."),
    ] = False,
    peer: Annotated[
        str | None,
        typer.Option(
            help="Compare only with this, on a CPU: llama.cpp, or spinning (waiting in a loop)."
        ),
    ] = None,
    output: Output = None,
) -> None:
    """Throughput and latency, compared with transformers' `generate`.

    Also measures what each idea of the engine is worth.
    """
    if peer is not None:
        from yaie.bench import peer as beside
        from yaie.bench import spinning

        if peer not in ("llama.cpp", "spinning"):
            raise ValueError(f'peer must be "llama.cpp" or "spinning", got {peer!r}')
        measured = beside if peer == "llama.cpp" else spinning
        taken = {"peer", *signature(measured.run).parameters}
        for name in set(context.params) - taken:
            if context.get_parameter_source(name).name != "DEFAULT":
                raise ValueError(f"{name} cannot be given beside --peer {peer}")
        with measuring(output):
            if peer == "spinning":
                spinning.run(model, rounds or 5, output)
            else:
                dtype = "float32" if dtype == "auto" else dtype
                beside.run(model, dtype, rounds or 5, output, only)
        return
    if course and output is None:
        from yaie.bench.files import own_path
        from yaie.engine.device import choose_device

        output = context.params["output"] = own_path(choose_device(device).type)
        output.parent.mkdir(parents=True, exist_ok=True)
        typer.echo(f"notebook 28 draws what this measures: {output}", err=True)
    with measuring(output, alone=not cpu_time):
        from yaie.bench import engine

        given = {name: value for name, value in context.params.items() if name != "peer"}
        record = engine.run(**given | {"backend": back_ends(backend)})
        save_plot(record, output)


@app.command("serve")
def bench_serve(
    context: typer.Context,
    model: ModelOption = DEFAULT_MODEL,
    url: Annotated[
        str | None, typer.Option(help="Address of a running server.", show_default="start one")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="YAIE_API_KEY", help="The API key of that server.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="Only these, separated by commas: transformers, at_once, arrivals.",
        ),
    ] = None,
    soak: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", min=0.1, help="Keep it busy, and watch its memory."),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="Little load: one to two minutes on two idle cores.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds against transformers.", show_default="3")
    ] = None,
    output: Output = None,
    options: Annotated[
        list[str] | None, typer.Argument(help="Options for the server that is started, after --.")
    ] = None,
) -> None:
    """What the clients of a server see, up to where it is saturated."""
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

        wanted = {name: value for name, value in context.params.items() if name != "soak"}
        record = serve.run(**wanted | {"options": options or ()})
        save_plot(record, output)


def save_plot(record: dict, output: Path | None) -> None:
    """Draw the results beside their JSON, if there is anything to draw."""
    from yaie.course.viz import benchmark

    if output is not None and benchmark.can_draw(record):
        picture = output.with_suffix(".png")
        benchmark.draw_benchmark(record).savefig(picture)
        typer.echo(f"results: {output}, plots: {picture}")


@app.command("jit")
def bench_jit(
    rounds: Annotated[int, typer.Option(min=1, help="Of which the least counts.")] = 5,
) -> None:
    """What compiling, launching and checking a kernel take."""
    with measuring(keeps=False):
        from yaie.bench import jit

        jit.run(rounds)


@app.command("radix")
def bench_radix() -> None:
    """What matching and eviction in the radix tree cost."""
    with measuring(keeps=False):
        from yaie.bench import radix

        radix.run()


@app.command("kernels")
def bench_kernels(
    only: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Operators with these words: norm,matmul.")
    ] = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    output: Annotated[
        Path | None, typer.Option(help="Also save the results as JSON, and a plot beside it.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller shapes.")] = False,
    ladder: Annotated[
        str | None, typer.Option(help=f"Instead the rungs of a kernel: {', '.join(LADDERS)}.")
    ] = None,
    skip: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Rows of a ladder to leave out.")
    ] = None,
    case: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Measure your cases instead."),
    ] = None,
) -> None:
    """Every operator in every back end, against peers and ceilings."""
    with measuring(output):
        from yaie.course.lessons import ladders

        faults = ladders.command(ladder, only, dtype, device, output, quick, skip, case)
    raise typer.Exit(1 if faults else 0)

"""The results of `yaie bench engine` or `yaie bench serve` on one page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz.charts import BOTTOM, HEAD, Chart, draw_charts
from yaie.course.viz.page import Page
from yaie.course.viz.style import TITLE, WIDTH

HEIGHT, TOP = 1.8, 0.35  # inches: of a row's axes, and above the first row
IN_A_ROW = 3  # charts
CHECKED = "error of "  # a kernel of attention, in a row
Row = Mapping[str, Any]


def can_draw(record: Mapping[str, Any]) -> bool:
    """Whether a record has results that `draw_benchmark` draws."""
    return any(record["results"].get(name) for name in (*SECTIONS, *ABLATIONS))


def draw_benchmark(record: Mapping[str, Any]) -> Figure:
    """Draw what a record has: curves of load, kinds of traffic, and what each idea is worth.

    Raises:
        ValueError: it has nothing that can be drawn.
    """
    results = record["results"]
    rows = [draw(results[name]) for name, draw in SECTIONS.items() if results.get(name)]
    worth = [draw(results[name]) for name, draw in ABLATIONS.items() if results.get(name)]
    rows += [worth[at : at + IN_A_ROW] for at in range(0, len(worth), IN_A_ROW)]
    if not rows:
        known = ", ".join((*SECTIONS, *ABLATIONS))
        raise ValueError(f"record must have one of {known}, got {list(results)}")
    pitch = HEAD + HEIGHT + BOTTOM
    page = Page(WIDTH, TOP + pitch * len(rows))
    machine, subject = record["machine"], record["subject"]
    name = machine.get("gpu") or machine["processor"]
    words = f"{name}: {subject['model']}, {subject['dtype']}, {record['date']}"
    page.put(0.12, 0.17, words, TITLE, weight="bold")
    page.say(words)
    for number, charts in enumerate(rows):
        with page.part(0.0, TOP + pitch * number):
            draw_charts(charts, HEIGHT)
    return page.figure


def _lines(
    title: str, xlabel: str, rows: Sequence[Row], x: str, y: str, unit: str = "", **scales: bool
) -> Chart:
    """One curve of a figure, or the two of its p50 and p99 if `unit` is "ms"."""
    if unit != "ms":
        return Chart(title, xlabel, unit, {"": _points(rows, x, y)}, **scales)
    curves = {name: _points(rows, x, f"{y}_{name}", 1e3) for name in ("p50", "p99")}
    return Chart(title, xlabel, unit, curves, log_y=True, **scales)


def _points(rows: Sequence[Row], x: str, y: str, scale: float = 1.0) -> list[tuple[float, float]]:
    return [(row[x], scale * row[y]) for row in rows if row.get(y) is not None]


def _matrix(rows: Sequence[Row]) -> list[Chart]:
    throughput, between, whole = {}, {}, {}
    for prompt, output in dict.fromkeys((row["prompt"], row["output"]) for row in rows):
        own = [row for row in rows if (row["prompt"], row["output"]) == (prompt, output)]
        throughput[f"{prompt} → {output}"] = _points(own, "batch", "tokens_per_second")
        between[f"{prompt} → {output}"] = _points(own, "batch", "itl_p50", 1e3)
        whole[f"{prompt} → {output}"] = _points(own, "batch", "e2e_p99")
    x = "concurrent requests"
    charts = [
        Chart("Throughput, prompt → output", x, "tokens/s", throughput, log_x=True, log_y=True),
        Chart("Between tokens, p50", x, "ms", between, log_x=True),
        Chart("Whole requests, p99", x, "s", whole, log_x=True, log_y=True),
    ]
    return charts if all(whole.values()) else charts[:2]  # older records have no whole requests


def _first_token(rows: Sequence[Row]) -> list[Chart]:
    points = {"": _points(rows, "prompt", "ttft_p50", 1e3)}
    x = "tokens of the prompt"
    return [Chart("Time to first token", x, "ms", points, log_x=True, log_y=True)]


def _at_once(rows: Sequence[Row]) -> list[Chart]:
    x = "clients"
    return [
        _lines("Answers per second", x, rows, "at_once", "finished", log_x=True),
        _lines("Time to first token", x, rows, "at_once", "ttft", "ms", log_x=True),
        _lines("Between tokens", x, rows, "at_once", "itl", "ms", log_x=True),
    ]


def _arrivals(rows: Sequence[Row]) -> list[Chart]:
    crowds = {f"{row['offered']:.3g}": row["under_way"] for row in rows[1::2]}
    x = "requests sent per second"
    charts = [
        _lines("Answers per second", x, rows, "offered", "finished"),
        _lines("Time to first token", x, rows, "offered", "ttft", "ms"),
    ]
    if crowds:
        title = "Under way, by requests sent per second"
        charts.append(Chart(title, "s", "requests", crowds, steps=True))
    return charts


def _memory(rows: Sequence[Row]) -> list[Chart]:
    x = "requests under way"
    kv = _lines("KV blocks", x, rows, "at_once", "most_blocks")
    if all("kv_bytes" in row for row in rows):
        kv = Chart("KV memory", x, "MiB", {"": _points(rows, "at_once", "kv_bytes", 2**-20)})
    return [
        _lines("Throughput, small pool", x, rows, "at_once", "tokens_per_second", "tokens/s"),
        kv,
        _lines("Preemptions", x, rows, "at_once", "preemptions"),
    ]


def _grouped(
    rows: Sequence[Row], place: str, switch: str, names: Mapping[Any, str], y: str, scale: float
) -> dict[str, list[tuple[float, float]]]:
    """Bars beside each other, one for each state of a switch."""
    places = list(dict.fromkeys(row[place] for row in rows))
    return {
        name: [(places.index(r[place]), scale * r[y]) for r in rows if r[switch] == state]
        for state, name in names.items()
    }


def _workloads(rows: Sequence[Row]) -> list[Chart]:
    kinds = dict.fromkeys(row["workload"] for row in rows)
    short = [kind.replace("chat of three turns", "three turns") for kind in kinds]
    caches = {False: "no prefix cache", True: "prefix cache"}
    return [
        Chart(
            title, "", unit, _grouped(rows, "workload", "prefix_cache", caches, y, scale),
            names=short,
        )
        for title, unit, y, scale in (
            ("Time to first token", "ms", "ttft_p50", 1e3), ("KV blocks", "", "most_blocks", 1.0),
        )
    ]  # fmt: skip


def _bars(
    name: str, title: str, figure: str, unit: str = "ms", scale: float = 1e3
) -> Callable[[Sequence[Row]], Chart]:
    """A bar for each value of what an ablation changes."""

    def draw(rows: Sequence[Row]) -> Chart:
        bars = [(at, scale * row[figure]) for at, row in enumerate(rows)]
        return Chart(title, "", unit, {"": bars}, names=[str(row[name]) for row in rows])

    return draw


def _cuda_graphs(rows: Sequence[Row]) -> Chart:
    rows = sorted(rows, key=lambda row: row["batch"])
    switches = {"off": "kernel by kernel", "on": "CUDA graphs"}
    bars = _grouped(rows, "batch", "cuda_graphs", switches, "itl_p50", 1e3)
    names = [f"batch {batch}" for batch in dict.fromkeys(row["batch"] for row in rows)]
    return Chart("CUDA graphs: between tokens", "", "ms", bars, names=names)


def attention_chart(rows: Sequence[Row], title: str = "Attention") -> Chart:
    """The milliseconds of each kernel that the rows of `attention` have checked."""
    names = [name.removeprefix(CHECKED) for name in rows[0] if name.startswith(CHECKED)]
    curves = {name: _points(rows, "prompt", name) for name in names}
    return Chart(title, "tokens of the prompt", "ms", curves, log_x=True, log_y=True)


SECTIONS = {
    "matrix": _matrix,
    "first_token": _first_token,
    "at_once": _at_once,
    "arrivals": _arrivals,
    "memory": _memory,
    "workloads": _workloads,
}
ABLATIONS = {
    "prefix_cache": _bars("prefix_cache", "Prefix cache: first token", "ttft_p50"),
    "chunked_prefill": _bars("chunked_prefill", "Chunks: between tokens, p99", "itl_p99"),
    "attention": attention_chart,
    "block_size": _bars("block_size", "Block size: between tokens", "itl_p50"),
    "cuda_graphs": _cuda_graphs,
    "back_ends": _bars("back_end", "Back ends: throughput", "tokens_per_second", "tokens/s", 1.0),
}

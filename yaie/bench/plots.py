"""A plot of `yaie bench kernels`: how much of the ceiling each way to compute a case reaches."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

OURS, PEER, FRAME = "#0072b2", "#c9ced6", "#666d78"
BAR, GAP = 0.2, 0.42  # inches


def draw(record: dict) -> Figure:
    """Bars for every row that has a time, in the order of the table; our back ends are blue."""
    cases: dict[str, list[dict]] = {}
    for row in record["results"]:
        if row["ms"] is not None:
            cases.setdefault(f"{row['operator']} {row['shape']}", []).append(row)
    rows = sum(map(len, cases.values()))
    height = rows * BAR + len(cases) * GAP + 1.0
    figure = Figure(figsize=(9.0, height), dpi=100)
    ax = figure.add_axes((0.32, 0.55 / height, 0.6, 1 - 1.0 / height))
    y = 0.0
    for title, ways in cases.items():
        y += GAP
        ax.text(0.0, y - 0.13, title, fontsize=8, fontweight="bold", va="center")
        for row in ways:
            ax.barh(y + BAR / 2, row["fraction"], 0.8 * BAR, color=OURS if row["ours"] else PEER)
            rate = f"{row['ms']:.3f} ms, {row['fraction']:.0%}"
            ax.text(row["fraction"] + 0.01, y + BAR / 2, rate, fontsize=7, va="center")
            ax.text(-0.01, y + BAR / 2, row["who"], fontsize=7, va="center", ha="right")
            y += BAR
    ax.set(xlim=(0, 1.15), ylim=(y + 0.1, 0), yticks=[], xlabel="fraction of the ceiling")
    ax.axvline(1.0, color=FRAME, lw=0.8)
    ax.spines[["left", "right", "top"]].set_visible(False)
    machine = record["machine"]
    name = machine.get("gpu") or machine["processor"]
    figure.suptitle(f"{name}, {record['date']}, torch {record['versions']['torch']}", fontsize=9)
    return figure


def save(record: dict, path: str | Path) -> Path:
    """Save the plot as a PNG beside the results at `path`, and return its path."""
    path = Path(path).with_suffix(".png")
    draw(record).savefig(path)
    return path

"""Figures that the text of notebooks 11, 18 and 19 names are those of their data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest

from yaie.course.author.notebooks import find

DATA = Path(__file__).resolve().parents[1] / "notebooks" / "data"
BLOCKS, FLASH, NAIVE, PAGED, EIGHT, SPARSE = (
    json.loads((DATA / f"{name}_h200.json").read_text())
    for name in ("11_blocks", "18_flash", "18_naive", "19_paged", "19_fp8", "19_selected")
)
FA2, CUDNN = "SDPA, FlashAttention-2", "SDPA, cuDNN"


def column(problem: dict, name: str = "ms") -> dict[str, float]:
    return {who: row[name] for who, row in problem["rows"].items() if name in row}


FULL, MASKED, SMALL, SMALL_MASKED = (column(p, "tflop_s") for p in FLASH["problems"].values())
RUNGS = {name: column(problem) for name, problem in PAGED["decode"].items()}
LADDER = RUNGS["B16 ctx4096"]


def over_naive(peer: str, head_dim: int | None = None, causal: bool = False) -> list[float]:
    """How many times as fast as naive attention, by the shapes that were measured."""
    problems = [p for p in NAIVE["problems"].values() if head_dim in (None, p["head_dim"])]
    rows = [column(p) for p in problems if p["causal"] == causal]
    return [row["naive"] / row[peer] for row in rows]


def of_11() -> list[tuple]:
    graph = column(BLOCKS["blocks"]["1823 × 781"], "graph_ms")
    flat = [graph[f"BLOCK = {block}"] for block in (512, 1024, 2048, 4096)]
    return [("at most {:.0f} %", 100 * (max(flat) / min(flat) - 1))]


def of_18() -> list[tuple]:
    ours = [rung["mma"] / rung[FA2] for rung in (FULL, MASKED, SMALL, SMALL_MASKED)]
    late = column(NAIVE["problems"]["B1 H32 S16384 d128 full"])["naive"]
    late /= column(NAIVE["problems"]["B2 H32 S8192 d128 full"])["naive"]
    errors = [100 * column(p, "row_error")["naive"] for p in NAIVE["problems"].values()]
    memory = NAIVE["problems"]["B1 H32 S16384 d128 full"]["peak_bytes"]
    one_head = [rung["mma"] / rung["mma, 1 head after the other"] for rung in (FULL, MASKED)]
    assert 0.7 < 1 - FULL["mma, no swizzle"] / FULL["mma"] < 0.8  # "three quarters"
    assert 1.15 < late < 1.25  # "by a fifth"
    assert one_head[1] > 1.04
    worst = [max(v for who, v in column(p, "row_error").items() if who != "naive")
             for p in NAIVE["problems"].values()]  # fmt: skip
    return [
        ("{:.1f} TFLOP/s", FULL["row"]),
        ("{:.1f}", FULL["shared_tile"] / FULL["row"]),
        ("{:.0f}", FULL["mma"] / FULL["shared_tile"]),
        *[("{:.2f}", ratio) for ratio in ours],
        ("{:.1f} to {:.1f}", MASKED[CUDNN] / MASKED["mma"], FULL[CUDNN] / FULL["mma"]),
        ("{:.1f} to {:.1f}", min(over_naive(FA2, 128)), max(over_naive(FA2, 128))),
        ("{:.1f} to {:.1f}", min(over_naive(FA2, 64)), max(over_naive(FA2, 64))),
        ("{:.0f} to {:.0f}", min(over_naive(FA2, None, True)), max(over_naive(FA2, None, True))),
        ("{:.1f} to {:.1f}", min(over_naive(CUDNN, 128)), max(over_naive(CUDNN, 128))),
        ("{:.0f}", max(over_naive(CUDNN, None, True))),
        ("{:.0f} GB", memory["naive"] / 1e9),
        ("{:.2f} GB", memory[FA2] / 1e9),
        ("{:.1f} to {:.1f} %", min(errors), max(errors)),
        ("{} %", 0.5 if 0.4 < 100 * max(worst) < 0.5 else 100 * max(worst)),
    ]


def of_19() -> list[tuple]:
    flashinfer = {
        name: column(p, "of_flashinfer").get("mma") for name, p in PAGED["decode"].items()
    }
    shared = PAGED["prefixes"]["B64 shared 8192 own 256"]["second"]
    selected = {name: column(p, "graph_ms") for name, p in SPARSE["selected"].items()}
    whole = {name: column(p, "graph_ms")["mma"] for name, p in SPARSE["full"].items()}
    kept = [whole[name] / rows["slots, then mma"] for name, rows in selected.items()]
    tables = [
        1e3 * (rows["slots, then mma"] - rows["mma, slots kept"]) for rows in selected.values()
    ]
    eight = [column(p, "graph_ms") for p in EIGHT["decode"].values()]
    gain = [row["mma, bfloat16"] / row["mma, e4m3"] for row in eight]
    fewer = [row["mma, e4m3, half as many warps"] / row["mma, e4m3"] for row in eight[1:3]]
    assert 4 < selected["B16 ctx8192"]["selected"] / whole["B16 ctx8192"] < 4.5  # "four times"
    assert 8.5 < kept[2] < 9.5 and gain[3] < 1
    return [
        ("{:.1f} times", LADDER["one_block"] / LADDER["grouped"]),
        ("{:.1f} times", LADDER["grouped"] / LADDER["split"]),
        ("{:.1f}", LADDER["split"] / LADDER["mma"]),
        ("{:.0f} µs", 1e3 * LADDER["split"]),
        ("{:.2f}", flashinfer["B64 ctx4096"]),
        ("{:.2f}", flashinfer["B128 ctx1024"]),
        ("{:.1f}", flashinfer["B32 skewed"]),
        ("{:.1f} times", shared["paged_attention"] / shared["cascade"]),
        ("{:.0f} µs", 1e3 * shared["paged_attention"]),
        ("{:.1f} times", kept[0]),
        ("{:.0f} times", int(kept[3])),
        ("{:.0f} µs", 1e3 * selected["B1 ctx131072"]["mma, slots kept"]),
        ("{:.0f} to {:.0f} µs", min(tables), max(tables)),
        ("{:.1f} times", sum(gain[:3]) / 3),
        ("{:.1f} times", sum(fewer) / 2),
    ]


@pytest.mark.parametrize("number, figures", [("11", of_11), ("18", of_18), ("19", of_19)])
def test_the_text_names_the_figures_of_its_data(number, figures):
    cells = nbformat.read(find(number), as_version=4).cells
    text = " ".join(" ".join(c.source for c in cells if c.cell_type == "markdown").split())
    said = [template.format(*values) for template, *values in figures()]
    missing = [
        figure for figure in said if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d)", text)
    ]
    assert not missing, f"notebook {number} does not name {missing}, which its data give"

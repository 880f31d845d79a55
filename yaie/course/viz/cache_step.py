"""A decode step with a KV cache: what the new token adds, and what it reads."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page

LEFT, TOP, COLUMN, ROW, CELL, RIGHT = 0.82, 1.02, 0.46, 0.42, 0.34, 0.72  # inches
ROWS = {"K cache": style.GREEN, "V cache": style.ORANGE}


def draw_cache_step(weights: Any, tokens: Sequence[str]) -> Figure:
    """Draw a decode step: the token's key and value as new columns, its query as a row of weights.

    Args:
        weights: `[tokens]`, of the new token's query for each key; they sum to 1.
        tokens: all tokens so far, the new one last.
    """
    weights = style.numbers(weights, "weights", 1)
    style.check_some(tokens, "tokens")
    if len(weights) != len(tokens):
        raise ValueError(f"weights must have {len(tokens)} entries, as tokens, got {len(weights)}")
    new = len(tokens) - 1
    page = Page(LEFT + len(tokens) * COLUMN + RIGHT, TOP + 3 * ROW + 0.16)
    grid = page.grid(LEFT, TOP, COLUMN, ROW, COLUMN - CELL - 0.06, ROW - CELL)
    labels = [style.shorten(style.token_label(token), 0.6) for token in tokens]
    for column, label in enumerate(labels[:-1]):
        grid.head(column, label, size=7)
    for row, (name, color) in enumerate(ROWS.items()):
        grid.name(row, name)
        for column in range(len(tokens)):
            face = style.tint(color, 0.8) if column == new else style.FAINT
            letter = name[0].lower() if column == new else ""
            grid.cell(row, column, face, letter, radius=0.03, weight="bold")
    grid.name(2, "weights")
    for column, weight in enumerate(weights):
        face, dark = style.tint(style.BLUE, 0.1 + 0.9 * float(weight)), weight > 0.55
        color = style.PAPER if dark else style.INK
        grid.cell(2, column, face, f"{weight:.2f}".lstrip("0"), size=6.5, color=color)

    middle, right = grid.x(new) + (CELL + 0.06) / 2, grid.x(new) + CELL + 0.06
    width = max(style.text_width(labels[-1], style.BODY, "bold") + 0.2, 0.5)
    page.cell(middle - width / 2, 0.16, width, 0.28, labels[-1], style.INK, size=style.BODY,
              color=style.PAPER, weight="bold")  # fmt: skip
    page.arrow((middle, 0.44), (middle, grid.y(0) - 0.03), style.GREEN)
    page.arrow((middle + width / 2, 0.34), (right + 0.02, grid.middle(1)), style.ORANGE, -0.38)
    q = right + 0.26
    page.cell(q, grid.y(2), CELL, CELL, "q", style.tint(style.BLUE, 0.8), style.BLUE,
              color=style.PAPER, weight="bold")  # fmt: skip
    page.arrow((middle + width / 2, 0.26), (q + CELL / 2, grid.y(2) - 0.03), style.BLUE, -0.32)
    page.arrow((q, grid.middle(2)), (right + 0.02, grid.middle(2)), style.BLUE)
    most = max(range(len(tokens)), key=lambda i: weights[i])
    page.say(
        f"{style.count(new, 'column')} of keys and values in the cache; “{labels[-1]}” adds one to "
        f"each, and its query gives {style.count(len(tokens), 'weight')}, the largest "
        f"{weights[most]:.2f} for “{labels[most]}”"
    )
    return page.figure

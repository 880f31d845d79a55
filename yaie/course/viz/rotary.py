"""Rotary embedding: how far each pair of dimensions turns."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.ticker import MaxNLocator

from yaie.course.viz import style

MARGIN = 0.12


def draw_rotary(
    cos: Any,
    sin: Any,
    num_dials: int = 6,
    num_arrows: int = 8,
    at: style.Place | None = None,
) -> Figure:
    """Draw rotary tables: how far each pair of dimensions turns as the position grows.

    Above, one dial for some of the pairs, with one arrow for each position. Below, the angle of
    every pair at every position.

    Args:
        cos, sin: `[positions, pairs]`, for example a learner's tables.
        num_dials, num_arrows: pairs and positions to show as dials and arrows, at most.
    """
    cos, sin = style.numbers(cos, "cos", 2), style.numbers(sin, "sin", 2)
    if cos.shape != sin.shape:
        raise ValueError(f"cos and sin must have one shape, got {cos.shape} and {sin.shape}")
    num_positions, num_pairs = cos.shape
    num_dials, num_arrows = min(num_dials, num_pairs), min(num_arrows, num_positions)
    page = style.Page(style.WIDTH, 4.75, at)
    pitch = (page.width - 2 * MARGIN) / max(num_dials, 4)
    radius = min(0.62, pitch * 0.42)
    # The first pairs turn fastest and differ most, so more of them are shown.
    spread = np.linspace(0, 1, num_dials) ** 2 * (num_pairs - 1)
    pairs = np.unique(spread.round().astype(int))
    words = f"positions 0 (black) to {num_arrows - 1} (palest)"
    style.put(page.ax, MARGIN, 0.15, words, style.SMALL, style.MUTED)
    for i, pair in enumerate(pairs):
        center = (MARGIN + (i + 0.5) * pitch, 0.45 + radius)
        _draw_dial(page.ax, center, radius, cos[:num_arrows, pair], sin[:num_arrows, pair])
        style.put(page.ax, center[0], center[1] + radius + 0.14, f"pair {pair}", ha="center")
    _draw_angles(page, np.arctan2(sin, cos) % (2 * np.pi), 2.4)
    position = min(1, num_positions - 1)
    first, last = np.arctan2(sin[position, [0, -1]], cos[position, [0, -1]])
    page.say(
        f"Angles of {style.count(num_pairs, 'pair')} at {style.count(num_positions, 'position')}: "
        f"at position {position} pair 0 has turned by {style.digits(first)} radians, pair "
        f"{num_pairs - 1} by {style.digits(last)}"
    )
    return page.figure


def _draw_dial(
    ax: Axes, center: tuple[float, float], radius: float, cos: np.ndarray, sin: np.ndarray
) -> None:
    ax.add_artist(Circle(center, radius, facecolor=style.WASH, edgecolor=style.FAINT))
    for index in reversed(range(len(cos))):
        tip = (center[0] + radius * cos[index], center[1] - radius * sin[index])
        strength = 1.0 - 0.8 * index / max(1, len(cos) - 1)
        color = style.INK if index == 0 else style.tint(style.BLUE, strength)
        ax.add_artist(
            FancyArrowPatch(
                center,
                tip,
                arrowstyle="-|>",
                mutation_scale=8,
                shrinkA=0,
                shrinkB=0,
                color=color,
                linewidth=1.6,
                zorder=4 if index else 5,
            )
        )


def _draw_angles(page: style.Page, angles: np.ndarray, top: float) -> None:
    left, width, height = 0.75, page.width - 0.75 - 1.15, page.height - top - 0.55
    ax = style.plain(page.axes(left, top, width, height))
    image = ax.imshow(
        angles.T,
        aspect="auto",
        cmap="twilight",
        vmin=0,
        vmax=2 * np.pi,
        interpolation="nearest",
        origin="upper",
    )
    ax.set_xlabel("position", fontsize=style.SMALL, color=style.MUTED, fontfamily=style.FONT)
    ax.set_ylabel("pair", fontsize=style.SMALL, color=style.MUTED, fontfamily=style.FONT)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    scale = style.plain(page.axes(left + width + 0.2, top, 0.15, height), left=False, bottom=False)
    bar = page.figure.colorbar(image, cax=scale)
    bar.set_ticks([0, np.pi, 2 * np.pi], labels=["0", "π", "2π"])
    bar.ax.tick_params(labelsize=style.SMALL, labelcolor=style.MUTED, length=0, labelright=True)
    bar.outline.set_visible(False)
    style.put(page.ax, left + width + 0.2, top - 0.12, "angle", style.SMALL, style.MUTED)

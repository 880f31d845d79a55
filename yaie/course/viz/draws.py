"""Sampling kernels: floats as ordered integers, a threshold found bin by bin, counted draws."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from yaie.course.viz import style

MARGIN = 0.12
CELL = 0.105  # of a bit
DIGIT = 8
SEEN = 1 / 400  # of the largest bar: lower ones are not worth a wider picture


def ordered_key(value: float) -> int:
    """The 32 bits of a float32, changed so that smaller integers are larger floats."""
    bits = float_bits(value + 0.0)
    return bits if bits >> 31 else ~bits & 0x7FFFFFFF


def float_bits(value: float) -> int:
    """The 32 bits of a float32 as they are."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


# ------------------------------------------------------------------------------------- bits


def draw_bits(values: Sequence[float], at: style.Place | None = None) -> Figure:
    """Draw floats with their bits as they are, and with those of their keys, a row for each.

    The sign is vermilion, the exponent orange, the mantissa blue; a 1 is dark, a 0 pale. The two
    columns of numbers are the bits read as integers without a sign.
    """
    row, top, left = 0.24, 0.62, 0.85
    width = 32 * CELL
    second = left + width + 1.3
    page = style.Page(style.WIDTH, top + row * len(values) + 0.15, at)
    for x, title in ((left, "bits of the float"), (second, "bits of its key")):
        style.put(page.ax, x, 0.2, title, style.BODY, weight="bold")
        style.put(page.ax, x + width + 0.1, 0.2, "as an integer", style.SMALL, style.MUTED)
        for start, length, name in ((0, 1, "±"), (1, 8, "exponent"), (9, 23, "mantissa")):
            middle = x + (start + length / 2) * CELL
            style.put(page.ax, middle, 0.44, name, style.SMALL, style.MUTED, ha="center")
    for i, value in enumerate(values):
        y = top + i * row
        style.put(page.ax, left - 0.12, y + row / 2, f"{value:g}", style.BODY, ha="right")
        for x, bits in ((left, float_bits(value)), (second, ordered_key(value))):
            for place in range(32):
                color = style.VERMILION if place == 0 else style.ORANGE if place < 9 else style.BLUE
                one = bits >> (31 - place) & 1
                face = style.tint(color, 0.85 if one else 0.15)
                cell = CELL - 0.015
                style.box(page.ax, x + place * CELL, y + 0.03, cell, row - 0.06, face=face)
            style.put(page.ax, x + width + 0.1, y + row / 2, f"{bits:,}", style.SMALL)
    each = (f"{v:g}: {float_bits(v):,} and {ordered_key(v):,}" for v in values)
    page.say(
        f"Floats with their bits, and those of their keys, read as integers: {'; '.join(each)}"
    )
    return page.figure


# ------------------------------------------------------------------------------------- rounds


@dataclass(frozen=True)
class Round:
    """One round of a search for a threshold.

    Attributes:
        shares: of the whole mass, in each of 256 bins; of keys that begin as found so far.
        tokens: how many have such keys.
        bin: where the threshold is.
        before: the share of all keys that lie before that bin.
    """

    shares: tuple[float, ...]
    tokens: int
    bin: int
    before: float


def rounds(logits: Sequence[float], masses: Sequence[int], threshold: float) -> tuple[Round, ...]:
    """The four rounds, 8 bits each, that end at the key of a threshold."""
    whole, end = sum(masses), ordered_key(threshold)
    keyed = [(ordered_key(x), mass) for x, mass in zip(logits, masses, strict=True)]
    found = []
    for shift in (24, 16, 8, 0):
        inside = [(key, m) for key, m in keyed if key >> (shift + DIGIT) == end >> (shift + DIGIT)]
        shares = [0.0] * 256
        for key, mass in inside:
            shares[key >> shift & 255] += mass / whole
        before = sum(mass for key, mass in keyed if key >> shift < end >> shift) / whole
        found.append(Round(tuple(shares), len(inside), end >> shift & 255, before))
    return tuple(found)


def draw_rounds(state: Sequence[Round], at: style.Place | None = None) -> Figure:
    """Draw the histogram of each round, of the bins that hold enough to be seen and a few beside.

    Larger logits are to the left. Bins passed over are gray, the one with the threshold orange.
    """
    page = style.Page(style.WIDTH, 2.35, at)
    pitch = (style.WIDTH - 2 * MARGIN) / 4
    for i, one in enumerate(state):
        x = MARGIN + i * pitch
        bits = f"bits {8 * i + 1} to {8 * i + 8}"
        style.put(page.ax, x, 0.17, bits, 9.5, weight="bold")
        tokens = style.count(one.tokens, "token")
        style.put(page.ax, x, 0.37, f"{tokens}, bin {one.bin}", style.SMALL, style.MUTED)
        ax = style.plain(page.axes(x + 0.42, 0.5, pitch - 0.62, 1.3))
        seen = max(one.shares) * SEEN
        full = [b for b, share in enumerate(one.shares) if share > seen] or [one.bin]
        low, high = min(*full, one.bin), max(*full, one.bin)
        pad = max(2, (high - low) // 12)
        shown = range(max(0, low - pad), min(255, high + pad) + 1)
        colors = [
            style.ORANGE if b == one.bin else style.FAINT if b < one.bin else style.BLUE
            for b in shown
        ]
        ax.bar(list(shown), [one.shares[b] for b in shown], color=colors, width=0.9)
        ax.set_xlim(shown[0] - 1, shown[-1] + 1)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(nbins=4))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        style.put(
            page.ax, x, 2.2, f"mass before it: {one.before:.4f}", style.SMALL, style.MUTED
        )  # fmt: skip
    each = (
        f"bits {8 * i + 1} to {8 * i + 8}, {style.count(one.tokens, 'token')}: bin {one.bin}, "
        f"mass before it {one.before:.4f}"
        for i, one in enumerate(state)
    )
    page.say(f"Histograms of the four rounds that find a threshold: {'; '.join(each)}")
    return page.figure


# ------------------------------------------------------------------------------------- shares


def draw_shares(
    counts: Sequence[int], shares: Sequence[float], at: style.Place | None = None
) -> Figure:
    """Draw how often each token was drawn (bars), and how often it should be (dots).

    The lines through the dots are two standard deviations of the count up and down.
    """
    draws = sum(counts)
    page = style.Page(6.0, 2.6, at)
    style.put(page.ax, MARGIN, 0.17, f"{draws:,} draws", 9.5, weight="bold")
    ax = style.plain(page.axes(0.6, 0.4, 5.2, 1.75))
    places = list(range(len(counts)))
    ax.bar(places, [c / draws for c in counts], color=style.tint(style.BLUE, 0.5), width=0.7)
    spread = [2 * (p * (1 - p) / draws) ** 0.5 for p in shares]
    ax.errorbar(places, list(shares), yerr=spread, fmt="o", color=style.INK, ms=3, lw=1)
    ax.set_xticks(places)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("token", fontsize=style.SMALL, color=style.MUTED, fontfamily=style.FONT)
    near = sum(abs(c / draws - p) <= s for c, p, s in zip(counts, shares, spread, strict=True))
    page.say(
        f"Shares of {len(counts)} tokens in {draws:,} draws: {near} within two standard "
        "deviations of what they should be"
    )
    return page.figure

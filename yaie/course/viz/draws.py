"""Random draws: bits, rounds of rejection, shares, counts and their chance."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from yaie.course.viz import style
from yaie.course.viz.page import Page
from yaie.course.viz.style import BLUE, FAINT, INK, ORANGE, SMALL, VERMILION, WIDTH, tint

# ---------------------------------------------------------------------------------- draws

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


# ---------------------------------------------------------------------------------- bits


def draw_bits(values: Sequence[float]) -> Figure:
    """Draw floats with their bits as they are, and with those of their keys, a row for each.

    The sign is vermilion, the exponent orange, the mantissa blue; a 1 is dark, a 0 pale. The two
    columns of numbers are the bits read as integers without a sign.
    """
    row, top, left, width = 0.24, 0.62, 0.85, 32 * CELL
    page = Page(WIDTH, top + row * len(values) + 0.15)
    columns = (
        (left, "bits of the float", float_bits),
        (left + width + 1.3, "bits of its key", ordered_key),
    )
    for x, title, bits_of in columns:
        grid = page.grid(x, top + 0.03, CELL, row, 0.015, 0.06)
        page.put(x, 0.2, title, weight="bold")
        page.note(grid.x(32) + 0.1, 0.2, "as an integer")
        for start, length, name in ((0, 1, "±"), (1, 8, "exponent"), (9, 23, "mantissa")):
            page.note(grid.x(start + length / 2), 0.44, name, "center")
        for i, value in enumerate(values):
            bits = bits_of(value)
            for place in range(32):
                color = VERMILION if place == 0 else ORANGE if place < 9 else BLUE
                one = bits >> (31 - place) & 1
                grid.cell(i, place, tint(color, 0.85 if one else 0.15))
            page.put(grid.x(32) + 0.1, grid.middle(i), f"{bits:,}", SMALL)
    for i, value in enumerate(values):
        page.put(left - 0.12, top + (i + 0.5) * row, f"{value:g}", ha="right")
    each = (f"{v:g}: {float_bits(v):,} and {ordered_key(v):,}" for v in values)
    page.say(
        f"Floats with their bits, and those of their keys, read as integers: {'; '.join(each)}"
    )
    return page.figure


# ---------------------------------------------------------------------------------- number line


def draw_number_line(numbers: Sequence[float], ends: Sequence[float], title: str = "") -> Figure:
    """Draw a line from 0 to each of `ends`, one below the other, with a stroke for each number."""
    style.check_some(numbers, "numbers")
    page = Page(WIDTH - 1.0, 0.36 + len(ends))
    page.put(0.2, 0.17, title, weight="bold")
    within = (f"{sum(number <= end for number in numbers)} up to {end:g}" for end in ends)
    page.say(f"{title}: from {min(numbers):g} to {max(numbers):g}, {style.some(within)}")
    for i, end in enumerate(ends):
        shown = [number for number in numbers if number <= end]
        ax = page.chart(0.2, 0.36 + i, page.width - 0.4, 0.5, left=False)
        ax.eventplot(shown, lineoffsets=0, linelengths=1, linewidths=0.9, color=BLUE)
        ax.set(xlim=(0, end * 1.01), ylim=(-0.5, 0.5))
    return page.figure


# ---------------------------------------------------------------------------------- rounds


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


def draw_rounds(state: Sequence[Round]) -> Figure:
    """Draw the histogram of each round, of the bins that hold enough to be seen and a few beside.

    Larger logits are to the left. Bins passed over are gray, the one with the threshold orange.
    """
    page = Page(WIDTH, 2.6)
    pitch = (WIDTH - 2 * MARGIN) / 4
    kinds = {"larger logits, passed over": FAINT, "the threshold's bin": ORANGE, "the rest": BLUE}
    page.legend(MARGIN, 2.45, kinds)
    page.note(WIDTH - MARGIN, 2.45, "across: the bin; up: its share of the mass", "right")
    for i, one in enumerate(state):
        x = MARGIN + i * pitch
        bits = f"bits {8 * i + 1} to {8 * i + 8}"
        page.put(x, 0.17, bits, 9.5, weight="bold")
        tokens = style.count(one.tokens, "token")
        page.note(x, 0.37, f"{tokens}, bin {one.bin}")
        ax = page.chart(x + 0.42, 0.5, pitch - 0.62, 1.3)
        seen = max(one.shares) * SEEN
        full = [b for b, share in enumerate(one.shares) if share > seen] or [one.bin]
        low, high = min(*full, one.bin), max(*full, one.bin)
        pad = max(2, (high - low) // 12)
        shown = range(max(0, low - pad), min(255, high + pad) + 1)
        colors = [ORANGE if b == one.bin else FAINT if b < one.bin else BLUE for b in shown]
        ax.bar(list(shown), [one.shares[b] for b in shown], color=colors, width=0.9)
        ax.set_xlim(shown[0] - 1, shown[-1] + 1)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(nbins=4))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        page.note(x, 2.2, f"mass before it: {one.before:.4f}")
    each = (
        f"bits {8 * i + 1} to {8 * i + 8}, {style.count(one.tokens, 'token')}: bin {one.bin}, "
        f"mass before it {one.before:.4f}"
        for i, one in enumerate(state)
    )
    page.say(f"Histograms of the four rounds that find a threshold: {'; '.join(each)}")
    return page.figure


# ---------------------------------------------------------------------------------- shares


def draw_shares(counts: Sequence[int], shares: Sequence[float]) -> Figure:
    """Draw how often each token was drawn (bars), and how often it should be (dots).

    The lines through the dots are two standard deviations of the count up and down.
    """
    draws = sum(counts)
    page = Page(6.0, 2.75)
    page.put(MARGIN, 0.17, f"{draws:,} draws", 9.5, weight="bold")
    ax = page.chart(0.6, 0.4, 5.2, 1.75)
    places = list(range(len(counts)))
    ax.bar(places, [c / draws for c in counts], color=tint(BLUE, 0.5), width=0.7)
    spread = [2 * (p * (1 - p) / draws) ** 0.5 for p in shares]
    ax.errorbar(places, list(shares), yerr=spread, fmt="o", color=INK, ms=3, lw=1)
    ax.set_xticks(places)
    ax.set_ylim(bottom=0)
    ax.label_scales(x="token", y="share of the draws")
    page.note(MARGIN, 2.63, "bars: drawn; dots: expected, with two standard deviations each way")
    near = sum(abs(c / draws - p) <= s for c, p, s in zip(counts, shares, spread, strict=True))
    page.say(
        f"Shares of {len(counts)} tokens in {draws:,} draws: {near} within two standard "
        "deviations of what they should be"
    )
    return page.figure


# ---------------------------------------------------------------------------------- counts


@dataclass(frozen=True)
class Tally:
    """How often each token was drawn, and how often it should have been."""

    name: str
    counts: Sequence[int]
    expected: Sequence[float]


def draw_counts(tallies: Sequence[Tally], labels: Sequence[str]) -> Figure:
    """Draw one column for each tally, one row for each token.

    A blue bar is the count, a black line across it what was expected.
    """
    style.check_some(tallies, "tallies")
    shown = [style.token_label(label) for label in labels]
    left = MARGIN + max(style.text_width(label) for label in shown) + 0.12
    columns, gap, row, top = len(tallies), 0.35, 0.26, 0.36
    width = min(2.6, (WIDTH - left - MARGIN - gap * (columns - 1)) / columns)
    page_width = left + columns * (width + gap) - gap + MARGIN
    page = Page(max(page_width, 2.4), top + row * len(shown) + 0.32)
    page.note(left, page.height - 0.13, "black line: expected")
    largest = max(max(*tally.counts, *tally.expected) for tally in tallies)
    for i, tally in enumerate(tallies):
        x = left + i * (width + gap)
        grid = page.grid(x, top + 0.2 * row, (width - 0.45) / largest, row, 0, 0.4 * row)
        name = style.shorten(tally.name, width + gap / 2, 9.5, "bold")
        page.put(x, 0.17, name, 9.5, weight="bold")
        page.plot([x, x], [top, top + row * len(shown)], color=FAINT, lw=1.0)
        said = []
        for j, (count, expected) in enumerate(zip(tally.counts, tally.expected, strict=True)):
            if count:
                grid.bar(j, 0, count, tint(BLUE, 0.7))
            ends = [grid.y(j) - 0.03, grid.y(j + 0.6) + 0.03]
            page.plot([grid.x(expected)] * 2, ends, color=INK, lw=1.6, zorder=4)
            page.note(grid.x(max(count, expected)) + 0.05, grid.middle(j), f"{count:,}")
            said.append(f"{style.quote(labels[j])} {count:,} ({expected:.0f})")
            if i == 0:
                grid.name(j, shown[j], style.BODY)
        page.say(f"{tally.name}, tokens drawn (and expected): {style.some(said)}")
    return page.figure


def draw_chance(values: Sequence[float], limit: float, marks: Mapping[str, float]) -> Figure:
    """Draw a histogram of a statistic under chance alone, its limit, and samplers that were tested.

    Args:
        values: the statistic of many experiments in which nothing is wrong.
        limit: where the test begins to refuse.
        marks: name → statistic; what lies beyond the right end is written there.
    """
    page = Page(7.6, 2.25)
    ax = page.chart(0.35, 0.15, 6.9, 1.55, left=False)
    right = limit * 1.9
    ax.hist(values, bins=60, range=(0, right), color=tint(BLUE, 0.5))
    ax.set_xlim(0, right)
    height = ax.get_ylim()[1]
    ax.axvline(limit, color=VERMILION, lw=1.4)
    ax.put(limit + 0.3, height * 0.9, f"limit {limit:.1f}", SMALL, VERMILION)
    for i, (name, value) in enumerate(marks.items()):
        far, y = value > right, height * (0.62 - 0.2 * i)
        x, text = min(value, right), f"{name}: {value:,.1f}" + (" →" if far else "")
        ax.plot([x], [y], marker=">" if far else "o", color=INK, ms=5, clip_on=False)
        end = x + right * (style.text_width(text, SMALL) / 6.9 + 0.02)
        before = far or x < limit < end  # the limit's line strikes no label
        shift = (-0.012 if before else 0.012) * right
        ax.put(x + shift, y, text, SMALL, ha="right" if before else "left")
    ax.label_scales(x="chi-square")
    below = sum(value < limit for value in values) / max(1, len(values))
    each = (
        f"{name} {value:,.1f}, {'beyond' if value > limit else 'below'} it"
        for name, value in marks.items()
    )
    page.say(
        f"Histogram of chi-square under chance alone, {below:.1%} of it below the limit "
        f"{limit:.1f}: {style.some(each)}"
    )
    return page.figure

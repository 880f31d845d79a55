"""How every picture of the course looks: its colors, its type, and how texts are measured.

The colors are Okabe and Ito's, which color-blind readers can tell apart, with a pale tint of each
for surfaces that carry text. Pictures are opaque and light, so that they read the same on a dark
page. Text sizes are points, lengths inches.
"""

import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence, Sized
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_rgb
from matplotlib.ticker import EngFormatter, MaxNLocator

PAPER = "#fdfdfb"
INK = "#20242c"
MUTED = "#666d78"
FAINT = "#c9ced6"
WASH = "#eef0f3"

BLUE, ORANGE, GREEN, VERMILION, SKY, PINK, YELLOW = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#56b4e9",
    "#cc79a7",
    "#d8c400",
)
SERIES = (BLUE, ORANGE, GREEN, SKY, VERMILION, YELLOW)  # requests, curves; pink means "shared"
SHARED = PINK

DPI = 100
WIDTH = 10.0  # inches: a notebook's width
FONT = "DejaVu Sans"
SMALL, BODY, TITLE = 7.5, 8.5, 10.5  # points
READABLE = 3.0  # the least contrast between a text and what lies below it
QUOTED = 32  # characters of a text that an alternative text quotes


def tint(color: str, strength: float = 0.25) -> tuple[float, float, float]:
    """Mix `color` into the paper; 1 is the color itself."""
    return tuple(
        strength * c + (1 - strength) * p for c, p in zip(to_rgb(color), to_rgb(PAPER), strict=True)
    )


def contrast(one: Any, other: Any) -> float:
    """How well two colors stand apart, from 1 to 21, as WCAG 2 defines it."""
    light, dark = sorted(map(_luminance, (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Any) -> float:
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color))
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def ink_on(face: Any) -> str:
    """The color of a text on a surface: the paper's if that can be read on it, else ink."""
    return PAPER if contrast(PAPER, face) >= READABLE else INK


def series_color(index: int) -> str:
    """The color of the index-th request, curve or head; they repeat after six."""
    return SERIES[index % len(SERIES)]


def many_colors(index: int) -> tuple[float, float, float]:
    """The same as a surface; the seventh to the twelfth are the first six, paler."""
    return tint(series_color(index), 0.45 if index // len(SERIES) % 2 else 0.85)


def numbers(values: Any, name: str, ndim: int) -> np.ndarray:
    """A float64 copy of a tensor, an array or nested lists, checked to have `ndim` dimensions."""
    array = np.array(values.tolist() if hasattr(values, "tolist") else values, dtype=np.float64)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got the shape {list(array.shape)}")
    return array


def check_some(values: Sized, name: str) -> None:
    """Refuse an empty list or mapping: there is nothing to draw."""
    if not len(values):
        raise ValueError(f"{name} must not be empty")


def name_colors(names: Iterable[str]) -> dict[str, int]:
    """An index for `series_color` for each name, which depends on the name as far as it can.

    So a request keeps its color when others end. "chat A" and "r0" get 0, "chat B" and "r1" get
    1; any other name gets a number of its own. If two names meet, the later takes the next free.
    """
    indices: dict[str, int] = {}
    for name in names:
        index = _name_number(name)
        taken = {other % len(SERIES) for other in indices.values()}
        if len(taken) < len(SERIES):
            while index % len(SERIES) in taken:
                index += 1
        while index in indices.values():
            index += len(SERIES)
        indices[name] = index
    return indices


def _name_number(name: str) -> int:
    if digits := re.search(r"[0-9]+$", name):
        return int(digits[0])
    if letter := re.search(r"(?:^|[^A-Za-z])([A-Za-z])$", name):
        return ord(letter[1].lower()) - ord("a")
    return zlib.crc32(name.encode())


# ---------------------------------------------------------------------------------- text


@lru_cache(maxsize=1)
def _glyphs() -> frozenset[int]:
    return frozenset(font_manager.get_font(font_manager.findfont(FONT)).get_charmap())


@lru_cache(maxsize=1)
def _ruler() -> RendererAgg:
    return RendererAgg(1, 1, DPI)


@lru_cache(maxsize=50_000)
def text_width(text: str, size: float = BODY, weight: str = "normal") -> float:
    """The width of one line of text, in inches, as it is drawn."""
    font = font_manager.FontProperties(family=FONT, size=size, weight=weight)
    return _ruler().get_text_width_height_descent(text, font, ismath=False)[0] / DPI


def printable(text: str) -> str:
    """Make any text drawable: what the font has no glyph for becomes a Python escape.

    Line ends become an arrow, tabs and other control characters escapes.
    """
    return "".join(_printable_character(character) for character in text)


def _printable_character(character: str) -> str:
    if character == "\n":
        return "↵"
    if character.isprintable() and ord(character) in _glyphs():
        return character
    return character.encode("unicode_escape").decode()


def token_label(text: str) -> str:
    """Text of one token, its spaces made visible at both ends."""
    inner = text.strip(" ")
    if not inner:
        return "␣" * len(text)
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(text.rstrip(" "))
    return "␣" * before + printable(inner) + "␣" * after


def count(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural if it needs one."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def some(entries: Iterable[object], most: int = 8, between: str = ", ") -> str:
    """List entries in words, the first `most` of them if there are more."""
    words = [str(entry) for entry in entries]
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return between.join(words[:most]) + more


def quote(text: str) -> str:
    """Quote the beginning of a text, in one line."""
    text = " ".join(text.split())
    return f"“{text if len(text) <= QUOTED else text[: QUOTED - 1].rstrip() + '…'}”"


def ticks(end: float, most: int = 11) -> list[float]:
    """Round numbers from 0 to `end`, at most `most` steps apart from each other."""
    values = MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(0, end)
    return [float(value) for value in values if value <= end * (1 + 1e-9)]


def digits(value: float) -> str:
    """Write a number with three digits, or to the next integer if it is large."""
    if abs(value) >= 1e7:
        return EngFormatter(sep=" ", places=1)(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def trend(points: Sequence[tuple[float, float]]) -> str:
    """Say where a curve begins and ends, and what lies highest and lowest between."""
    if not points:
        return "no points"
    (x0, y0), (x1, y1) = points[0], points[-1]
    words = f"{digits(y0)} at {digits(x0)}"
    if len(points) == 1:
        return words
    words = f"from {words} to {digits(y1)} at {digits(x1)}"
    (low_x, low), (high_x, high) = (f(points, key=lambda point: point[1]) for f in (min, max))
    if high > max(y0, y1):
        words += f", at most {digits(high)} at {digits(high_x)}"
    if low < min(y0, y1):
        words += f", at least {digits(low)} at {digits(low_x)}"
    return words


def shorten(text: str, width: float, size: float = BODY, weight: str = "normal") -> str:
    """Cut one line of text to `width` inches, with an ellipsis where something is missing."""
    most = _most_characters(width)
    if len(text) <= most and text_width(text, size, weight) <= width:
        return text
    kept = _longest(min(len(text), most), width, lambda n: text_width(text[:n] + "…", size, weight))
    return text[:kept].rstrip() + "…"


def wrap(text: str, width: float, max_lines: int, size: float = BODY) -> list[str]:
    """Break text into at most `max_lines` lines of `width` inches, between words if possible.

    Text that is too long loses its middle: its beginning and its end say more.
    """
    if max_lines == 1:
        return [shorten(text, width, size)]
    most = _most_characters(width)
    lines = _break(text[: most * (max_lines + 1)], width, size)
    if len(lines) <= max_lines:
        return lines
    head, tail = lines[: max_lines - 1], text[-most:]
    kept = _longest(len(tail), width, lambda n: text_width("… " + tail[-n:], size))
    return [*head, "… " + tail[len(tail) - kept :].lstrip()]


def _most_characters(width: float) -> int:
    """No line of `width` inches has more: so a long text need not be measured to its end."""
    return int(width / 0.02) + 1


def _longest(most: int, width: float, measure: Callable[[int], float]) -> int:
    """The largest number of characters, up to `most`, that fit into `width`. The width of more
    characters must never be less."""
    return bisect_right(range(1, most + 1), width, key=measure)


def _break(text: str, width: float, size: float) -> list[str]:
    most = min(len(text), _most_characters(width))
    end = max(1, _longest(most, width, lambda n: text_width(text[:n], size)))
    if end >= len(text):
        return [text]
    cut = text.rfind(" ", 0, end) + 1
    if not cut or cut < end // 2 or text[end] == " ":
        cut = end
    return [text[:cut].rstrip(), *_break(text[cut:], width, size)]


def flow(widths: Sequence[float], total: float, gap: float = 0.2) -> list[tuple[float, int]]:
    """Set words of these widths in lines of `total` inches: the x and the line of each."""
    placed: list[tuple[float, int]] = []
    x, line = 0.0, 0
    for width in widths:
        if x and x + width > total:
            x, line = 0.0, line + 1
        placed.append((x, line))
        x += width + gap
    return placed

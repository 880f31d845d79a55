"""The roofline: what a device can do at each arithmetic intensity, and where operations stand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page
from yaie.course.viz.style import FAINT, INK, MUTED, PAPER, TITLE, WASH, WIDTH, series_color

LEFT, TOP, HEIGHT, BOTTOM = 0.75, 0.55, 4.3, 0.55  # inches around the axes and of them
LABEL = 0.15  # a label's line
WIDEST = 2.3  # line of a label
TOGETHER = 0.1  # dots nearer than this share a label


@dataclass(frozen=True)
class Roof:
    """The limits of a device: operations per second and bytes per second."""

    label: str
    peak: float
    bandwidth: float


@dataclass(frozen=True)
class Point:
    """An operation.

    Attributes:
        intensity: operations per byte.
        rate: measured operations per second; None if it is only placed on the roof.
        group: points of a group have one color; the legend names it.
        roof: index of the roof that a point without a rate is placed on.
    """

    label: str
    intensity: float
    rate: float | None = None
    group: str = ""
    roof: int = 0


def draw_roofline(
    roofs: Sequence[Roof],
    points: Sequence[Point] = (),
    title: str = "",
    span: tuple[float, float] | None = None,
) -> Figure:
    """Draw roofs, and points on them or, where measured, below them.

    Both scales are logarithmic. The ridge, where a roof bends, is marked with its intensity: what
    lies left of it is memory-bound, what lies right of it compute-bound.

    Args:
        roofs: the first is the main one.
        points: with intensities above 0.
        span: the lowest and the highest intensity on the page; by default it fits the points.
    """
    style.check_some(roofs, "roofs")
    for point in points:
        if point.intensity <= 0:
            raise ValueError(f"intensity of {point.label!r} must be above 0, got {point.intensity}")
    page = Page(WIDTH, TOP + HEIGHT + BOTTOM)
    plot = _Plot(page, roofs, points, span)
    page.put(0.12, 0.2, title, TITLE, weight="bold")
    plot.scales()
    for number, roof in enumerate(roofs):
        plot.roof(roof, main=number == 0)
    groups = list(dict.fromkeys(point.group for point in points))
    clusters = plot.clusters(points)
    for cluster in clusters:
        plot.dots(cluster, groups)
    for cluster in sorted(clusters, key=lambda c: -sum(len(p.label) for p in c)):
        plot.label(cluster)
    plot.legend([group for group in groups if group], groups)
    _say(page, roofs, points, title)
    return page.figure


def _say(page: Page, roofs: Sequence[Roof], points: Sequence[Point], title: str) -> None:
    main = roofs[0]
    unit, unit_name = _unit(main)
    peaks = (f"{roof.label} {_number(roof.peak / unit)} {unit_name}" for roof in roofs)
    page.say(
        f"Roofline{title and ', ' + title}: {style.some(peaks)}; "
        f"{_number(main.bandwidth / 1e9)} GB/s; ridge at {_number(main.peak / main.bandwidth)} "
        "operations per byte"
    )
    sides: dict[str, list[str]] = {"memory-bound": [], "compute-bound": []}
    for point in sorted(points, key=lambda point: point.intensity):
        roof = roofs[point.roof]
        side = "memory-bound" if point.intensity * roof.bandwidth < roof.peak else "compute-bound"
        rate = "" if point.rate is None else f", {_number(point.rate / unit)} {unit_name}"
        name = ", ".join(filter(None, (point.label, point.group)))
        sides[side].append(f"{name} ({style.digits(point.intensity)}{rate})")
    for side, found in sides.items():
        if found:
            page.say(f"{len(found)} {side}, by operations per byte: {style.some(found)}")


class _Plot:
    """Axes with two logarithmic scales, drawn in inches, so that labels can make way."""

    def __init__(
        self,
        page: Page,
        roofs: Sequence[Roof],
        points: Sequence[Point],
        span: tuple[float, float] | None,
    ) -> None:
        self.page, self.roofs = page, roofs
        self.width = page.width - LEFT - 0.3
        ridges = [roof.peak / roof.bandwidth for roof in roofs]
        intensities = [point.intensity for point in points] + ridges
        low, high = span or (min(0.5, min(intensities) / 1.5), max(intensities) * 4)
        self.low = math.floor(math.log10(low) * 3) / 3
        self.high = math.ceil(math.log10(high) * 3) / 3
        top = max(roof.peak for roof in roofs)
        lowest = min([top / 300, *[self._rate(point) / 2.5 for point in points]])
        self.floor = math.floor(math.log10(lowest) * 3) / 3
        self.unit, self.unit_name = _unit(roofs[0])
        self.ceiling = math.log10(top * 2.0)
        self.taken: list[tuple[float, float, float, float]] = []
        self.beside: dict[int, tuple[float, float, float, float]] = {}  # a cluster's own label

    def _rate(self, point: Point) -> float:
        if point.rate is not None:
            return point.rate
        roof = self.roofs[point.roof]
        return min(roof.peak, point.intensity * roof.bandwidth)

    def x(self, intensity: float) -> float:
        share = (math.log10(intensity) - self.low) / (self.high - self.low)
        return LEFT + share * self.width

    def y(self, rate: float) -> float:
        share = (math.log10(rate) - self.floor) / (self.ceiling - self.floor)
        return TOP + (1 - share) * HEIGHT

    def scales(self) -> None:
        page, right, bottom = self.page, LEFT + self.width, TOP + HEIGHT
        line = {"color": WASH, "lw": 0.8, "zorder": 0}
        for power in range(math.ceil(self.low), math.floor(self.high) + 1):
            x = self.x(10.0**power)
            page.plot([x, x], [TOP, bottom], **line)
            page.note(x, bottom + 0.14, _number(10.0**power), "center")
        for power in range(math.ceil(self.floor), math.floor(self.ceiling) + 1):
            y = self.y(10.0**power)
            page.plot([LEFT, right], [y, y], **line)
            page.note(LEFT - 0.08, y, _number(10.0**power / self.unit), "right")
        label = "arithmetic intensity, operations per byte"
        page.note((LEFT + right) / 2, bottom + 0.36, label, "center")
        page.note(0.12, TOP - 0.13, self.unit_name)

    def roof(self, roof: Roof, main: bool) -> None:
        page, ridge = self.page, roof.peak / roof.bandwidth
        start = max(10.0**self.low, 10.0**self.floor / roof.bandwidth)
        intensities = (start, ridge, 10.0**self.high)
        xs = [self.x(i) for i in intensities]
        ys = [self.y(min(roof.peak, i * roof.bandwidth)) for i in intensities]
        text = f"{roof.label}: {_number(roof.peak / self.unit)} {self.unit_name}"
        self._write(xs[2], ys[1] - 0.13, text, INK if main else MUTED, "right")
        if main:
            page.plot(xs, ys, color=INK, lw=2.0, zorder=2)
            x, y = (a[0] + 0.4 * (a[1] - a[0]) for a in (xs, ys))
            angle = math.degrees(math.atan2(ys[0] - ys[1], xs[1] - xs[0]))
            text = f"{_number(roof.bandwidth / 1e9)} GB/s"
            turned = {"rotation": angle, "rotation_mode": "anchor"}
            page.put(x - 0.12, y - 0.16, text, ha="center", **turned)
            along, half = math.radians(angle), style.text_width(text) / 2
            for i in range(-4, 5):  # labels must not overlap it
                dx, dy = (i / 4 * half * f(along) for f in (math.cos, math.sin))
                near = (x - 0.12 + dx, y - 0.18 - dy)
                self.taken.append((near[0] - 0.06, near[1] - 0.08, near[0] + 0.06, near[1] + 0.08))
            page.plot([xs[1]] * 2, [ys[1], TOP + HEIGHT], color=FAINT, lw=1.0, ls=":")
            text = f"ridge: {_number(ridge)} operations per byte"
            self._write(xs[1] + 0.06, TOP + HEIGHT - 0.12, text, MUTED, "left")
        else:
            page.plot(xs[1:], ys[1:], color=MUTED, lw=1.2, ls="--", zorder=2)
        for (x0, y0), (x1, y1) in pairwise(zip(xs, ys, strict=True)):
            for i in range(41):  # labels keep off the line
                x, y = x0 + i / 40 * (x1 - x0), y0 + i / 40 * (y1 - y0)
                self.taken.append((x - 0.03, y - 0.03, x + 0.03, y + 0.03))

    def clusters(self, points: Sequence[Point]) -> list[list[Point]]:
        """Points whose dots would lie on each other, from left to right."""
        found: list[list[Point]] = []
        for point in sorted(points, key=lambda p: (p.intensity, self._rate(p))):
            x, y = self._place(point)
            for cluster in found:
                near_x, near_y = self._place(cluster[0])
                if math.hypot(x - near_x, y - near_y) < TOGETHER:
                    cluster.append(point)
                    break
            else:
                found.append([point])
        return found

    def dots(self, cluster: Sequence[Point], groups: Sequence[str]) -> None:
        """Draw dots; where several groups meet, the earlier ones show as rings."""
        numbers = sorted({groups.index(point.group) for point in cluster})
        for point in cluster:
            number = groups.index(point.group)
            size = 6.5 + 4.0 * (len(numbers) - 1 - numbers.index(number))
            x, y = self._place(point)
            color = series_color(number)
            order = 4 + number / 100
            self.page.plot([x], [y], "o", ms=size, color=color, mec=PAPER, mew=0.8, zorder=order)
            half = size / 72 / 2
            self.taken.append((x - half, y - half, x + half, y + half))
        x, y = self._place(cluster[0])
        self.beside[id(cluster)] = (x, y - LABEL / 2, x + 0.2, y + LABEL / 2)

    def label(self, cluster: Sequence[Point]) -> None:
        """Write names beside their dots, or as near as there is room, with a line to it."""
        x, y = self._place(cluster[0])
        names = ", ".join(dict.fromkeys(style.printable(point.label) for point in cluster))
        lines = style.wrap(names, WIDEST, 4)
        width = max(map(style.text_width, lines)) + 0.04
        for dx, dy, ha in _places():
            left, top = x + dx - (width if ha == "right" else 0.0), y + dy - LABEL / 2
            box = (left, top, left + width, top + LABEL * len(lines))
            if self._free(box, cluster):
                self.taken.append(box)
                if math.hypot(dx, dy) > 0.25:
                    self.page.plot([x, x + dx], [y, y + dy], color=FAINT, lw=0.8, zorder=1)
                for number, line in enumerate(lines):
                    self.page.put(x + dx, y + dy + number * LABEL, line, ha=ha, zorder=5)
                return  # without a free place, the name would only cover others

    def _place(self, point: Point) -> tuple[float, float]:
        return self.x(point.intensity), self.y(self._rate(point))

    def legend(self, names: Sequence[str], groups: Sequence[str]) -> None:
        x = self.page.width - 0.3
        for name in reversed(names):
            x -= style.text_width(name)
            self.page.put(x, 0.2, name)
            x -= 0.12
            color = series_color(groups.index(name))
            self.page.plot([x], [0.2], "o", ms=6.5, color=color)
            x -= 0.25

    def _write(self, x: float, y: float, text: str, color: str, ha: str) -> None:
        self.page.put(x, y, text, color=color, ha=ha)
        width = style.text_width(text)
        left = x - width if ha == "right" else x
        self.taken.append((left, y - LABEL / 2, left + width, y + LABEL / 2))

    def _free(self, box: tuple[float, float, float, float], cluster: Sequence[Point]) -> bool:
        left, top, right, bottom = box
        if left < LEFT or right > LEFT + self.width or top < TOP or bottom > TOP + HEIGHT:
            return False
        others = [*self.taken, *(b for key, b in self.beside.items() if key != id(cluster))]
        return not any(
            left < other[2] and other[0] < right and top < other[3] and other[1] < bottom
            for other in others
        )


def _places() -> list[tuple[float, float, str]]:
    """Where a label may go relative to its dot: near is best, right of it, and below the roof."""
    places = [(dx, dy * 0.155) for dx in (0.1, 0.3, 0.6, 1.0, 1.5) for dy in range(-1, 18)]
    places += [(-dx, dy) for dx, dy in places if dx < 1.0]

    def cost(place: tuple[float, float]) -> float:
        dx, dy = place
        return math.hypot(dx, dy) + 0.35 * (dx < 0) + 0.2 * (dy < 0)

    return [(dx, dy, "left" if dx > 0 else "right") for dx, dy in sorted(places, key=cost)]


def _unit(roof: Roof) -> tuple[float, str]:
    return (1e12, "TFLOP/s") if roof.peak >= 1e12 else (1e9, "GFLOP/s")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"

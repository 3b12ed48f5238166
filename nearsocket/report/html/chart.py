"""What probes measured, as SVG: all-reduce times as curves over the size, each start of a lottery as a mark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from nearsocket.model.measured import Curve, Draw
from nearsocket.report.html import dots
from nearsocket.report.html.canvas import Canvas, fitted, number
from nearsocket.report.html.figure import Figure
from nearsocket.report.html.lanes import Place
from nearsocket.report.text import size

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720.0, 320.0, 64.0, 190.0, 14.0, 40.0
#: Settings that mean something by their name; others take the rest in turn.
_KINDS = {"as configured": "own", "naive": "naive", "forced near": "near", "forced far": "far"}
_MOST_DRAWS, _STEP, _ROW = 60, 13.0, 44.0
_PLACES = {"near": Place.NEAR, "far": Place.FAR, "no host buffers": Place.SPARE}


def curves(measured: Sequence[Curve]) -> Figure | None:
    """Median time over size, both axes by factors; None where nothing was measured."""
    points = [point for curve in measured for point in curve.points]
    if not points:
        return None
    across = _Axis.over((p.size_bytes for p in points), _LEFT, _WIDTH - _RIGHT)
    up = _Axis.over((p.median_us for p in points), _HEIGHT - _BOTTOM, _TOP)
    canvas = Canvas()
    for tick in across.ticks(16, 1024):
        canvas.shape("grid", f"M{number(across.at(tick))} {number(_TOP)}V{number(_HEIGHT - _BOTTOM)}")
        canvas.text("small", across.at(tick), _HEIGHT - _BOTTOM + 17, size(round(tick)), "middle")
    for tick in up.ticks(10, 1):
        canvas.shape("grid", f"M{number(_LEFT)} {number(up.at(tick))}H{number(_WIDTH - _RIGHT)}")
        canvas.text("small", _LEFT - 8, up.at(tick) + 4, _time(tick), "end")
    canvas.text("small", _LEFT, _HEIGHT - 4, "all-reduce, median time over size; lower is better")
    ends = []
    for at, curve in enumerate(one for one in measured if one.points):
        kind = "base" if curve.kept_at else _KINDS.get(curve.name, f"other{at % 3}")
        places = [(across.at(p.size_bytes), up.at(p.median_us)) for p in curve.points]
        canvas.shape(f"curve c-{kind}", "M" + "L".join(f"{number(x)} {number(y)}" for x, y in places))
        for point, (x, y) in zip(curve.points, places, strict=True):
            canvas.begin(
                "dot", f"{_name(curve)}, {size(point.size_bytes)}: median {_time(point.median_us)}, p99 {_time(point.p99_us)}"
            )
            canvas.shape(f"k-{kind}", dots.outline(Place.FAR if kind == "far" else Place.NEAR, x, y))
            canvas.end()
        ends.append((places[-1][1], places[-1][0], _name(curve), kind))
    below = 0.0
    for y, x, name, kind in sorted(ends):
        below = max(y + 4, below + 15)
        canvas.text(f"c-name n-{kind}", x + 12, below, fitted(name, _RIGHT - 16))
    words = tuple(f"{_name(c)}: {', '.join(f'{size(p.size_bytes)} {_time(p.median_us)}' for p in c.points)}." for c in measured)
    return Figure(round(_WIDTH), round(_HEIGHT), canvas.markup(), words)


def lottery(draws: Sequence[Draw]) -> Figure | None:
    """A row of marks for each setting, one a start, in their order; None where nothing was drawn."""
    if not draws:
        return None
    canvas, words, y = Canvas(), [], 16.0
    for name in dict.fromkeys(draw.name for draw in draws):
        mine = [draw for draw in draws if draw.name == name]
        told = _told(mine)
        words.append(f"{name}: {told}.")
        canvas.runs(0, y, ("strong", fitted(name, 240)), ("small", told))
        for at, draw in enumerate(mine[:_MOST_DRAWS]):
            x, middle = at * _STEP + 7, y + 17
            canvas.begin("dot", f"start {at + 1}: {draw.where if draw.failed is None else f'failed: {draw.failed}'}")
            if draw.failed is not None:
                canvas.shape("d-failed", f"M{number(x - 4)} {number(middle - 4)}l8 8m0 -8l-8 8")
            elif draw.where == "split":
                canvas.shape("d-far", f"M{number(x)} {number(middle - 6)}l6 6l-6 6Z")
                canvas.shape("d-near", f"M{number(x)} {number(middle - 4.6)}a4.6 4.6 0 0 0 0 9.2Z")
            else:
                place = _PLACES.get(draw.where, Place.UNKNOWN)
                canvas.shape(f"d-{place.value}", dots.outline(place, x, middle))
            canvas.end()
        if len(mine) > _MOST_DRAWS:
            canvas.text("small", _MOST_DRAWS * _STEP + 4, y + 21, f"+{len(mine) - _MOST_DRAWS}")
        y += _ROW
    return Figure(round(_MOST_DRAWS * _STEP + 60), round(y - 8), canvas.markup(), tuple(words))


def _name(curve: Curve) -> str:
    return f"{curve.name} of {curve.kept_at[:10]}" if curve.kept_at else curve.name


def _told(draws: Sequence[Draw]) -> str:
    found = [draw.where if draw.failed is None else "failed" for draw in draws]
    return ", ".join(f"{found.count(word)} {word}" for word in dict.fromkeys(sorted(found))) + f" of {len(draws)} starts"


def _time(us: float) -> str:
    """Microseconds for people: three figures and a unit."""
    for unit, word in ((1e6, "s"), (1e3, "ms")):
        if us >= unit:
            return f"{us / unit:.3g} {word}"
    return f"{us:.3g} µs"


class _Axis:
    """A span of values by factors, laid over a span of pixels."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = math.log(low), math.log(high)
        self.start, self.end = start, end

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float) -> _Axis:
        """The axis that holds these values with a little room on both sides."""
        known = sorted(values)
        return cls(known[0] / 1.25, known[-1] * 1.25, start, end)

    def at(self, value: float) -> float:
        """The pixel of that value."""
        return self.start + (math.log(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, factor: int, first: float) -> list[float]:
        """The values `first` times powers of `factor` within the axis."""
        low, high = (math.log(math.exp(end) / first, factor) for end in (self.low, self.high))
        return [first * float(factor) ** power for power in range(math.ceil(low), math.floor(high) + 1)]

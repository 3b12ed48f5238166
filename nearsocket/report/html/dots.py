"""One mark for each file: a disc for near, a diamond for far, a square for not known, a small ring for what only CPUs use."""

from __future__ import annotations

from nearsocket.report.html.canvas import Canvas, number, width_of
from nearsocket.report.html.lanes import Lane, Place

#: Marks that are drawn; the rest are counted.
_MOST = 12
_STEP, _R = 13.0, 4.6


def width(lane: Lane) -> float:
    """How much room the marks take."""
    more = len(lane.dots) - _MOST
    return min(len(lane.dots), _MOST) * _STEP + (width_of(f"+{more}") if more > 0 else 0)


def draw(canvas: Canvas, lane: Lane, x: float, y: float) -> float:
    """The marks from `x` on, their middle at `y`; where they end."""
    for at, dot in enumerate(lane.dots[:_MOST]):
        canvas.begin("dot", dot.title)
        canvas.shape(f"d-{dot.place.value}", outline(dot.place, x + at * _STEP + 6, y))
        canvas.end()
    if len(lane.dots) > _MOST:
        canvas.text("small", x + _MOST * _STEP + 2, y + 4, f"+{len(lane.dots) - _MOST}")
    return x + width(lane)


def outline(place: Place, x: float, y: float) -> str:
    """The mark of that place around a point, as a path's commands."""
    if place is Place.FAR:
        r = _R + 1.2
        return f"M{number(x)} {number(y - r)}L{number(x + r)} {number(y)}L{number(x)} {number(y + r)}L{number(x - r)} {number(y)}Z"
    if place is Place.UNKNOWN:
        return f"M{number(x - 4)} {number(y - 4)}h8v8h-8Z"
    r = _R if place is Place.NEAR else 3.0
    return f"M{number(x - r)} {number(y)}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0Z"

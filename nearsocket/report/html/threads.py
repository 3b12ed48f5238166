"""Threads tie a replica's buffers to its GPUs: thin and whole within the socket, thick and dashed where bytes cross to another."""

from __future__ import annotations

from collections.abc import Sequence

from nearsocket.report.html.box import Box, lane_end
from nearsocket.report.html.canvas import Canvas, number
from nearsocket.report.html.lanes import Lane, Place

_RAIL = 13.0
#: Ways in the gap that stand beside each other before they lie on one another.
_WAYS = 5


def draw(canvas: Canvas, boxes: Sequence[Box], gap: float) -> None:
    """Every thread, far ones over near ones; `gap` pixels are free beside the boxes."""
    for box in boxes:
        for lane, y in zip(box.lanes, box.lane_y, strict=True):
            if lane.place is Place.NEAR:
                _near(canvas, box, lane, y)
    number_of_far = 0
    for box in boxes:
        for lane, y in zip(box.lanes, box.lane_y, strict=True):
            if lane.place is Place.FAR:
                number_of_far += _far(canvas, box, lane, y, boxes, gap * (0.3 + 0.4 / _WAYS * (number_of_far % _WAYS)))


def _rows(box: Box, lane: Lane) -> list[float]:
    """The middles of the replica's GPUs in that box."""
    if lane.replica is None:
        return []
    return [y for gpu, y in zip(box.home.gpus, box.gpu_y, strict=True) if gpu.pci in lane.replica.gpus]


def _near(canvas: Canvas, box: Box, lane: Lane, y: float) -> None:
    """Down the side away from the neighbour."""
    rows = _rows(box, lane)
    if not rows:
        return
    outer = box.right_edge if box.right else box.left_edge
    rail = box.x + box.width - _RAIL if box.right else box.x + _RAIL
    start = lane_end(lane, box) + 4 if box.right else box.left_edge - 3
    canvas.path("t-near", (start, y), (rail, y), (rail, rows[-1]), (outer, rows[-1]))
    for row in rows[:-1]:
        canvas.path("t-near", (rail, row), (outer, row))


def _far(canvas: Canvas, box: Box, lane: Lane, y: float, boxes: Sequence[Box], out: float) -> int:
    """Through the gap, `out` pixels from the box, into each box that has GPUs of the replica; how many ways were drawn."""
    ways = 0
    for other in boxes:
        rows = _rows(other, lane)
        if other is box or not rows:
            continue
        start = box.left_edge - 4 if box.right else lane_end(lane, box) + 6
        middle = box.inner - box.inward * out
        edge = other.left_edge if other.inward > 0 else other.right_edge
        rail = edge - other.inward * _RAIL
        canvas.path("t-far", (start, y), (middle, y), (middle, rows[0]), (edge - other.inward * 5, rows[0]))
        _arrow(canvas, edge, rows[0], other.inward)
        for row in rows[1:]:
            canvas.path("t-far", (rail, rows[0]), (rail, row), (edge - other.inward * 5, row))
            _arrow(canvas, edge, row, other.inward)
        ways += 1
    return ways


def _arrow(canvas: Canvas, x: float, y: float, inward: int) -> None:
    """A head that points into the GPU at `x`."""
    back = x - inward * 8
    canvas.shape("a-far", f"M{number(x)} {number(y)}L{number(back)} {number(y - 4.5)}L{number(back)} {number(y + 4.5)}Z")

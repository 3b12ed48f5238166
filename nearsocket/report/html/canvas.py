"""SVG, element by element: every text is made visible and escaped, every number is short, and nothing needs a style attribute."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup
from rich.cells import cell_len

from nearsocket.model.text import one_line

#: Width of one cell of text against the height of its font: sans of the system's, and monospace.
_SANS, _MONO = 0.58, 0.602
FONT = 12.5


def width_of(text: str, mono: bool = False, size: float = FONT) -> float:
    """About how wide the text is in pixels."""
    return cell_len(one_line(text)) * size * (_MONO if mono else _SANS)


def fitted(text: str, room: float, mono: bool = False, size: float = FONT) -> str:
    """The text on one line, in at most `room` pixels; what is cut off ends in an ellipsis."""
    safe = one_line(text, 300)
    if width_of(safe, mono, size) <= room:
        return safe
    while safe and width_of(safe + "…", mono, size) > room:
        safe = safe[:-1]
    return safe.rstrip() + "…"


def number(value: float) -> str:
    """The number with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass
class Canvas:
    """Elements in the order of drawing. `kind` is a class of the page's style sheet."""

    elements: list[Markup] = field(default_factory=list)

    def rect(self, kind: str, x: float, y: float, width: float, height: float, radius: float = 0) -> None:
        """A rectangle; none where it has no area."""
        if width > 0 and height > 0:
            corner = Markup(' rx="{}"').format(number(radius)) if radius else Markup("")
            place = map(number, (x, y, width, height))
            self._add('<rect class="{}" x="{}" y="{}" width="{}" height="{}"{}/>', kind, *place, corner)

    def text(self, kind: str, x: float, y: float, text: str, anchor: str = "start") -> None:
        """A line of text on the baseline `y`; `anchor` is start, middle or end."""
        where = Markup("") if anchor == "start" else Markup(' text-anchor="{}"').format(anchor)
        self._add('<text class="{}" x="{}" y="{}"{}>{}</text>', kind, number(x), number(y), where, one_line(text, 300))

    def runs(self, x: float, y: float, *runs: tuple[str, str]) -> None:
        """Texts of several kinds one after the other, as wide as the reader's font makes them."""
        spans = [
            Markup('<tspan class="{}"{}>{}</tspan>').format(k, Markup(' dx="9"') if at else "", one_line(t, 300))
            for at, (k, t) in enumerate(runs)
        ]
        self._add('<text x="{}" y="{}">{}</text>', number(x), number(y), Markup("").join(spans))

    def path(self, kind: str, *points: tuple[float, float], radius: float = 7) -> None:
        """A line along these points, its corners rounded. Only horizontal and vertical pieces."""
        self._add('<path class="{}" d="{}"/>', kind, _rounded(points, radius))

    def shape(self, kind: str, d: str) -> None:
        """A path of this project's own commands."""
        self._add('<path class="{}" d="{}"/>', kind, d)

    def begin(self, kind: str, title: str) -> None:
        """A group with a title, which shows where the pointer rests."""
        self._add('<g class="{}"><title>{}</title>', kind, one_line(title, 600))

    def end(self) -> None:
        """The end of the group."""
        self._add("</g>")

    def markup(self) -> Markup:
        """All elements."""
        return Markup("").join(self.elements)

    def _add(self, template: str, *values: object) -> None:
        self.elements.append(Markup(template).format(*values))  # noqa: S704 - the templates above; `format` escapes the values


def _rounded(points: tuple[tuple[float, float], ...], radius: float) -> str:
    """The path's commands: straight pieces, a quarter turn of `radius` or less at each corner."""
    points = tuple(point for at, point in enumerate(points) if at == 0 or point != points[at - 1])
    (x, y), *rest = points
    made = [f"M{number(x)} {number(y)}"]
    for at, (cx, cy) in enumerate(rest):
        if at == len(rest) - 1:
            made.append(f"L{number(cx)} {number(cy)}")
            break
        nx, ny = rest[at + 1]
        px, py = points[at]
        before, after = abs(cx - px) + abs(cy - py), abs(nx - cx) + abs(ny - cy)
        turn = min(radius, before / 2, after / 2)
        sx, sy = cx - _sign(cx - px) * turn, cy - _sign(cy - py) * turn
        ex, ey = cx + _sign(nx - cx) * turn, cy + _sign(ny - cy) * turn
        made.append(f"L{number(sx)} {number(sy)}Q{number(cx)} {number(cy)} {number(ex)} {number(ey)}")
    return "".join(made)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)

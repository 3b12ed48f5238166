"""Boxes side by side: frames, lines of the same height, and a thread that ties one box to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from nearsocket.report.text import FAR, FRAME, Pen, fit

#: Cells between two boxes.
GAP = 4


@dataclass(frozen=True)
class Cell:
    """One line inside a box. `enters` and `leaves` say that the thread crosses the left or right frame."""

    left: Text
    right: Text
    enters: bool = False
    leaves: bool = False


@dataclass(frozen=True)
class Boxes:
    """The frame of a row of boxes, each `width` cells wide, frame included."""

    pen: Pen
    width: int

    @property
    def inner(self) -> int:
        """The cells of a line between the frames and their padding."""
        return self.width - 4

    def divider(self, title: Text, columns: Sequence[Sequence[Cell]]) -> Text:
        """A line between sections, with the title where there is something below it."""
        titles = [title if column else Text() for column in columns]
        return self.edge(titles, self.pen.glyphs.tee_left, self.pen.glyphs.tee_right)

    def edge(self, titles: Sequence[Text], start: str, end: str) -> Text:
        """A horizontal line of every box, from corner `start` to corner `end`, with its title set into it."""
        made = []
        for title in titles:
            line = Text.assemble((start, FRAME))
            if title.plain:
                line.append(self.pen.glyphs.horizontal + " ", FRAME).append_text(fit(title, self.width - 6)).append(" ")
            line.append(self.pen.glyphs.horizontal * (self.width - 1 - line.cell_len) + end, FRAME)
            made.append(line)
        return Text(" " * GAP).join(made)

    def section(self, columns: Sequence[Sequence[Cell]]) -> list[Text]:
        """The boxes' cells as lines; a column that is shorter than the highest is filled up with empty lines."""
        empty = Cell(Text(), Text())
        height = max(map(len, columns))
        return [self._line([column[row] if row < len(column) else empty for column in columns]) for row in range(height)]

    def _line(self, cells: Sequence[Cell]) -> Text:
        glyphs, line, before = self.pen.glyphs, Text(), False
        for index, cell in enumerate(cells):
            if index:
                self._run(line, GAP, cell.enters or before)
            line.append(*(glyphs.crossing, FAR) if cell.enters else (glyphs.vertical, FRAME))
            self._run(line, 1, cell.enters)
            right = cell.right if cell.right.cell_len + 6 <= self.inner else Text()
            left = fit(cell.left, self.inner - (right.cell_len + 1 if right.plain else 0))
            line.append_text(left)
            self._run(line, self.inner - left.cell_len - right.cell_len, cell.leaves)
            line.append_text(right)
            self._run(line, 1, cell.leaves)
            line.append(*(glyphs.crossing, FAR) if cell.leaves else (glyphs.vertical, FRAME))
            before = cell.leaves
        return line

    def _run(self, line: Text, count: int, threaded: bool) -> None:
        """Append `count` cells of thread or of nothing."""
        line.append((self.pen.glyphs.thread if threaded else " ") * count, FAR if threaded else "")

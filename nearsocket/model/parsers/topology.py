"""`nvidia-smi topo -m` as values: the matrix of links, and each GPU's CPUs and node.

Columns are separated by tabs, with a second tab after short values, and a terminal turns tabs into spaces. So a table is read
by counting: no value holds a space, and a row must have exactly as many values as its header has columns. A row that does not
(cells run together, an empty cell, a wrapped or cut line) is not read by guessing: TopologyError names the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.parsers.text import clean

_GPU = re.compile(r"GPU(\d{1,4})\Z")
_LINK = re.compile(r"X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|C2C|NV\d{1,3}|N/A")
_LEGEND = re.compile(r"\s*(?P<column>[A-Za-z][\w.-]*\d)\s*:\s*(?P<name>[A-Za-z][\w.-]*)\s*\Z")
#: Columns after the matrix; `CPU Affinity` holds a space in the header alone.
_TAIL = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_TAIL_PATTERN = re.compile(r"(?P<cpu>CPU\s+Affinity)|(?P<numa>NUMA\s+Affinity)|(?P<own>GPU\s+NUMA\s+ID)")
_ABSENT = "N/A"


class TopologyError(ValueError):
    """A table that cannot be read with certainty; `number` and `line` are the line's."""

    def __init__(self, number: int, line: str, what: str) -> None:
        super().__init__(f"line {number}: {what}: {line.strip()[:160]!r}")
        self.number = number
        self.line = line


@dataclass(frozen=True)
class TopologyGpu:
    """One GPU's row: its node and CPUs as read, None where the table says N/A or has no such column.

    `nodes` holds all nodes of its NUMA affinity; `node` is set where that is one. `cpus` is a list text.
    """

    index: int
    node: Optional[int]
    cpus: Optional[str]
    nodes: frozenset[int]
    numa_text: Optional[str]
    number: int
    line: str


@dataclass(frozen=True)
class Link:
    """The connection of two GPUs, `a` below `b`: NV18, PIX, PXB, PHB, NODE, SYS."""

    a: int
    b: int
    word: str


@dataclass(frozen=True)
class Topology:
    """The table. `nics` are the network cards' names, from the legend where there is one."""

    gpus: tuple[TopologyGpu, ...]
    links: tuple[Link, ...]
    nics: tuple[str, ...]
    has_numa: bool


def looks_like(text: str) -> int:
    """How many lines of the text are a matrix's header or a GPU's row."""
    lines = [clean(line) for line in text.splitlines()]
    rows = sum(1 for line in lines if _is_row(line))
    headers = sum(1 for line in lines if _is_header(line))
    return rows + headers if headers or rows > 1 else 0


def parse(text: str) -> Topology:
    """Read a table, whatever stands before and after it.

    Raises TopologyError, with the line, for anything that is not certain.
    """
    lines = [(number, clean(line)) for number, line in enumerate(text.splitlines(), 1)]
    headers = [(number, line) for number, line in lines if _is_header(line)]
    if not headers:
        number, line = next(((n, t) for n, t in lines if t.strip()), (1, ""))
        raise TopologyError(number, line, "expected a header with GPU0 and the other columns, found none before the rows")
    if len(headers) > 1:
        raise TopologyError(*headers[1], "expected one table, found a second header")
    start, header = headers[0]
    columns, tail = _columns(start, header)
    gpus: dict[int, TopologyGpu] = {}
    words: dict[tuple[int, int], tuple[str, int, str]] = {}
    rest_from = len(lines) + 1
    for number, line in lines[start:]:
        tokens = line.split()
        if not tokens:
            continue
        if tokens[0] not in columns:
            if _GPU.match(tokens[0]) or not gpus or not _is_end(line):
                raise TopologyError(number, line, f"expected a row that begins with one of {', '.join(columns)}")
            rest_from = number
            break
        own = _GPU.match(tokens[0])
        expected = 1 + len(columns) + (len(tail) if own else 0)
        if len(tokens) != expected:
            raise TopologyError(number, line, f"expected {expected} cells as in the header, found {len(tokens)}")
        cells = dict(zip(columns, tokens[1 : 1 + len(columns)]))
        _check_links(number, line, tokens[0], cells)
        if own:
            index = int(own[1])
            if index in gpus:
                raise TopologyError(number, line, f"expected one row for {tokens[0]}, found a second")
            gpus[index] = _gpu(number, line, index, dict(zip(tail, tokens[1 + len(columns) :])))
            words.update(
                {
                    (index, int(other[1])): (word, number, line)
                    for name, word in cells.items()
                    for other in [_GPU.match(name)]
                    if other
                }
            )
    wanted = [int(found[1]) for found in map(_GPU.match, columns) if found]
    missing = [index for index in wanted if index not in gpus]
    if missing:
        raise TopologyError(start, header, f"expected a row for each GPU of the header, found none for GPU{missing[0]}")
    names = _legend(lines[rest_from - 1 :])
    nics = tuple(names.get(column, column) for column in columns if not _GPU.match(column))
    return Topology(tuple(gpus[index] for index in sorted(gpus)), _links(words), nics, "NUMA Affinity" in tail)


def _is_row(line: str) -> bool:
    words = line.split()[:2]
    return len(words) > 1 and bool(_GPU.match(words[0])) and bool(_LINK.match(words[1]))


def _is_header(line: str) -> bool:
    bare = _TAIL_PATTERN.sub(" ", line).split()
    if not bare or not _GPU.match(bare[0]) or any(_LINK.fullmatch(word) for word in bare[1:]):
        return False
    return bool(_TAIL_PATTERN.search(line)) or (len(bare) > 1 and all(re.fullmatch(r"[A-Za-z][\w.-]*\d", word) for word in bare))


def _is_end(line: str) -> bool:
    """Whether a line after the rows is other text: a legend, a prompt. A continued row holds link words or lists alone."""
    return not all(_LINK.fullmatch(token) or re.fullmatch(r"[\d,-]+", token) for token in line.split())


def _columns(number: int, header: str) -> tuple[list[str], list[str]]:
    """The names of the matrix's columns and of those after it."""
    marks = [
        (found.start(), found.end(), _TAIL[["cpu", "numa", "own"].index(found.lastgroup or "")])
        for found in _TAIL_PATTERN.finditer(header)
    ]
    matrix_end = marks[0][0] if marks else len(header)
    tail = [name for _, _, name in marks]
    columns = header[:matrix_end].split()
    for (_, end, _), (begin, _, name) in zip(marks, marks[1:]):
        if header[end:begin].strip():
            raise TopologyError(number, header, f"expected {name} as the next column, found {header[end:begin].strip()!r}")
        if end == begin:
            raise TopologyError(number, header, "expected a gap between columns, found two run together")
    if marks and header[marks[-1][1] :].strip():
        raise TopologyError(
            number, header, f"expected the columns {', '.join(_TAIL)}, found also {header[marks[-1][1] :].strip()!r}"
        )
    if marks and matrix_end and not header[matrix_end - 1].isspace():
        raise TopologyError(number, header, "expected a gap between columns, found two run together")
    if len(set(columns)) != len(columns) or len(set(tail)) != len(tail):
        raise TopologyError(number, header, "expected each column once, found one twice")
    odd = next(
        (name for name in columns if not re.fullmatch(r"[A-Za-z][\w.-]*", name) or len(re.findall(r"GPU\d", name)) > 1), None
    )
    if odd:
        raise TopologyError(number, header, f"expected names such as GPU0 or NIC0, found {odd!r}")
    return columns, tail


def _check_links(number: int, line: str, name: str, cells: dict[str, str]) -> None:
    for column, word in cells.items():
        if not _LINK.fullmatch(word):
            raise TopologyError(number, line, f"expected a connection such as PHB or NV18 under {column}, found {word!r}")
        if (word == "X") != (column == name):
            raise TopologyError(
                number, line, f"expected X where {name} meets itself and nowhere else, found {word!r} under {column}"
            )


def _gpu(number: int, line: str, index: int, tail: dict[str, str]) -> TopologyGpu:
    def numbers(column: str) -> Optional[frozenset[int]]:
        text = tail.get(column, _ABSENT)
        if text == _ABSENT:
            return None
        try:
            return cpulist.parse(text)
        except ValueError:
            raise TopologyError(number, line, f"expected a list such as 0-11,24-35 or N/A under {column}, found {text!r}") from None

    cpus, nodes = numbers("CPU Affinity"), numbers("NUMA Affinity")
    numbers("GPU NUMA ID")
    node = next(iter(nodes)) if nodes and len(nodes) == 1 else None
    shown = cpulist.render(cpus) if cpus is not None else None
    return TopologyGpu(index, node, shown, nodes or frozenset(), tail.get("NUMA Affinity"), number, line)


def _links(words: dict[tuple[int, int], tuple[str, int, str]]) -> tuple[Link, ...]:
    links = []
    for (a, b), (word, number, line) in sorted(words.items()):
        back = words[b, a][0]
        if word != back:
            raise TopologyError(
                number, line, f"expected the same word both ways between GPU{a} and GPU{b}, found {word} and {back}"
            )
        if a < b:
            links.append(Link(a, b, word))
    return tuple(links)


def _legend(lines: Sequence[tuple[int, str]]) -> dict[str, str]:
    """The names of the NIC legend: `NIC0: mlx5_0`."""
    found = (_LEGEND.match(line) for _, line in lines)
    return {match["column"]: match["name"] for match in found if match}

"""Writes a documentation page for each check and each command from the code: `python -m nearsocket.commands.docs docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from nearsocket.commands import docs_commands
from nearsocket.control import waivers
from nearsocket.control.checks import load
from nearsocket.model.check import Afterwards, Check
from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe.pages import PAGES
from nearsocket.model.startfindings import START_FINDINGS
from nearsocket.paths import source_folder

_MADE = "<!-- Made by `make docs` from the check's docstring; change it there. -->\n"
_STAR = " \\*"


def pages(checks: Iterable[Check]) -> dict[str, str]:
    """File name to text, under docs/checks: a page for each check, and README.md as their index."""
    every: list[Check | Afterwards] = [*checks, waivers.UNUSED, *PAGES, *START_FINDINGS]
    every.sort(key=lambda check: check.id)
    made = {f"{check.id}.md": _page(check) for check in every}
    made["README.md"] = _index(every)
    return made


def write(folder: Path, wanted: Mapping[str, str]) -> list[Path]:
    """Write the pages into `folder`, remove made pages of what is no more, and return the paths that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for path in sorted(folder.glob("*.md")):
        if path.name not in wanted and path.read_text(encoding="utf-8").startswith((_MADE, docs_commands.MADE)):
            path.unlink()
            changed.append(path)
    for name, text in wanted.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def _page(check: Check | Afterwards) -> str:
    core = "\n\nThis is a core check: where it is `unknown`, the exit code is 3." if check.core else ""
    if isinstance(check, Afterwards):
        where = check.where
    else:
        file = f"checks/{check.function.__module__.rpartition('.')[2]}.py"
        where = f"Judged by `{check.function.__name__}` in [{file}](../../{file})."
    body = f"\n\n{check.explanation}" if check.explanation else ""
    return f"{_MADE}# {check.id}\n\n{check.summary}{body}{core}\n\n{where}\n"


def _index(checks: list[Check | Afterwards]) -> str:
    lines = [_MADE + "# Checks\n", "A core check is marked with a star: where it is `unknown`, an audit's exit code is 3.\n"]
    for concern in sorted({check.concern for check in checks}):
        lines.append(f"## {concern}\n\n| check | what must be true |\n| --- | --- |")
        lines += [f"| [{c.id}]({c.id}.md){_STAR if c.core else ''} | {c.summary} |" for c in checks if c.concern == concern]
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write checks/ and commands/ below the folder given (`docs`), from the source checkout; the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m nearsocket.commands.docs FOLDER\n")
        return 64
    try:
        changed = write(Path(arguments[0]) / "checks", pages(load([source_folder() / "checks"])))
        changed += write(Path(arguments[0]) / "commands", docs_commands.pages())
    except NearsocketError as error:
        sys.stderr.write(f"nearsocket: {error.message}\n")
        return error.exit_code
    sys.stdout.write("".join(f"{path}\n" for path in changed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

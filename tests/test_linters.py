"""Holds the project's own rules: linters, import arrows, Python 3.9 where it runs on servers, sizes, words."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CODE = [
    path
    for top in ("nearsocket", "checks", "deploys", "lab", "bench", "inventories")
    for path in sorted((ROOT / top).rglob("*.py"))
]
#: Who may import whom (DESIGN, the layout). A part may always import itself; the standard library is for everyone.
ARROWS = {
    "model": set(),
    "onhost": {"model"},
    "report": {"model"},
    "control": {"model", "onhost", "report"},
}
ON_SERVERS = [
    path
    for path in CODE
    if path.relative_to(ROOT).parts[0] == "checks" or path.relative_to(ROOT).parts[1:2] in (("model",), ("onhost",))
]
#: Sent in front of the program and run by whatever Python is there; it says its line on old ones too and is imported by nobody.
BOOTSTRAP = ROOT / "nearsocket" / "onhost" / "bootstrap.py"
#: nvidia-ml-py travels to the server with the program.
THIRD_PARTY_ON_SERVERS = {"pynvml"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def part_of(path: Path) -> str:
    """`model`, `control`, …; `checks`, `deploys`, `lab` for those folders; empty for the top modules of the package."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != "nearsocket":
        return parts[0]
    return parts[1] if len(parts) > 2 else ""


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, anywhere in it, with its line: `nearsocket.model.host` for a name from there."""
    package = ".".join(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(word for word in (base, node.module or "") if word)
            yield from ((f"{module}.{alias.name}" if module == "nearsocket" else module, node.lineno) for alias in node.names)


def foreign(path: Path) -> Iterator[str]:
    """The imports of a file that its part may not make, as `file:line module`."""
    part = part_of(path)
    plain = {"nearsocket", "__future__", *sys.stdlib_module_names} | (THIRD_PARTY_ON_SERVERS if part == "onhost" else set())
    for module, line in imports(path):
        words = module.split(".")
        target = words[1] if words[0] == "nearsocket" and len(words) > 1 else None
        wrong = (
            words[0] in ("checks", "deploys", "inventories", "nearsocket_checks"),  # an installed package of that name would win
            part in ARROWS and words[0] == "lab",
            part in ARROWS and target is not None and target not in ARROWS[part] | {part, "__version__"},
            part == "checks" and words[0] == "nearsocket" and target != "model",
            part in ("model", "onhost", "checks") and words[0] not in plain,
        )
        if any(wrong):
            yield f"{name(path)}:{line} {module}"


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-6000:]}{done.stderr[-2000:]}"


def test_ruff_finds_nothing() -> None:
    run("ruff", "check", ".")


def test_everything_is_formatted() -> None:
    run("ruff", "format", "--check", ".")


def test_types_hold() -> None:
    run("mypy")


def test_import_arrows_go_one_way() -> None:
    assert [fault for path in CODE if part_of(path) in (*ARROWS, "checks", "") for fault in foreign(path)] == []


def test_nobody_imports_the_bare_names_of_the_users_folders() -> None:
    every = [*CODE, *sorted((ROOT / "tests").rglob("*.py"))]
    bare = [
        f"{name(p)}:{line} {module}" for p in every for module, line in imports(p) if module.split(".")[0] in ("checks", "deploys")
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("place", "text", "caught"),
    [
        ("nearsocket/model/x.py", "import nearsocket.control.audit", True),
        ("nearsocket/model/x.py", "def f():\n    from nearsocket import paths", True),
        ("nearsocket/model/x.py", "from nearsocket.model import host", False),
        ("nearsocket/model/x.py", "import pynvml", True),
        ("nearsocket/model/x.py", "import yaml", True),
        ("nearsocket/onhost/x.py", "import pynvml", False),
        ("nearsocket/onhost/x.py", "from nearsocket.report import text", True),
        ("nearsocket/report/x.py", "from ..control import audit", True),
        ("nearsocket/control/x.py", "from nearsocket.commands import audit", True),
        ("nearsocket/control/x.py", "from checks import memory", True),
        ("checks/x.py", "from nearsocket.paths import checks_folder", True),
        ("checks/x.py", "from nearsocket.model.check import check", False),
        ("checks/x.py", "import requests", True),
    ],
)
def test_the_arrow_rule_itself_catches_what_it_should(monkeypatch: pytest.MonkeyPatch, place: str, text: str, caught: bool) -> None:
    path = ROOT / place
    monkeypatch.setattr(Path, "read_text", lambda self, encoding=None: text)
    assert bool(list(foreign(path))) is caught


def test_what_runs_on_servers_is_python_3_9_syntax() -> None:
    for path in ON_SERVERS:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=name(path), feature_version=(3, 9))
        if path == BOOTSTRAP:
            continue
        late = any(
            isinstance(n, ast.ImportFrom) and n.module == "__future__" and n.names[0].name == "annotations" for n in tree.body
        )
        assert late or len(tree.body) <= 1, f"{name(path)}: expected `from __future__ import annotations`"


def python_3_9() -> str | None:
    """A Python 3.9 on PATH that works; a version manager's stand-in may be there and not."""
    found = shutil.which("python3.9")
    if found is None or subprocess.run([found, "-S", "-c", ""], capture_output=True, check=False).returncode:
        return None
    return found


def test_what_runs_on_servers_imports_under_python_3_9(tmp_path: Path) -> None:
    python = python_3_9()
    if python is None:
        pytest.skip("no python3.9 on this machine; the syntax is tested above")
    dotted = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in ON_SERVERS if path != BOOTSTRAP
    ]
    modules = [module for module in dotted if module.startswith("nearsocket.") and not module.endswith("__main__")]
    assert "nearsocket.model.host" in modules
    files = [str(path) for path in sorted((ROOT / "checks").glob("*.py"))]
    script = tmp_path / "load.py"
    script.write_text(
        "import importlib, importlib.util, sys, types\n"
        "sys.modules['pynvml'] = types.ModuleType('pynvml')\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"for n, path in enumerate({files!r}):\n"
        "    spec = importlib.util.spec_from_file_location(f'c{n}', path)\n"
        "    spec.loader.exec_module(importlib.util.module_from_spec(spec))\n"
        "print(sys.version_info[:2])\n"
    )
    # -S: no installed packages, as on a server
    command = [
        python,
        "-S",
        "-B",
        "-c",
        f"import sys; sys.path[0] = {str(ROOT)!r}; exec(open({str(script)!r}).read())",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(3, 9)", done.stderr[-3000:]


def test_no_module_is_longer_than_300_lines() -> None:
    every = [*CODE, *sorted((ROOT / "tests").rglob("*.py"))]
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in every}
    assert {file: length for file, length in lengths.items() if length > 300} == {}


def test_a_check_stays_short() -> None:
    """The judgement is a verdict's; a check says what is asked and of what. Its docstring is not counted."""
    long = []
    for path in sorted((ROOT / "checks").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                body = node.end_lineno - node.lineno + 1
                doc = node.body[0]
                if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and doc.end_lineno:
                    body -= doc.end_lineno - doc.lineno + 1
                long += [f"{name(path)}:{node.lineno} {node.name} {body}"] if body > 40 else []
    assert long == []


def test_public_names_have_docstrings() -> None:
    missing = []
    for path in CODE:
        if path == BOOTSTRAP:
            continue  # every byte of it is sent to a server at each call
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if tree.body and not ast.get_docstring(tree):
            missing.append(f"{name(path)}: module")
        missing += [f"{name(path)}:{line} {found}" for found, line in _undocumented(tree.body)]
    assert missing == []


def _undocumented(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            told = any(ast.unparse(mark).split(".")[-1] in ("overload", "setter", "override") for mark in node.decorator_list)
            if not told and not ast.get_docstring(node):
                yield node.name, node.lineno
            if isinstance(node, ast.ClassDef):
                yield from _undocumented(node.body)


#: Texts that must not be in a tracked file. Written in pieces, so that this file does not hold them.
_FORBIDDEN = {  # a container keeps what it loads under its own /root: that is nobody's machine
    "a machine's path": re.compile(r"(?<![A-Za-z0-9_.}/])/" + r"(work/|root/\.(?!nccl|cache/huggingface)[a-z])"),
    "an unfinished place": re.compile(r"\b(TO" + "DO|FIX" + r"ME|X{3})\b|raise NotImplemented" + "Error"),
    "a fault hidden by the shell": re.compile(r"\|\| " + "true"),
    "a tool of this machine": re.compile("py" + "env"),
}
_TEXTS = {".py", ".md", ".toml", ".lock", ".yaml", ".yml", ".json", ".txt", ".sh", ".j2", ".cfg", ".html", ""}


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode:  # an unpacked archive
        return [p for p in ROOT.rglob("*") if p.is_file() and not {".venv", ".git", "__pycache__", "dist"} & set(p.parts)]
    return [ROOT / word for word in listed.stdout.decode().split("\0") if word and (ROOT / word).is_file()]


def test_no_file_has_forbidden_words() -> None:
    faults = []
    for path in tracked():
        if path.suffix not in _TEXTS:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for what, pattern in _FORBIDDEN.items():
            faults += [f"{name(path)}:{text.count(chr(10), 0, m.start()) + 1} {what}: {m[0]}" for m in pattern.finditer(text)]
    assert faults == []


def test_locks_name_no_registry() -> None:
    for path in sorted(ROOT.glob("requirements*.lock")):
        text = path.read_text(encoding="utf-8")
        assert "--hash=sha256:" in text
        assert not re.search(r"https?://|--(extra-)?index-url|--find-links", text), name(path)


def test_the_checkouts_own_place_is_in_no_file() -> None:
    own = str(ROOT.parent) + "/"
    if len(own) < 6:
        pytest.skip("the checkout is near the root: its path is too short to look for")
    assert [name(p) for p in tracked() if p.suffix in _TEXTS and own in p.read_text(encoding="utf-8", errors="replace")] == []


@pytest.mark.parametrize("kind", ["checks", "commands"])
def test_every_made_page_is_current(kind: str) -> None:
    from nearsocket.commands import docs, docs_commands
    from nearsocket.control.checks import load

    wanted = docs.pages(load([ROOT / "checks"])) if kind == "checks" else docs_commands.pages()
    folder = ROOT / "docs" / kind
    stale = [
        file
        for file, text in wanted.items()
        if not (folder / file).is_file() or (folder / file).read_text(encoding="utf-8") != text
    ]
    stale += [path.name for path in folder.glob("*.md") if path.name not in wanted]
    assert stale == [], "run `make docs`"

"""Loads checks from folders of Python files, ours and a user's, and selects among them."""

from __future__ import annotations

import fnmatch
import importlib.util
import sys
import types
from collections.abc import Iterable
from pathlib import Path

from nearsocket.control.waivers import UNUSED_ID
from nearsocket.model.check import Check
from nearsocket.model.errors import UsageError

#: The name that checks are loaded under. Never plain `checks`: an installed package of that name would win over ours.
PACKAGE = "nearsocket_checks"


def load(folders: Iterable[Path]) -> tuple[Check, ...]:
    """The checks of every `*.py` of these folders, ordered by id; a file whose name starts with `_` is not loaded by itself.

    Raises UsageError, one line that names the file, where a folder or file cannot be used, where two files have one
    name or where two checks have one id.
    """
    sys.modules[PACKAGE] = package = types.ModuleType(PACKAGE, "Checks, loaded from files.")
    package.__path__ = []
    files: dict[str, Path] = {}
    owners: dict[str, Path] = {}
    checks: list[Check] = []
    for folder in folders:
        for path in _files(folder):
            if path.stem in files:
                raise UsageError(f"{path}: expected a file name of its own, found {files[path.stem]} too", "rename one of the two")
            files[path.stem] = path
            for check in _load_file(path):
                if check.id in owners:
                    raise UsageError(f"{path}: expected a check id of its own, found {check.id} in {owners[check.id]} too")
                owners[check.id] = path
                checks.append(check)
    return tuple(sorted(checks, key=lambda check: check.id))


def select(checks: Iterable[Check], only: Iterable[str]) -> tuple[Check, ...]:
    """The checks whose id or concern one of these words names (`memory`, `nccl.*`); all of them without a word.

    Raises UsageError for a word that names nothing.
    """
    every, words = tuple(checks), tuple(only)
    chosen: set[str] = set()
    for word in words:
        ids = {c.id for c in every if fnmatch.fnmatchcase(c.id, word) or fnmatch.fnmatchcase(c.concern, word)}
        if not ids and word == UNUSED_ID:
            raise UsageError(f"{word} is judged over the whole audit", "name the check whose waiver is in question")
        if not ids:
            raise UsageError(f"expected a check's id or concern, found {word!r}", "nearsocket list-checks shows them")
        chosen |= ids
    return tuple(check for check in every if not words or check.id in chosen)


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".py" and not path.name.startswith((".", "_")))
    except OSError as error:
        raise UsageError(f"{folder}: expected a folder of checks, found none ({error.strerror})") from None


def _load_file(path: Path) -> list[Check]:
    name = f"{PACKAGE}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: expected a Python file, found something that cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file is code we do not know
        del sys.modules[name]
        raise UsageError(f"{path}: expected a file of checks, found {_fault(error, path)}", "no check was run") from None
    checks: dict[str, Check] = {}
    for function in vars(module).values():
        check = getattr(function, "nearsocket_check", None)
        if not isinstance(check, Check) or check.function.__module__ != name:
            continue  # not a check, or one that this file imports from another
        if checks.setdefault(check.id, check) is not check:
            raise UsageError(f"{path}: expected check ids of their own, found {check.id} twice")
    if not checks:
        raise UsageError(f"{path}: expected at least one function marked @check, found none", "a helper file's name starts with _")
    return list(checks.values())


def _fault(error: BaseException, path: Path) -> str:
    """The error in one line, with the line of the user's file where that is known."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    said = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return f"{type(error).__name__}: {said}" + (f" (line {line})" if line else "")

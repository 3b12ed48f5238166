"""A compose file's text as a snapshot may hold it: no secret, of variables the names alone, and otherwise the same YAML.

The host has no parser of YAML, so this goes by lines: what it cannot follow is taken out, never left in.
"""

from __future__ import annotations

import re

from nearsocket.onhost.collect.redact import REDACTED, is_secret, text

#: Blocks of which the names are enough, and whose values may be anything.
_NAMES_ALONE = frozenset(
    {"environment", "labels", "args", "content", "annotations", "sysctls", "extra_hosts", "driver_opts", "healthcheck"}
)
_KEY = re.compile(r"""(?P<head>\s*(?:-\s+)?)["']?(?P<name>[A-Za-z_][\w.-]*)["']?\s*:(?P<value>.*)\Z""")
_ENTRY = re.compile(r"""(?P<head>\s*(?:-\s+)?)["']?(?P<name>[A-Za-z_][\w.-]*)["']?\s*(?:[:=]|\Z)""")
#: What a block may begin with, and a merge within it.
_ANCHOR = re.compile(r"\s*(?:[&*][\w-]+)?\s*\Z")
_MERGE = re.compile(r"\s*<<\s*:\s*(?:\*[\w-]+|\[[\s*,\w-]*\])\s*\Z")
_FLOW = re.compile(
    r"""(?P<head>(?P<quote>["']?)(?<![\w-])(?P<name>--?[A-Za-z][\w.-]*)(?P=quote)\s*,\s*)"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|[^,\]\s]+)"""
)
#: `TOKEN: value` within braces, and `--token=value` as a word of a list, quoted or not.
_FLOW_KEY = re.compile(
    r"""(?P<head>[{,]\s*)["']?(?P<name>[A-Za-z_][\w.-]*)["']?\s*:\s*(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^,{}\[\]"'\n]+)"""
)
_FLOW_WORD = re.compile(
    r"""(?P<quote>["'])(?P<name>[\w.-]{1,100})=[^"'\n]*(?P=quote)|(?P<head>[\[,]\s*)(?P<bare>[\w.-]{1,100})=[^,\]\s"']+"""
)
_LAST_OPTION = re.compile(r"""(?<![\w-])(?P<name>--?[A-Za-z][\w.-]*)["']?\s*\\?\Z""")


def without_secrets(whole: str) -> str:
    """The text without comments, without values of variables and of what a name says is secret."""
    # In braces and brackets a value ends before their end, which `text` does not know.
    whole = _FLOW.sub(lambda m: m["head"] + (f'"{REDACTED}"' if is_secret(m["name"]) else m["value"]), whole)
    whole = _FLOW_KEY.sub(lambda m: f"{m['head']}_: null" if is_secret(m["name"]) else m[0], whole)
    whole = _FLOW_WORD.sub(lambda m: f'{m["head"] or ""}"{REDACTED}"' if is_secret(m["name"] or m["bare"]) else m[0], whole)
    lines = [line for line in map(_without_comment, whole.splitlines()) if line.strip()]
    kept: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        key = _KEY.match(line)
        if key and (key["name"] in _NAMES_ALONE or is_secret(key["name"])):
            plain = bool(_ANCHOR.match(key["value"])) and not is_secret(key["name"])
            kept.append(line if plain else f"{key['head']}{key['name']}:")
            end = _block_end(lines, at, len(key["head"]) if "-" in key["head"] else _indent(line))
            kept += _names(lines[at:end]) if plain else []
            at = end
            continue
        kept.append(line)
        option = _LAST_OPTION.search(line)
        if option and is_secret(option["name"]):
            while (
                at < len(lines) and not re.match(r"""(?:-\s+)?["']?--[A-Za-z]""", lines[at].strip()) and not _KEY.match(lines[at])
            ):
                kept.append(" " * _indent(lines[at]) + ("- " if lines[at].strip().startswith("- ") else "") + f'"{REDACTED}"')
                at += 1
    return text("\n".join(kept) + "\n")


def _without_comment(line: str) -> str:
    """Without its comment; one behind a quoted word stays, since a `#` may be in that."""
    return "" if line.lstrip().startswith("#") else line if set(line) & set("\"'") else re.sub(r"\s#.*", "", line)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _block_end(lines: list[str], start: int, indent: int) -> int:
    """Where the block that belongs to a key at that indentation ends; a list may stand at the key's own."""
    at = start
    while at < len(lines) and (
        _indent(lines[at]) > indent or (_indent(lines[at]) == indent and lines[at].lstrip().startswith("- "))
    ):
        at += 1
    return at


def _names(lines: list[str]) -> list[str]:
    """The names of a block's entries: those at the indentation of its first. All else is of some value."""
    kept = []
    for line in lines:
        entry = _ENTRY.match(line)
        if _indent(line) != _indent(lines[0]):
            continue
        if _MERGE.match(line):
            kept.append(line)
        elif entry:
            kept.append(f"{entry['head']}{entry['name']}" + ("" if "-" in entry["head"] else ":"))
    return kept

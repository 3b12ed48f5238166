"""For a person: judge running replicas now, print `nearsocket.verdicts/1`, and write nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearsocket.model.errors import NearsocketError
from nearsocket.model.text import in_words, one_line
from nearsocket.model.verdict import Trigger
from nearsocket.onhost import options
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.startfile import load_start
from nearsocket.onhost.verify import gather, policy, supervise

SCHEMA = "nearsocket.verdicts/1"
#: What a judgement may take beyond the time of its sources.
_SPARE_S = 5.0


def main(words: Sequence[str]) -> str:
    """The JSON text: the verdict of each replica of the generation in force (`--replica` one of them), or why there is none."""
    given = options.parse(words, ("replica", "timeout", "root"))
    tree = Tree(Path(given.get("root", "/")))
    names = policy.others(tree, "")
    chosen = [name for name in names if name == given.get("replica", name)]
    limit_s = options.seconds(given.get("timeout", "60"), 1, 3600)
    entries = [_one(tree, name, limit_s / max(1, len(chosen))) for name in chosen]
    return json.dumps({"schema": SCHEMA, "managed": names, "replicas": entries}, ensure_ascii=True)


def _one(tree: Tree, name: str, limit_s: float) -> dict[str, Any]:
    """In a child: one that hangs in the kernel must not keep the others from being judged."""
    found = supervise.within(limit_s + _SPARE_S, lambda _: _judged(tree, name, limit_s), f"the judgement of {name}")
    return found or {"replica": name, "verdict": None, "reason": f"no judgement within {limit_s + _SPARE_S:g} s"}


def _judged(tree: Tree, name: str, limit_s: float) -> dict[str, Any]:
    try:
        verdict = gather.look(tree, load_start(tree, name), Trigger.HAND, limit_s)
    except NearsocketError as error:
        return {"replica": name, "verdict": None, "reason": one_line(error.message, 300)}
    except OSError as error:
        return {"replica": name, "verdict": None, "reason": one_line(in_words(error), 300)}
    return {"replica": name, "verdict": verdict.value(), "reason": None}

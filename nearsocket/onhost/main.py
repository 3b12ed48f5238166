"""The program's entry on a server. `collect` and `survey` print one snapshot as JSON, `apply` reads an order and prints an outcome,
`rollout-mark` writes down how far a rollout is here, `rollout-beat` that its client is at work, `rollout-seen` tells when it
was last; `reprovision` takes one step of a driver's upgrade; `image` applies the patch kit or builds the image; `fingerprint`,
`relief`,
`wait-health`, `wait-idle`, `hook`, `verify` and `watch` are what units call; `verdicts` judges running replicas for a person;
`probe`, `baseline` and `prefill` measure.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Optional

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.text import fault, one_line
from nearsocket.onhost import options

#: EX_OSERR of sysexits.h: this host could not do it.
EXIT_FAILED = 71
USAGE = (
    "usage: collect [--timeout SECONDS] [--host NAME], survey (as collect) [--lock-wait SECONDS], apply [--holder WHO], "
    "rollout-mark [--lock-wait SECONDS], rollout-beat [--bye yes], rollout-seen, reprovision, fingerprint --replica NAME, "
    "relief --replica NAME [--policy POLICY] [--nodes LIST] [--timeout SECONDS], "
    "wait-health --replica NAME [--url URL] [--timeout SECONDS], "
    "wait-idle --replica NAME --port PORT [--host HOST] [--timeout SECONDS], "
    "hook --replica NAME --hook drain|undrain --timeout SECONDS -- PROGRAM ARGUMENT..., verify --replica NAME, watch, "
    "verdicts [--replica NAME] [--timeout SECONDS], probe, prefill, baseline --digest DIGEST [--keep yes]"
)


def main(argv: Optional[list[str]] = None) -> NoReturn:
    """Run the named action and end the process at once, whatever children or threads still hang in the kernel."""
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _run(words)
    except UsageError as error:
        code = _say(f"{error.message}; {USAGE}", error.exit_code)
    except NearsocketError as error:
        code = _say(error.message + (f" ({error.hint})" if error.hint else ""), error.exit_code)
    except BrokenPipeError:
        code = 141
    except KeyboardInterrupt:
        code = 130
    except Exception as error:  # out of processes, of files, of memory: the other side wants a line, not a traceback
        code = _say(f"expected to {words[0] if words else 'run'} here, found {fault(error)}", EXIT_FAILED)
    # os._exit: interpreter shutdown would wait for what may never come back.
    os._exit(code)


def _run(words: Sequence[str]) -> int:
    action, rest = (words[0], words[1:]) if words else ("", [])
    if action in ("collect", "survey"):
        return _collect(rest, action == "survey")
    if action == "image":
        from nearsocket.onhost.image.entry import run

        return run(list(rest))
    if action == "apply":
        from nearsocket.onhost.apply import entry

        given = options.parse(rest, ("holder", "root"))
        outcome = entry.apply_order(sys.stdin.buffer.read(), given.get("holder", "nearsocket apply"), given.get("root", "/"))
        _write(outcome.to_json().encode("ascii"))
        return 0
    if action == "reprovision":
        from nearsocket.onhost.reprovision import entry as reprovision

        given = options.parse(rest, ("root",))
        _write(reprovision.run(sys.stdin.buffer.read(), given.get("root", "/")).to_json().encode("ascii"))
        return 0
    if action == "rollout-mark":
        from nearsocket.model.rollout.progress import LARGEST_BYTES
        from nearsocket.onhost.apply import progress

        progress.main(rest, sys.stdin.buffer.read(LARGEST_BYTES + 1))
        return 0
    if action in ("rollout-beat", "rollout-seen"):
        from nearsocket.model.rollout.beat import LARGEST_BYTES
        from nearsocket.onhost.apply import beat

        if action == "rollout-beat":
            beat.main(rest, sys.stdin.buffer.read(LARGEST_BYTES + 1))
        else:
            _write(beat.answer(rest))
        return 0
    if action == "fingerprint":
        from nearsocket.onhost import fingerprint

        return fingerprint.main(rest)
    if action == "relief":
        from nearsocket.onhost import relief

        return relief.main(rest)
    if action == "verify":
        from nearsocket.onhost.verify import atstart

        return atstart.main(rest)
    if action == "watch":
        from nearsocket.onhost.verify import watch

        return watch.main(options.parse(rest, ("root",)).get("root", "/"))
    if action == "verdicts":
        from nearsocket.onhost.verify import byhand

        _write(byhand.main(rest).encode("ascii") + b"\n")
        return 0
    if action == "wait-health":
        from nearsocket.onhost import waithealth

        return waithealth.main(rest)
    if action == "hook":
        from nearsocket.onhost import hook

        return hook.main(rest)
    if action == "wait-idle":
        from nearsocket.onhost import waitidle

        return waitidle.main(rest)
    if action in ("probe", "baseline", "prefill"):
        _write(_measure(action, rest))
        return 0
    raise UsageError(f"expected collect or another action, found {one_line(action, 60)!r}")


def _collect(rest: Sequence[str], survey: bool) -> int:
    given = options.parse(rest, ("timeout", "host", "root", *(["lock-wait"] if survey else [])))
    from nearsocket.onhost.collect.whole import collect

    if "lock-wait" in given:
        from nearsocket.onhost.apply import entry

        entry.idle(given.get("root", "/"), options.seconds(given["lock-wait"], 0, 86400))
    snapshot = collect(options.seconds(given.get("timeout", "60"), 1, 3600), given.get("host"))
    if survey:
        from nearsocket.onhost.apply import entry

        snapshot = entry.with_installed(snapshot, given.get("root", "/"))
    _write(snapshot.to_json(indent=None).encode("ascii") + b"\n")
    return 0


def _measure(action: str, rest: Sequence[str]) -> bytes:
    if action == "baseline":
        from nearsocket.onhost.probe import baselines

        return baselines.main(rest)
    options.parse(rest, ())
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if action == "prefill":
        from nearsocket.onhost.probe import prefill

        return prefill.run(text)
    from nearsocket.onhost.probe import entry

    return entry.run(text)


def _say(message: str, code: int) -> int:
    try:
        os.write(2, f"nearsocket: {message}\n".encode("ascii", "backslashreplace"))
    except OSError:
        pass  # nobody listens; the code says it
    return code


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]

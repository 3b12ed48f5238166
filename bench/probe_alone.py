"""The all-reduce probe on this machine itself, with nothing installed but a Python that has torch: no container, no inventory.

    python3 bench/probe_alone.py [--ranks 2] [--one-gpu] [--env NAME=VALUE ...] [--sizes 12K,48M] [--rounds 5] [--json FILE]
                                 [--sweep NAME=VALUE,VALUE ...] [--contrast] [--backend nccl|gloo] [--python PYTHON]

`nearsocket probe allreduce @local --python PYTHON` does the same where nearsocket is installed. --one-gpu puts all ranks on the
first GPU (NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=4 are set for it; NCCL 2.30.3 or newer): a rehearsal, not a measurement
of a host. Run it as root, so that the ranks' buffers can be looked at. Ends with 0, 1, 2 or 3 as the probe does; 64: wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nearsocket.model import near, read
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.exitcode import exit_code
from nearsocket.model.finding import Finding
from nearsocket.model.host import Host
from nearsocket.model.probe import allreduce, place, planning, sizes
from nearsocket.model.probe.order import Backend, Place
from nearsocket.model.probe.planning import CONFIGURED, FAR, NEAR, Base
from nearsocket.model.probe.series import of_starts
from nearsocket.model.probe.starts import ProbeOrder, Started, StartOrder
from nearsocket.model.text import one_line
from nearsocket.onhost.probe import entry
from nearsocket.report import probe as tables

ONE_GPU = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"}


def base(given: argparse.Namespace, host: Host) -> Base:
    """The ranks' places by the host as it is: one GPU each, or all on the first."""
    places = []
    for number in range(given.ranks):
        device = 0 if given.one_gpu or given.backend == "gloo" else number
        gpu = sorted(host.gpus, key=lambda one: one.pci)[device] if device < len(host.gpus) else None
        nodes = near.of_device(host, gpu) if gpu else None
        places.append(Place(device, gpu.pci if gpu else None, gpu.node if gpu else None, tuple(sorted(nodes or ()))))
    around = frozenset(node for one in places for node in one.near)
    far = tuple(node.id for node in host.nodes if node.id not in around and not node.memoryless) if around else ()
    chosen = {**(ONE_GPU if given.one_gpu else {}), **dict(given.env)}
    return Base(
        Backend(given.backend),
        tuple(places),
        given.sizes,
        given.rounds,
        given.budget,
        given.limit,
        {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **chosen},
        far,
        python=given.python,
    )


def orders(given: argparse.Namespace, ours: Base) -> tuple[StartOrder, ...]:
    """The starts that were asked for."""
    if given.sweep:
        return planning.sweep(ours, planning.sweep_settings(given.sweep), given.rounds)
    one = planning.start(ours, CONFIGURED, 0)
    return (one, *planning.contrast(ours)) if given.contrast else (one,)


def show(given: argparse.Namespace, ours: Base, runs: Sequence[Started]) -> list[Finding]:
    """Print the tables; the findings."""
    by_name: dict[str, list[Started]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    found = []
    for run in runs:
        judged = allreduce.judge(run.name, run)
        placement, _ = place.judge(run.name, run, ours.backend)
        if not given.sweep or judged.status.value != "pass":
            found += [judged, placement]
    table = {name: of_starts([run.rows for run in some if not run.failed]) for name, some in by_name.items()}
    if given.sweep:
        failures = {run.name: run.failed for run in runs if run.failed}
        found = [finding for finding in found if finding.status.value == "fail"]
        found.append(allreduce.judge_sweep("sweep", {name: one for name, one in table.items() if one}, failures))
        print("\n".join(tables.sweep(table)))
    else:
        print("\n".join(tables.sizes(table[CONFIGURED])))
    if given.contrast:
        contrast = allreduce.contrast(by_name[NEAR], by_name[FAR])
        where = {name: [place.judge(name, run, ours.backend)[1] for run in by_name[name]] for name in (NEAR, FAR)}
        found.append(allreduce.judge_contrast("contrast", contrast, where[NEAR], where[FAR]))
        print("\n".join(tables.against(("near", "far"), contrast.near, contrast.far)))
    return found


def variable(word: str) -> tuple[str, str]:
    """A variable of the ranks' environment. Raises UsageError for a word that sets none."""
    name, equals, value = word.partition("=")
    if not (name and equals):
        raise UsageError(f"--env: expected NAME=VALUE, found {one_line(word, 60)!r}")
    return name, value


def ended(act: Callable[[], int]) -> int:
    """The exit code; what the outside world got wrong is one line: 64 wrong usage, 2 refused or not written."""
    try:
        return act()
    except NearsocketError as error:
        print(f"{Path(sys.argv[0]).name}: {error.message}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
        return 64 if isinstance(error, UsageError) else 2
    except OSError as error:
        print(f"{Path(sys.argv[0]).name}: expected to write {error.filename}, found: {error.strerror}", file=sys.stderr)
        return 2


def options(description: str | None, budget_s: float, limit_s: float) -> argparse.ArgumentParser:
    """The options that say which ranks run, in what environment and for how long."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--one-gpu", action="store_true")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--env", action="append", default=[], type=variable, metavar="NAME=VALUE")
    parser.add_argument("--sizes", type=sizes.parse, default=sizes.DEFAULT, help="such as 12K,1M,48M")
    parser.add_argument("--budget", type=float, default=budget_s, help="seconds for one size in one round")
    parser.add_argument("--limit", type=float, default=limit_s, help="seconds for one start")
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch")
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    return parser


def main() -> int:
    """Measure, print, judge."""
    parser = options(__doc__, budget_s=0.2, limit_s=240.0)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of one start; starts of each setting in a sweep")
    parser.add_argument("--sweep", nargs="+", metavar="NAME=VALUE,VALUE")
    parser.add_argument("--contrast", action="store_true")
    given = parser.parse_args()
    seen = entry.look()
    ours = base(given, read.host(seen))
    runs = entry.each(ProbeOrder(orders(given, ours)))
    if given.json:
        given.json.write_text(json.dumps([run.to_json() for run in runs]), encoding="ascii")
    findings = show(given, ours, runs)
    for run in runs[:1]:
        print("ranks:", json.dumps(dict(run.facts)))
    for finding in findings:
        print(f"{finding.id or 'probe'} {finding.status.value}: {finding.subject}: {finding.summary}")
        for piece in finding.evidence[:4]:
            print(f"    {piece.source}: {piece.text}")
    return exit_code(findings)


if __name__ == "__main__":
    sys.exit(ended(main))

"""The ranks' parent: another Python, a container's runtime, a backend that is not there, and words that are no figures."""

from __future__ import annotations

import importlib.util
import os
import sys
import zipfile
from pathlib import Path

import pytest

from nearsocket.control import program
from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Status
from nearsocket.model.probe import allreduce
from nearsocket.model.probe.order import Backend, Place, RanksOrder
from nearsocket.model.probe.starts import ProbeOrder, StartOrder
from nearsocket.onhost.probe import entry, own, standin, supervise
from tests.onhost.probe.group import ENGINE, run


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("/nonexistent/python", "expected to start /nonexistent/python, found: No such file or directory"),
        ("/bin/false", "the ranks' Python ended with code 1 before it measured: nothing said"),
    ],
)
def test_a_python_that_cannot_run_them_is_one_line(python: str, said: str) -> None:
    ranks = RanksOrder(Backend.STANDIN, (Place(0), Place(1)), (4096,), limit_s=20)
    found = entry.each(ProbeOrder((StartOrder("a", ranks, python=python),), look=False))[0]
    assert found.failed == said


def test_the_ranks_take_the_program_from_their_input_as_a_container_does(tmp_path: Path) -> None:
    """A stand-in for a container's runtime: it has the file of the environment, a folder for the log, and no checkout."""
    archive = tmp_path / "program.zip"
    archive.write_bytes(program.build())
    assert zipfile.is_zipfile(archive)
    runtime = tmp_path / "runtime"
    runtime.write_text(
        '#!/bin/sh\nif [ "$1" = rm ]; then echo "$@" >>' + str(tmp_path / "removed") + "; exit 0; fi\n"
        'set -a; . "${2#--env-file=}"; set +a; test -d "${3#--log=}" || exit 9; shift 3; exec "$@"\n'
    )
    runtime.chmod(0o755)
    words = (str(runtime), "run", "--env-file=@FOLDER@/env", "--log=@FOLDER@/log", sys.executable)
    variables = {"NCCL_CUMEM_ENABLE": "0", "PYTHONPATH": ENGINE}
    ranks = RanksOrder(Backend.STANDIN, (Place(0, node=0), Place(1, node=0)), (4096,), 1, 0.02, 60, variables)
    order = StartOrder("a", ranks, words, runtime=str(runtime), container="nearsocket-probe-1")
    found = entry.each(ProbeOrder((order,), False), own.Program(str(archive), archive.read_bytes()))[0]
    assert found.failed is None, found.words
    assert {row.rank for row in found.rows} == {0, 1}
    assert (tmp_path / "removed").read_text() == "rm --force --volumes nearsocket-probe-1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount needs root")
def test_ranks_have_a_shared_memory_of_their_own_and_it_goes_with_the_start(tmp_path: Path) -> None:
    archive, seen = tmp_path / "program.zip", tmp_path / "seen"
    archive.write_bytes(program.build())
    runtime = tmp_path / "runtime"
    runtime.write_text(
        '#!/bin/sh\n[ "$1" = rm ] && exit 0\nshm=$2; shift 2\n'
        'while read -r _ point kind options _; do [ "$point" = "$shm" ] && echo "$kind $options $shm"; done </proc/mounts '
        f'>{seen}\nexec "$@"\n'
    )
    runtime.chmod(0o755)
    words = (str(runtime), "run", "@FOLDER@/shm", sys.executable)
    ranks = RanksOrder(Backend.STANDIN, (Place(0), Place(1)), (4096,), 1, 0.02, 60, {"PYTHONPATH": ENGINE})
    order = StartOrder("a", ranks, words, runtime=str(runtime), container="nearsocket-probe-1", shm="mode=1777,size=1m")
    try:
        entry.each(ProbeOrder((order,), False), own.Program(str(archive), archive.read_bytes()))
    except NearsocketError as error:
        assert "expected to mount a /dev/shm for the ranks" in error.message
        pytest.skip("no mounts here")
    kind, options, where = seen.read_text().split()
    assert kind == "tmpfs" and "size=1024k" in options
    assert where not in Path("/proc/mounts").read_text()
    assert not Path(where).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "docker: Error response from daemon: No such image: x@sha256:1.\nSee 'docker run --help'.",
            "docker: Error response from daemon: No such image: x@sha256:1.",
        ),
        ("Error: x@sha256:1: image not known", "Error: x@sha256:1: image not known"),
        (
            "docker: Error response from daemon: could not select device driver\n\nRun 'docker run --help' for more information",
            "driver",
        ),
    ],
)
def test_a_runtime_that_starts_no_container_is_nothing_that_was_tried(tmp_path: Path, words: str, said: str) -> None:
    """A stand-in for the runtime, with what docker 26 and podman 5 print."""
    runtime = tmp_path / "runtime"
    runtime.write_text(f"""#!/bin/sh\n[ "$1" = rm ] && exit 0\ncat >&2 <<'END'\n{words}\nEND\nexit 125\n""")
    runtime.chmod(0o755)
    ranks = RanksOrder(Backend.STANDIN, (Place(0), Place(1)), (4096,), 1, limit_s=20)
    order = StartOrder("a", ranks, (str(runtime), "run"), runtime=str(runtime), container="nearsocket-probe-1")
    found = entry.each(ProbeOrder((order,), look=False))[0]
    judged = allreduce.judge("x", found)
    assert judged.status is Status.UNKNOWN
    assert said in judged.summary
    assert "started no container" in judged.summary


SAYS = """#!{python}
import json, sys
row = {{"rank": 0, "round": 0, "size_bytes": 4096, "count": 5, "median_us": 1, "p99_us": 1, "min_us": 1, "mean_us": 1,
       "wrong": 0, "first_wrong": None}}
print(json.dumps({{"facts": {{}}, "rank": 0, "capped_bytes": None}}))
print(json.dumps({{"row": row, "rank": 0}}))
for changes in {changes}:
    print(json.dumps({{"row": {{**row, "rank": 1, **changes}}, "rank": 1}}))
print(json.dumps({{"holding": [1, 2]}}), flush=True)
sys.stdin.readline()
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([{}], None),
        ([{"wrong": 512, "median_us": "fast"}], "a rank said figures that cannot be read: median_us: expected microseconds"),
        ([{"wrong": 512, "extra": 1}], "a rank said figures that cannot be read"),
        ([], "(2), found 1; rank 1 told nothing of 4 KiB in round 1"),
    ],
)
def test_a_row_that_cannot_be_read_or_is_missing_fails_the_start(tmp_path: Path, changes: object, said: str | None) -> None:
    """A stand-in for the ranks' parent, which says the rows of two ranks."""
    parent = tmp_path / "parent"
    parent.write_text(SAYS.format(python=sys.executable, changes=changes))
    parent.chmod(0o755)
    ranks = RanksOrder(Backend.STANDIN, (Place(0), Place(1)), (4096,), 1, limit_s=20)
    found = entry.each(ProbeOrder((StartOrder("a", ranks, (str(parent),)),), look=False))[0]
    assert (said in (found.failed or "")) if said else found.failed is None
    assert allreduce.judge("x", found).status is (Status.FAIL if said else Status.PASS)


def test_a_value_of_several_lines_cannot_enter_an_environment_file() -> None:
    with pytest.raises(Exception, match="expected one line"):
        supervise.environment_file({"A": "1\nB=2"})
    assert supervise.environment_file({"B": "x y", "A": "'1'"}) == b"A='1'\nB=x y\n"


def test_ranks_without_what_they_need_say_that_they_lack_it() -> None:
    found = run(PYTHONPATH="/nowhere")
    assert found.lacks
    assert "expected the lab's stand-in engine on PYTHONPATH" in (found.failed or "")
    assert not run(**{standin.FAULT: "dead-rank"}).lacks


def test_ranks_of_torch_say_that_there_is_none() -> None:
    if importlib.util.find_spec("torch"):
        pytest.skip("this Python has torch")
    ranks = RanksOrder(Backend.GLOO, (Place(0), Place(1)), (4096,), 1, 0.02, 60.0)
    (found,) = entry.each(ProbeOrder((StartOrder("a", ranks, (), sys.executable),), False))
    assert found.lacks
    assert "expected torch in the ranks' Python, found none" in (found.failed or "")

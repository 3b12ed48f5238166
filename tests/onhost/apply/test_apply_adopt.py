"""An engine of somebody else's taken over: at once, or when it next stops; it is kept, and removal puts it back as it was."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from nearsocket.model.generation import Generation
from nearsocket.model.handover import Handover
from nearsocket.model.order import Order, from_json
from nearsocket.model.outcome import Outcome
from nearsocket.model.settings import Adopt
from nearsocket.onhost.apply.adopt import drop_in
from nearsocket.onhost.apply.run import apply
from nearsocket.onhost.apply.systemctl import Systemctl
from tests import build
from tests.onhost.apply.kill import killed
from tests.onhost.apply.made import PROGRAM, Host, generation
from tests.onhost.apply.test_apply_guard import GPU, on

OLD, OURS = "glm.service", "nearsocket-x-a.service"
OUR_WANTS = f"/etc/systemd/system/multi-user.target.wants/{OURS}"
WANTS = f"/etc/systemd/system/multi-user.target.wants/{OLD}"
MADE = generation({"a": "one"})


def serving(root: Path) -> Host:
    """A host whose unit serves, and a container beside it that no unit runs."""
    host = Host(root)
    host.at(f"/etc/systemd/system/{OLD}").write_text("[Service]\nExecStart=/usr/bin/docker run --name glm image\nRestart=always\n")
    host.at(WANTS).parent.mkdir()
    host.at(WANTS).symlink_to(f"/etc/systemd/system/{OLD}")
    for place in ("/usr/local/lib", "/var/lib", "/proc/net"):
        host.at(place).mkdir(parents=True)
    # Its engine has the port that the replica will have.
    row = "   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 4711 1 0 100 0 0 10 0"
    host.at("/proc/net/tcp").write_text(f"head\n{row}\n")
    text = host.at(f"/etc/systemd/system/{OLD}").read_text()
    host.system.change(active={OLD: {"text": text, "id": "7", "state": "active"}}, running=["glm"], containers=["glm"])
    return host


#: Some hundred runs each where a cut is tried everywhere; seconds on a machine that is at rest.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("quick_disk")]


@pytest.fixture
def host(root: Path) -> Host:
    return serving(root)


def unit(how: Adopt) -> Handover:
    return Handover("a", OURS, how, OLD, "glm", "docker", "no", 5)


def box(how: Adopt) -> Handover:
    return Handover("a", OURS, how, None, "glm", "docker", "always", 5)


def adopt(host: Host, one: Handover, made: Generation = MADE) -> Outcome:
    return host.apply(made, handovers=(one,))


def active(host: Host) -> set[str]:
    return set(host.system.state["active"])


def test_without_leave_the_engine_that_has_the_port_stops_the_apply(host: Host) -> None:
    assert "port 30000" in (host.apply(MADE).error or "")
    assert active(host) == {OLD}


def test_taken_over_now_the_old_unit_is_stopped_kept_and_out_of_the_boot(host: Host) -> None:
    before = host.at(f"/etc/systemd/system/{OLD}").read_text()
    outcome = adopt(host, unit(Adopt.NOW))
    assert outcome.error is None
    assert active(host) == {OURS}
    assert host.at(f"/etc/systemd/system/{OLD}").read_text() == before
    assert not host.at(WANTS).is_symlink()
    text = host.at(drop_in(OLD)).read_text()
    assert "ConditionPathExists=!/etc/nearsocket/current" in text
    assert "Restart=no" in text
    assert "OnSuccess" not in text
    verbs = [words[1] for words in host.system.state["calls"] if words[0] == "systemctl"]
    assert verbs.index("daemon-reload") < verbs.index("stop") < verbs.index("reset-failed") < verbs.index("start")
    assert ["systemctl", "reset-failed", OLD] in host.system.state["calls"], "that it ended with 143 was asked for"
    assert host.apply(MADE).changes == ()


def test_handed_over_at_the_next_stop_it_serves_on_and_the_replica_waits(host: Host) -> None:
    outcome = adopt(host, unit(Adopt.NEXT_RESTART))
    assert outcome.error is None
    assert active(host) == {OLD}
    assert not {"stop", "restart", "start"} & {words[1] for words in host.system.state["calls"] if words[0] == "systemctl"}
    text = host.at(drop_in(OLD)).read_text()
    assert f"OnSuccess={OURS}\nOnFailure={OURS}\n" in text
    assert host.system.state["images"] == [MADE.manifest.replicas[0].image], "the image is there when the moment comes"
    assert any("runs on; replica a starts when it stops" in str(change) for change in outcome.changes)
    # Further runs leave both alone, whether they still say that it is to be handed over or not.
    assert adopt(host, unit(Adopt.NEXT_RESTART)).changes == ()
    assert host.apply(MADE).changes == ()
    assert active(host) == {OLD}


def test_once_it_has_stopped_the_replica_is_one_like_any_other(host: Host) -> None:
    adopt(host, unit(Adopt.NEXT_RESTART))
    state = host.system.state["active"]
    state.pop(OLD)
    host.system.change(active=state)
    outcome = host.apply(MADE)
    assert active(host) == {OURS}
    assert [str(change) for change in outcome.changes] == [f"start unit {OURS} (was inactive (dead))"]


def test_waiting_turns_into_now_on_demand(host: Host) -> None:
    adopt(host, unit(Adopt.NEXT_RESTART))
    assert adopt(host, unit(Adopt.NOW)).error is None
    assert active(host) == {OURS}
    assert json.loads(host.tree.adopted.read_text())["a"]["links"] == {WANTS: f"/etc/systemd/system/{OLD}"}
    assert "OnSuccess" not in host.at(drop_in(OLD)).read_text()


def test_a_container_that_no_unit_runs_does_not_come_back_and_systemd_waits_for_its_end(host: Host) -> None:
    assert adopt(host, box(Adopt.NEXT_RESTART)).error is None
    calls = host.system.state["calls"]
    assert ["docker", "update", "--restart=no", "glm"] in calls
    (run,) = [words for words in calls if words[0] == "systemd-run"]
    assert f"--property=OnSuccess={OURS}" in run
    assert run[-3:] == ["/usr/bin/docker", "wait", "glm"]
    assert host.apply(MADE).changes == ()
    assert OURS not in active(host)


def test_a_container_is_stopped_and_kept_where_it_is_taken_over_now(host: Host) -> None:
    assert adopt(host, box(Adopt.NOW)).error is None
    assert host.system.state["running"] == []
    assert host.system.state["containers"] == ["glm"]
    assert OURS in active(host)


@pytest.mark.parametrize("one", [unit(Adopt.NOW), box(Adopt.NOW)], ids=["unit", "container"])
def test_where_the_new_one_does_not_start_the_old_one_runs_again(host: Host, one: Handover) -> None:
    host.system.change(broken=[OURS])
    outcome = adopt(host, one)
    assert outcome.error is not None
    assert f"{one.old} runs again" in outcome.error
    assert OURS not in active(host)
    assert (OLD in active(host)) if one.old_unit else (host.system.state["running"] == ["glm"])
    assert host.at(WANTS).is_symlink()
    assert not host.at(drop_in(OLD)).exists()
    assert not host.at(OUR_WANTS).is_symlink(), "the next boot starts one of them"


@pytest.mark.parametrize("one", [unit(Adopt.NOW), box(Adopt.NOW)], ids=["unit", "container"])
def test_after_a_failed_take_over_the_next_apply_leaves_one_engine_and_not_two(host: Host, one: Handover) -> None:
    """The generation is in force and its replica does not run: without the handover, the GPU is the old engine's."""
    made = on(GPU, MADE)
    host.system.change(broken=[OURS])
    assert adopt(host, one, made).error is not None
    host.system.change(broken=[])
    running = {"active": active(host), "running": host.system.state["running"]}
    old = build.host()  # its container holds both GPUs
    refused = apply(Order(made, accept_reload_risk=True), PROGRAM, host.tree, Systemctl(host.system), look=lambda: old)
    assert f"expected GPU {GPU} to be free" in (refused.error or "")
    assert {"active": active(host), "running": host.system.state["running"]} == running
    again = adopt(host, one, made)
    assert again.error is None
    assert OURS in active(host)
    assert OLD not in active(host) if one.old_unit else host.system.state["running"] == []
    assert host.at(OUR_WANTS).is_symlink()


def test_a_unit_whose_container_docker_itself_would_start_again_is_told_and_so_is_docker(host: Host) -> None:
    one = dataclasses.replace(unit(Adopt.NOW), restart="always")
    assert adopt(host, one).error is None
    assert ["docker", "update", "--restart=no", "glm"] in host.system.state["calls"]
    assert host.at(drop_in(OLD)).exists()
    assert host.apply(None, remove=True).error is None
    assert ["docker", "update", "--restart=always", "glm"] in host.system.state["calls"]
    assert not host.at(drop_in(OLD)).exists()


def test_a_restart_policy_that_cannot_be_put_back_stops_the_removal_and_is_not_forgotten(host: Host) -> None:
    adopt(host, box(Adopt.NOW))
    host.system.change(stubborn=["glm"])
    outcome = host.apply(None, remove=True)
    assert "cannot update container glm" in (outcome.error or "")
    assert "a" in json.loads(host.tree.adopted.read_text())
    host.system.change(stubborn=[])
    assert host.apply(None, remove=True).error is None


def test_the_restart_policy_of_a_container_that_is_gone_holds_no_removal_up(host: Host) -> None:
    adopt(host, box(Adopt.NOW))
    host.system.change(stubborn=["glm"], containers=[])
    assert host.apply(None, remove=True).error is None


def test_a_systemd_that_starts_nothing_at_an_end_is_not_waited_for(host: Host) -> None:
    before = host.tree_of_files()
    host.system.change(version=248)
    for one in (unit(Adopt.NEXT_RESTART), box(Adopt.NEXT_RESTART)):
        outcome = adopt(host, one)
        assert "expected systemd 249 or newer for `adopt: next-restart`, found systemd 248" in (outcome.error or "")
    assert host.tree_of_files() == before
    assert adopt(host, unit(Adopt.NOW)).error is None


@pytest.mark.parametrize("how", [Adopt.NOW, Adopt.NEXT_RESTART])
def test_after_removal_the_old_unit_is_as_it_was_before(host: Host, how: Adopt) -> None:
    before = host.tree_of_files()
    assert adopt(host, unit(how)).error is None
    outcome = host.apply(None, remove=True)
    assert outcome.error is None
    assert host.tree_of_files() == before
    assert any(f"{OLD} is as it was before it was taken over" in note for note in outcome.notes)
    assert OURS not in active(host)
    assert (OLD in active(host)) == (how is Adopt.NEXT_RESTART)


def test_after_removal_a_container_has_its_restart_policy_again(host: Host) -> None:
    adopt(host, box(Adopt.NOW))
    assert host.apply(None, remove=True).error is None
    assert ["docker", "update", "--restart=always", "glm"] in host.system.state["calls"]


def test_after_removal_nobody_waits_any_more_for_the_old_containers_end(host: Host) -> None:
    adopt(host, box(Adopt.NEXT_RESTART))
    watcher = "nearsocket-handover-a.service"
    host.system.change(active={**host.system.state["active"], watcher: {"text": "", "id": "9", "state": "active"}})
    assert host.apply(None, remove=True).error is None
    calls = [words[1:] for words in host.system.state["calls"] if words[0] == "systemctl"]
    assert calls.index(["stop", watcher]) > len(calls) - 1 - calls[::-1].index(["daemon-reload"])
    assert watcher not in active(host)
    assert host.system.state["running"] == ["glm"]


def test_a_handover_is_cut_anywhere_and_the_next_run_completes(tmp_path: Path) -> None:
    base = serving(tmp_path / "base")
    for how, end in ((Adopt.NOW, {OURS}), (Adopt.NEXT_RESTART, {OLD})):
        for at in range(1, 1000):
            root = tmp_path / "root"
            shutil.copytree(base.root, root, symlinks=True)
            host = Host(root)
            if not killed(lambda bomb, host=host, how=how: adopt(host, unit(how)), at, False):  # type: ignore[misc]
                break
            assert active(host) <= {OLD, OURS}
            still = OLD in active(host)
            outcome = host.apply(MADE, handovers=(unit(how),) if still else ())
            assert outcome.error is None, (at, outcome.error)
            assert active(host) == end, at
            assert host.at(drop_in(OLD)).exists()
            assert not host.at(WANTS).is_symlink()
            taken = json.loads(host.tree.adopted.read_text())["a"]["links"]
            assert taken == {WANTS: f"/etc/systemd/system/{OLD}"}, at
            shutil.rmtree(root)
        shutil.rmtree(tmp_path / "root", ignore_errors=True)
        assert at > 40


def test_an_order_with_handovers_survives_its_way() -> None:
    order = Order(MADE, handovers=(unit(Adopt.NOW), box(Adopt.NEXT_RESTART)), remove=True, keep_engines=True)
    assert from_json(order.to_json()) == order

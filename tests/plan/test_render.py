"""The files of a generation: reviewed as they are, accepted by systemd, true to the plan, without a secret."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nearsocket.control.container import environment
from nearsocket.control.planning import existing, files
from nearsocket.control.render import render
from nearsocket.model import programs, read
from nearsocket.model.consequence import MOST_RESTARTS
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Generation
from nearsocket.model.plan.make import plan
from nearsocket.model.plan.values import Gate
from nearsocket.model.settings import Hooks, OnFar, Relief, TuneSettings, Verify
from nearsocket.model.start import from_json, gpu_words, start_env
from nearsocket.onhost.verify import watch
from tests.plan.hosts import asked, four_on_one_socket, replica
from tests.plan.rendered import CASES, FOLDER, RECORD, TEMPLATES, awkward, made, recipe
from tests.plan.test_grammar import command_line, environment_file


def text(generation: Generation, path: str) -> str:
    return generation.contents[path].decode()


def setting(unit: str, name: str) -> list[str]:
    """The values of one setting of a unit, continued lines joined."""
    joined = unit.replace("\\\n", " ")
    return [line.partition("=")[2] for line in joined.splitlines() if line.startswith(f"{name}=")]


@pytest.mark.parametrize("name", CASES)
def test_the_files_are_the_reviewed_ones(name: str) -> None:
    rendered = files(CASES[name]())
    assert sorted(rendered) == existing(FOLDER / name)
    for path, content in rendered.items():
        assert content == (FOLDER / name / path).read_bytes(), f"{name}/{path}: python -m tests.plan, then review the difference"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze on this machine")
@pytest.mark.parametrize("name", CASES)
def test_systemd_accepts_the_units(name: str, tmp_path: Path) -> None:
    assert systemd_says(CASES[name](), tmp_path) == (0, "")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze on this machine")
@pytest.mark.parametrize("policy", OnFar)
def test_systemd_accepts_the_units_of_every_policy(policy: OnFar, tmp_path: Path) -> None:
    assert systemd_says(awkward(policy), tmp_path) == (0, "")


def systemd_says(generation: Generation, tmp_path: Path) -> tuple[int, str]:
    """What `systemd-analyze verify` says of a generation's units."""
    stand_in = shutil.which("true") or ""
    names = []
    for path, content in generation.contents.items():
        if path.startswith("systemd/"):
            target = tmp_path / Path(path).name
            # verify asks whether programs exist; the runtime, the hooks' and this interpreter's need not be on this machine
            unit = re.sub(r"(?<==)(-?)/usr/(local/)?bin/(docker|podman|lb|python3|rm)\b", rf"\g<1>{stand_in}", content.decode())
            target.write_text(unit)
            names.append(str(target))
    (tmp_path / "docker.service").write_text(f"[Service]\nExecStart={stand_in}\n")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_systemd_would_not_accept_a_broken_one(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze on this machine")
    unit = tmp_path / "broken.service"
    unit.write_text("[Service]\nType=exec\nExecStart=/no/such/program\n")
    assert subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, check=False).returncode


def test_awkward_values_reach_the_engine_as_they_were() -> None:
    unit = text(CASES["awkward"](), "systemd/nearsocket-sglang-odd.service")
    [command] = setting(unit, "ExecStart")
    words = command_line(re.sub(r"\$\{?[A-Z_]+\}?(?=[ ,]|$)", "variable", command.replace("$$", "\0")).replace("\0", "$$"))
    assert words[-4:] == ["--chat-template={{ 'a' }} \\ \"b\" %n $HOME ${X}", "", ";", "ä"]
    assert "--mount=type=bind,source=/srv/model's/50% $off,target=/srv/model's/50% $off,readonly" in words
    env = text(CASES["awkward"](), "env/odd.env")
    assert "\nPROMPT=100 % \"quoted\" $HOME 'x' \\n #\n" in env
    drain = command_line(setting(unit, "ExecStop")[0].removeprefix("-"))
    assert drain[drain.index("hook") :][2:] == ["--hook=drain", "--timeout=120", "--", "/usr/local/bin/lb", "drain", "a b"]


def test_secrets_are_named_by_their_file_and_never_read() -> None:
    generation = CASES["awkward"]()
    start = from_json(text(generation, "replicas/odd.json"))
    assert start.secrets == {"HF_TOKEN": "/etc/secrets/hf"}
    unit = text(generation, "systemd/nearsocket-sglang-odd.service")
    assert "--env-file=/run/nearsocket/odd/secrets.env" in unit
    assert "/etc/secrets" not in unit
    assert "HF_TOKEN" not in unit + text(generation, "env/odd.env")
    assert "ExecStopPost=-/usr/bin/rm -f /run/nearsocket/odd/secrets.env" in unit


def test_environment_files_are_for_root_alone_and_others_are_readable() -> None:
    for name in CASES:
        modes = {entry.path: entry.mode for entry in CASES[name]().manifest.files}
        assert all(mode == ("0600" if path.startswith("env/") else "0644") for path, mode in modes.items())


def test_every_file_says_who_wrote_it_and_how_to_change_it() -> None:
    for path, content in CASES["over-two-sockets"]().contents.items():
        if not path.endswith(".json"):
            assert content.decode().startswith("# Written by nearsocket for gpu1.")
            assert "change the fleet file" in content.decode()


def test_the_limits_are_longer_than_the_wait_and_restarts_end() -> None:
    unit = text(CASES["recipe-docker"](), "systemd/nearsocket-sglang-glm-a.service")
    start, stop = int(setting(unit, "TimeoutStartSec")[0]), int(setting(unit, "TimeoutStopSec")[0])
    assert start > 1800
    assert stop > 120
    assert int(setting(unit, "StartLimitIntervalSec")[0]) > int(setting(unit, "StartLimitBurst")[0]) * (start + stop)


@pytest.mark.parametrize("policy", OnFar)
def test_no_exit_code_of_the_proof_acts_and_only_under_fail_the_unit_fails_by_the_policys_mark(policy: OnFar) -> None:
    one = replica("a", verify=Verify(policy, api_key="KEY", metrics="/srv/my metrics"), secrets={"KEY": "/etc/secrets/key"})
    generation = made(read.host(four_on_one_socket()), asked(one))
    unit = text(generation, "systemd/nearsocket-sglang-a.service")
    [_, proof] = [post for post in setting(unit, "ExecStartPost") if "health" in post or "verify" in post]
    assert proof.startswith("-")
    mark = '/usr/bin/test "!" -e /run/nearsocket/a/acted-far'
    assert (setting(unit, "ExecStopPost")[-1] == mark) == (policy is OnFar.FAIL)
    assert setting(unit, "RestartPreventExitStatus") == []
    assert setting(unit, "Restart") == ["on-failure"]
    # SGLang kills itself with SIGKILL when it is stopped: clean where a stop was asked for, else a crash like any other.
    assert "137" in setting(unit, "SuccessExitStatus")[0].split()
    assert setting(unit, "RestartForceExitStatus") == ["137"]
    start = from_json(text(generation, "replicas/a.json"))
    assert start.verify == one.verify
    assert start.window_s == int(setting(unit, "StartLimitIntervalSec")[0])
    own = MOST_RESTARTS if policy is OnFar.RESTART else 0
    assert int(setting(unit, "StartLimitBurst")[0]) == one.limits.restarts + 1 + own
    assert start.window_s > int(setting(unit, "StartLimitBurst")[0]) * int(setting(unit, "TimeoutStartSec")[0])
    assert start.slice in unit
    assert '"/srv/my metrics"' in text(generation, "systemd/nearsocket-watch.service")
    [forget] = [line for line in setting(unit, "ExecStopPost") if ".prom" in line]
    assert command_line(forget.removeprefix("-"))[-1] == "/srv/my metrics/nearsocket-a.prom"


@pytest.mark.parametrize("policy", OnFar)
def test_a_start_that_its_policy_is_ending_gets_no_traffic(policy: OnFar) -> None:
    """systemd goes on with the next command where one with `-` was killed."""
    one = replica("a", verify=Verify(policy), hooks=Hooks(drain=("/bin/out",), undrain=("/bin/in",)))
    posts = setting(text(made(read.host(four_on_one_socket()), asked(one)), "systemd/nearsocket-sglang-a.service"), "ExecStartPost")
    guards = [] if policy is OnFar.WARN else ['/usr/bin/test "!" -e /run/nearsocket/a/acted-far']
    assert posts[-1 - len(guards) : -1] == guards
    assert posts[-1].startswith("-")
    assert posts[-1].endswith(" hook --replica=a --hook=undrain --timeout=60 -- /bin/in")


@pytest.mark.parametrize("count", [1, 4])
def test_the_watch_has_time_for_the_longest_look_at_each_replica(count: int) -> None:
    replicas = [replica(f"r{number}", count=1) for number in range(count)]
    service = text(made(read.host(four_on_one_socket()), asked(*replicas)), "systemd/nearsocket-watch.service")
    assert int(setting(service, "TimeoutStartSec")[0]) > count * (watch.LOOK_S + watch.SPARE_S)


def test_the_watch_starts_at_boot_where_there_is_a_replica_and_not_without() -> None:
    links = {link.path for link in CASES["recipe-docker"]().manifest.links}
    assert "/etc/systemd/system/timers.target.wants/nearsocket-watch.timer" in links
    assert not any("wants/nearsocket-watch.service" in path for path in links)
    bare = made(read.host(four_on_one_socket()), asked(tune=TuneSettings(numa_balancing=0)))
    assert not any("watch" in entry.path for entry in bare.manifest.files)


def test_all_layers_agree() -> None:
    generation = CASES["recipe-docker"]()
    unit, env = text(generation, "systemd/nearsocket-sglang-glm-a.service"), text(generation, "env/glm-a.env")
    assert "mpol=bind:1\n" in text(generation, "systemd/run-nearsocket-shm-glm_a.mount")
    assert 'Environment="NUMACTL=numactl --membind=1"' in unit
    assert "NCCL_CUMEM_ENABLE=1\n" in env
    assert "SGLANG_AUTO_NUMA_BIND=0\n" in env
    assert "--cap-add=SYS_NICE" in unit
    assert "--cap-add" not in text(CASES["awkward"](), "systemd/nearsocket-sglang-odd.service")  # a mount and a cpuset need none


def test_a_group_over_two_sockets_is_bound_by_its_engine_alone() -> None:
    unit = text(CASES["over-two-sockets"](), "systemd/nearsocket-vllm-wide.service")
    assert 'Environment="ENGINE_BINDING=--numa-bind --numa-bind-nodes 0 0 0 0 1 1 1 1"' in unit
    assert 'Environment="NUMACTL="' in unit
    assert "target=/dev/shm" not in unit


def test_an_unbound_start_sets_every_variable_that_binds() -> None:
    for name in CASES:
        generation = CASES[name]()
        for path, content in generation.contents.items():
            if not path.startswith("replicas/"):
                continue
            start = from_json(content.decode())
            assert start.to_json().encode() == content
            values = environment_file(start_env(start, ("GPU-1", "GPU-2"), "/run/nearsocket/x/7", unbound=True))
            assert set(values) == {programs.GPUS, programs.START_DIR, *start.bound}
            assert not any(word in " ".join(values.values()) for word in ("cpuset", "membind", "numa", "shm/"))
            bound = environment_file(start_env(start, ("GPU-1", "GPU-2"), "/x", unbound=False))
            assert {key: bound[key] for key in start.bound} == start.bound


def test_gpus_are_named_as_the_gate_wants_them() -> None:
    assert gpu_words(Gate.CDI_UUID, ("GPU-1", "GPU-2")) == "--device=nvidia.com/gpu=GPU-1 --device=nvidia.com/gpu=GPU-2"
    assert gpu_words(Gate.GPUS, ("GPU-1", "GPU-2")) == '"device=GPU-1,GPU-2"'  # Docker splits --gpus at commas outside quotes


def test_the_plans_word_wins_over_the_environment() -> None:
    one = plan(read.host(four_on_one_socket()), asked(replica(environment={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}))).replicas[0]
    assert environment(one)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_the_patch_is_switched_on_where_it_is_asked_for() -> None:
    image = dataclasses.replace(replica().image, patch="chunked-pcie-allreduce")
    generation = made(read.host(four_on_one_socket()), asked(replica(image=image)))
    assert "SGLANG_PCIE_IPC_CHUNKED=1\n" in text(generation, "env/a.env")


def test_without_binding_nothing_binds_and_the_engine_is_left_alone() -> None:
    generation = made(read.host(four_on_one_socket()), asked(replica(binding=frozenset(), relief=Relief.NONE)))
    unit, env = text(generation, "systemd/nearsocket-sglang-a.service"), text(generation, "env/a.env")
    assert "cpuset" not in unit
    assert "NCCL_CUMEM_ENABLE" not in env
    assert "SGLANG_AUTO_NUMA_BIND" not in env


@pytest.mark.parametrize(
    "changes", [{"model": "/srv/a,b"}, {"mounts": ("/a:b",)}, {"mounts": ("/a:/b:exec",)}, {"arguments": ("a\nb",)}]
)
def test_what_no_grammar_can_hold_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(NearsocketError):
        made(read.host(four_on_one_socket()), asked(replica(**changes)))


def test_a_refused_plan_is_not_rendered() -> None:
    with pytest.raises(NearsocketError, match="more replicas than GPUs"):
        render(plan(read.host(four_on_one_socket()), asked(replica(count=5))), RECORD, TEMPLATES)


def test_a_template_that_a_project_broke_is_one_line(tmp_path: Path) -> None:
    wanted = plan(read.host(four_on_one_socket()), asked(replica()))
    with pytest.raises(NearsocketError, match=r"template systemd/replica.slice.j2: expected it to fill in"):
        render(wanted, RECORD, tmp_path)
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd" / "replica.slice.j2").write_text("{{ nam }}")
    with pytest.raises(NearsocketError, match="'nam' is undefined"):
        render(wanted, RECORD, tmp_path)


def test_updates_are_kept_from_what_gpus_depend_on_where_that_is_asked_for_and_the_audit_believes_it() -> None:
    blacklist = dataclasses.replace(recipe(), tune=TuneSettings(updates="blacklist"))
    generation = made(read.host(four_on_one_socket()), blacklist)
    link = next(link for link in generation.manifest.links if link.path == "/etc/apt/apt.conf.d/99nearsocket")
    assert (link.unit, link.target) == (False, "/etc/nearsocket/current/apt.conf.d/nearsocket")
    assert "apt.conf.d/nearsocket" not in generation.manifest.reapply
    written = text(generation, "apt.conf.d/nearsocket")
    words = re.findall(r'"([^"]+)";', written)
    parts = ("nvidia-driver-580-server", "libnvidia-compute-580", "libnvoptix1", "libnvcuvid1", "xserver-xorg-video-nvidia-580")
    along = ("nvlink5-580", "nvlsm", "linux-objects-nvidia-580-6.8.0-87-generic", "linux-signatures-nvidia-6.8.0-87-generic")
    for name in (*parts, *along, "nvidia-container-toolkit", "linux-image-6.8.0-87-generic", "docker-ce", "containerd.io"):
        assert any(re.match(word, name) for word in words), name
    for name in ("openssh-server", "libc6", "linux-libc-dev"):
        assert not any(re.match(word, name) for word in words), name
    for settings in (recipe(), dataclasses.replace(recipe(), tune=TuneSettings(updates="leave"))):
        assert "apt.conf.d/nearsocket" not in made(read.host(four_on_one_socket()), settings).contents


def test_where_there_is_no_apt_the_blacklist_is_refused() -> None:
    other = dataclasses.replace(read.host(four_on_one_socket()), os_id="rocky")
    refused = plan(other, dataclasses.replace(recipe(), tune=TuneSettings(updates="blacklist"))).refusals
    assert [refusal.reason for refusal in refused] == ["tune: updates: blacklist is a setting of apt's, and this host is rocky"]

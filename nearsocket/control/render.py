"""A plan to a generation: templates filled in, every value escaped for its grammar. Pure but for reading templates."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jinja2

from nearsocket.control import container, start_record
from nearsocket.model import cpulist, env_file, programs, systemd
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import File, Generation, Link, Manifest, Record, ReplicaEntry, UnitEntry, file
from nearsocket.model.places import FINGERPRINT, METRICS, hold_file, let_start
from nearsocket.model.plan import tune
from nearsocket.model.plan.make import slug
from nearsocket.model.plan.values import Plan, ReplicaPlan
from nearsocket.model.start import gpu_words
from nearsocket.model.text import one_line

UNITS = "/etc/systemd/system"
SYSCTL, TMPFILES = "/etc/sysctl.d/90-nearsocket.conf", "/etc/tmpfiles.d/nearsocket.conf"
APT = "/etc/apt/apt.conf.d/99nearsocket"
#: The proof's second look at what runs.
WATCH = "nearsocket-watch"


def render(plan: Plan, record: Record, templates: Path) -> Generation:
    """The generation of that plan, by the templates of that folder.

    Raises NearsocketError where the plan is refused or a value cannot be written safely.
    """
    if plan.refused:
        first = plan.refusals[0]
        raise NearsocketError(f"{first.subject}: {first.reason}", first.hint)
    made = _Made(plan.host, templates)
    made.add(FINGERPRINT, json.dumps(plan.fingerprint.to_json(), indent=2, sort_keys=True) + "\n")
    replicas = tuple(_replica(plan, replica, made) for replica in plan.managed)
    if replicas:
        _watch(plan, made)
    _tuning(plan, made)
    manifest = Manifest(
        host=plan.host,
        fingerprint=plan.fingerprint.digest,
        files=tuple(sorted(made.files, key=lambda entry: entry.path)),
        links=tuple(sorted(made.links, key=lambda link: link.path)),
        units=tuple(sorted(made.units, key=lambda unit: unit.name)),
        replicas=replicas,
        sysctl=dict(plan.sysctl),
        reapply=tuple(made.reapply),
        record=record,
    )
    return Generation(manifest, made.contents)


class _Made:
    """The files, links and units as they come."""

    def __init__(self, host: str, templates: Path) -> None:
        self.host = host
        self.templates = templates
        self.files: list[File] = []
        self.contents: dict[str, bytes] = {}
        self.links: list[Link] = []
        self.units: list[UnitEntry] = []
        self.reapply: list[str] = []

    def add(self, path: str, text: str, mode: str = "0644") -> str:
        """Take the file in; its path."""
        content = text.encode("utf-8")
        self.files.append(file(path, content, mode))
        self.contents[path] = content
        return path

    def fill(self, template: str, **values: Any) -> str:
        """The template with these values. Raises NearsocketError where it is not there or does not fill in."""
        try:
            return _environment(self.templates).get_template(template).render(values)
        except jinja2.TemplateError as error:
            said = one_line(str(error), 200)
            raise NearsocketError(
                f"template {template}: expected it to fill in, found: {said}", "compare it with the shipped one"
            ) from None

    def unit(self, path: str, depends: tuple[str, ...], start: bool) -> None:
        """Link the unit of that file, and into the boot where it is to be started."""
        name = path.rpartition("/")[2]
        target = f"{programs.CURRENT}/{path}"
        self.links.append(Link(f"{UNITS}/{name}", target))
        if start:
            target_unit = "timers" if name.endswith(".timer") else "multi-user"
            self.links.append(Link(f"{UNITS}/{target_unit}.target.wants/{name}", target))
        self.units.append(UnitEntry(name, depends, start))

    def config(self, path: str, link: str) -> None:
        """Link a file that systemd does not read as a unit."""
        self.links.append(Link(link, f"{programs.CURRENT}/{path}", unit=False))
        self.reapply.append(path)


def _replica(plan: Plan, replica: ReplicaPlan, made: _Made) -> ReplicaEntry:
    settings, base = replica.settings, container.unit_base(replica)
    head, name = _head(plan.host), replica.name
    slice_file = made.add(
        f"systemd/{container.slice_name(replica)}",
        made.fill("systemd/replica.slice.j2", head=head, name=name, description=f"Nearsocket replica {name}"),
    )
    made.unit(slice_file, (slice_file,), start=False)
    mount_unit = None
    depends = [slice_file]
    if replica.shm is not None:
        mount_unit = f"run-nearsocket-shm-{slug(name)}.mount"
        mount_file = made.add(
            f"systemd/{mount_unit}",
            made.fill(
                "systemd/shm.mount.j2",
                head=head,
                name=name,
                description=f"Shared memory of Nearsocket replica {name}, bound to its near nodes",
                point=replica.shm.point,
                size_bytes=replica.shm.size_bytes,
                nodes=cpulist.render(replica.shm.nodes),
            ),
        )
        made.unit(mount_file, (mount_file,), start=False)
        depends.append(mount_file)
    lines = env_file.lines(container.environment(replica), settings.runtime)
    depends.append(made.add(f"env/{name}.env", made.fill("env/replica.env.j2", head=head, lines=lines), "0600"))
    unit_file = f"systemd/{base}.service"
    made.add(unit_file, _unit(plan, replica, mount_unit, made))
    made.unit(unit_file, (unit_file, *depends), start=True)
    made.add(f"replicas/{name}.json", start_record.start(replica).to_json())
    return ReplicaEntry(
        name=name,
        engine=settings.engine.value,
        runtime=settings.runtime.value,
        unit=f"{base}.service",
        slice=container.slice_name(replica),
        mount=mount_unit,
        mount_point=replica.shm.point if replica.shm else None,
        container=base,
        image=settings.image.reference,
        model=settings.model,
        port=replica.port,
        gpus=tuple(gpu.pci for gpu in replica.gpus),
        drain=settings.hooks.drain,
        stop_s=settings.limits.stop_s,
    )


def _unit(plan: Plan, replica: ReplicaPlan, mount_unit: str | None, made: _Made) -> str:
    settings, limits, name = replica.settings, replica.settings.limits, replica.name
    runtime, base = container.runtime_words(replica), container.unit_base(replica)
    remove = programs.remove_container(runtime, base)
    variables = container.bound(replica)
    nodes = cpulist.render(replica.near)
    gpus_text = ", ".join(gpu.pci for gpu in replica.gpus)
    secrets = programs.secrets_env(name) if settings.secrets else None
    return made.fill(
        "systemd/engine.service.j2",
        head=_head(plan.host),
        name=name,
        engine=settings.engine.value,
        runtime=settings.runtime.value,
        gpus_text=gpus_text,
        sockets=", ".join(map(str, replica.sockets)),
        unit=base,
        description=f"Nearsocket replica {name}: {settings.engine.value} on GPUs {gpus_text}",
        mount_unit=mount_unit,
        model_path=systemd.path(settings.model, "model"),
        hold_starts=hold_file(name),
        let_start=let_start(name),
        why=_why(replica),
        gpus=systemd.assignment(programs.GPUS, gpu_words(replica.gate, container.gpu_names(replica))),
        run_binding=systemd.assignment(programs.RUN_BINDING, variables[programs.RUN_BINDING]),
        numactl=systemd.assignment(programs.NUMACTL, variables[programs.NUMACTL]),
        engine_binding=systemd.assignment(programs.ENGINE_BINDING, variables[programs.ENGINE_BINDING]),
        start_dir=systemd.assignment(programs.START_DIR, f"{programs.replica_folder(name)}/start"),
        start_env=programs.start_env(name),
        fingerprint=_words(programs.fingerprint(name)),
        relief=_words(programs.relief(name, settings.relief, nodes, start_record.RELIEF_S)),
        remove=_words(remove),
        exec_start=container.exec_start(replica),
        wait_health=_words(programs.wait_health(name, start_record.health(replica), limits.start_s)),
        drain=_words(programs.hook(name, "drain", limits.stop_s, settings.hooks.drain)),
        wait_idle=_words(programs.wait_idle(name, start_record.reached(replica), replica.port, limits.stop_s)),
        undrain=_words(programs.hook(name, "undrain", start_record.HOOK_S, settings.hooks.undrain)),
        stop=_words((*runtime, "stop", "-t", str(limits.stop_s), base)),
        forget=_words(("/usr/bin/rm", "-f", secrets)) if secrets else "",
        timeout_start_s=start_record.timeout_start_s(replica),
        timeout_stop_s=start_record.timeout_stop_s(replica),
        starts=start_record.starts(replica),
        restart_delay_s=limits.restart_delay_s,
        limit_interval_s=start_record.window_s(replica),
        verify=_words(programs.verify(name, settings.verify)),
        policy=settings.verify.policy.value,
        forget_metrics=_words(programs.forget_metrics(name, settings.verify)),
        not_acted=_words(programs.not_acted(name)),
    )


def _watch(plan: Plan, made: _Made) -> None:
    """The timer that looks at running replicas again, and its service."""
    head = _head(plan.host)
    folders = sorted({replica.settings.verify.metrics for replica in plan.managed} - {METRICS})
    metrics = [systemd.path(folder, "verify.metrics") for folder in folders]
    timeout_s = start_record.WATCH_S * len(plan.managed) + start_record.SPARE_S
    service = made.add(
        f"systemd/{WATCH}.service",
        made.fill("systemd/watch.service.j2", head=head, watch=_words(programs.watch()), metrics=metrics, timeout_s=timeout_s),
    )
    made.unit(service, (service,), start=False)
    timer = made.add(f"systemd/{WATCH}.timer", made.fill("systemd/watch.timer.j2", head=head))
    made.unit(timer, (timer,), start=True)


def _why(replica: ReplicaPlan) -> list[str]:
    """What binds, without figures that move: a comment that changes would restart the engine."""
    used = [state.layer.value for state in replica.layers if state.used]
    held = f"held near by {', '.join(used)}" if used else "nothing holds it near"
    lines = [f"CPUs {cpulist.render(replica.cpus) or 'any'}, memory node {cpulist.render(replica.memory_nodes) or 'any'}: {held}."]
    if replica.ranks:
        lines.append(f"Its ranks bind themselves, in this order, to node {', '.join(map(str, replica.ranks))}.")
    lines.append("`nearsocket plan` has the reasons.")
    return lines


def _tuning(plan: Plan, made: _Made) -> None:
    head = _head(plan.host)
    if plan.sysctl:
        entries = [{"key": key, "value": value, "reason": tune.REASONS[key]} for key, value in sorted(plan.sysctl.items())]
        made.config(
            made.add("sysctl.d/90-nearsocket.conf", made.fill("sysctl.d/nearsocket.conf.j2", head=head, entries=entries)), SYSCTL
        )
    if plan.transparent_hugepages:
        text = made.fill("tmpfiles.d/nearsocket.conf.j2", head=head, reason=tune.THP_REASON, value=plan.transparent_hugepages)
        made.config(made.add("tmpfiles.d/nearsocket.conf", text), TMPFILES)
    if plan.settings.tune.updates == tune.BLACKLIST:
        text = made.fill("apt.conf.d/nearsocket.j2", head=head, reason=tune.UPDATES_REASON, names=tune.KEPT_BACK)
        path = made.add("apt.conf.d/nearsocket", text)
        made.links.append(Link(APT, f"{programs.CURRENT}/{path}", unit=False))


def _head(host: str) -> str:
    return (
        systemd.comment(
            f"Written by nearsocket for {host}. A change made here is reported as drift and replaced by the next deploy:"
        )
        + "\n# change the fleet file, look at it with `nearsocket plan`, and run `pyinfra INVENTORY deploys/site.py`."
    )


def _words(words: tuple[str, ...]) -> str:
    return " ".join(systemd.word(text) for text in words)


@functools.cache
def _environment(folder: Path) -> jinja2.Environment:
    # No HTML here: each value is escaped for its own grammar before it comes in.
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701
    )

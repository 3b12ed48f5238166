"""What is known of one group's host buffers, worked out once for the checks that ask: logs, files, cuMem, bindings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Optional

from nearsocket.model import near
from nearsocket.model.finding import Evidence, Finding, not_applicable
from nearsocket.model.host import Host
from nearsocket.model.verdicts.binding import bound_group, live_evidence, near_evidence
from nearsocket.model.verdicts.enforced import cumem_in_force, judged_files, proven_cumem
from nearsocket.model.verdicts.groups import Group, groups, nothing_runs
from nearsocket.model.verdicts.placement import FilePlacement
from nearsocket.model.verdicts.ranklogs import GroupLog, group_log
from nearsocket.model.verdicts.transport import needs_no_host_buffers, unreadable


@dataclass(frozen=True)
class GroupFacts:
    """One group on its host. Each fact is worked out when it is first asked for."""

    host: Host
    group: Group

    @property
    def subject(self) -> str:
        """The group as a finding's subject."""
        return self.group.subject

    @cached_property
    def log(self) -> Optional[GroupLog]:
        """NCCL's words of this run; None where there are none."""
        return group_log(self.host, self.group)

    @cached_property
    def files(self) -> tuple[FilePlacement, ...]:
        """The mapped files that carry what GPUs exchange, each judged."""
        return judged_files(self.host, self.group)

    @cached_property
    def denied(self) -> Optional[str]:
        """Why some rank's files could not be read; None where all were."""
        return unreadable(self.group)

    @cached_property
    def near(self) -> Optional[frozenset[int]]:
        """The nodes near the ranks, both sockets' in a group that spans them."""
        return near.of_processes(self.host, self.group.ranks)

    @cached_property
    def in_force(self) -> Optional[Finding]:
        """`nccl.cumem-in-force` by the log alone; None where there is no log."""
        return cumem_in_force(self.group, self.log)

    @cached_property
    def proven(self) -> Optional[Finding]:
        """`nccl.buffer-placement` of cuMem's buffers by the log; None where no line names a node."""
        return proven_cumem(self.host, self.group, self.log)

    @cached_property
    def free(self) -> Optional[Finding]:
        """Not-applicable where the group exchanges nothing through host memory, with what shows it; None where it may."""
        shown = needs_no_host_buffers(self.host, self.group, self.log)
        return None if shown is None else not_applicable(self.subject, shown.text, (shown,))

    @cached_property
    def holder(self) -> Optional[str]:
        """What holds every rank's files near, in words; None where one rank's are not held."""
        return bound_group(self.host, self.group)

    @property
    def live(self) -> tuple[Evidence, ...]:
        """What the kernel enforces on each rank now."""
        return tuple(line for rank in self.group.ranks for line in live_evidence(rank))

    @property
    def where(self) -> tuple[Evidence, ...]:
        """Where the ranks' GPUs are."""
        return near_evidence(self.host, self.group.ranks)


def every_group(host: Host) -> tuple[Optional[Finding], tuple[GroupFacts, ...]]:
    """The groups to judge; with none, the finding that says why there is none."""
    idle = nothing_runs(host)
    return idle, () if idle is not None else tuple(GroupFacts(host, group) for group in groups(host))

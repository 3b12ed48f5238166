"""What the proofs at the starts of managed replicas said."""

from __future__ import annotations

from collections.abc import Iterable

from nearsocket.model.check import check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Host
from nearsocket.model.verdicts import laststarts


@check("engine.start-verdict")
def start_verdict(host: Host) -> Iterable[Finding]:
    """Each managed replica's start was proven near by force, and somebody still looks.

    **Judged**: the last verdict that `verify` or the watch left on the host, its age, and whether it is about the start that
    runs now.

    **Why**: every restart draws again, also at three in the morning; and a proof that no longer comes is none.

    - **pass**: near by force, confirmed within the last hour.
    - **warn**: near by luck; or the last look is older than an hour.
    - **fail**: far; or a rank that the plan wants is missing.
    - **unknown**: no verdict, one that could not decide, or the newest start has none.
    - **not-applicable**: nothing is managed here, the replica does not run, or its GPUs exchange nothing through host memory.

    **Remedy**: the failing finding's own; `nearsocket verify TARGET` judges anew.

    **Source**: /var/lib/nearsocket/verdicts; docs/verify.md.
    """
    return laststarts.judge(host)

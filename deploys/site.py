"""Take hosts to what the inventory says, tuned and serving: `pyinfra INVENTORY deploys/site.py`.

Reads each host once, plans where every replica goes, renders its files and makes them real by one exec: all of it or nothing. A
host that is there already is read and left alone. `--dry` and `--diff` show what would change; `rollback.py` goes back. Hosts are
changed one after another, and the first that fails stops those behind it; pyinfra picks their order. In the inventory's order, each
replica proven before the next is touched: `nearsocket rollout`.

A host that has nothing of nearsocket's yet is audited before; failures that a deploy does not cure stop it.

Options are data: `--data allow_removals=true` takes out replicas that the inventory no longer has, `--data force=true` lets an
older commit of the inventory win, `--data accept_reload_risk=true` reloads systemd though a running container may lose its GPUs.
"""

from pyinfra import host

from nearsocket import paths
from nearsocket.control.deploy import converge_host

converge_host(host, paths.templates_folder(), checks_folder=paths.checks_folder())

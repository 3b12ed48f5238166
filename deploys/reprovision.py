"""Upgrade the driver of hosts: `pyinfra INVENTORY deploys/reprovision.py --data driver=580.105.08`.

Every host is looked at and rehearsed before anything is stopped on any: one that is refused stops them all. Then host after host,
the first failure stops those behind it: replicas drained and stopped, one transaction, holds as before, a reboot, the driver proven
on the host, all-reduces against the driver before, replicas started and proven one by one. Where that fails the host goes back to
the packages before. In the inventory's order, resumable by anybody: `nearsocket rollout INVENTORY reprovision --driver VERSION`.

A host that an earlier rollout is not done with is refused until somebody says what to do: resume=true goes on with it, anew=true
begins anew. Unlike a rollout it shows no signs of life to colleagues, and asks for none.

Other data: reboot_limit (seconds), disturb, accept_unknown, override_freeze. docs/reprovision.md.
"""

from pyinfra import host

from nearsocket import paths
from nearsocket.control.reprovision.deploy import reprovision_host

reprovision_host(host, paths.checks_folder())

"""Only the replicas (units, environment, mounts): `pyinfra INVENTORY deploys/engine.py`. The host's own settings stay."""

from pyinfra import host

from nearsocket import paths
from nearsocket.control.deploy import converge_host
from nearsocket.model.order import Part

converge_host(host, paths.templates_folder(), Part.ENGINE, checks_folder=paths.checks_folder())

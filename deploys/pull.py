"""Only pull the replicas' images, by digest, so that a later `site.py` starts sooner: `pyinfra INVENTORY deploys/pull.py`."""

from pyinfra import host

from nearsocket import paths
from nearsocket.control.deploy import converge_host
from nearsocket.model.order import Part

converge_host(host, paths.templates_folder(), Part.IMAGE)

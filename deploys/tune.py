"""Only the host's own settings (sysctl, huge pages) that the inventory opts into: `pyinfra INVENTORY deploys/tune.py`.

The replicas stay as they are. The values before are recorded on the host and come back when a setting is taken out.
"""

from pyinfra import host

from nearsocket import paths
from nearsocket.control.deploy import converge_host
from nearsocket.model.order import Part

converge_host(host, paths.templates_folder(), Part.TUNE)

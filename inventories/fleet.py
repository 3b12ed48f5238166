"""A fleet file for pyinfra: `NEARSOCKET_FLEET=fleet.yaml pyinfra inventories/fleet.py deploys/site.py`, or copy these lines."""

import os

from nearsocket.control.fleet_hosts import fleet_hosts

hosts = fleet_hosts(os.environ.get("NEARSOCKET_FLEET", "fleet.yaml"))

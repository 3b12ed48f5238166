"""A fleet file for pyinfra: `NEARSOCKET_FLEET=fleet.yaml pyinfra inventories/fleet.py deploys/site.py`, or copy these lines."""

import os

from nearsocket.control.fleet_hosts import inventory_hosts

hosts = inventory_hosts(os.environ.get("NEARSOCKET_FLEET", "fleet.yaml"))

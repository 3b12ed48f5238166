"""This machine: `pyinfra inventories/local.py deploys/audit.py -y`, `nearsocket audit inventories/local.py`."""

hosts = ["@local"]

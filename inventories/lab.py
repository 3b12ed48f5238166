"""The lab's machines that are up, for pyinfra and for `nearsocket audit inventories/lab.py`."""

from lab.inventory import hosts as lab_hosts

#: One entry a machine; `--limit lab` names the machines of one lab, `--limit NAME` one machine.
hosts = lab_hosts()

"""The lab's machines that are up, for pyinfra and for `nearsocket audit inventories/lab.py`."""

from lab.inventory import hosts as lab_hosts

#: One entry a machine; `--limit NAME` takes one, `--limit "lab-*"` those of a lab with several.
hosts = lab_hosts()

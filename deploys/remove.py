"""Leave hosts as they were before: `pyinfra INVENTORY deploys/remove.py`.

Engines are drained and stopped, units, links, files and the program removed, kernel settings put back. `--dry` shows it all first.
With `--data keep_engines=true` the engines run on, unrestarted, with units of their own that need nothing of nearsocket's.
"""

from pyinfra import host

from nearsocket.control.deploy import remove_host

remove_host(host)

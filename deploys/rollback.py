"""Go back to the generation before: `pyinfra INVENTORY deploys/rollback.py`, or to another by `--data generation=N`.

The host first sees that the generation is whole and that its images and models are still there.
"""

from pyinfra import host

from nearsocket.control.deploy import roll_back_host

roll_back_host(host)

"""`python -m lab` is `nearsocket lab`."""

from __future__ import annotations

import sys

from nearsocket.cli import main

if __name__ == "__main__":
    main(["lab", *sys.argv[1:]])

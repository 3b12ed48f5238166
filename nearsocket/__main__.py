"""`python -m nearsocket` is the command line."""

from nearsocket.cli import main

main()

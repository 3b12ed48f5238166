"""`python -m nearsocket` and the script `nearsocket`: the command line, and an interrupt while it is still loading."""

import os


def start() -> None:
    """Load the command line and run it. Interrupted meanwhile, the process ends with 130, like later on."""
    try:
        from nearsocket.cli import main
    except KeyboardInterrupt:
        os.write(2, b"nearsocket: interrupted\n")
        os._exit(130)
    main()


if __name__ == "__main__":
    start()

"""`python3 -m sglang.launch_server`: the stand-in's first process. Options of the real one without a meaning here are ignored."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import NoReturn, Optional

from . import __version__, faults, gpus
from .group import Group, RankError
from .web import Engine, Server


def options(words: Optional[list[str]] = None) -> argparse.Namespace:
    """The command line; unknown options of the real program are taken and ignored."""
    parser = argparse.ArgumentParser(prog="sglang.launch_server", description=f"SGLang {__version__}: a stand-in without a model.")
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--tensor-parallel-size", "--tp-size", "--tp", type=int, default=1, dest="tp_size")
    parser.add_argument("--enable-metrics", action="store_true")
    parser.add_argument("--enable-cache-report", action="store_true")
    parser.add_argument("--enable-symm-mem", action="store_true")
    parser.add_argument("--skip-server-warmup", action="store_true")
    known, unknown = parser.parse_known_args(words)
    if unknown:
        print(f"stand-in: without a meaning here: {' '.join(unknown)}", flush=True)
    known.served_model_name = known.served_model_name or known.model_path
    return known


def set_variables(symm_mem: bool) -> None:
    """What SGLang does with NCCL's variables: its own value only where the user has none; symmetric memory needs cuMem."""
    if symm_mem:
        os.environ["NCCL_CUMEM_ENABLE"] = "1"
    os.environ.setdefault("NCCL_CUMEM_ENABLE", "0")


def end(group: Group) -> NoReturn:
    """SGLang's way to end on SIGTERM (`kill_process_tree(os.getpid())`): SIGKILL to all of its own, itself included.

    So a runtime says 137 of a container that was stopped as it should be.
    """
    for pid in [*(member.process.pid for member in group.members), os.getpid()]:
        os.kill(pid, signal.SIGKILL)
    raise SystemExit(1)


def main() -> int:
    """Start the ranks, load, serve. Ends with 1 where a rank fails before the server listens."""
    chosen = options()
    set_variables(chosen.enable_symm_mem)
    print(f"SGLang {__version__}: stand-in, tp {chosen.tp_size}", flush=True)
    try:
        group = Group(gpus.visible(os.environ, chosen.tp_size), os.environ)
        group.init()
        size = group.load(chosen.model_path)
        print(f"Load weight end. {size} bytes", flush=True)
        slow = faults.number("slow-start")
        time.sleep(slow or 0)
        engine = Engine(group, vars(chosen))
        server = Server((chosen.host, chosen.port), engine)
        if not chosen.skip_server_warmup:
            engine.generate("The capital city of France is", 8)
            engine.cache.flush()
    except (RankError, OSError, ValueError, KeyError) as error:
        print(f"stand-in: {error}", file=sys.stderr, flush=True)
        return 1
    # While it loads SIGTERM ends it as any program; from now on as the real one.
    signal.signal(signal.SIGTERM, lambda _sign, _frame: end(group))
    print(f"Listening on port {server.server_address[1]}", flush=True)
    print("The server is fired up and ready to roll!", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())

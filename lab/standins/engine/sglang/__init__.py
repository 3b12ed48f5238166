"""A stand-in for SGLang: no model, but the processes, titles, NCCL host buffers, log lines and HTTP face that a host sees of one.

Runs in the lab's engine image under the real package's name, so that command lines look as on a server. Python 3.9, standard
library.
"""

from __future__ import annotations

#: The release whose behaviour it takes: it honours NCCL_CUMEM_ENABLE (since 0.5.4.post2), does not bind itself (0.5.18 does).
__version__ = "0.5.10+standin"

"""This machine as the host: the same program through the same bootstrap, as a child process."""

from __future__ import annotations

import shlex

from nearsocket.control.transport import LARGEST_ANSWER_BYTES, Answer, Transport, TransportError, Trouble
from nearsocket.control.transport.openssh import answer
from nearsocket.control.transport.process import Children, run


class Local(Transport):
    """This machine."""

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Answer:
        """Run the command once, its words quoted as for a shell but run without one. Raises TransportError, one line."""
        try:
            ended = run(shlex.split(command), stdin, timeout_s, children, LARGEST_ANSWER_BYTES)
        except OSError as error:
            name = error.filename or shlex.split(command)[0]
            raise TransportError(
                Trouble.PROGRAM, f"expected to start {name}, found: {error.strerror}", "look at this machine's PATH"
            ) from None
        return answer(ended, timeout_s, None)

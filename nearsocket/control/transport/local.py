"""This machine as the host: the same program through the same bootstrap, as a child process."""

from __future__ import annotations

from nearsocket.control.transport import LARGEST_ANSWER_BYTES, Answer, Transport, TransportError, Trouble
from nearsocket.control.transport.openssh import answer
from nearsocket.control.transport.process import Children, run


class Local(Transport):
    """This machine."""

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Answer:
        """Run the shell command once. Raises TransportError, one line, where there is no answer."""
        try:
            ended = run(["/bin/sh", "-c", command], stdin, timeout_s, children, LARGEST_ANSWER_BYTES)
        except OSError as error:
            raise TransportError(Trouble.PROGRAM, f"/bin/sh cannot be started: {error.strerror}", "look at this machine") from None
        return answer(ended, timeout_s, None)

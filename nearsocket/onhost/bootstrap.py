# ruff: noqa
# mypy: ignore-errors
"""The first words on a server: put the zipped program into memory and become it. Writes no file.

Sent in front of the program by `nearsocket.control.program` and executed by `python3 -c` there, with `f` (standard
input, behind this text) and `h` (the header line) in its globals. It must parse on Python 2.7, so that an old
interpreter gets one clear line instead of a syntax error.
"""

import os
import subprocess
import sys

LOWEST, NEWEST = 9, 14  # Python 3.9 is the oldest that the program runs on


def fail(code, text):
    sys.stderr.write("nearsocket: " + text + "\n")
    sys.stderr.flush()
    os._exit(code)


def take(size):
    data = f.read(size)
    if len(data) != size:
        fail(65, "expected %d bytes of the program on standard input, found %d; the connection was cut" % (size, len(data)))
    return data


def works(python):
    """Whether it is an interpreter that is new enough (a version manager's stand-in on PATH may be neither)."""
    test = "import sys,os;sys.exit(not(sys.version_info>=(3,%d) and hasattr(os,'memfd_create')))" % LOWEST
    try:
        with open(os.devnull, "r+b") as nothing:
            return subprocess.call([python, "-I", "-B", "-c", test], stdin=nothing, stdout=nothing, stderr=nothing) == 0
    except OSError:
        return False


def newer():
    for minor in range(NEWEST, LOWEST - 1, -1):
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
            python = os.path.join(folder, "python3.%d" % minor)
            if os.path.isabs(folder) and os.access(python, os.X_OK) and works(python):
                return python
    return None


def hand_over(python, whole):
    """Become the newer interpreter; a child feeds it what this one has read already."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        try:
            while whole:
                whole = whole[os.write(writing, whole) :]
        finally:
            os._exit(0)
    os.close(writing)
    os.dup2(reading, 0)
    start = 'import os,sys;f=os.fdopen(0,"rb");h=f.readline();exec(f.read(int(h.split()[1])))'
    os.execv(python, [python, "-I", "-B", "-c", start])


def into_memory(program):
    """A file descriptor of an anonymous file that holds these bytes."""
    if not hasattr(os, "memfd_create"):
        fail(
            67,
            "expected a Python with os.memfd_create, found one without; the program is never written to a file, so it cannot run here",
        )
    try:
        try:
            fd = os.memfd_create("nearsocket", 8)  # MFD_NOEXEC_SEAL: vm.memfd_noexec=2 refuses one without it
        except OSError:
            fd = os.memfd_create("nearsocket", 0)  # Linux before 6.3 does not know that flag
        while program:
            program = program[os.write(fd, program) :]
    except OSError as error:
        fail(67, "expected an anonymous file in memory (memfd_create), found: %s" % error)
    os.set_inheritable(fd, True)
    return fd


def run():
    sizes = [int(word) for word in h.split()[1:5]]
    arguments, program, given = take(sizes[1]), take(sizes[2]), take(sizes[3])
    if sys.version_info < (3, LOWEST):
        python = newer()
        if python is None:
            found = ".".join(str(part) for part in sys.version_info[:3])
            fail(66, "expected Python 3.%d or newer on the host, found %s (%s)" % (LOWEST, found, sys.executable))
        hand_over(python, h + source + arguments + program + given)
    fd = into_memory(program)
    if given:
        reading = into_memory(given)
        os.lseek(reading, 0, 0)
        os.dup2(reading, 0)
    else:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    words = [os.fsdecode(word) for word in arguments.split(b"\0")] if arguments else []
    os.execv(sys.executable, [sys.executable, "-I", "-B", "/proc/self/fd/%d" % fd] + words)


run()

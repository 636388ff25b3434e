"""Ends a command's whole group when the process that asked for it is gone, whatever ended that.

    python -I -S guard.py FD keep|drop -- COMMAND...

Started in a session of its own, it runs the command in its own group and waits for the first of two
ends: the command's, which becomes its own exit status, or that of the socket FD, which only the
asking process holds; then it kills the group, itself included. What cannot be executed is told on
that socket. Standard library only, and few modules of it: it is started for every reading.
Source: pidfd_open(2), killpg(3).
"""

import os
import select
import signal
import sys

NOT_EXECUTED = 126
IGNORED_BY_US = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them; a command must not inherit that."""


def main(arguments: list[str]) -> int:
    """Run the command. Returns its exit status; after a death by signal n it dies so too."""
    descriptor, locale, _, *command = arguments
    asked = int(descriptor)
    os.set_inheritable(asked, False)
    environment = dict(os.environ)
    if locale == "drop":
        environment.pop("LC_CTYPE", None)  # the interpreter has set it, the asking process has not
    try:
        pid = os.posix_spawnp(command[0], command, environment, setsigdef=IGNORED_BY_US)
    except OSError as error:
        os.write(asked, (error.strerror or str(error)).encode()[:200])
        return NOT_EXECUTED
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(asked, select.POLLIN)
    if not any(number == ended for number, _ in poll.poll()):
        os.killpg(0, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

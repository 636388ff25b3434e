"""Runs a command as a plain child of this process: same group, same session, same environment.

For a launch from inside an attempt: what it starts belongs to the attempt's tree and devices
already. It adds and removes nothing. Source: posix_spawn(3), waitpid(2).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from ..errors import PraxistError


def run_plain_child(command: Sequence[bytes], cwd: bytes | None) -> int:
    """Its exit code, or 128 and the number of the signal that ended it.

    Changes this process's working directory when `cwd` is given. Raises `bad_directory`,
    `bad_command`.
    """
    if cwd is not None:
        try:
            os.chdir(cwd)
        except OSError as error:
            raise PraxistError("bad_directory", f"{os.fsdecode(cwd)}: {error.strerror}") from error
    try:
        pid = os.posix_spawnp(
            command[0], list(command), os.environb, setsigmask=[], setsigdef=[signal.SIGPIPE]
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PraxistError("bad_command", f"{os.fsdecode(command[0])}: {reason}") from error
    while True:
        try:
            _, status = os.waitpid(pid, 0)
        except KeyboardInterrupt:
            continue  # the child is in our group and got it too: its answer counts
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

"""A unit's program, as a task would write it: `work.py ACTION...`, one after the other.

seen:PATH    append key, device and the variables of the binding, as a line of JSON
result:JSON  write the result
wait:PATH    until PATH exists
say:TEXT     print a line
exit:N       end with N
grandchild   leave a process of the same group; its pid is appended to `pids`
daemon       leave one with another session, its parent dead
deaf         ignore SIGTERM
pid          append our pid to `pids`
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from praxist_zmq import units
from praxist_zmq.binding import ASSIGNED, MASKS, NARROWED
from tests.support.wait import wait_until

SLEEP = "import signal; signal.pause()"


def note_pid(pid: int) -> None:
    """One line, one write."""
    descriptor = os.open("pids", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{pid}\n".encode())
    os.close(descriptor)


def act(name: str, value: str) -> None:
    """One action."""
    unit = units.current()
    if name == "seen":
        names = (ASSIGNED, NARROWED, *MASKS)
        seen = {"key": unit.key, "device": unit.device, "pgid": os.getpgrp()}
        with open(value, "a", encoding="utf-8") as file:
            file.write(json.dumps({**seen, **{n: os.environ.get(n) for n in names}}) + "\n")
    elif name == "result":
        Path(unit.result).write_text(value, encoding="utf-8")
    elif name == "wait":
        wait_until(lambda: os.path.exists(value), value)
    elif name == "say":
        print(value, flush=True)
    elif name == "exit":
        sys.exit(int(value))
    elif name == "grandchild":
        note_pid(subprocess.Popen([sys.executable, "-c", SLEEP]).pid)
    elif name == "daemon":
        note_pid(subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True).pid)
    elif name == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif name == "pid":
        note_pid(os.getpid())
    else:
        raise ValueError(name)


if __name__ == "__main__":
    for action in sys.argv[1:]:
        act(*action.partition(":")[::2])

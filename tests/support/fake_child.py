"""A fake child of the supervisor: speaks the child protocol and does nothing else.

    python fake_child.py NAME CONTROL

CONTROL/NAME.json says how it behaves (see `main`). It appends a line to CONTROL/NAME.log for
whatever happens to it: `start PID REOPEN`, `term`, `eof`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol.codec import decode, encode
from praxist_zmq.protocol.orders import RestartProcess
from praxist_zmq.protocol.reports import ProcessesSeen
from praxist_zmq.service.child_config import (
    ChildConfig,
    read_child_config,
    report_fatal,
    report_progress,
    report_ready,
    supervisor_gone,
)
from praxist_zmq.service.service_log import configure_log


def note(control: Path, name: str, text: str) -> None:
    """Append one line to what the test reads."""
    descriptor = os.open(control / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, text.encode() + b"\n")
    os.close(descriptor)


def starts_so_far(control: Path, name: str) -> int:
    """How often it was started before."""
    log = control / f"{name}.log"
    return log.read_text().count("start ") if log.exists() else 0


def serve_link(config: ChildConfig, control: Path, name: str, restart: str | None) -> None:
    """Note what arrives on the broker's link until the supervisor is gone. `restart`: a process
    that it finds silent, once."""
    # Imported here: the other fakes start faster without ZeroMQ.
    from praxist_zmq.transport.hop import HopServer
    from praxist_zmq.transport.poller import Poller

    server, poller = HopServer(config.core, config.secret_bytes), Poller()
    poller.register(0)
    poller.register(server)
    while not supervisor_gone():
        poller.wait(None)
        for message in server.drain():
            seen = decode(ProcessesSeen, message.parts[0])
            names = ",".join(f"{row[0]}:{row[1]}:{row[3]}" for row in seen.processes)
            note(control, name, f"{message.channel.decode()} {names}")
            pid = next((row[1] for row in seen.processes if row[0] == restart), None)
            if restart is not None and pid is not None and "supply:" in names:  # all are up
                for one in (pid + 1, pid):  # another process by that name is left alone
                    body = encode(RestartProcess(name=restart, pid=one))
                    server.send(message.address, b"restart", [body])
                restart = None


def main() -> None:
    """Read the behaviour and follow it. Keys:

    `words`: the last line of its log; `exit`: status to end with before it is ready;
    `exit_after_ready`: after that;
    `times`: only in so many starts; `fatal`: the code to name then; `silent`: never ready;
    `progress`: texts first; `ignores_term`: ends only with its stdin; `deaf`: not even then;
    `link`: serve the broker's link and note the process lists that arrive;
    `restart`: then also the process that is found silent, once;
    `orphan`: start a program that outlives it, and note its pid.
    """
    name, control = sys.argv[1], Path(sys.argv[2])
    behaviour_file = control / f"{name}.json"
    behaviour = json.loads(behaviour_file.read_text()) if behaviour_file.exists() else {}
    earlier = starts_so_far(control, name)
    config = read_child_config()
    log = configure_log(name, config.log_path(name))
    note(control, name, f"start {os.getpid()} {config.reopen}")
    log.info("started")
    active = earlier < behaviour.get("times", 1_000_000)

    def ended(number: int, frame: object) -> None:
        note(control, name, "term")
        os._exit(0)

    ignores_term = behaviour.get("deaf") or behaviour.get("ignores_term")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if ignores_term else ended)
    if behaviour.get("orphan"):
        orphan = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, start_new_session=True)
        note(control, name, f"orphan {orphan.pid}")
    for text in behaviour.get("progress", []):
        report_progress(config, text)
    if active and "words" in behaviour:
        print(behaviour["words"], flush=True)
    if active and "exit" in behaviour:
        if "fatal" in behaviour:
            report_fatal(config, PraxistError(behaviour["fatal"], "the fake says so"))
        os._exit(behaviour["exit"])
    if not (active and behaviour.get("silent")):
        report_ready(config, pid=os.getpid())
    if active and "exit_after_ready" in behaviour:
        if "fatal" in behaviour:
            report_fatal(config, PraxistError(behaviour["fatal"], "the fake says so"))
        os._exit(behaviour["exit_after_ready"])
    if behaviour.get("link"):
        serve_link(config, control, name, behaviour.get("restart"))
    while os.read(0, 4096):
        continue
    note(control, name, "eof")
    while behaviour.get("deaf"):
        signal.pause()


if __name__ == "__main__":
    main()

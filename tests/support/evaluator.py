"""An experiment for tests: writes one line as its first act, then does as its arguments say.

`evaluator.py LINES ACTION...`. A line is `KIND ATTEMPT PID BOOTTIME_NS UUIDS EXTRA`, one write to a
file opened with O_APPEND; EXTRA is the profile at the start and the exit status at the end. The
oracle (`tests.support.oracle`) reads them. Standard library only, started with `-I -S`, so that it
is there in milliseconds.

Actions, in order:
  exit:N            end with status N
  codes:A,B,...     end with A in the first attempt, B in the second, ...; the last is repeated
  wait:PATH         until PATH exists
  pause:MS          for so many milliseconds
  ignore-term       SIGTERM does nothing from here on
  end-on-term       SIGTERM ends it with status 143, after its last line
  segv              die by SIGSEGV
  close-stdio       close descriptors 0, 1 and 2
  write:MB          write so many MiB to stdout
  say:TEXT          write TEXT and a newline to stdout
  dump:PATH         what arrived (arguments after `--`, environment, directory) as JSON
  daemonize:PATH    leave a daemon that waits for PATH: setsid twice, cleared environment, closed
                    descriptors, directory /
  child:PATH        leave a plain child in the same group that waits for PATH
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time

INTERPRETER = [sys.executable, "-I", "-S"]


def line(path: str, kind: str, attempt: str, extra: str = "-") -> None:
    """One line, one write."""
    uuids = os.environ.get("PRAXIST_ASSIGNED_GPU_UUIDS") or "-"
    stamp = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    text = f"{kind} {attempt} {os.getpid()} {stamp} {uuids} {extra}\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def wait_for(path: str) -> None:
    """Until the file is there."""
    while not os.path.exists(path):
        time.sleep(0.01)


def dump(path: str) -> None:
    """What arrived, byte for byte."""
    arguments = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    content = {
        "arguments": [base64.b64encode(os.fsencode(item)).decode() for item in arguments],
        "environment": {
            base64.b64encode(name).decode(): base64.b64encode(value).decode()
            for name, value in os.environb.items()
        },
        "cwd": base64.b64encode(os.getcwdb()).decode(),
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    }
    with open(path + ".tmp", "w") as stream:
        json.dump(content, stream)
    os.rename(path + ".tmp", path)


def daemonize(lines: str, attempt: str, path: str) -> None:
    """A daemon that shares nothing with us but its ancestry."""
    if os.fork() != 0:
        return
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    os.chdir("/")
    os.closerange(0, 256)
    own = os.path.abspath(__file__)
    os.execve(
        INTERPRETER[0], [*INTERPRETER, own, lines, f"as-daemon:{attempt}", f"wait:{path}"], {}
    )


def child(lines: str, attempt: str, path: str) -> None:
    """A child in our group that outlives us."""
    if os.fork() != 0:
        return
    line(lines, "child", attempt)
    wait_for(path)
    line(lines, "child-end", attempt)
    os._exit(0)


def told_to_end(lines: str, attempt: str) -> None:
    """The last line, and the end, of an experiment that was told to end."""
    line(lines, "end", attempt, "143")
    os._exit(143)


def write_much(mebibytes: int) -> None:
    """Numbered lines, so that a lost part would show."""
    block = b"".join(b"%063d\n" % number for number in range(16_384))
    for _ in range(mebibytes):
        sent = 0
        while sent < len(block):
            sent += os.write(1, block[sent:])


def main(lines: str, actions: list[str]) -> int:
    """Do as told; the exit status."""
    daemon = actions[0].partition("as-daemon:")[2] if actions else ""
    attempt = daemon or os.environ.get("PRAXIST_EXPERIMENT_ATTEMPT_ID", "none")
    profile = os.environ.get("PRAXIST_RESOURCE_PROFILE") or "-"
    line(lines, "daemon" if daemon else "start", attempt, profile)
    status = 0
    for action in actions:
        name, _, value = action.partition(":")
        if name == "--":
            break
        if name == "exit":
            status = int(value)
        elif name == "codes":
            codes = [int(code) for code in value.split(",")]
            status = codes[min(int(attempt.rpartition(".")[2]), len(codes)) - 1]
        elif name == "wait":
            wait_for(value)
        elif name == "pause":
            time.sleep(int(value) / 1000)
        elif name == "ignore-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            line(lines, "ignoring", attempt)
        elif name == "end-on-term":
            signal.signal(signal.SIGTERM, lambda *_: told_to_end(lines, attempt))
        elif name == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif name == "close-stdio":
            os.closerange(0, 3)
        elif name == "write":
            write_much(int(value))
        elif name == "say":
            os.write(1, value.encode() + b"\n")
        elif name == "dump":
            dump(value)
        elif name == "daemonize":
            daemonize(lines, attempt, value)
        elif name == "child":
            child(lines, attempt, value)
        elif name != "as-daemon":
            raise ValueError(action)
    line(lines, "daemon-end" if daemon else "end", attempt, str(status))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

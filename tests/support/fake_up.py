"""`up` with fake children in the place of the four services.

    python fake_up.py RUN_DIR CONTROL [detach]

Prints one ready line, or the error's code and detail on stderr with its exit status. The clock
is ahead by the milliseconds in CONTROL/clock_ahead_ms, so that a test need not wait for bounds;
with CONTROL/clock_at_ms it stands there, so that a slow machine is no slower than a bound.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from praxist_zmq.errors import PraxistError
from praxist_zmq.host import stdio
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.service import run_start
from praxist_zmq.service.detached import start_detached
from praxist_zmq.service.run_start import RunRequest, serve_run

FAKE_CHILD = str(Path(__file__).with_name("fake_child.py"))


def main() -> int:
    """Serve, or start detached."""
    control, options = sys.argv[2], sys.argv[3:]
    ahead, at = Path(control) / "clock_ahead_ms", Path(control) / "clock_at_ms"

    class FakeClock(SystemClock):
        def mono_ms(self) -> int:
            if at.exists():
                return int(at.read_text())
            return super().mono_ms() + (int(ahead.read_text()) if ahead.exists() else 0)

    setattr(run_start, "SystemClock", FakeClock)  # noqa: B010 (mypy knows it as a class)

    def command_of(name: str) -> list[str]:
        return [sys.executable, "-P", FAKE_CHILD, name, control]

    def say(facts: dict[str, Any]) -> None:
        stdio.say(f"ready {facts['run_id']} pid {facts['pid']} endpoint {facts['endpoint']}")

    try:
        request = RunRequest(RunPaths.of(sys.argv[1]))
        if "detach" in options:
            say(start_detached(lambda announce: serve_run(request, announce, command_of)))
        else:
            serve_run(request, say, command_of)
    except PraxistError as error:
        stdio.say("\n".join((f"{error.code} {error.detail}", *error.help)), 2)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The files of a live run that its processes must be found by, looked at by the supervisor.

Which process made which of them, and what is made again without ending anything. What becomes of a
process whose lock or socket is gone is the supervisor's to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..host.paths import RunPaths, RunSockets
from ..ledger.named_file import NamedFile
from .child_config import ChildConfig
from .standing import Standing

OWNER = "supervisor"
_ANNOUNCEMENT = "announcement"


class RunStanding:
    """Locks and sockets of one run's processes, and the file that announces the run."""

    def __init__(
        self, run: RunPaths, lock: NamedFile, config: ChildConfig, announce: Callable[[], None]
    ) -> None:
        """`config` is any child's, for the names of the sockets; `announce` makes the directory of
        sockets, and the file in it, where they are not there."""
        sockets = RunSockets.of(run)
        self._announcement = sockets.announcement
        self._announce = announce
        self._names: dict[str, tuple[Path, ...]] = {
            "sampler": (sockets.samples,),
            "broker": (run.ledger_lock, sockets.core, config.hop),
            "gateway": (Path(config.front), Path(config.events)),
            "launcher": (run.launcher_lock,),
        }
        self._standing = Standing()
        self._standing.hold(OWNER, [lock])
        self._hold_announcement()

    def _hold_announcement(self) -> None:
        self._standing.hold(_ANNOUNCEMENT, [NamedFile.found(self._announcement)])

    def ready(self, name: str) -> None:
        """The process `name` has made its files."""
        self._standing.hold(name, map(NamedFile.found, self._names.get(name, ())))

    @property
    def look_at_ms(self) -> int:
        """When the next look is due, CLOCK_BOOTTIME milliseconds."""
        return self._standing.look_at_ms

    def lost(self, now_ms: int) -> dict[str, str]:
        """Processes, with the first file of each that was removed or replaced. Told once.

        Then the place for new ones is there again. Raises PraxistError when it cannot be made.
        """
        found = self._standing.lost(now_ms)
        if found:
            self._announce()
        if found.pop(_ANNOUNCEMENT, None) is not None:
            self._hold_announcement()
        return found

"""A `launch` in legacy mode: the peer's own start, told and ended as a scheduler's is.

The evaluator is a child of this process: signals that would end this one are passed on to it, and
its exit code is ours. Its output is not captured. Standard library and click only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import PraxistError
from ..host.paths import RunPaths
from ..host.protected import Manifest
from ..service.peer_start import PeerStart, Slot, check_fence, start_as_peer
from . import output
from .legacy_options import cap
from .submission import check_options
from .words import safe

if TYPE_CHECKING:
    from .launching import Launching


class PeerLaunching:
    """One such launch."""

    def __init__(self, launch: Launching, run: RunPaths) -> None:
        self._launch = launch
        self._run = run
        self._quiet = launch.settings.is_json or launch.settings.quiet

    def run(self) -> int:
        """Carry it out; the exit status. Raises what refuses it."""
        launch, options = self._launch, self._launch.options
        check_options(options)
        if launch.waiting.max_wait is not None:
            raise PraxistError(
                "usage",
                "--max-wait: in legacy mode the experiment is a child of this command",
                ["run the command in the background to go on meanwhile"],
            )
        if options.dry_run:
            check_fence(self._run)
            return self._would_start()
        start = PeerStart(
            Slot(
                options.peer,
                options.tag,
                options.eta,
                launch.legacy.allow_duplicate,
                cap(launch.legacy.max_active),
            ),
            command=tuple(os.fsencode(word) for word in launch.words),
            cwd=None if options.cwd is None else os.fsencode(options.cwd),
            wait_s=launch.waiting.admission_timeout,
            poll_s=launch.legacy.poll,
            to_stderr=launch.settings.is_json,
        )
        try:
            ended = start_as_peer(self._run, start, self._waits, self._began)
        except KeyboardInterrupt:  # it passes signals on once something runs
            raise PraxistError(
                "interrupted", "nothing was started", ["send the same command again"]
            ) from None
        code = ended.code if ended.code is not None else 128 + (ended.signal_number or 0)
        if not self._quiet:
            word = "completed" if code == 0 else "failed"
            output.talk(f"{word}  {safe(options.tag)}  {ended}")
        return launch.end(code, "job", None)

    def _would_start(self) -> int:
        if not self._launch.settings.is_json:
            output.talk("dry run  this peer would start it itself (legacy mode)")
        return self._launch.end(0, "scheduler", None)

    def _waits(self, refusal: PraxistError) -> None:
        if not self._quiet:
            output.talk(f"waiting  {safe(self._launch.options.tag)}  {safe(refusal.detail)}")

    def _began(self, manifest: Manifest) -> None:
        self._launch.answer = {"verdict": "started", "new": True}
        if not self._launch.settings.is_json:
            output.talk(
                f"started  {safe(self._launch.options.tag)}  pid {manifest.process.pid}, "
                "by this peer itself (legacy mode)"
            )

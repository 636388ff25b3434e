"""Whether a request to the claim registry comes from whom it names, proved by the kernel.

A run's row is freed at its broker's word, so nobody but that broker is believed: not another
process of the same user either. A broker is the process that sent the registration, and of our own
user it must hold the lock of the run's ledger, of which there is one holder. Of another user's
process /proc tells no descriptors; there the run's directory must be that user's. Decides nothing
else about claims (`core.claim`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..host.identity import identity_of, user_of, visible
from ..host.paths import RunPaths
from ..host.remains import names
from ..protocol.claims import RegisterRun, RunRow
from .owner import holds_lock

ROOT = 0


def forged(request: Any, uid: int, pid: int) -> str | None:
    """What is false of the processes that a request names; None when nothing is.

    `uid`, `pid`: of the process that sent it. The end of a process is all that frees what a run
    holds, so a run is served only while its broker's end can be seen, and an attempt is bound only
    to a process of the same user.
    """
    if isinstance(request, RegisterRun):
        return _not_its_broker(request.run, uid, pid)
    shim = getattr(request, "shim", None)
    if shim is None or uid == os.geteuid():
        return None
    if not visible(shim):
        return "the shim is no process of this host's process namespace and boot"
    if user_of(shim.pid) not in (None, uid):
        return f"process {shim.pid} belongs to another user"
    return None


def as_seen(request: Any, pid: int) -> Any:
    """A registration from a container names its broker as that container does. Proved to be the
    process that sent it, it is kept as it is seen from here: so its end is seen too."""
    if isinstance(request, RegisterRun) and not visible(request.run.broker):
        seen = identity_of(pid)
        if seen is not None and names(request.run.broker, pid):
            run = request.run.model_copy(update={"broker": seen})
            return request.model_copy(update={"run": run})
    return request


def _not_its_broker(run: RunRow, uid: int, pid: int) -> str | None:
    seen = identity_of(pid)
    if seen is None:
        return f"process {pid}, which sent this, cannot be seen in this /proc"
    if run.broker != seen:
        return f"process {pid} sent this, and another one is named as the broker"
    paths = RunPaths(Path(run.run_dir))
    if paths.run_key != run.run_key:
        return f"the run's key is not that of {run.run_dir}"
    if holds_lock(pid, paths.ledger_lock):
        return None
    if uid == os.geteuid():
        return f"process {pid} does not hold {paths.ledger_lock}: it is not the run's broker"
    return _of_another(paths.run_dir, uid)


def _of_another(directory: Path, uid: int) -> str | None:
    """That a directory is not user `uid`'s; None where that cannot be said.

    One that cannot be seen from here may be theirs when whoever hides it is they, or the system.
    """
    for place in (directory, *directory.parents):
        try:
            owner = os.stat(place).st_uid
        except OSError:
            continue
        if owner != uid and (place == directory or owner != ROOT):
            return f"{place} belongs to user {owner}"
        return None
    return None

"""Gathers what lies in a run's directory of experiments that its ledger does not know.

Attempt directories and protected-process manifests are anybody's to forge: each is checked at its
door, and only what /proc bears out is said to live. It decides nothing: `core.on_disk` does.
"""

from __future__ import annotations

import logging
import os
import re

from ..core.on_disk import unknown
from ..core.state import BrokerState
from ..errors import PraxistError
from ..host.attempt_files import AttemptFiles
from ..host.identity import is_alive, visible
from ..host.paths import RunPaths
from ..host.protected import Protected, ProtectedFolder, state_of
from ..host.remains import lock_of
from ..host.stop_search import writes_evidence
from ..protocol.evidence import Remnant
from ..protocol.process import ProcessIdentity

_ATTEMPT = re.compile(r"j-[1-9][0-9]{0,11}\.[1-9][0-9]{0,5}")
_log = logging.getLogger(__name__)


def look(run: RunPaths, state: BrokerState) -> tuple[Remnant, ...]:
    """All of them, at a start."""
    manifests = _manifests(run)
    leaders = {one.manifest.attempt: one for one in manifests if one.manifest.attempt is not None}
    names = {name for name in (*names_on_disk(run), *leaders) if _ATTEMPT.fullmatch(name)}
    files = AttemptFiles(run)
    found = [_attempt(name, files, leaders.get(name)) for name in unknown(names, state)]
    found += [_launched(one) for one in manifests if one.manifest.attempt is None]
    for one in found:
        _log.warning("on disk and not in the ledger: %s", one)
    return tuple(found)


def look_again(run: RunPaths, known: tuple[Remnant, ...]) -> tuple[Remnant, ...]:
    """The same, as they are now; those that were launched without a scheduler while they live."""
    if not any(one.lives for one in known):
        return known
    manifests = {one.manifest.process.pid: one for one in _manifests(run)}
    files, now = AttemptFiles(run), []
    for one in known:
        manifest = manifests.get(one.pid) if one.pid is not None else None
        if one.attempt is not None:
            now.append(_attempt(one.attempt, files, manifest) if one.lives else one)
        elif manifest is not None and manifest.counts:
            now.append(one)
    return tuple(now)


def names_on_disk(run: RunPaths) -> list[str]:
    """The attempts that have a directory, by its name alone."""
    try:
        return [name for name in os.listdir(run.attempts) if _ATTEMPT.fullmatch(name)]
    except OSError:
        return []


def _manifests(run: RunPaths) -> list[Protected]:
    """Those of processes that live, as far as can be told."""
    try:
        entries = ProtectedFolder(run).read().entries
    except PraxistError as error:
        _log.warning("the manifests are not read: %s", error)
        return []
    return [one for one in entries if one.counts]


def _launched(one: Protected) -> Remnant:
    """A launch without a scheduler."""
    manifest = one.manifest
    return Remnant(attempt=None, pid=manifest.process.pid, tag=manifest.tag, lives=True)


def _attempt(name: str, files: AttemptFiles, leader: Protected | None) -> Remnant:
    card, claimed = files.card(name), files.claimed_shim(name)
    shim = claimed if claimed is not None and _borne_out(claimed, name, files) else None
    told = files.evidence(name, claimed) if claimed is not None else None
    held = lock_of(files.run.attempt_log(name)) == "held"
    leads = leader is not None and state_of(leader.manifest) == "live"
    return Remnant(
        attempt=name,
        pid=leader.manifest.process.pid if leader is not None else None,
        tag=None if card is None else card.tag,
        generation=None if card is None else card.generation,
        card=card,
        shim=shim,
        went=told is not None and (told.went or told.started is not None),
        ended=None if told is None else told.ended,
        lives=held or leads or (shim is not None and is_alive(shim)),
    )


def _borne_out(shim: ProcessIdentity, attempt: str, files: AttemptFiles) -> bool:
    """Whether the identity may be followed: nobody has it now, or it writes this evidence."""
    if not visible(shim) or not is_alive(shim):
        return True
    return writes_evidence(shim, files.run.attempt(attempt))

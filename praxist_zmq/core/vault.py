"""The credential values of jobs that have not ended, and which of them memory outside must hold.

A value is known outside by its keyed hash, so that thousands of jobs of one shell need it once.
What is new is `fresh` until the shell has put it there, which it does before anything is answered;
what no job needs any more is `gone` until the shell has wiped it. Never says what is a credential:
that is `credentials`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..protocol.events import SecretDigest
from ..protocol.text import OsText

Stored = Mapping[str, OsText | SecretDigest]


class Vault:
    """Job -> name of a variable -> value, and by hash what changed since it was last asked."""

    __slots__ = ("_fresh", "_gone", "_hashes", "_jobs", "_users")

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, OsText]] = {}
        self._hashes: dict[str, tuple[str, ...]] = {}
        self._users: dict[str, int] = {}
        self._fresh: dict[str, OsText] = {}
        self._gone: dict[str, None] = {}

    def of(self, job: str) -> Mapping[str, OsText]:
        """The values of one job, as far as they are known."""
        return self._jobs.get(job, {})

    def each(self) -> Iterator[Mapping[str, OsText]]:
        """The values of every job."""
        return iter(self._jobs.values())

    def put(self, job: str, stored: Stored, values: Mapping[str, OsText]) -> None:
        """A job was taken, or its sender has brought its values again; `stored` has their
        hashes."""
        self._hold(job, stored, values)
        for hashed in self._hashes.get(job, ()):
            self._gone.pop(hashed, None)

    def recall(self, job: str, stored: Stored, remembered: Mapping[str, OsText]) -> None:
        """After a start: the values of a job that outlived the process."""
        hashes = {n: v.hmac_sha256 for n, v in stored.items() if isinstance(v, SecretDigest)}
        values = {n: remembered[h] for n, h in hashes.items() if h in remembered}
        self._hold(job, stored, values)
        for hashed in self._hashes.get(job, ()):
            self._fresh.pop(hashed, None)

    def forget_unused(self, remembered: Collection[str]) -> None:
        """After all were recalled: nobody needs the rest."""
        self._gone.update(dict.fromkeys(h for h in remembered if h not in self._users))

    def drop(self, job: str) -> None:
        """The job has ended."""
        self._jobs.pop(job, None)
        for hashed in self._hashes.pop(job, ()):
            self._users[hashed] -= 1
            if not self._users[hashed]:
                del self._users[hashed]
                self._fresh.pop(hashed, None)
                self._gone[hashed] = None

    def take_fresh(self) -> dict[str, OsText]:
        """Values that memory outside lacks, by their hash."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    def take_gone(self) -> list[str]:
        """Hashes of values that memory outside has for nobody."""
        gone, self._gone = self._gone, {}
        return list(gone)

    def _hold(self, job: str, stored: Stored, values: Mapping[str, OsText]) -> None:
        self.drop(job)
        if not values:
            return
        self._jobs[job] = dict(values)
        hashes = {v.hmac_sha256: n for n, v in stored.items() if isinstance(v, SecretDigest)}
        self._hashes[job] = tuple(h for h, name in hashes.items() if name in values)
        for hashed in self._hashes[job]:
            if hashed not in self._users:
                self._users[hashed] = 0
                self._fresh[hashed] = values[hashes[hashed]]
            self._users[hashed] += 1

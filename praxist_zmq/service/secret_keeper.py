"""Credential values in memory that the supervisor holds, so that they outlive the broker's process.

Puts there what the machine's vault has that is new, before anything is answered, and wipes what it
has dropped. Decides nothing about jobs. See ADR 18 for what is guaranteed and what is not.
"""

from __future__ import annotations

import logging
import os

from ..core.soft import SoftState
from ..host.secret_memory import SecretMemory, make_secret_memory
from ..protocol.text import OsText, from_bytes, to_bytes

WARNING = "vault"

_log = logging.getLogger(__name__)


class VaultHolder:
    """The supervisor's side: the memory that each of its brokers inherits. It reads none of it."""

    def __init__(self) -> None:
        self.descriptor: int | None = None
        """None where the kernel gives none: then a broker that starts again has no values."""
        self._mapped: SecretMemory | None = None
        try:
            self.descriptor = make_secret_memory()
            self._mapped = SecretMemory(self.descriptor)
        except OSError as error:
            _log.warning("no memory for credential values: %s", error)

    def close(self) -> None:
        """Let go of it: nobody has it any more."""
        if self._mapped is not None:
            self._mapped.close()
        if self.descriptor is not None:
            os.close(self.descriptor)


class SecretKeeper:
    """The memory of one broker's vault; without any, nothing outlives the process."""

    def __init__(self, descriptor: int | None, soft: SoftState) -> None:
        self._soft = soft
        self._memory: SecretMemory | None = None
        self._without_room: dict[str, OsText] = {}
        if descriptor is None:
            return
        try:
            self._memory = SecretMemory(descriptor)
        except (OSError, ValueError) as error:
            _log.warning("credential values will not outlive this process: %s", error)
            return
        if not self._memory.locked:
            _log.info("credential values may reach swap: the limit on locked memory is too low")

    def load(self) -> dict[str, OsText]:
        """What an earlier broker of this supervisor's kept, by hash."""
        if self._memory is None:
            return {}
        return {key.hex(): from_bytes(value) for key, value in self._memory.load().items()}

    def keep(self) -> None:
        """Put there what is new."""
        fresh = self._soft.vault.take_fresh()
        if fresh and self._memory is not None:
            self._put(fresh)

    def forget(self) -> None:
        """Wipe what was dropped; only once the ledger has the reason."""
        gone = self._soft.vault.take_gone()
        if not gone or self._memory is None:
            return
        for hashed in gone:
            self._memory.drop(bytes.fromhex(hashed))
            self._without_room.pop(hashed, None)
        again, self._without_room = self._without_room, {}
        self._put(again)

    def _put(self, values: dict[str, OsText]) -> None:
        assert self._memory is not None, "asked by the callers"
        for hashed, value in values.items():
            if not self._memory.keep(bytes.fromhex(hashed), to_bytes(value)):
                self._without_room[hashed] = value
        if self._without_room:
            number = len(self._without_room)
            self._soft.warnings[WARNING] = (
                f"{number} credential value{' is' if number == 1 else 's are'} in the broker's "
                "memory alone, because the vault is full: jobs that need one wait for their "
                "sender if the broker is started again"
            )
        else:
            self._soft.warnings.pop(WARNING, None)

"""Names by which a real device belongs to one host scope at a time, whatever scopes there are.

A registry holds `@praxist-zmq/device/UUID` while something of its scope is placed or planned on the
device, and the shim of each attempt there holds `@praxist-zmq/held/UUID/SCOPE/RANDOM`, so that the
device stays its scope's while no registry lives. Whoever takes the first looks for the second
afterwards, and a shim has its name before it says that it is ready; so of two registries that come
in each other's way at least one sees the other. A connection to a name tells who holds it, and
hangs up when that process is gone: nothing here waits or asks again, but where too many ask.

The kernel keeps these names for each network namespace apart. Anybody may take any of them; such a
device is told as held by that user. Simulated devices have only the shims' names, which tell a
registry of the same scope what lives (`unclaimed_names`). Decides nothing about claims.
Source: unix(7) "Abstract sockets"; design 2, promise 5.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pwd
import re
import secrets
import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..protocol.claims import DeviceElsewhere
from .default_scope import place_of
from .unix_sockets import UNTOLD, Holder, ask, gone, hold, listening

_NAMED = re.compile(r"^GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""As drivers name devices."""
_SIMULATED = "GPU-00000000-0000-4000-8000-"
"""How the names of simulated devices begin (`nvml_simulated`)."""
_DEVICE = "@praxist-zmq/device/"
_HELD = "@praxist-zmq/held/"
HELD_MAX = 240
"""Names of one attempt: all of them pass to its shim in one message."""
AGAIN_MS = 1_000
"""Before a name is tried again whose holder cannot be watched, and between two looks at all."""
UNWANTED_MAX = 1_024
"""Devices of others that are told before anybody here wants them: any user may take any number of
names, and each costs a descriptor and room in every view."""

_log = logging.getLogger(__name__)


@cache
def is_real(device: str) -> bool:
    """Whether a driver names a device so."""
    return _NAMED.match(device) is not None and not device.startswith(_SIMULATED)


def scope_mark(directory: Path) -> str:
    """A scope's name within names: the same for whoever sees the same directory, and for nobody
    else; two containers may have different ones of one path."""
    device = os.stat(directory).st_dev if directory.is_dir() else None
    place = f"{directory}\0{device}"
    return hashlib.sha256(os.fsencode(place)).hexdigest()[:16]


def bind_held(devices: Iterable[str], mark: str) -> list[int]:
    """A descriptor for each device, bound to a name of its own, for the shim of an attempt.

    The shim listens on them. Raises OSError when the kernel has no room, or they are too many.
    """
    bound: list[socket.socket] = []
    try:
        for device in filter(_NAMED.match, devices):
            if len(bound) == HELD_MAX:
                raise OSError(7, f"an attempt can hold at most {HELD_MAX} devices")
            bound.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            bound[-1].bind(f"\0{_HELD[1:]}{device}/{mark}/{secrets.token_hex(8)}")
    except OSError:
        for each in bound:
            each.close()
        raise
    return [each.detach() for each in bound]


@dataclass(slots=True)
class _Elsewhere:
    told: DeviceElsewhere
    connection: socket.socket | None
    """Readable once the holder is gone; None where it could not be had."""
    try_again_ms: int = 0


class DeviceNames:
    """The names that one registry holds, and who holds those that it wanted."""

    def __init__(
        self,
        directory: Path,
        watch: Callable[[socket.socket], None],
        unwatch: Callable[[socket.socket], None],
    ) -> None:
        """`watch` and `unwatch` say what the caller's loop is to wait for."""
        self._mark = scope_mark(directory)
        self._watch = watch
        self._unwatch = unwatch
        self._held: dict[str, socket.socket] = {}
        self._elsewhere: dict[str, _Elsewhere] = {}
        self._look_at_ms = 0

    @property
    def elsewhere(self) -> tuple[DeviceElsewhere, ...]:
        """Devices that other scopes hold, as far as was looked."""
        return tuple(self._elsewhere[device].told for device in sorted(self._elsewhere))

    def due_ms(self) -> int | None:
        """When to `refresh` without being woken; None when holders wake us."""
        unwatched = (e.try_again_ms for e in self._elsewhere.values() if e.connection is None)
        return min(unwatched, default=None)

    def refresh(self, now_ms: int) -> None:
        """Forget whom we know to be gone; where another of that scope is left, it is told now."""
        over = {device for device in list(self._elsewhere) if self._is_over(device, now_ms)}
        for device in over:
            self._forget(device)
        if over:
            self._ask_others(over, now_ms)

    def take(self, devices: Iterable[str], now_ms: int) -> None:
        """Hold the names of these devices, or learn who does."""
        taken: dict[str, socket.socket] = {}
        for device in devices:
            known = device in self._held or device in self._elsewhere or device in taken
            if known or not is_real(device):
                continue
            try:
                ours = hold(_DEVICE + device)
            except OSError as error:
                _log.warning("the name of %s cannot be held: %s", device, error.strerror)
                self._note(device, UNTOLD, None, now_ms)
                continue
            if ours is None:
                self._ask(device, _DEVICE + device, now_ms)
            else:
                taken[device] = ours
        if taken:
            self._give_way_to_shims(taken, now_ms)
            self._held.update(taken)

    def keep(self, placed: Collection[str]) -> None:
        """Give up the names of devices on which nothing is placed or planned."""
        for device in [device for device in self._held if device not in placed]:
            self._held.pop(device).close()

    def look(self, now_ms: int) -> None:
        """Learn of devices that others hold, also those that nobody here has wanted."""
        if now_ms < self._look_at_ms:
            return
        self._look_at_ms = now_ms + AGAIN_MS
        self._ask_others(None, now_ms)

    def close(self) -> None:
        """Give up everything."""
        self.keep(())
        for device in list(self._elsewhere):
            self._forget(device)

    # -- others

    def _is_over(self, device: str, now_ms: int) -> bool:
        known = self._elsewhere[device]
        if known.connection is None:
            return now_ms >= known.try_again_ms
        if not gone(known.connection, 0):
            return False
        try:
            if not known.connection.recv(1):
                return True
        except OSError:
            return True
        # Somebody talks who is none of ours: not watched any more, and asked again in a while.
        self._unwatch(known.connection)
        known.connection.close()
        known.connection, known.try_again_ms = None, now_ms + AGAIN_MS
        return False

    def _ask_others(self, devices: Collection[str] | None, now_ms: int) -> None:
        """Note who holds these devices, or any, as many as may be told."""
        for name in listening():
            device = self._named(name)
            if device is None or device in self._held or device in self._elsewhere:
                continue
            few = len(self._elsewhere) < UNWANTED_MAX
            if few if devices is None else device in devices:
                self._ask(device, name, now_ms)

    def _named(self, name: str) -> str | None:
        """The device of which a name tells that another scope has it."""
        if name.startswith(_DEVICE):
            device, mark = name.removeprefix(_DEVICE), ""
        elif name.startswith(_HELD):
            device, mark, *_ = [*name.removeprefix(_HELD).split("/"), ""]
        else:
            return None
        return device if is_real(device) and mark != self._mark else None

    def _give_way_to_shims(self, taken: dict[str, socket.socket], now_ms: int) -> None:
        """Take out what shims of other scopes hold. One look for all: a request names many, and the
        table is long on a busy host."""
        for name in listening():
            if not name.startswith(_HELD):
                continue
            device = self._named(name)
            if device in taken and self._ask(device, name, now_ms):
                taken.pop(device).close()

    def _ask(self, device: str, name: str, now_ms: int) -> bool:
        """Whether somebody has the name; then it is known from now on."""
        answer = ask(name)
        if answer is None and name.startswith(_HELD):
            return False  # the attempt has ended since
        holder, connection = answer or (UNTOLD, None)
        self._note(device, holder, connection, now_ms)
        return True

    def _note(
        self, device: str, holder: Holder, connection: socket.socket | None, now_ms: int
    ) -> None:
        self._elsewhere[device] = _Elsewhere(told(device, holder), connection, now_ms + AGAIN_MS)
        if connection is not None:
            self._watch(connection)

    def _forget(self, device: str) -> None:
        connection = self._elsewhere.pop(device).connection
        if connection is not None:
            self._unwatch(connection)
            connection.close()


def told(device: str, holder: Holder) -> DeviceElsewhere:
    """Who holds a device, for people and for the machine."""
    user = None
    if holder.uid is not None:
        user = str(holder.uid)
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(holder.uid).pw_name
    place = place_of(holder.pid)
    scope = None if place is None else str(place)[:4096]
    return DeviceElsewhere(uuid=device, pid=holder.pid, user=user, scope=scope)


def held_names(directory: Path) -> Iterator[tuple[str, str]]:
    """Names that shims of a scope hold now, and the device of each."""
    mark = scope_mark(directory)
    for name in listening():
        device, _, rest = name.removeprefix(_HELD).partition("/")
        if name.startswith(_HELD) and rest.startswith(f"{mark}/") and _NAMED.match(device):
            yield name, device


def held_elsewhere(directory: Path) -> tuple[DeviceElsewhere, ...]:
    """Devices that scopes other than `directory`'s hold now, for a look from outside."""
    names = DeviceNames(directory, lambda _: None, lambda _: None)
    try:
        names.look(0)
        return tuple(other for other in names.elsewhere if other.scope != str(directory))
    finally:
        names.close()

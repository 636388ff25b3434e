"""The names by which a device belongs to one scope: taken, told, freed by the kernel."""

from __future__ import annotations

import errno
import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.host import device_names, unix_sockets
from praxist_zmq.host.device_names import (
    AGAIN_MS,
    DeviceNames,
    bind_held,
    held_elsewhere,
    scope_mark,
)
from praxist_zmq.host.nvml_simulated import simulated_uuid
from praxist_zmq.host.unclaimed_names import UnclaimedNames
from praxist_zmq.host.unix_sockets import gone


class Scope:
    """The names of one scope, and what its loop would wait for."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.watched: list[Any] = []
        self.names = DeviceNames(directory, self.watched.append, self.watched.remove)

    def takes(self, device: str, now_ms: int = 0) -> bool:
        """Whether it has the device after it tried."""
        self.names.refresh(now_ms)
        self.names.take([device], now_ms)
        return device not in {other.uuid for other in self.names.elsewhere}


@pytest.fixture
def device() -> str:
    return f"GPU-{uuid.uuid4()}"


@pytest.fixture
def scopes(tmp_path: Path) -> Iterator[tuple[Scope, Scope]]:
    pair = Scope(tmp_path / "a"), Scope(tmp_path / "b")
    yield pair
    for scope in pair:
        scope.names.close()
        assert not scope.watched


def test_a_device_is_one_scopes_until_nothing_is_placed_there(
    scopes: tuple[Scope, Scope], device: str
) -> None:
    one, other = scopes
    assert one.takes(device)
    assert one.takes(device), "again"
    assert not other.takes(device)
    (told,) = other.names.elsewhere
    assert (told.uuid, told.pid) == (device, os.getpid())
    assert told.user is not None
    assert device in {found.uuid for found in held_elsewhere(other.directory)}
    one.names.keep([device])
    assert not gone(other.watched[0], 0)
    one.names.keep([])
    assert gone(other.watched[0], 10_000), "the loop is woken, and need not ask again"
    assert other.takes(device)
    assert not one.takes(device)


def test_a_shim_holds_it_for_its_scope(scopes: tuple[Scope, Scope], device: str) -> None:
    one, other = scopes
    (descriptor,) = bind_held([device, "a device of no driver"], scope_mark(one.directory))
    with socket.socket(fileno=descriptor) as held:
        held.listen()
        assert not other.takes(device)
        assert one.takes(device), "its own scope goes on"
        one.names.keep([])
        other.names.look(0)
        assert [told.uuid for told in other.names.elsewhere if told.uuid == device] == [device]
    assert other.takes(device)


def test_a_simulated_device_belongs_to_no_scope_alone(scopes: tuple[Scope, Scope]) -> None:
    (descriptor,) = bind_held([simulated_uuid(0)], scope_mark(scopes[0].directory))
    with socket.socket(fileno=descriptor) as held:
        held.listen()
        assert all(scope.takes(simulated_uuid(0)) for scope in scopes)


def test_a_name_on_which_nobody_listens_is_tried_again(
    scopes: tuple[Scope, Scope], device: str
) -> None:
    one, _ = scopes
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(f"\0praxist-zmq/device/{device}")
        assert not one.takes(device)
        (told,) = one.names.elsewhere
        assert (told.pid, told.user, told.scope) == (None, None, None)
        assert one.names.due_ms() == AGAIN_MS
        assert not one.takes(device, AGAIN_MS)
    assert not one.takes(device, AGAIN_MS + 1)
    assert one.takes(device, 2 * AGAIN_MS)
    assert one.names.due_ms() is None


def test_a_holder_that_talks_is_not_listened_to(scopes: tuple[Scope, Scope], device: str) -> None:
    one, _ = scopes
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(f"\0praxist-zmq/device/{device}")
        squatter.listen()
        assert not one.takes(device)
        talking, _ = squatter.accept()
        with talking:
            talking.send(b"x")
            assert not one.takes(device)
            assert not one.watched, "it would wake the loop without end"
            assert one.names.due_ms() == AGAIN_MS


def test_many_devices_cost_one_look_at_the_kernels_table(
    scopes: tuple[Scope, Scope], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = scopes
    (descriptor,) = bind_held([device], scope_mark(other.directory))
    looks = 0

    def listening() -> Iterator[str]:
        nonlocal looks
        looks += 1
        return unix_sockets.listening()

    monkeypatch.setattr(device_names, "listening", listening)
    more = [f"GPU-{uuid.uuid4()}" for _ in range(20)]
    with socket.socket(fileno=descriptor) as held:
        held.listen()
        one.names.take([*more, device, *more], 0)
        assert looks == 1
        assert [told.uuid for told in one.names.elsewhere] == [device]
        assert not any(other.takes(each) for each in more)
        one.names.keep(())
        assert other.takes(device), "what a shim holds is not kept from its own scope"


def test_names_that_somebody_takes_by_the_thousand_are_told_up_to_a_bound(
    scopes: tuple[Scope, Scope], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_names, "UNWANTED_MAX", 5)
    one, other = scopes
    one.names.take([f"GPU-{uuid.uuid4()}" for _ in range(20)] + [device], 0)
    other.names.look(AGAIN_MS)
    assert len(other.names.elsewhere) == 5
    assert not other.takes(device), "what is wanted is told beyond the bound"


def test_without_a_descriptor_left_a_device_is_not_taken_for_free(
    scopes: tuple[Scope, Scope], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = scopes
    assert one.takes(device)
    real = socket.socket

    def full(*_: Any) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(unix_sockets.socket, "socket", full)
    other.names.look(AGAIN_MS)
    assert not other.takes(device)
    monkeypatch.setattr(unix_sockets.socket, "socket", real)
    assert not other.takes(device, 3 * AGAIN_MS)
    one.names.keep(())
    assert other.takes(device, 5 * AGAIN_MS)


def test_what_lives_when_a_registry_starts_is_found_until_it_is_claimed_or_has_ended(
    scopes: tuple[Scope, Scope], device: str
) -> None:
    one, other = scopes
    simulated = simulated_uuid(3)
    descriptors = bind_held([device, simulated], scope_mark(one.directory))
    shims = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    for shim in shims:
        shim.listen()
    watched: list[Any] = []
    found = UnclaimedNames(watched.append, watched.remove)
    found.find(other.directory, 0)
    assert found.devices == (), "another scope's are none of ours"
    found.find(one.directory, 0)
    assert [each.uuid for each in found.devices] == sorted([device, simulated])
    assert all(each.unclaimed and each.pid == os.getpid() for each in found.devices)
    shims[1].close()
    assert gone(watched[1], 10_000) or gone(watched[0], 0)
    found.refresh(0)
    assert [each.uuid for each in found.devices] == [device]
    found.claimed(lambda: {1})
    assert len(found.devices) == 1
    found.claimed(lambda: {os.getpid()})
    assert found.devices == ()
    assert not watched
    shims[0].close()

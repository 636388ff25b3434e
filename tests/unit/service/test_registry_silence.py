"""A broker asks its registry again, although nothing else wakes it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from praxist_zmq.host.identity import identity_of
from praxist_zmq.service.broker import BrokerShell
from praxist_zmq.service.broker_store import open_ledger
from praxist_zmq.service.child_config import ChildConfig
from praxist_zmq.transport.front import FrontDoor
from praxist_zmq.transport.poller import Poller
from tests.support.wait import wait_until

BODY = b'{"request_id":"request-1","request":{}}'


def test_a_request_whose_answer_was_lost_is_sent_again(
    host_directory: Path, tmp_path: Path
) -> None:
    me = identity_of(os.getpid())
    assert me is not None
    config = ChildConfig(
        run_dir=str(tmp_path), run_id="run", front="f", events="e",
        core=str(host_directory / "core.sock"), samples=str(host_directory / "samples.sock"),
        host_dir=str(host_directory), secret=(b"s" * 32).hex(), ready_fd=3, supervisor=me,
    )  # fmt: skip
    config.run.ledger.mkdir(parents=True)
    ledger, broker = open_ledger(config)
    registry = FrontDoor(config.host.registry_socket)
    shell = BrokerShell(config, ledger, broker)
    poller = Poller()
    poller.register(shell.registry)
    came: list[bytes] = []

    def heard(times: int) -> bool:
        came.extend(request.body for request in registry.drain())
        return came.count(BODY) == times

    try:
        wait_until(shell.registry.connected_again, "the connection")
        assert shell.registry.send("request-1", BODY)
        wait_until(lambda: heard(1), "the first sending")
        until = time.monotonic() + 30
        while not heard(2):
            assert time.monotonic() < until, "it was not sent again"
            shell.turn(shell.wait(poller))
    finally:
        shell.registry.forget()
        shell.close()
        registry.close()
        ledger.close()

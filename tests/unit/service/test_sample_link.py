"""Asking for a sample: heard from ours only, never waited for, harmless without a sampler."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.core.decision import Send
from praxist_zmq.host.identity import identity_of
from praxist_zmq.protocol.orders import SampleNow
from praxist_zmq.service.broker import BrokerShell, open_ledger
from praxist_zmq.service.child_config import ChildConfig
from praxist_zmq.service.sample_link import SampleLink, SampleRequests, socket_beside
from praxist_zmq.transport.link import LinkClient
from praxist_zmq.transport.poller import Poller
from tests.support.wait import wait_until

SECRET = b"s" * 16


@pytest.fixture
def samples() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="pz"))
    yield str(directory / "samples.sock")
    shutil.rmtree(directory)


def test_requests_come_through_and_survive_a_restart(samples: str) -> None:
    asking = SampleLink(samples, SECRET)
    try:
        assert not asking.ask()
        for _ in range(2):
            requests = SampleRequests(samples, SECRET)
            poller = Poller()
            poller.register(requests)
            try:
                wait_until(asking.ask, "the link")
                asking.ask()
                assert poller.wait(5_000) == {requests}
                wait_until(requests.wanted, "the request")
            finally:
                requests.close()
            wait_until(lambda: not asking.ask(), "the end of the link")
        assert not socket_beside(samples).exists()
    finally:
        asking.close()


def test_neither_a_wrong_secret_nor_another_message_is_a_request(samples: str) -> None:
    requests = SampleRequests(samples, SECRET)
    stranger = SampleLink(samples, b"x" * 16)
    other = LinkClient(socket_beside(samples), SECRET)
    poller = Poller()
    poller.register(requests)
    try:
        wait_until(stranger.ask, "the stranger's link")
        assert poller.wait(5_000) == {requests}
        assert not requests.wanted()
        wait_until(lambda: other.send(b"status", [b""]), "the other link")
        assert poller.wait(5_000) == {requests}
        assert not requests.wanted()
    finally:
        requests.close()
        stranger.close()
        other.close()


def test_the_broker_asks_when_its_machine_wants_a_sample(samples: str, tmp_path: Path) -> None:
    me = identity_of(os.getpid())
    assert me is not None
    near = Path(samples).parent
    config = ChildConfig(
        run_dir=str(tmp_path), run_id="run", front="f", events="e", core=str(near / "core.sock"),
        samples=samples, host_dir=str(near), secret=SECRET.hex(), ready_fd=3, supervisor=me,
    )  # fmt: skip
    config.run.ledger.mkdir(parents=True)
    ledger, broker = open_ledger(config)
    shell = BrokerShell(config, ledger, broker)
    requests = SampleRequests(samples, SECRET)

    def asked() -> bool:
        shell.step.finish([], [Send("sampler", SampleNow())])
        return requests.wanted()

    try:
        wait_until(asked, "the broker's request")
    finally:
        requests.close()
        shell.close()
        ledger.close()

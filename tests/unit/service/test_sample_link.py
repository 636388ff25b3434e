"""Asking for a sample: heard from ours only, never waited for, harmless without a sampler."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.core.decision import Send
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.host.identity import identity_of
from praxist_zmq.protocol.orders import SampleNow
from praxist_zmq.service.broker import BrokerShell, open_ledger
from praxist_zmq.service.child_config import ChildConfig
from praxist_zmq.service.sample_link import SampleLink, SampleServer
from praxist_zmq.transport.link import LinkClient
from praxist_zmq.transport.poller import Poller
from tests.support.wait import wait_until

SECRET = b"s" * 16
CLOCK = SystemClock().mono_ms


@pytest.fixture
def samples() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="pz"))
    yield str(directory / "samples.sock")
    shutil.rmtree(directory)


def test_samples_and_wishes_pass_and_survive_a_restart(samples: str) -> None:
    asking = SampleLink(samples, SECRET, CLOCK)
    poller = Poller()
    poller.register(asking)
    try:
        assert not asking.ask()
        for number in range(2):
            server = SampleServer(samples, SECRET)
            poller.register(server)
            wait_until(
                lambda server=server: asking.drain() or server.wanted() or asking.ask(), "the link"
            )
            assert poller.wait(5_000) == {server}
            assert server.wanted()
            server.publish(b"%d" % number)
            assert poller.wait(5_000) == {asking}
            assert asking.drain() == [b"%d" % number]
            poller.unregister(server)
            server.close()
            wait_until(lambda: asking.drain() or not asking.ask(), "the end of the link")
        assert not Path(samples).exists()
    finally:
        asking.close()


def test_who_takes_nothing_is_sent_no_more_than_waits(
    samples: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that was stopped finds a few samples, not the hours that it missed."""
    asking, server = SampleLink(samples, SECRET, CLOCK), SampleServer(samples, SECRET)
    try:
        wait_until(lambda: asking.drain() or server.wanted() or asking.ask(), "the link")
        for number in range(100):
            server.wanted()
            server.publish(b"%3d" % number + b"x" * 100_000)
        found: list[bytes] = []
        wait_until(
            lambda: found.extend(asking.drain()) or server.wanted() or not asking.drain(), "rest"
        )
        assert len(found) < 20
    finally:
        asking.close()
        server.close()


def test_neither_a_wrong_secret_nor_another_message_is_a_wish(samples: str) -> None:
    server = SampleServer(samples, SECRET)
    stranger = SampleLink(samples, b"x" * 16, CLOCK)
    other = LinkClient(samples, SECRET, CLOCK)
    try:
        wait_until(lambda: server.wanted() or other.take().anew, "the other link")
        assert not stranger.drain()
        assert not stranger.ask(), "nobody welcomed it"
        assert other.send(b"status", [b""])
        assert not server.wanted()
    finally:
        server.close()
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
    requests = SampleServer(samples, SECRET)

    def asked() -> bool:
        shell.samples.drain()
        shell.step.finish([], [Send("sampler", SampleNow())])
        return requests.wanted()

    try:
        wait_until(asked, "the broker's request")
    finally:
        requests.close()
        shell.close()
        ledger.close()

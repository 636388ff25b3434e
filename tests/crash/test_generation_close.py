"""SIGKILL of the broker at every point of a close: the fence comes first, nothing of it is lost.

CLOSING_SIGNAL is there only when the freeze is on disk; after the restart the queue is rejected,
the file is there, and the client that asked is answered.
"""

from __future__ import annotations

import threading

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger.reading import LedgerReader
from praxist_zmq.protocol import events as ev
from praxist_zmq.protocol.codec import decode_event
from tests.support import oracle, strace
from tests.support.campaign import ensure_up
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

pytestmark = pytest.mark.skipif(strace.works() is not None, reason=str(strace.works()))

POINTS = (
    ("fdatasync", 1),
    ("fdatasync", 2),
    ("mkdirat,mkdir", 1),
    ("fsync", 1),
    ("fsync", 2),
    ("rename,renameat,renameat2", 1),
    ("rename,renameat,renameat2", 2),
    ("sendto,sendmsg", 1),
    ("sendto,sendmsg", 2),
)


def frozen_on_disk(run: Run, generation: int) -> bool:
    events = (decode_event(payload) for _, payload in LedgerReader(run.paths.ledger).records())
    return any(isinstance(e, ev.GenerationFrozen) and e.generation == generation for e in events)


def close(run: Run, generation: int) -> None:
    """Until it is answered: asking again is always safe."""
    for _ in range(20):
        try:
            with run.client(timeout_s=10.0) as client:
                client.freeze_generation(generation, signal=True)
                return
        except PraxistError as error:
            if not (error.row.retryable or error.code == "no_scheduler"):
                raise
            ensure_up(run)
    raise AssertionError("the close was never answered")


def test_at_every_point_of_a_close(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        run.submit(client, "runs", f"wait:{run.gate('g')}", "exit:5")
    run.until_started("j-1.1")
    hits = 0
    for number, (calls, when) in enumerate(POINTS, 1):
        ensure_up(run)
        with run.client() as client:
            client.open_generation(number)
            jobs = [run.submit(client, f"{number}-{n}", "exit:0").job.job for n in range(3)]
        pid = run.processes()["broker"]
        file = run.dir / f"gen_{number}" / "CLOSING_SIGNAL"
        with strace.injected(pid, calls, "signal=SIGKILL", when, follow="send" in calls):
            asker = threading.Thread(target=close, args=(run, number))
            asker.start()
            wait_until(
                lambda f=file, p=pid: f.exists() or run.processes().get("broker") != p,
                "the signal, or the broker's end",
            )
            assert not file.exists() or frozen_on_disk(run, number), (calls, when)
            asker.join(60)
            assert not asker.is_alive()
        ensure_up(run)
        hits += run.processes()["broker"] != pid
        wait_until(file.is_file, f"the signal after {calls} {when}")
        with run.client() as client:
            assert [client.wait(job, 20).reject_code for job in jobs] == ["generation_closing"] * 3
            assert client.show("j-1").state == "running"
    assert hits >= 5, "hardly any point was met"
    run.open_gate("g")
    with run.client() as client:
        assert client.wait("j-1", 30).exit_code == 5
    run.down()
    oracle.check_ended(run)

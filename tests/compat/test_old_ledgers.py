"""Ledgers that older releases wrote, kept as files: every later one must read them.

`data/valid/exclusive_devices` was written by the release that gave each device to one attempt and
kept the limit fixed (ADR 6): a run's ledger with jobs in every state and its registry's, each once
as records alone and once as a snapshot with records after it. Never made anew: a file that this
program wrote would prove nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.alarms import alarms
from praxist_zmq.core.broker import Broker
from praxist_zmq.core.claim_invariants import state_violations
from praxist_zmq.core.decision import Stamp
from praxist_zmq.core.fleet import of_row
from praxist_zmq.core.invariants import check_state
from praxist_zmq.core.transitions import RETRIABLE
from praxist_zmq.ledger.log import Ledger
from praxist_zmq.ledger.reading import LedgerReader
from praxist_zmq.protocol.envelope import LEDGER_VERSION
from praxist_zmq.protocol.policy import SchedulerPolicy
from praxist_zmq.service.broker_store import fold, restore
from praxist_zmq.service.ledger_history import history_faults
from praxist_zmq.service.registry_recovery import recovered

DATA = Path(__file__).parent / "data" / "valid" / "exclusive_devices"
BOTH = pytest.mark.parametrize("form", ["broker", "broker_snapshot"])
BOOT = "boot-1"
DAY_MS = 86_400_000
WRITTEN_AT_MS = 1_700_000_000_000


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A copy that a program may open: the files themselves never change."""
    copy = tmp_path / "ledgers"
    shutil.copytree(DATA, copy)
    for directory in (copy, *copy.iterdir()):
        directory.chmod(0o700)
        for file in directory.iterdir():
            if file.is_file():
                file.chmod(0o600)
    return copy


def read(directory: Path) -> Broker:
    """The broker that this program makes of a ledger."""
    ledger = Ledger.open(directory, "broker", "run", BOOT, ballast_bytes=0)
    broker = restore(ledger.snapshot)
    fold(broker, ledger.replay())
    return broker


def go_on(broker: Broker, policy: SchedulerPolicy) -> None:
    """What a start does after the replay."""
    stamp = Stamp(at_ms=WRITTEN_AT_MS + DAY_MS, mono_ms=DAY_MS)
    broker.begin(
        stamp, run_id="run", boot_id=BOOT, version="new", policy=policy, generation=0, reopen=True
    )


@BOTH
def test_every_record_is_read_and_the_state_is_sound(kept: Path, form: str) -> None:
    broker = read(kept / form)
    assert not broker.soft.unreadable
    assert not check_state(broker.state)
    found = {job.tag: job.state for job in broker.state.jobs.values()}
    assert found.pop("after", "running") == "running"
    assert found == {
        "first": "completed", "second": "failed", "third": "completed", "runs-shared": "running",
        "runs-alone": "running", "waits": "queued", "waits-too": "running", "secretly": "running",
    }  # fmt: skip


@pytest.mark.parametrize("form", ["broker", "broker_snapshot", "registry", "registry_snapshot"])
def test_the_history_of_an_old_ledger_breaks_no_promise(kept: Path, form: str) -> None:
    assert history_faults(kept / form) == []


@BOTH
def test_what_is_new_is_written_where_the_old_program_refuses_to_read(
    kept: Path, form: str
) -> None:
    """It would pass over events that it does not know, and reject the jobs they are about."""
    ledger = Ledger.open(kept / form, "broker", "run", BOOT, ballast_bytes=0)
    known = sum(1 for _ in ledger.replay())
    ledger.start()
    ledger.commit([b"{}"])
    ledger.close()
    versions = [part.header.format_version for part in LedgerReader(kept / form).segments]
    assert versions == sorted(versions)
    assert (versions[0], versions[-1]) == (1, LEDGER_VERSION)
    again = Ledger.open(kept / form, "broker", "run", BOOT, ballast_bytes=0)
    assert sum(1 for _ in again.replay()) == known + 1


@BOTH
def test_what_was_placed_alone_stays_alone_and_declares_what_it_did(kept: Path, form: str) -> None:
    state = read(kept / form).state
    held = {state.jobs[attempt.job].tag: attempt for attempt in state.attempts.values()}
    shared = held["runs-shared"]
    assert shared.exclusive
    assert (shared.memory_mib, shared.utilization_pct) == (20 * 1024, 45.0)
    assert held["runs-alone"].exclusive
    assert state.peers_running["alice"] == 1


@BOTH
def test_the_limit_is_what_the_contract_says_at_start(kept: Path, form: str) -> None:
    broker = read(kept / form)
    policy = broker.state.policy
    go_on(broker, policy)
    assert (policy.min_concurrent_experiments, policy.max_concurrent_experiments) == (2, 6)
    assert broker.state.limit == policy.initial_concurrent_experiments == 4
    assert not check_state(broker.state)


@BOTH
def test_a_generation_that_ran_experiments_is_not_said_to_have_run_none(
    kept: Path, form: str
) -> None:
    broker = read(kept / form)
    go_on(broker, broker.state.policy)
    state = broker.state
    assert state.current is not None
    assert state.current.attempts >= 6
    # Even with nothing running: what ran before the snapshot counts.
    state.attempts.clear()
    assert not alarms(state, broker.soft)


@pytest.mark.parametrize("form", ["registry", "registry_snapshot"])
def test_the_registry_keeps_what_is_held(kept: Path, form: str) -> None:
    ledger = Ledger.open(kept / form, "registry", "host", BOOT, ballast_bytes=0)
    machine = recovered(ledger)
    ledger.close()
    assert not state_violations(machine.state)
    (run,) = machine.state.runs.values()
    assert (run.run_id, run.uid) == ("run", None)
    with_devices = [row for row in machine.state.rows.values() if row.envelope.device_uuids]
    assert len(with_devices) == 2
    assert all(of_row(row).exclusive and row.bound is not None for row in with_devices)
    # Nobody's name was written: it is the registry's own user's.
    machine.state.own_uid = 1000
    assert machine.state.owner_of(run.run_key) == 1000


def test_what_a_release_before_called_failed_or_rejected_stays_so_and_may_run_again(
    tmp_path: Path,
) -> None:
    """`data/valid/cancelled_jobs` was written by the release that had no state `cancelled`."""
    directory = tmp_path / "broker"
    shutil.copytree(DATA.parent / "cancelled_jobs" / "broker", directory)
    directory.chmod(0o700)
    for file in directory.iterdir():
        file.chmod(0o600)
    state = read(directory).state
    assert not check_state(state)
    assert {job.tag: job.state for job in state.jobs.values()} == {
        "ran": "failed", "waited": "rejected", "done": "completed",
    }  # fmt: skip
    assert {job.state for job in state.jobs.values() if job.tag != "done"} <= RETRIABLE
    again = broker_snapshot.load(broker_snapshot.dump(state))
    assert broker_snapshot.differences(again, state) == []

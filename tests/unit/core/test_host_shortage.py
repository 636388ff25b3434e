"""What the host lacks before a first instruction: it costs no retry, fails nobody, and is told."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from praxist_zmq.core import start_gate
from praxist_zmq.core.commands import LauncherSaid, LedgerMeasured
from praxist_zmq.core.host_shortage import MIB, disk_full_words, lack_of
from praxist_zmq.protocol import reports
from praxist_zmq.protocol.orders import AbandonAttempt, SpawnAttempt
from praxist_zmq.protocol.requests import CancelJobs, ExplainJob, GetStatus, SubmitJob
from praxist_zmq.protocol.room import DiskRoom
from tests.support.broker_world import FakeLauncher, World

ROOMY = DiskRoom(free_bytes=50 * MIB, bytes=100 * MIB, free_inodes=900, inodes=1000)


class PoorLauncher(FakeLauncher):
    """A launcher on a host that lacks something."""

    lacks: int | None = None
    only: str | None = None
    """The one job that lacks it; None is all."""

    def obey(self, order: Any) -> list[Any]:
        hit = isinstance(order, SpawnAttempt) and self.only in (None, order.attempt.split(".")[0])
        if not hit or self.lacks is None:
            return super().obey(order)
        super().obey(order)
        attempt = self.attempts[order.attempt]
        facts = {"errno": self.lacks, "lacked": "process", "detail": "fork: no more"}
        return [self.end(attempt, "never_ran", **facts)]


class PoorWorld(World):
    """A run of one slot on such a host."""

    def __init__(self, limit: int = 1) -> None:
        self.poor = PoorLauncher()
        super().__init__(devices=0, limit=limit)
        self.launcher = self.poor
        self.settle()

    def submit(self, tag: str) -> str:
        reply = self.ask(SubmitJob(peer="p", tag=tag, command=("true",), cwd="/", environment={}))
        self.settle()
        name: str = reply.job.job
        return name

    def pass_over(self, milliseconds: int) -> None:
        self.pass_time(milliseconds)
        self.settle()

    def alarms(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.ask(GetStatus()).alarms
        return found

    def job(self, name: str) -> Any:
        return self.broker.state.jobs[name]

    def explained(self, name: str) -> Any:
        return self.ask(ExplainJob(subject=name))


def test_a_lack_of_the_hosts_fails_nobody_however_often_and_ends_by_itself() -> None:
    world = PoorWorld()
    world.poor.lacks = errno.EAGAIN
    names = [world.submit(f"t{number}") for number in range(3)]
    (alarm,) = world.alarms()
    assert alarm.startswith("HOST SHORTAGE  EAGAIN (processes), fork: no more"), alarm
    assert "taken back at no cost" in alarm
    assert "to mend: raise the limit, or end what forks" in alarm
    for _ in range(40):
        world.pass_over(5_000)
    assert {world.job(name).state for name in names} == {"queued"}
    assert all(world.job(name).retries_used == 0 for name in names)
    assert all(world.job(name).attempts_used == 0 for name in names)
    tries = sum(world.job(name).attempt_counter for name in names)
    assert 5 < tries < 20, "the pause grows, and stays bounded"
    world.poor.lacks = None
    world.pass_over(start_gate.PAUSE_MAX_MS + 60_000)
    assert not world.alarms()
    assert world.broker.state.attempts, "one attempt has shown that the host has it again"


def test_while_it_lasts_every_job_says_so_and_one_attempt_tries_it() -> None:
    world = PoorWorld(limit=3)
    world.poor.lacks = errno.ENFILE
    first = world.submit("a")
    second = world.submit("b")
    assert world.job(first).attempt_counter + world.job(second).attempt_counter == 1
    told = world.explained(second)
    assert [blocker.code for blocker in told.blockers] == ["host_shortage"]
    assert told.verdict.startswith(
        "waits: ENFILE (descriptors), fork: no more; one attempt tries it in 1 s"
    )
    assert told.start_estimate is not None
    assert "retry_pause" in [blocker.code for blocker in world.explained(first).blockers]
    assert world.job(first).requeue_reason == "host_shortage"
    world.poor.lacks = None
    world.pass_over(start_gate.PAUSE_MS)
    assert list(world.broker.state.attempts) == [f"{second}.1"]
    assert not world.alarms()


def test_what_one_job_lacks_alone_holds_no_other() -> None:
    world = PoorWorld()
    world.poor.lacks, world.poor.only = errno.ETXTBSY, "j-1"
    first, second = world.submit("a"), world.submit("b")
    assert world.job(first).state == "queued"
    assert world.job(second).state == "running"
    assert not world.alarms()


def test_a_job_whose_program_always_lacks_something_does_not_hold_the_others() -> None:
    """As an image that is too large for the memory there is."""
    world = PoorWorld()
    world.poor.lacks, world.poor.only = errno.ENOMEM, "j-1"
    first, second = world.submit("a"), world.submit("b")
    world.pass_over(start_gate.PAUSE_MS)
    assert world.job(first).state == "queued"
    assert world.job(second).state == "running"
    assert not world.alarms(), "another attempt started, so the host lacks nothing"


def test_a_trial_that_is_cancelled_says_nothing_and_the_next_one_tries() -> None:
    world = PoorWorld()
    world.poor.lacks = errno.EAGAIN
    first, second = world.submit("a"), world.submit("b")
    world.poor.lacks = None
    world.now_ms += start_gate.PAUSE_MS
    world.turn()
    assert world.broker.soft.shortage is not None
    assert world.broker.soft.shortage.trial == f"{second}.1"
    world.ask(CancelJobs(jobs=(second,), running=True))
    world.settle()
    assert not any(isinstance(order, AbandonAttempt) for order in world.to_launcher)
    assert world.broker.soft.shortage is None or world.broker.soft.shortage.trial is None
    world.pass_over(10_000)
    assert world.job(first).state == "running"


def test_it_is_learnt_again_after_a_restart_and_the_pauses_go_on() -> None:
    world = PoorWorld()
    world.poor.lacks = errno.EAGAIN
    name = world.submit("a")
    world.poor.lacks = None
    world.crash_broker()
    world.settle()
    assert name in world.broker.soft.pauses
    world.pass_over(2_500)
    assert world.job(name).state == "running"


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (ROOMY, None),
        (ROOMY._replace(free_bytes=4 * MIB), "4.0 MiB of 100.0 MiB are free"),
        (ROOMY._replace(free_inodes=0), "0 of 1000 inodes are free"),
        (ROOMY._replace(free_inodes=0, inodes=0), None),
        (ROOMY._replace(free_bytes=17 * MIB, bytes=1_000_000 * MIB), None),
        (None, None),
    ],
)
def test_a_disk_is_full_below_a_floor(room: DiskRoom | None, words: str | None) -> None:
    assert disk_full_words(room) == words


@pytest.mark.parametrize("room", [ROOMY._replace(free_bytes=0), ROOMY._replace(free_inodes=1)])
def test_nothing_starts_while_the_disk_is_full_and_all_goes_on_after(room: DiskRoom) -> None:
    world = PoorWorld()
    world.turn(LedgerMeasured(False, 0, room))
    name = world.submit("a")
    told = world.explained(name)
    assert [blocker.code for blocker in told.blockers] == ["disk_full"]
    blocker = told.blockers[0]
    numbers = (blocker.need, blocker.free, blocker.unit)
    assert numbers == ((5.0, 0.0, "MiB") if room.free_bytes == 0 else (50, 1, "inodes"))
    assert world.alarms()[0].startswith("DISK FULL  the disk of the run is full: ")
    assert world.job(name).attempt_counter == 0
    world.turn(LedgerMeasured(False, 0, ROOMY))
    world.settle()
    assert world.job(name).state == "running"
    assert not world.alarms()


def test_the_table_tells_what_passes_from_what_is_the_jobs_own() -> None:
    for number in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC,
                   errno.EDQUOT, errno.ETXTBSY):  # fmt: skip
        assert lack_of(number) is not None, errno.errorcode[number]
    for number in (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.E2BIG, errno.EIO):
        assert lack_of(number) is None, errno.errorcode[number]
    # The run's own files are never the job's fault, but what was planted there is refused.
    assert lack_of(errno.ENOENT, runs_files=True) is not None
    assert lack_of(errno.ELOOP, runs_files=True) is None


def test_an_old_launchers_word_that_nothing_ran_still_ends_a_job_after_five() -> None:
    world = World(devices=0, limit=1)
    world.settle()
    world.ask(SubmitJob(peer="p", tag="a", command=("true",), cwd="/", environment={}))
    for number in range(1, 6):
        report = reports.AttemptEnded(attempt=f"j-1.{number}", outcome="never_ran")
        while f"j-1.{number}" not in world.broker.state.attempts:
            assert world.deliver()
        world.to_launcher.clear()
        world.turn(LauncherSaid("launcher", report))
    assert world.broker.state.jobs["j-1"].state == "failed"


def test_a_ledger_that_may_not_grow_on_a_roomy_disk_is_not_told_as_a_full_disk() -> None:
    """As under `ulimit -f`."""
    world = PoorWorld()
    world.turn(LedgerMeasured(True, 0, ROOMY))
    (alarm,) = world.alarms()
    assert alarm.startswith("NO ROOM  the ledger has no room though 50 MiB of its disk are free")
    assert "ulimit -f" in alarm
    assert not any("full" in text for text in world.ask(GetStatus()).warnings)
    world.turn(LedgerMeasured(True, 0, ROOMY._replace(free_bytes=0)))
    assert world.alarms()[0].startswith("DISK FULL")

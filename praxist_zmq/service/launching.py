"""The launcher's loop: orders in, shims and signals out, reports back.

It admits nothing and owns no record: what counts is the broker's ledger, the shims that live and
the evidence they leave. Every order may be repeated; every report is repeated on reconnection.
Rules: the design's section 3 "Launch" and promises 3, 4, 6, 7.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from ..core import launch
from ..core.launch import Fact, Life, Phase, Report, advance, latest_report
from ..errors import PraxistError
from ..host import ending, signals
from ..host.attempt_files import AttemptFiles
from ..host.clock import Clock
from ..host.identity import boot_id, identity_of, is_alive, open_pidfd, stat_of, visible
from ..host.nursery import Nursery, close_all
from ..host.paths import RunPaths
from ..host.shim import GO, frame, launch_frame
from ..host.zygote import become_subreaper
from ..protocol import orders
from ..protocol.codec import decode_order, encode
from ..protocol.evidence import ExitRecord
from ..protocol.process import ProcessIdentity
from ..protocol.reports import LauncherConnected
from ..protocol.text import OsText, to_bytes
from .attempt_handle import Handle, Stop

LOG = logging.getLogger("launcher")
SPAWN_DEADLINE_MS = 30_000
UNKILLABLE_AFTER_MS = 5_000
LOOK_APART_MS = 200
PAUSE_MAX_MS = 1_000
OWED_PAUSE_MS = 100
OWED_PAUSE_MAX_MS = 2_000
PERMANENT_ERRNOS = (1, 13, 20, 30, 36, 40)  # EPERM EACCES ENOTDIR EROFS ENAMETOOLONG ELOOP


class Link(Protocol):
    """The launcher's end of the private link to the broker."""

    def fileno(self) -> int:
        """Readable when there may be something to receive or to notice."""
        ...

    def receive(self) -> list[bytes]:
        """Everything that waits: bodies of orders. Never waits."""
        ...

    def send(self, bodies: list[bytes]) -> bool:
        """Send reports in one message; False when it was dropped (no connection, or full)."""
        ...

    def connected_again(self) -> bool:
        """True once after each connection."""
        ...


class Launcher:
    """All attempts of one run, around one zygote."""

    def __init__(self, run: RunPaths, link: Link, clock: Clock) -> None:
        self._run = run
        self._files = AttemptFiles(run)
        self._link = link
        self._clock = clock
        self._handles: dict[str, Handle] = {}
        self._watches: dict[int, Callable[[int], None]] = {}
        self._epoll = select.epoll()
        self._outbox: list[BaseModel] = []
        self._owed_at_ms: int | None = None
        self._owed_pause_ms = OWED_PAUSE_MS
        self._ended = False
        become_subreaper()
        self._children = signals.ChildWatch()
        self._nursery = Nursery(clock)
        self._watch(self._children.fileno(), self._on_children)
        self._watch(self._nursery.fileno(), self._on_zygote)
        self._watch(link.fileno(), _nothing)

    # -- the loop

    def serve(self, until_closed: int | None = None) -> None:
        """Work until descriptor `until_closed` reaches its end, or `finish` is called."""
        if until_closed is not None:
            os.set_blocking(until_closed, False)
            self._watch(until_closed, lambda _: self._on_supervisor(until_closed))
        while not self._ended:
            self.turn()

    def turn(self, timeout_ms: int | None = None) -> None:
        """Wait for something, at most `timeout_ms`; deal with all of it; send what came of it."""
        self._exchange()
        for fd, mask in self._epoll.poll(self._wait_s(timeout_ms)):
            watch = self._watches.get(fd)
            if watch is not None:
                watch(mask)
        now = self._clock.mono_ms()
        if self._owed_at_ms is not None and self._owed_at_ms <= now:
            self._owed_at_ms = None
            self._announce()
        for handle in list(self._handles.values()):
            if handle.wake_at_ms is not None and handle.wake_at_ms <= now:
                self._on_wake(handle, now)
        self._exchange()

    def finish(self) -> None:
        """Leave the loop after this turn."""
        self._ended = True

    def close(self) -> None:
        """Let go of everything. Running experiments go on; waiting shims end by themselves."""
        for handle in self._handles.values():
            handle.close()
        self._nursery.close()
        self._children.close()
        self._epoll.close()

    def _exchange(self) -> None:
        """Receive and send until neither has anything: the link's descriptors tell of edges."""
        while True:
            if self._link.connected_again():
                self._announce()
            bodies = self._link.receive()
            for body in bodies:
                self._obey(body)
            if self._outbox:
                reports, self._outbox = self._outbox, []
                if self._link.send([encode(report) for report in reports]):
                    self._owed_at_ms, self._owed_pause_ms = None, OWED_PAUSE_MS
                else:
                    # A new connection brings everything anyway; a full link needs this timer.
                    self._owed_at_ms = self._clock.mono_ms() + self._owed_pause_ms
                    self._owed_pause_ms = min(self._owed_pause_ms * 2, OWED_PAUSE_MAX_MS)
            elif not bodies:
                return

    def _wait_s(self, timeout_ms: int | None) -> float | None:
        times = [h.wake_at_ms for h in self._handles.values() if h.wake_at_ms is not None]
        if self._owed_at_ms is not None:
            times.append(self._owed_at_ms)
        waits = [max(0, min(times) - self._clock.mono_ms())] if times else []
        if timeout_ms is not None:
            waits.append(timeout_ms)
        return min(waits) / 1000 if waits else None

    def _watch(self, fd: int, react: Callable[[int], None], mask: int = select.EPOLLIN) -> None:
        if fd in self._watches:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._watches[fd] = react

    def _unwatch(self, fd: int | None) -> None:
        if fd is not None and self._watches.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _announce(self) -> None:
        own = identity_of(os.getpid())
        assert own is not None, "a process can always read itself"
        self._outbox.append(LauncherConnected(launcher=own, attempts=tuple(self._handles)))
        for handle in self._handles.values():
            self._repeat(handle)

    def _repeat(self, handle: Handle) -> None:
        report = handle.final or latest_report(handle.life)
        if report is not None:
            self._outbox.append(report)

    def _on_supervisor(self, fd: int) -> None:
        try:
            if not os.read(fd, 4096):
                self._unwatch(fd)
                self.finish()
        except BlockingIOError:
            return

    def _on_children(self, _: int) -> None:
        self._children.drain()
        for pid, status in signals.reap():
            code = os.waitstatus_to_exitcode(status)
            for handle in self._handles.values():
                life = handle.life
                if life.phase is Phase.SWEEPING and life.leader and life.leader.pid == pid:
                    what = f"signal {-code}" if code < 0 else f"status {code}"
                    detail = f"its shim was destroyed; the evaluator then ended with {what}"
                    handle.life = replace(life, detail=detail)

    def _on_zygote(self, _: int) -> None:
        answers = self._nursery.answers()
        for attempt, number in answers or ():
            handle = self._handles.get(attempt)
            if number < 0 and handle is not None:
                detail = f"fork: {os.strerror(-number)}"
                self._learn(handle, launch.SpawnRefused("process_start", False, detail))
        if answers is None:
            LOG.warning("the zygote ended; starting another")
            self._unwatch(self._nursery.fileno())
            self._nursery.replace()
            self._watch(self._nursery.fileno(), self._on_zygote)

    # -- orders

    def _obey(self, body: bytes) -> None:
        try:
            order = decode_order(body)
        except PraxistError as error:
            LOG.error("an order was refused: %s", error)
            return
        if isinstance(order, orders.Welcome):
            return
        handle = self._handles.get(order.attempt)
        if isinstance(order, orders.SpawnAttempt):
            self._spawn(order) if handle is None else self._repeat(handle)
        elif isinstance(order, orders.AdoptAttempt):
            self._adopt(order) if handle is None else self._repeat(handle)
        elif handle is None:
            if not isinstance(order, orders.ForgetAttempt):
                LOG.warning("%s for %s, which isn't in hand", order.kind, order.attempt)
        elif isinstance(order, orders.ReleaseAttempt):
            self._release(handle)
        elif isinstance(order, orders.AbandonAttempt):
            self._abandon(handle)
        elif isinstance(order, orders.StopAttempt):
            self._stop(handle, order.grace_ms)
        elif isinstance(order, orders.ForgetAttempt):
            self._forget(handle)

    def _spawn(self, order: orders.SpawnAttempt) -> None:
        handle = Handle(life=Life(order.attempt))
        self._handles[order.attempt] = handle
        try:
            data = _launch_data(order)
        except ValueError as error:
            self._refuse(handle, "process_start", True, str(error))
            return
        try:
            directory = self._files.create(order.attempt)
        except OSError as error:
            permanent = error.errno in PERMANENT_ERRNOS
            self._refuse(handle, "attempt_directory", permanent, str(error))
            return
        try:
            handle.log = self._files.create_log(order.attempt)
        except OSError as error:
            os.close(directory)
            self._refuse(handle, "log_open", error.errno in PERMANENT_ERRNOS, str(error))
            return
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            os.close(directory)
            self._refuse(handle, "process_start", False, str(error))
            return
        ours.setblocking(False)
        handle.channel = ours
        shims_end = theirs.detach()
        try:
            handle.nonce = self._nursery.ask(order.attempt, shims_end, directory, handle.log)
        except OSError as error:
            self._refuse(handle, "process_start", False, f"the zygote cannot be asked: {error}")
            return
        finally:
            close_all(shims_end, directory)
        handle.wake_at_ms = self._clock.mono_ms() + SPAWN_DEADLINE_MS
        self._talk(handle, data)

    def _refuse(self, handle: Handle, stage: launch.Stage, permanent: bool, detail: str) -> None:
        self._learn(handle, launch.SpawnRefused(stage, permanent, detail))

    def _talk(self, handle: Handle, data: bytes = b"") -> None:
        """Send to the shim, now and when the channel takes more; listen to it meanwhile."""
        if handle.channel is None:
            return
        mask = select.EPOLLIN | (select.EPOLLOUT if handle.write(data) else 0)
        self._watch(handle.channel.fileno(), lambda mask: self._on_channel(handle, mask), mask)

    def _release(self, handle: Handle) -> None:
        if handle.life.phase is Phase.WAITING and not handle.abandoned:
            self._learn(handle, launch.GoGiven())
            self._talk(handle, frame(GO, handle.nonce))
        else:
            self._repeat(handle)

    def _abandon(self, handle: Handle) -> None:
        if handle.life.phase is Phase.SPAWNING:
            handle.abandoned = True
        elif handle.life.phase is Phase.WAITING:
            handle.abandoned = True
            self._hang_up(handle)
        else:
            self._repeat(handle)

    def _forget(self, handle: Handle) -> None:
        if handle.life.phase is Phase.ENDED:
            del self._handles[handle.life.attempt]
        else:
            LOG.warning("%s is to be forgotten but has not ended", handle.life.attempt)

    def _stop(self, handle: Handle, grace_ms: int) -> None:
        life = handle.life
        if life.phase in (Phase.SPAWNING, Phase.WAITING, Phase.ENDED):
            self._abandon(handle)
            return
        now = self._clock.mono_ms()
        kill_at = now + grace_ms
        if handle.stop is None:
            handle.stop = Stop(kill_at, kill_at + UNKILLABLE_AFTER_MS)
        elif kill_at < handle.stop.kill_at_ms:
            handle.stop.kill_at_ms = kill_at
            handle.stop.stuck_at_ms = kill_at + UNKILLABLE_AFTER_MS
        if life.stuck:
            self._repeat(handle)
        if not handle.unseen:
            handle.wake_at_ms = now

    # -- what becomes of an attempt

    def _learn(self, handle: Handle, fact: Fact) -> None:
        """Advance the life by one fact and report what changed."""
        before = latest_report(handle.life)
        old_phase = handle.life.phase
        handle.life = advance(handle.life, fact)
        if handle.life.phase is Phase.ENDED:
            if old_phase is not Phase.ENDED:
                self._finish_attempt(handle)
            return
        after = latest_report(handle.life)
        if after is not None and after != before:
            self._outbox.append(after)

    def _finish_attempt(self, handle: Handle) -> None:
        life = handle.life
        tail = ""
        if life.exit_code != 0 and life.outcome in ("exited", "unknown"):
            tail = self._files.log_tail(life.attempt, handle.log)
        handle.final = latest_report(life, tail)
        for fd in handle.descriptors():
            self._unwatch(fd)
        handle.close()
        if life.leader is not None or handle.adopted:
            self._manifest(life.attempt, None)
        if handle.final is not None:
            self._outbox.append(handle.final)

    def _manifest(self, attempt: str, leader: ProcessIdentity | None) -> None:
        try:
            if leader is not None:
                self._files.protect(attempt, leader)
            else:
                self._files.unprotect(attempt)
        except PraxistError as error:
            LOG.warning("protected-process manifest: %s", error)

    def _hang_up(self, handle: Handle) -> None:
        if handle.channel is not None:
            self._unwatch(handle.channel.fileno())
            handle.channel.close()
            handle.channel = None

    def _on_channel(self, handle: Handle, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._talk(handle)
        news, closed = handle.read()
        for item in news:
            try:
                self._on_news(handle, item)
            except (ValidationError, KeyError, TypeError) as error:
                LOG.error("%s: a malformed word from its shim: %s", handle.life.attempt, error)
        if closed:
            self._hang_up(handle)
            if handle.life.phase is Phase.SPAWNING:
                self._learn(handle, launch.ShimGone())

    def _on_news(self, handle: Handle, news: dict[str, Any]) -> None:
        kind = news.pop("kind")
        if kind == "ready":
            self._on_ready(handle, ProcessIdentity(**news["shim"]))
        elif kind == "going":
            self._learn(handle, launch.Going())
        elif kind == "started":
            leader = ProcessIdentity(**news["leader"])
            handle.leader_fd = open_pidfd(leader)
            self._manifest(handle.life.attempt, leader)
            self._learn(handle, launch.LeaderStarted(leader, news["at_ms"]))
        elif kind == "ended":
            drained = bool(news.pop("drained"))
            shim = handle.life.shim
            assert shim is not None, "GO is given only to a shim that was ready"
            record = ExitRecord(attempt=handle.life.attempt, shim=shim, **news)
            survivors = () if drained else self._survivors(shim)
            self._learn(handle, launch.LeaderEnded(record, drained, survivors))
        else:
            LOG.warning("%s: its shim says %s %s", handle.life.attempt, kind, news)

    def _survivors(self, shim: ProcessIdentity) -> tuple[int, ...]:
        members = ending.under(shim)
        return members.pids if members is not None else ()

    def _on_ready(self, handle: Handle, shim: ProcessIdentity) -> None:
        handle.wake_at_ms = None
        handle.shim_fd = open_pidfd(shim)
        if handle.shim_fd is None:
            self._learn(handle, launch.ShimGone())
            return
        self._watch(handle.shim_fd, lambda _: self._on_shim_gone(handle))
        self._learn(handle, launch.ShimReady(shim))
        if handle.abandoned:
            self._hang_up(handle)

    def _on_shim_gone(self, handle: Handle) -> None:
        """The shim's pidfd fired. What it said before its death still counts."""
        if handle.channel is not None:
            self._on_channel(handle, select.EPOLLIN)
        self._unwatch(handle.shim_fd)
        if handle.shim_fd is not None:
            os.close(handle.shim_fd)
            handle.shim_fd = None
        if handle.adopted:
            self._conclude(handle)
        else:
            self._learn(handle, launch.ShimGone(never_ran=not handle.life.going))
        self._begin_sweep(handle)

    def _begin_sweep(self, handle: Handle) -> None:
        if handle.life.phase is Phase.SWEEPING:
            handle.empty_looks = 0
            handle.wake_at_ms = self._clock.mono_ms()

    # -- adoption

    def _adopt(self, order: orders.AdoptAttempt) -> None:
        """Find out what became of an attempt of an earlier launcher."""
        if order.shim is None:
            # Never bound: GO was never given, and the channel it would have come on is closed.
            handle = Handle(life=Life(order.attempt, phase=Phase.WAITING), adopted=True)
            self._handles[order.attempt] = handle
            self._learn(handle, launch.ShimGone(detail="it was never bound"))
            return
        life = Life(order.attempt, phase=Phase.ADOPTED, shim=order.shim, leader=order.leader)
        handle = Handle(life=life, adopted=True, ledger_leader=order.leader)
        self._handles[order.attempt] = handle
        if order.shim.boot_id != boot_id():
            self._conclude_other_boot(handle, order.shim)
        elif not visible(order.shim):
            handle.unseen = True
            detail = "its processes are in a process-id namespace that is not visible from here"
            self._learn(handle, launch.Stuck((order.shim.pid,), detail))
        elif is_alive(order.shim) and (fd := open_pidfd(order.shim)) is not None:
            handle.shim_fd = fd
            self._watch(fd, lambda _: self._on_shim_gone(handle))
            self._look_at_evidence(handle)
        else:
            self._conclude(handle)
            self._begin_sweep(handle)

    def _conclude_other_boot(self, handle: Handle, shim: ProcessIdentity) -> None:
        """No process outlives its boot: nothing to find, nothing to signal."""
        ended = self._files.evidence(handle.life.attempt, shim).ended
        if ended is not None:
            self._learn(handle, launch.LeaderEnded(ended, drained=True))
        self._learn(handle, launch.ShimGone(detail="the machine was restarted while it ran"))
        self._learn(handle, launch.TreeAbsent())

    def _conclude(self, handle: Handle) -> None:
        """An adopted attempt's shim is gone: the evidence says how it ended."""
        shim = handle.life.shim
        assert shim is not None, "only a bound attempt is adopted"
        evidence = self._files.evidence(handle.life.attempt, shim)
        if evidence.started is not None and handle.life.leader is None:
            handle.hinted_group = evidence.started.leader.pid
        if evidence.ended is not None:
            self._learn(handle, launch.LeaderEnded(evidence.ended))
        never = (
            evidence.ready
            and not evidence.went
            and evidence.started is None
            and handle.ledger_leader is None
        )
        self._learn(handle, launch.ShimGone(never_ran=never))

    def _look_at_evidence(self, handle: Handle) -> None:
        """An adopted shim lives: learn from its files, as far as /proc bears them out."""
        life, shim = handle.life, handle.life.shim
        assert shim is not None, "only a bound attempt is adopted"
        evidence = self._files.evidence(life.attempt, shim)
        handle.wake_at_ms = None
        if life.phase is Phase.ADOPTED:
            started = evidence.started
            leader = handle.ledger_leader or (started.leader if started else None)
            if leader is None or not _is_leader_of(shim, leader, handle.ledger_leader):
                self._look_again(handle)
                return
            at_ms = started.at_ms if started is not None else 0
            handle.leader_fd = open_pidfd(leader)
            if handle.leader_fd is not None:
                self._watch(handle.leader_fd, lambda _: self._on_leader_gone(handle))
            self._manifest(life.attempt, leader)
            self._learn(handle, launch.LeaderStarted(leader, at_ms))
            handle.pause_ms = 10
        life = handle.life
        if life.phase is Phase.RUNNING and life.leader and not is_alive(life.leader):
            # A record found while the evaluator lives would be a forgery, so it isn't read.
            if evidence.ended is None:
                self._look_again(handle)
                return
            fact = launch.LeaderEnded(evidence.ended, survivors=self._survivors(shim))
            self._learn(handle, fact)

    def _look_again(self, handle: Handle) -> None:
        handle.wake_at_ms = self._clock.mono_ms() + handle.pause_ms
        handle.pause_ms = min(handle.pause_ms * 2, PAUSE_MAX_MS)

    def _on_leader_gone(self, handle: Handle) -> None:
        self._unwatch(handle.leader_fd)  # stays open: it still reaches the group
        self._look_at_evidence(handle)

    # -- timers: the spawn's deadline, evidence, stop and sweep

    def _on_wake(self, handle: Handle, now: int) -> None:
        handle.wake_at_ms = None
        phase = handle.life.phase
        if phase is Phase.SPAWNING:
            self._hang_up(handle)
            self._refuse(handle, "process_start", False, "the shim did not come up in time")
            return
        if phase is Phase.ENDED:
            return
        if handle.adopted and phase in (Phase.ADOPTED, Phase.RUNNING):
            self._look_at_evidence(handle)
        if handle.stop is not None:
            self._stop_step(handle, handle.stop, now)
        if handle.life.phase is Phase.SWEEPING:
            self._sweep_step(handle, now)

    def _members(self, handle: Handle) -> ending.Members:
        """Live processes of the attempt, by the best proof there is now."""
        life, shim = handle.life, handle.life.shim
        assert shim is not None, "an attempt without a shim has no processes"
        if life.phase is not Phase.SWEEPING:
            return ending.under(shim) or ending.Members()
        shims = {h.life.shim.pid for h in self._handles.values() if h.life.shim is not None}
        orphans = ending.own_orphans(self._nursery.pid, shims)
        sweeping = [h for h in self._handles.values() if h.life.phase is Phase.SWEEPING]
        return ending.without_shim(
            str(self._run.attempt(life.attempt)),
            shim,
            life.leader,
            handle.hinted_group,
            orphans,
            only_one=len(sweeping) == 1,
        )

    def _stop_step(self, handle: Handle, stop: Stop, now: int) -> None:
        shim = handle.life.shim
        if shim is not None and handle.shim_fd is not None:
            signals.send_pidfd(handle.shim_fd, signals.CONT)  # a stopped shim reaps nothing
        if now < stop.kill_at_ms:
            stop.ending.terminate(self._members(handle), handle.leader_fd)
            handle.wake_at_ms = min(stop.kill_at_ms, now + LOOK_APART_MS)
            return
        left = stop.ending.kill(lambda: self._members(handle), handle.leader_fd)
        if left.pids and now >= stop.stuck_at_ms:
            self._learn(handle, launch.Stuck(left.pids, _stuck_detail(left)))
        handle.wake_at_ms = now + stop.pause_ms
        stop.pause_ms = min(stop.pause_ms * 2, PAUSE_MAX_MS)

    def _sweep_step(self, handle: Handle, now: int) -> None:
        """The shim is gone: ended only after two looks apart found nothing."""
        if self._members(handle).pids:
            handle.empty_looks = 0
            handle.pause_ms = min(max(handle.pause_ms * 2, LOOK_APART_MS), PAUSE_MAX_MS)
            wait = handle.pause_ms
        else:
            handle.empty_looks += 1
            wait = LOOK_APART_MS
        if handle.empty_looks >= 2:
            self._learn(handle, launch.TreeAbsent())
            return
        stopping = handle.wake_at_ms
        handle.wake_at_ms = min(now + wait, stopping) if stopping is not None else now + wait


def _is_leader_of(
    shim: ProcessIdentity, leader: ProcessIdentity, recorded: ProcessIdentity | None
) -> bool:
    """Whether to take `leader` for the shim's evaluator: the ledger's word, or a child of it."""
    if leader == recorded:
        return True
    stat = stat_of(leader)
    return stat is not None and stat.parent == shim.pid and stat.group == stat.pid


def _stuck_detail(left: ending.Members) -> str:
    if left.doubtful and not left.ours:
        return "these cannot be proved to belong to the attempt, so they were not signalled"
    return "KILL was sent and these are still there"


def _launch_data(order: orders.SpawnAttempt) -> bytes:
    """The launch frame. Raises ValueError for what the kernel could never take."""
    command = [to_bytes(argument) for argument in order.command]
    if not command or not command[0]:
        raise ValueError("the command is empty")
    environment = {_variable(name): _plain(value) for name, value in order.environment.items()}
    if any(b"\0" in argument for argument in command):
        raise ValueError("an argument holds a NUL byte")
    return launch_frame(command, _plain(order.cwd), environment)


def _plain(text: OsText) -> bytes:
    raw = to_bytes(text)
    if b"\0" in raw:
        raise ValueError("the environment or the directory holds a NUL byte")
    return raw


def _variable(name: str) -> bytes:
    raw = name.encode("utf-8")
    if not raw or b"=" in raw or b"\0" in raw:
        raise ValueError(f"{name[:100]!r} is not the name of an environment variable")
    return raw


def _nothing(_: int) -> None:
    """The loop looks at the link in every turn; its descriptors only wake it."""


__all__ = ["Launcher", "Link", "Report"]

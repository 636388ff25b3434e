"""The attempts in hand: asks for shims, gives GO, listens to them, reports what changed.

Adoption and stopping stand in modules of their own on top of this one. It starts nothing that was
not ordered and reports an end only as `core.launch` decides it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
from collections import deque
from typing import Any

from pydantic import BaseModel, ValidationError

from ..core import launch
from ..core.host_shortage import disk_full_words, lack_of
from ..core.launch import Fact, Life, Phase, advance, judged, latest_report
from ..core.proof import Verdict
from ..errors import PraxistError
from ..host import ending
from ..host.attempt_files import AttemptFiles
from ..host.clock import Clock
from ..host.device_names import bind_held
from ..host.identity import identity_from, open_pidfd
from ..host.limits_in_force import disk_room, limit_words
from ..host.nursery import Nursery, close_all
from ..host.shim import go_frame, launch_frame
from ..protocol import orders
from ..protocol.evidence import ExitRecord, StartedRecord
from ..protocol.process import ProcessIdentity
from ..protocol.text import OsText, to_bytes
from .attempt_handle import Handle
from .wakeups import Wakeups

LOG = logging.getLogger("launcher")
SPAWN_DEADLINE_MS = 30_000
IN_FLIGHT_MAX = 64
DESCRIPTORS_EACH = 4
"""Of an attempt: its channel, its log, its shim, its evaluator."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
RESERVED_DESCRIPTORS = 48
"""For the link, the zygote, the supervisor, a start, and looks at /proc."""
LINGERING = (Phase.DRAINING, Phase.SWEEPING)
LINGERS_AFTER_MS = 2_000
"""So long may what is left of an attempt take to go before it is looked at who keeps it."""
PERMANENT_ERRNOS = (errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""Of the attempt's directory and log: something else stands in their place."""


class Attempts:
    """All attempts of one run that this launcher answers for."""

    def __init__(
        self,
        files: AttemptFiles,
        clock: Clock,
        nursery: Nursery,
        wakeups: Wakeups,
        open_files: int,
        scope: str,
    ) -> None:
        """`open_files` is this process's limit on descriptors."""
        self.files = files
        self._scope = scope
        self.clock = clock
        self.nursery = nursery
        self.wakeups = wakeups
        self.handles: dict[str, Handle] = {}
        self.outbox: list[BaseModel] = []
        self._waiting: deque[Handle] = deque()
        self._capacity = max(1, (open_files - RESERVED_DESCRIPTORS) // DESCRIPTORS_EACH)

    def repeat(self, handle: Handle) -> None:
        report = handle.final or latest_report(handle.life)
        if report is not None:
            self.outbox.append(report)
        if handle.lingers is not None and handle.final is None:
            self.outbox.append(handle.lingers)

    def spawn(self, order: orders.SpawnAttempt) -> None:
        """Take an attempt in hand; `start_waiting` starts it."""
        handle = Handle(life=Life(order.attempt), order=order)
        self.handles[order.attempt] = handle
        self._waiting.append(handle)

    def start_waiting(self) -> None:
        """Ask for the shims of those that wait, oldest first, while there is room.

        Room: descriptors, since all of an attempt's must fit; the zygote's socket; and a bound on
        shims that are on their way to their barrier.
        """
        if not self._waiting:
            return
        handles = self.handles.values()
        room = self._capacity - sum(handle.holds_descriptors for handle in handles)
        room = min(room, IN_FLIGHT_MAX - sum(handle.asked for handle in handles))
        while self._waiting and room > 0 and self.nursery.has_room():
            handle = self._waiting.popleft()
            if handle.order is not None:
                order, handle.order = handle.order, None
                self._start(handle, order)
                room -= handle.asked

    def _start(self, handle: Handle, order: orders.SpawnAttempt) -> None:
        try:
            data = _launch_data(order)
        except ValueError as error:
            self.refuse(handle, "process_start", True, str(error))
            return
        try:
            directory = self.files.create(order.attempt, order.card)
        except OSError as error:
            self._fail(handle, "attempt_directory", error)
            return
        try:
            handle.log = self.files.create_log(order.attempt)
        except OSError as error:
            os.close(directory)
            self._fail(handle, "log_open", error)
            return
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            os.close(directory)
            self._fail(handle, "process_start", error)
            return
        ours.setblocking(False)
        handle.channel = ours
        shims_end = theirs.detach()
        held: list[int] = []
        try:
            held = bind_held(order.device_uuids, self._scope)
            handle.nonce = self.nursery.ask(order.attempt, shims_end, directory, handle.log, held)
        except OSError as error:
            self._fail(handle, "process_start", error)
            return
        finally:
            close_all(shims_end, directory, *held)
        handle.wake_at_ms = self.clock.mono_ms() + SPAWN_DEADLINE_MS
        self._talk(handle, data)

    def _fail(self, handle: Handle, stage: launch.Stage, error: OSError) -> None:
        runs_files = stage != "process_start"
        if error.errno is not None and lack_of(error.errno, runs_files=runs_files) is not None:
            self.put_off(handle, stage, error.errno, "run_files" if runs_files else "process")
        else:
            permanent = stage != "process_start" and error.errno in PERMANENT_ERRNOS
            self.refuse(handle, stage, permanent, str(error))

    def put_off(
        self, handle: Handle, stage: str, number: int, lacked: launch.Lacked = "process"
    ) -> None:
        """The host lacks something that comes back: the attempt is taken back at no cost to its
        job, and nothing is left of it. Whoever ordered it waits before the next."""
        detail = _with_limit(f"{stage}: {os.strerror(number)}", number)
        if number in NO_SPACE:
            full = disk_full_words(disk_room(self.files.run.run_dir))
            detail += f": {full}" if full is not None else ""
        LOG.warning("%s is taken back: %s", handle.life.attempt, detail)
        handle.order = None
        self.hang_up(handle)
        self.learn(handle, launch.Withdrawn(detail, number, lacked))
        self.files.discard(handle.life.attempt)

    def withdraw(self, handle: Handle, detail: str) -> None:
        """End an attempt that did not come to its barrier."""
        handle.order = None
        self.hang_up(handle)
        self.learn(handle, launch.Withdrawn(detail))

    def hear_zygote(self) -> bool:
        """Take its answers: some shims could not be forked. False when it is gone."""
        answers = self.nursery.answers()
        for attempt, number in answers or ():
            handle = self.handles.get(attempt)
            if number < 0 and handle is not None and handle.asked:
                self.put_off(handle, "fork", -number)
        return answers is not None

    def refuse(self, handle: Handle, stage: launch.Stage, permanent: bool, detail: str) -> None:
        self.learn(handle, launch.SpawnRefused(stage, permanent, detail))

    def _talk(self, handle: Handle, data: bytes = b"") -> None:
        """Send to the shim, now and when the channel takes more; listen to it meanwhile."""
        if handle.channel is None:
            return
        mask = select.EPOLLIN | (select.EPOLLOUT if handle.write(data) else 0)
        self.wakeups.watch(
            handle.channel.fileno(), lambda mask: self._on_channel(handle, mask), mask
        )

    def release(self, handle: Handle, until_ms: int) -> None:
        if handle.life.phase is Phase.WAITING and not handle.abandoned:
            self.learn(handle, launch.GoGiven())
            self._talk(handle, go_frame(handle.nonce, until_ms))
        elif handle.life.phase not in (Phase.WAITING, Phase.RELEASED):
            # At its barrier there is nothing new to say: the answer would be this order again.
            self.repeat(handle)

    def abandon(self, handle: Handle) -> None:
        if handle.asked:
            handle.abandoned = True
        elif handle.life.phase is Phase.SPAWNING:
            self.withdraw(handle, "it was not started")
        elif handle.life.phase is Phase.WAITING:
            handle.abandoned = True
            self.hang_up(handle)
        elif handle.life.phase is Phase.RELEASED:
            self.call_back(handle)
        else:
            self.repeat(handle)

    def call_back(self, handle: Handle) -> None:
        """Take GO back. A shim that has not taken it ends, and nothing ran; one that has says so,
        as if nothing had been called back."""
        handle.outgoing.clear()
        if handle.channel is not None:
            with contextlib.suppress(OSError):  # the shim is gone
                handle.channel.shutdown(socket.SHUT_WR)
            self._talk(handle)

    def forget(self, handle: Handle) -> None:
        if handle.life.phase is Phase.ENDED:
            del self.handles[handle.life.attempt]
        else:
            LOG.warning("%s is to be forgotten but has not ended", handle.life.attempt)

    def learn(self, handle: Handle, fact: Fact) -> None:
        """Advance the life by one fact and report what changed."""
        old_phase = handle.life.phase
        handle.life = advance(handle.life, fact)
        if handle.life.phase is Phase.ENDED:
            if old_phase is not Phase.ENDED:
                self._finish(handle)
            return
        if handle.life.phase in LINGERING and old_phase not in LINGERING:
            handle.lingers_at_ms = self.clock.mono_ms() + LINGERS_AFTER_MS
        after = latest_report(handle.life)
        if after is not None and after != handle.told:
            handle.told = after
            self.outbox.append(after)

    def tell(self, handle: Handle, verdict: Verdict) -> None:
        """Say once what was found of an attempt whose end was not seen, and by which evidence."""
        if verdict == handle.judged:
            return
        handle.judged = verdict
        attempt = handle.life.attempt
        LOG.info("%s: %s [%s]: %s", attempt, verdict.state, verdict.evidence, verdict.words)
        self.outbox.append(judged(attempt, verdict))

    def _finish(self, handle: Handle) -> None:
        life = handle.life
        tail = hint = ""
        if life.exit_code != 0 and life.outcome in ("exited", "unknown"):
            tail = self.files.log_tail(life.attempt, handle.log)
            full = disk_full_words(disk_room(self.files.run.run_dir))
            hint = f"disk full at its end: {full}" if full is not None else ""
        handle.final = latest_report(life, tail, hint)
        for fd in handle.descriptors():
            self.wakeups.unwatch(fd)
        handle.close()
        if handle.protected or handle.conclude is not None:
            self.manifest(life.attempt, None)
        if handle.final is not None:
            self.outbox.append(handle.final)

    def manifest(self, attempt: str, leader: ProcessIdentity | None) -> None:
        try:
            if leader is not None:
                self.files.protect(attempt, leader)
            else:
                self.files.unprotect(attempt)
        except PraxistError as error:
            LOG.warning("protected-process manifest: %s", error)

    def hang_up(self, handle: Handle) -> None:
        if handle.channel is not None:
            self.wakeups.unwatch(handle.channel.fileno())
            handle.channel.close()
            handle.channel = None

    def listen(self, handle: Handle) -> None:
        """Hear what its shim has said so far."""
        if handle.channel is not None:
            self._on_channel(handle, select.EPOLLIN)

    def _on_channel(self, handle: Handle, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._talk(handle)
        news, closed = handle.read()
        over = any(item.get("drained") is True for item in news)
        for item in news:
            try:
                self._on_news(handle, item, over)
            except (ValidationError, KeyError, TypeError) as error:
                fault = type(error).__name__  # its text may hold what the experiment was given
                LOG.error("%s: a malformed word from its shim: %s", handle.life.attempt, fault)
        if closed:
            self.hang_up(handle)
            self.hear_zygote()
            if handle.asked:
                self.withdraw(handle, "the shim ended before its barrier")

    def _on_news(self, handle: Handle, news: dict[str, Any], over: bool) -> None:
        """`over`: it is told already that nothing of it is left to signal or to protect."""
        kind, shim = news.pop("kind"), handle.life.shim
        if kind == "ready" and handle.asked:
            self._on_ready(handle, ProcessIdentity(**news["shim"]))
        elif kind == "lacking" and handle.asked:
            self.put_off(handle, "its shim", int(news["errno"]))
        elif kind == "going":
            self.learn(handle, launch.Going())
        elif kind == "started" and shim is not None and handle.leader_fd is None:
            record = StartedRecord(kind=kind, attempt=handle.life.attempt, shim=shim, **news)
            if not over:
                self._hold(handle, record.leader)
            self.learn(handle, launch.LeaderStarted(record.leader, record.at_ms))
        elif kind == "ended" and shim is not None:
            drained = bool(news.pop("drained"))
            if news["outcome"] == "exec_failed" and lack_of(news["errno"]) is not None:
                news["detail"] = _with_limit(news["detail"], news["errno"])
            ended = ExitRecord(attempt=handle.life.attempt, shim=shim, **news)
            survivors = () if drained else self.survivors(handle)
            self.learn(handle, launch.LeaderEnded(ended, drained, survivors))
        else:
            LOG.warning("%s: its shim says %s", handle.life.attempt, kind)

    def _hold(self, handle: Handle, leader: ProcessIdentity) -> None:
        """Have what a signal needs, and tell others to let its evaluator live."""
        try:
            handle.leader_fd = open_pidfd(leader)
        except OSError as error:
            # Its members are still found and signalled one by one.
            LOG.warning("%s: no descriptor of its evaluator: %s", handle.life.attempt, error)
        self.manifest(handle.life.attempt, leader)
        handle.protected = True

    def survivors(self, handle: Handle) -> tuple[int, ...]:
        """Live processes below its shim; remembered, in case the shim is destroyed."""
        shim = handle.life.shim
        members = ending.under(shim) if shim is not None else None
        if members is None:
            return ()
        handle.seen = {identity_from(stat) for stat in members.ours}
        return members.pids

    def _on_ready(self, handle: Handle, shim: ProcessIdentity) -> None:
        handle.wake_at_ms = None
        try:
            handle.shim_fd = open_pidfd(shim)
        except OSError as error:
            self.put_off(handle, "its shim cannot be watched", error.errno or 0)
            return
        if handle.shim_fd is None:
            self.withdraw(handle, "the shim ended before its barrier")
            return
        self.wakeups.watch(handle.shim_fd, lambda _: self.on_shim_gone(handle))
        self.learn(handle, launch.ShimReady(shim))
        if handle.abandoned:
            self.hang_up(handle)

    def on_shim_gone(self, handle: Handle) -> None:
        """The shim's pidfd fired. What it said before its death still counts."""
        self.listen(handle)
        self.wakeups.unwatch(handle.shim_fd)
        if handle.shim_fd is not None:
            os.close(handle.shim_fd)
            handle.shim_fd = None
        if handle.conclude is not None:
            handle.conclude()
        else:
            self.learn(handle, launch.ShimGone(never_ran=not handle.life.going))
        self.begin_sweep(handle)

    def begin_sweep(self, handle: Handle) -> None:
        if handle.life.phase is Phase.SWEEPING:
            if handle.log is not None:
                # Held here, its lock would say that something of the attempt lives.
                os.close(handle.log)
                handle.log = None
            handle.empty_looks = 0
            handle.wake_at_ms = self.clock.mono_ms()


def _with_limit(detail: str, number: int) -> str:
    """What was lacking, with the limit behind it as far as it can be told."""
    limit = limit_words(number)
    return f"{detail}: {limit}"[:2000] if limit else detail


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

"""A program as a plain child of ours, in a process group of its own, held until it may begin.

The child is forked and waits at a pipe, so that its identity can be put on record before its
first instruction; it ends without beginning when we die before the word. Signals that end us are
passed on to its group. The caller must be one thread without a ZeroMQ context. It decides
nothing. Source: fork(2), setpgid(2), execve(2), waitid(2), tty_ioctl(4).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from ..errors import PraxistError
from .protected import group_members
from .spawn import Exit

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_UNSET_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_FAILURE = struct.Struct("@i?")  # errno, and whether it was the directory
_GO = b"\1"
_EXIT_NEVER_BEGAN = 125
_LOOK_AGAIN_MS = 1000
"""A member may leave the group, as a daemon does, and live on; nothing tells of that."""


class PlainChild:
    """One child. `pid` is also its process group."""

    def __init__(self, command: Sequence[bytes], cwd: bytes | None, *, to_stderr: bool) -> None:
        """Fork it and hold it. With `to_stderr` its stdout is our stderr. Raises `start_failed`."""
        self._command = command
        go, self._go = os.pipe()
        self._failure, failure = os.pipe()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            try:
                self.pid = os.fork()
            except OSError as error:
                for end in (go, self._go, self._failure, failure):
                    os.close(end)
                raise PraxistError("start_failed", f"fork: {error.strerror}") from error
            if self.pid == 0:
                self._begin(go, failure, cwd, blocked, to_stderr)
            os.close(go)
            os.close(failure)
            with contextlib.suppress(ProcessLookupError):  # it was killed already
                os.setpgid(self.pid, self.pid)  # here too: whichever of us is first
            self._previous = {number: signal.getsignal(number) for number in PASSED_ON}
            for number, before in self._previous.items():
                if before is not signal.SIG_IGN:  # as nohup(1) and a shell's `&` mean it
                    signal.signal(number, self._pass_on)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """The child is not reaped while this handler is set, so the group is still its own."""
        with contextlib.suppress(PermissionError):  # it became another user: not ours to signal
            os.killpg(self.pid, number)

    def _begin(
        self, go: int, failure: int, cwd: bytes | None, mask: set[int], to_stderr: bool
    ) -> NoReturn:
        """The child's side: wait for the word, then become the program."""
        try:
            os.setpgid(0, 0)
            for number in (*PASSED_ON, *_UNSET_BY_PYTHON):
                if number in _UNSET_BY_PYTHON or signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(self._go)
            if os.read(go, 1) != _GO:
                os._exit(_EXIT_NEVER_BEGAN)
            if to_stderr:
                os.dup2(2, 1)
            if os.isatty(0):
                # A group in the background that reads from its terminal is stopped by it.
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            in_directory = True
            if cwd is not None:
                os.chdir(cwd)
            in_directory = False
            os.execvp(self._command[0], list(self._command))
        except OSError as error:
            os.write(failure, _FAILURE.pack(error.errno or 0, in_directory))
        finally:
            os._exit(_EXIT_NEVER_BEGAN)

    def release(self) -> None:
        """Let it begin. Raises `bad_command` or `bad_directory` when it could not; then reaped."""
        try:
            os.write(self._go, _GO)
        except BrokenPipeError:
            return  # a signal was quicker: `wait` tells which
        finally:
            os.close(self._go)
        told = os.read(self._failure, _FAILURE.size)  # end of file once the program is there
        os.close(self._failure)
        if len(told) < _FAILURE.size:
            return
        number, in_directory = _FAILURE.unpack(told)
        self._reap()
        if in_directory:
            raise PraxistError("bad_directory", os.strerror(number))
        name = os.fsdecode(self._command[0])
        raise PraxistError("bad_command", f"{name[:200]!r}: {os.strerror(number)}")

    def abandon(self) -> None:
        """End it without letting it begin."""
        os.close(self._go)
        os.close(self._failure)
        self._reap()

    def wait(self) -> Exit:
        """How it ended, once its whole group is gone.

        It stays unreaped until then, so that the group's number can't become another's.
        """
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        while members := group_members(self.pid):
            _await_one({member.pid for member in members}, self.pid)
        return self._reap()

    def _reap(self) -> Exit:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            for number, before in self._previous.items():
                signal.signal(number, before)
            _, status = os.waitpid(self.pid, 0)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        code = os.waitstatus_to_exitcode(status)
        return Exit(code, None) if code >= 0 else Exit(None, -code)


def _await_one(pids: set[int], group: int) -> None:
    """Block until one of them ended, or until it is time to look again."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            if os.getpgid(pid) != group:
                return
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll(_LOOK_AGAIN_MS)
        except ProcessLookupError:
            return
        finally:
            os.close(fd)

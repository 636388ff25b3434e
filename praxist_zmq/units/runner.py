"""Runs units: the next one to the first free place, until all are done, or the rest cannot run.

Decides what is tried again, when identical errors prove the rest non-runnable, and what is told.
Low scores and negative findings are results; different errors, scientific failures and timeouts
stop nothing. Never leaves a process of a unit behind that it can see, however it ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from .. import binding
from .child import UnitChild
from .descendants import Found, drain, find, now_s
from .interrupts import Interrupts
from .outcome import SUMMARY_NAME, Outcome, Summary, UnitAttempt, UnitOutcome, open_plain
from .plan import Streak, UnitPlace, checked_keys, own_directory, places
from .telling import progress
from .unit import MARK_VARIABLE, SCIENTIFIC, TEMPORARY, Unit, UnitsError

RESULT_BYTES_MAX = 16 * 1024 * 1024
WRITTEN_AT_ONCE = 100
WRITE_PAUSE_S = 5.0
"""After so many failures the whole file is not replaced at each of them."""
REPORT_PAUSE_S = 1.0
REPORT_PAUSE_UNHEARD_S = 30.0
Worker = Callable[[Unit], Sequence[str]]
Report = Callable[[int, int, str], object]


def run(
    units: Iterable[str],
    worker: Worker,
    *,
    aggregate: Callable[[dict[str, Any]], Any] | None = None,
    per_device: int = 1,
    cpu_slots: int = 1,
    narrow: bool = False,
    retries: int = 0,
    retry_on: Collection[int] = (TEMPORARY,),
    scientific: Collection[int] = (SCIENTIFIC,),
    identical_errors_max: int | None = 3,
    timeout_s: float | None = None,
    grace_s: float = 2.0,
    directory: str | os.PathLike[str] | None = None,
    report: Report | None = None,
) -> Outcome:
    """Run every unit in a child process, spread over the assigned devices.

    `units` are distinct names. `worker(unit)` gives a unit's command, as words; its output goes to
    a log, its result, JSON, to the file `unit.result`, and 0 is its exit status. Each device takes
    `per_device` units at a time; without one there are `cpu_slots`. A child sees the exact masks
    of the attempt and is told its device; with `narrow` it sees that one alone.

    Again runs only a unit whose exit status is in `retry_on`, and at most `retries` times.
    No further unit starts once `identical_errors_max` different units in a row failed with the
    same signature (None: never); a status in `scientific`, 0 and a timeout are no such errors.
    A unit over `timeout_s` is ended. What a unit leaves behind when its child has ended is ended
    too: TERM, `grace_s`, KILL.

    Logs, results and `unit_failures.json` go to `directory`, by default a fresh
    `units-<attempt>` in the working directory. `aggregate` gets all results in the order of
    `units`, and is called only when every unit has one. `report(done, total, text)` is called as
    units are done; by default it is `progress`, and nothing in a run inside a unit.

    Raises UnitsError for wrong arguments, BindingError for wrong masks, and what `worker`,
    `aggregate` and `report` raise. On SIGTERM and SIGINT everything is ended, the summary is
    written, and the signal is handed on (from the main thread; elsewhere they are not taken over).
    """
    keys = checked_keys(units)
    if identical_errors_max is not None and identical_errors_max < 1:
        raise UnitsError(str(identical_errors_max), "identical_errors_max", "give 1 or more, None")
    if retries < 0 or grace_s < 0 or (timeout_s is not None and timeout_s <= 0):
        raise UnitsError("a negative number", "retries, grace_s or timeout_s", "give 0 or more")
    given = binding.bind(dict(os.environ))
    free = places(given.uuids, per_device, cpu_slots)
    running = _Running(
        keys,
        worker,
        free,
        narrow=narrow,
        retries=retries,
        retry_on=frozenset(retry_on),
        scientific=tuple(scientific),
        streak=Streak(identical_errors_max),
        timeout_s=timeout_s,
        grace_s=grace_s,
        directory=own_directory(directory),
        report=report or (progress if MARK_VARIABLE not in os.environ else _unheard),
    )
    return running.run(aggregate, given.uuids)


def _unheard(done: int, total: int, text: str) -> None:
    """Steps inside a unit are not the attempt's."""


class _Running:
    """One call of `run`."""

    def __init__(
        self,
        keys: tuple[str, ...],
        worker: Worker,
        free: list[UnitPlace],
        *,
        narrow: bool,
        retries: int,
        retry_on: frozenset[int],
        scientific: tuple[int, ...],
        streak: Streak,
        timeout_s: float | None,
        grace_s: float,
        directory: Path,
        report: Report,
    ) -> None:
        self.keys, self.worker, self.free = keys, worker, free
        self.narrow, self.retries, self.retry_on = narrow, retries, retry_on
        self.scientific, self.streak = scientific, streak
        self.timeout_s, self.grace_s = timeout_s, grace_s
        self.directory, self.report = directory, report
        outer = os.environ.get(MARK_VARIABLE)
        self.mark = ("" if outer is None else f"{outer}/") + os.urandom(12).hex()
        self.waiting = deque(range(len(keys)))
        self.children: dict[int, tuple[UnitChild, UnitPlace]] = {}
        self.attempts: list[list[UnitAttempt]] = [[] for _ in keys]
        self.results: dict[int, Any] = {}
        self.used: set[str] = set()
        self.done = 0
        self.told = -1
        self.tell_due_s = self.write_due_s = 0.0
        self.summary = Summary(
            directory / SUMMARY_NAME,
            len(keys),
            os.environ.get("PRAXIST_EXPERIMENT_ATTEMPT_ID"),
        )

    def run(
        self, aggregate: Callable[[dict[str, Any]], Any] | None, uuids: tuple[str, ...]
    ) -> Outcome:
        """All of it."""
        interrupts = Interrupts()
        made: Any = None
        try:
            self._tell()
            self._loop(interrupts)
            if interrupts.number is None:
                self._tell(last=True)
            if aggregate is not None and interrupts.number is None and self._complete():
                made = aggregate({key: self.results[at] for at, key in enumerate(self.keys)})
        finally:
            try:
                self._end_all()
                self._close_summary(interrupts, uuids)
            finally:
                interrupts.close()
        interrupts.hand_on()
        if interrupts.number is not None:
            name = signal.Signals(interrupts.number).name
            raise UnitsError(f"{name} came, and its handler returned", "run", "end the evaluator")
        return Outcome(
            units=tuple(self._outcome(index) for index in range(len(self.keys))),
            aggregate=made,
            failed_fast=self.summary.failed_fast,
            unused_devices=self.summary.unused_devices,
            summary=self.summary.path,
        )

    # -- the loop

    def _loop(self, interrupts: Interrupts) -> None:
        while interrupts.number is None:
            while self.waiting and self.free and not self.streak.proved:
                if interrupts.number is not None:
                    return
                self._start(self.waiting.popleft(), self.free.pop(0))
            if not self.children:
                if self.streak.proved or not self.waiting:
                    return
                if not self.free:
                    raise UnitsError(
                        "a unit left processes that do not end",
                        f"{self.summary.path}, `left`",
                        "end them by hand; no unit starts on a device that is still in use",
                    )
                continue  # none of those could be started: the next ones
            self._wait(interrupts)
            if interrupts.number is None:
                self._tell()

    def _start(self, index: int, place: UnitPlace) -> None:
        number = len(self.attempts[index]) + 1
        stem = f"{index:04d}.{number}"
        unit = Unit(
            key=self.keys[index],
            index=index,
            attempt=number,
            device=place.device,
            slot=place.slot,
            result=str(self.directory / f"{stem}.result.json"),
        )
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # a unit may have removed it
        Path(unit.result).unlink(missing_ok=True)  # an earlier run's, in a directory used again
        command = self.worker(unit)
        if isinstance(command, (str, bytes)) or not command:
            raise UnitsError(
                f"gave {str(command)[:80]!r} for unit {unit.key!r}",
                "worker",
                "give a list of words; no shell is used",
            )
        narrowed = [place.device] if self.narrow and place.device is not None else None
        environment = binding.child_environment(narrowed)
        log = self.directory / f"{stem}.log"
        child = UnitChild(unit, f"{self.mark}.{index}.{number}", log, self.timeout_s)
        if place.device is not None:
            self.used.add(place.device)
        if child.start(command, environment):
            self.children[child.pidfd] = (child, place)
        else:
            self._ended(child, place, interrupted=False)

    def _wait(self, interrupts: Interrupts) -> None:
        """Until a child has ended, the limit of one is over, or a signal came."""
        waiter = select.poll()
        for descriptor in (interrupts.read_end, *self.children):
            waiter.register(descriptor, select.POLLIN)
        due = [child.due_s for child, _ in self.children.values() if child.due_s is not None]
        if self.done > self.told:
            due.append(self.tell_due_s)
        timeout_ms = None if not due else max(0, int((min(due) - now_s()) * 1000) + 1)
        ready = {descriptor for descriptor, _ in waiter.poll(timeout_ms)}
        if interrupts.number is not None:
            return
        for descriptor, (child, place) in list(self.children.items()):
            if descriptor in ready and child.process is not None:
                child.process.wait()
            elif child.due_s is None or now_s() < child.due_s:
                continue
            else:
                child.timed_out = True
            del self.children[descriptor]
            self._ended(child, place, interrupted=False)

    # -- ends

    def _ended(self, child: UnitChild, place: UnitPlace, *, interrupted: bool) -> None:
        """Its child has ended, or is to end now."""
        left = child.end(self.grace_s)
        unit = child.unit
        result, fault = self._read_result(child)
        attempt = child.record(self.scientific, interrupted, left, fault)
        self.attempts[unit.index].append(attempt)
        if not left:  # else its device may still be in use: the place is given to no other
            self.free.append(place)
            self.free.sort(key=lambda free: free.order)
        self.done += 1
        if attempt.status == "succeeded":
            self.results[unit.index] = result
            self.summary.succeeded += 1
        elif (
            attempt.status == "error"
            and attempt.exit_code in self.retry_on
            and unit.attempt <= self.retries
        ):
            self.waiting.append(unit.index)
            self.done -= 1
        if attempt.status in ("succeeded", "scientific", "error"):
            self.streak.note(unit.key, attempt.signature)
        if attempt.status != "succeeded" or left:
            self.summary.failures.append(attempt)
            self.summary.failed_fast = self.streak.proved
            if len(self.summary.failures) <= WRITTEN_AT_ONCE or now_s() >= self.write_due_s:
                self.write_due_s = now_s() + WRITE_PAUSE_S
                self.summary.write()

    def _read_result(self, child: UnitChild) -> tuple[Any, str | None]:
        """The result of a child that ended with 0, and what is wrong with it."""
        if child.process is None or child.process.returncode != 0:
            return None, None
        try:
            with open_plain(child.unit.result) as file:
                raw = file.read(RESULT_BYTES_MAX + 1)
            if len(raw) > RESULT_BYTES_MAX:
                return None, "the result is over 16 MiB"
            return json.loads(raw.decode()), None
        except FileNotFoundError:
            return None, None  # it keeps its results elsewhere
        except (OSError, ValueError, RecursionError) as error:
            return None, f"the result is not JSON: {error}"

    def _end_all(self) -> None:
        """End what still runs: all units together first, so that one grace is for all."""
        if not self.children:
            return

        def look() -> Found:
            roots = (child.root for child, _ in self.children.values())
            return find(f"{self.mark}.", [root for root in roots if root is not None])

        drain(look, self.grace_s)
        for descriptor, (child, place) in list(self.children.items()):
            del self.children[descriptor]
            self._ended(child, place, interrupted=True)

    # -- what is told

    def _tell(self, *, last: bool = False) -> None:
        done = self.done
        if done <= self.told or (now_s() < self.tell_due_s and not last):
            return
        failed = done - self.summary.succeeded
        began = now_s()
        heard = self.report(done, len(self.keys), f"{failed} failed" if failed else "")
        self.told = done
        unheard = heard is False or now_s() - began > REPORT_PAUSE_S / 2
        self.tell_due_s = now_s() + (REPORT_PAUSE_UNHEARD_S if unheard else REPORT_PAUSE_S)

    def _close_summary(self, interrupts: Interrupts, uuids: tuple[str, ...]) -> None:
        summary = self.summary
        summary.failed_fast = self.streak.proved
        if interrupts.number is not None:
            summary.stopped_by = signal.Signals(interrupts.number).name
        summary.not_run = tuple(
            key for key, tries in zip(self.keys, self.attempts, strict=True) if not tries
        )
        summary.unused_devices = tuple(uuid for uuid in uuids if uuid not in self.used)
        summary.finished = True
        summary.write()

    # -- outcomes

    def _complete(self) -> bool:
        return len(self.results) == len(self.keys)

    def _outcome(self, index: int) -> UnitOutcome:
        tries = tuple(self.attempts[index])
        status = tries[-1].status if tries else "not_run"
        return UnitOutcome(self.keys[index], status, tries, self.results.get(index))

"""The broker's side of the launcher's link: who is there, what was lost, and who is silent.

Orders and reports are told once. While attempts live, both ends compare how many they have sent
and received; an end that misses one has all of it told again, as on a new connection, and every
order and report is safe to repeat. A launcher that answers nothing is taken for lost, and after a
while the supervisor starts another: experiments go on under their shims.
"""

from __future__ import annotations

from typing import Any

from ..protocol import reports as rep
from ..protocol.orders import Announce, CompareCounts, RestartProcess, Welcome
from . import attempts, leftovers, registry_side
from .commands import LauncherSaid
from .soft import SoftState
from .state import Attempt, BrokerState
from .turn import Turn

ASK_LAUNCHER_MS = 1_000
COMPARE_MS = 2_000
"""Between comparisons while attempts live."""
SILENT_ASKS = 3
"""So many comparisons without any word: it is silent."""
RESTART_AFTER_MS = 10_000
"""After so long without a launcher, the one that runs is ended."""
YOUNG_MS = 15_000
"""One that was started less than this ago may still be starting."""


def said(turn: Turn, command: LauncherSaid) -> None:
    """Decide one report."""
    talk, report = turn.soft.launcher_talk, command.report
    if isinstance(report, rep.LauncherConnected):
        _connected(turn, command.address, report)
        return
    known = command.address == turn.soft.launcher_address
    if known:
        talk.unanswered, talk.heard_ms = 0, turn.stamp.mono_ms
    if not isinstance(report, rep.CountsCompared):
        talk.reports += known
        attempts.said(turn, report)
    elif known and report.reports != talk.reports:
        turn.soft.count("launcher_reports_lost")
        turn.send("launcher", Announce(), command.address)


def _connected(turn: Turn, address: Any, report: rep.LauncherConnected) -> None:
    """A launcher is there. What it has in hand it repeats by itself; the rest it must find."""
    soft, state, talk = turn.soft, turn.state, turn.soft.launcher_talk
    soft.launcher_address = address
    soft.launcher_seen.spoke(address)
    soft.launcher_ready = True
    soft.release_again = set(soft.released)
    soft.launcher_lost = None
    talk.process = report.launcher
    talk.orders = talk.reports = talk.unanswered = 0
    talk.heard_ms = turn.stamp.mono_ms
    talk.compare_at_ms = turn.stamp.mono_ms + COMPARE_MS
    cap_mib = max(1, round(state.policy.experiment_log_max_gb * 1024))
    turn.send("launcher", Welcome(epoch=state.epoch, log_cap_mib=cap_mib), address)
    in_hand = set(report.attempts)
    for attempt in state.attempts.values():
        job = state.jobs[attempt.job]
        if attempt.attempt not in in_hand:
            if _never_arrived(soft, attempt):
                registry_side.spawn(turn, job, attempt)
            else:
                turn.order(leftovers.adopt(attempt))
        if job.cancel_reason is not None:
            attempts.end(turn, attempt, job.cancel_grace_ms)


def _never_arrived(soft: SoftState, attempt: Attempt) -> bool:
    """Whether this very launcher was told to prepare the attempt, and has not got that."""
    talk = soft.launcher_talk
    sent_to = talk.spawned.get(attempt.attempt)
    return attempt.shim is None and sent_to is not None and sent_to == talk.process


def lost(turn: Turn, address: Any) -> None:
    """An order did not reach the launcher. It is gone, or did not read for a while."""
    if address == turn.soft.launcher_address:
        _take_for_lost(turn, turn.stamp.mono_ms)


def _take_for_lost(turn: Turn, since_ms: int) -> None:
    soft = turn.soft
    soft.launcher_ready = False
    soft.launcher_away_ms = since_ms
    soft.launcher_lost, soft.launcher_address = soft.launcher_address, None
    soft.ask_launcher_at_ms = turn.stamp.mono_ms + ASK_LAUNCHER_MS
    soft.launcher_talk.restart_at_ms = turn.stamp.mono_ms + RESTART_AFTER_MS


def look_after(turn: Turn) -> None:
    """Once a turn: compare counts, ask a launcher that was lost, have a silent one restarted."""
    soft, now_ms = turn.soft, turn.stamp.mono_ms
    if soft.launcher_ready:
        _compare(turn)
        return
    if soft.launcher_lost is not None and now_ms >= soft.ask_launcher_at_ms:
        # One that kept its connection does not introduce itself, and what we took for the newest
        # word may have been an old one. One that is gone leaves another, which does.
        soft.ask_launcher_at_ms = now_ms + ASK_LAUNCHER_MS
        for address in soft.launcher_seen.known:
            turn.send("launcher", Announce(), address)
    if now_ms >= soft.launcher_talk.restart_at_ms:
        soft.launcher_talk.restart_at_ms = now_ms + ASK_LAUNCHER_MS
        seen = soft.processes.processes if soft.processes is not None else ()
        for name, pid, started_ms, _ in seen:
            if name == "launcher" and now_ms - started_ms >= YOUNG_MS:
                soft.launcher_talk.restart_at_ms = now_ms + RESTART_AFTER_MS
                soft.count("launcher_restarts_asked")
                turn.send("supervisor", RestartProcess(name=name, pid=pid))


def _compare(turn: Turn) -> None:
    soft, talk, now_ms = turn.soft, turn.soft.launcher_talk, turn.stamp.mono_ms
    if not turn.state.attempts:
        talk.unanswered, talk.compare_at_ms = 0, now_ms + COMPARE_MS
    elif now_ms < talk.compare_at_ms:
        return
    elif talk.unanswered >= SILENT_ASKS:
        soft.count("launcher_silences")
        _take_for_lost(turn, talk.heard_ms)
    else:
        talk.unanswered += 1
        talk.compare_at_ms = now_ms + COMPARE_MS
        turn.send("launcher", CompareCounts(orders=talk.orders), soft.launcher_address)


def due_ms(state: BrokerState, soft: SoftState) -> int | None:
    """When `look_after` has something to do."""
    if soft.launcher_ready:
        return soft.launcher_talk.compare_at_ms if state.attempts else None
    due = soft.launcher_talk.restart_at_ms
    return due if soft.launcher_lost is None else min(due, soft.ask_launcher_at_ms)

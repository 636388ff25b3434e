"""Which jobs changed: the run's events, read in a thread with a client of its own.

A client may be used by one thread only, and a wait over many jobs needs both a limit of time and
questions of its own. The feed only names jobs; what became of them is asked anew.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

from ..errors import PraxistError
from .connect import connect
from .settings import Settings


class Feed:
    """Names of changed jobs after a ledger sequence."""

    def __init__(self, settings: Settings, after_sequence: int) -> None:
        self._settings = settings
        self._after = after_sequence
        self._queue: queue.SimpleQueue[str | PraxistError] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, name="feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The thread may sit in a receive; being a daemon it ends with the process.
        self._closing.set()

    def next_jobs(self, wait_s: float) -> set[str] | None:
        """The jobs that changed; None when none did within `wait_s` seconds.

        Raises what ended the feed.
        """
        try:
            items = [self._queue.get(timeout=wait_s)]
        except queue.Empty:
            return None
        while not self._queue.empty():
            items.append(self._queue.get_nowait())
        named: set[str] = set()
        for item in items:
            if isinstance(item, PraxistError):
                raise item
            named.add(item)
        return named

    def _read(self) -> None:
        # Whoever waits for news must hear that none will come, whatever ended the stream.
        end = PraxistError("internal", "the event stream failed")
        try:
            with connect(self._settings) as client:
                for event in client.events(after_sequence=self._after, follow=True):
                    if self._closing.is_set():
                        return
                    job = event_fields(event).get("job")
                    if job:
                        self._queue.put(str(job))
            end = PraxistError("scheduler_restarting", "the event stream ended")
        except PraxistError as error:
            end = error
        finally:
            self._queue.put(end)


def event_fields(event: Any) -> dict[str, Any]:
    """An event of the client, a dataclass or a dict, as a dict."""
    if isinstance(event, dict):
        return event
    return dict(vars(event))

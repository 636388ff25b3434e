"""Follow a run's events without losing one.

Publications only wake the reader: what is new is read from the scheduler by sequence, so a lost
publication, a slow reader or a restart costs time and never an event. A look every few seconds
finds the last event even when its publication was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..protocol.envelope import Json
from ..transport.poller import Poller
from ..transport.publication import Subscriber
from .views import Event

TOPIC = b"events"
FIRST_LOOK_MS = 200
LOOK_MS = 5_000


def follow_events(
    read_page: Callable[[int, str | None], Json],
    find_publisher: Callable[[], str],
    after_sequence: int,
    job: str | None,
) -> Iterator[Event]:
    """Events after `after_sequence`, for ever. `read_page` asks the scheduler."""
    path = find_publisher()
    subscriber = Subscriber(path, [TOPIC])
    wait_ms = FIRST_LOOK_MS
    try:
        while True:
            page = read_page(after_sequence, job)
            for item in page["events"]:
                event = Event.of(item)
                after_sequence = event.sequence
                yield event
            if page["events"]:
                continue
            after_sequence = page["last_sequence"]
            if find_publisher() != path:
                path = find_publisher()
                subscriber.close()
                subscriber = Subscriber(path, [TOPIC])
                wait_ms = FIRST_LOOK_MS
            _await_publication(subscriber, wait_ms)
            wait_ms = LOOK_MS
    finally:
        subscriber.close()


def _await_publication(subscriber: Subscriber, wait_ms: int) -> None:
    poller = Poller()
    poller.register(subscriber)
    poller.wait(wait_ms)
    while subscriber.drain():
        pass

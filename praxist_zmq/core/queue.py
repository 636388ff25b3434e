"""The order of waiting jobs: work class first, then the order in which they were queued.

Jobs that admission cannot tell apart (same class, same profile) share a lane, and only the head of
a lane is ever looked at, so a decision costs the same with a hundred queued jobs as with a hundred
thousand. Source: seed 000 "Timing And Close" (mature first, exploration reserve).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from .state import Job

CLASS_RANK = {"mature": 0, "ordinary": 1, "scout": 2}

Lane = tuple[int, str]
"""(class rank, profile)."""
Entry = tuple[int, int, str]
"""(queue sequence, job number, job): a place in a lane."""


def lane_of(job: Job) -> Lane:
    """The lane a job waits in."""
    return CLASS_RANK[job.work_class], job.profile


@dataclass(slots=True)
class Queue:
    """Waiting jobs that may be planned.

    Removal is lazy: a stale entry is dropped at the head, or serves again when its job is put back
    in the same place, so a lane never holds more entries than places were given in it.
    """

    lanes: dict[Lane, list[Entry]] = field(default_factory=dict)
    entries: dict[Lane, set[Entry]] = field(default_factory=dict)
    waiting: dict[str, tuple[Lane, Entry]] = field(default_factory=dict)
    sizes: dict[Lane, int] = field(default_factory=dict)
    peers: dict[str, str] = field(default_factory=dict)
    """Waiting job -> its peer."""
    peer_sizes: dict[Lane, dict[str, int]] = field(default_factory=dict)
    """How many of a lane's jobs are of which peer."""
    parked: dict[str, dict[Lane, list[Entry]]] = field(default_factory=dict)
    """Peer at its cap -> entries that were at a head, oldest first: they block nobody."""

    def __len__(self) -> int:
        return len(self.waiting)

    def put(self, job: Job) -> None:
        """Let a job wait. Putting it twice is the same as once."""
        lane, entry = lane_of(job), (job.queue_sequence, job.number, job.job)
        place = self.waiting.get(job.job)
        if place == (lane, entry):
            return
        if place is not None:
            self.remove(job.job)
        self.waiting[job.job] = (lane, entry)
        self.peers[job.job] = job.peer
        self.sizes[lane] = self.sizes.get(lane, 0) + 1
        of_peers = self.peer_sizes.setdefault(lane, {})
        of_peers[job.peer] = of_peers.get(job.peer, 0) + 1
        self._enter(lane, entry)

    def remove(self, job: str) -> bool:
        """Take a job out, from any place. False when it did not wait."""
        place = self.waiting.pop(job, None)
        if place is None:
            return False
        lane = place[0]
        peer, of_peers = self.peers.pop(job), self.peer_sizes[lane]
        of_peers[peer] -= 1
        if not of_peers[peer]:
            del of_peers[peer]
        # It may be the one that had come back for its peer: then the next one has to.
        self._bring_back(peer, lane)
        self.sizes[lane] -= 1
        if not self.sizes[lane]:
            del self.sizes[lane]
            del self.peer_sizes[lane]
            del self.lanes[lane]
            del self.entries[lane]
            for lanes in self.parked.values():
                lanes.pop(lane, None)
        return True

    def park(self, lane: Lane) -> None:
        """Set the head of a lane aside: its peer runs as many as it may."""
        job = self.head(lane)
        if job is not None:
            entry = heapq.heappop(self.lanes[lane])
            self.entries[lane].discard(entry)
            parked = self.parked.setdefault(self.peers[job], {}).setdefault(lane, [])
            heapq.heappush(parked, entry)

    def unpark(self, peer: str) -> None:
        """A peer may have one more running: its oldest of each lane comes back."""
        for lane in list(self.parked.get(peer, ())):
            self._bring_back(peer, lane)

    def _bring_back(self, peer: str, lane: Lane) -> None:
        lanes = self.parked.get(peer, {})
        parked = lanes.get(lane)
        if parked is None:
            return
        while parked:
            entry = heapq.heappop(parked)
            if self.waiting.get(entry[2]) == (lane, entry):
                self._enter(lane, entry)
                break
        if not parked:
            del lanes[lane]
        if not lanes:
            del self.parked[peer]

    def first_parked(self, lane: Lane) -> str | None:
        """Of the jobs of a lane that were set aside, the one that has waited longest."""
        entries = (entry for lanes in self.parked.values() for entry in lanes.get(lane, ()))
        still = (entry for entry in entries if self.waiting.get(entry[2]) == (lane, entry))
        oldest = min(still, default=None)
        return None if oldest is None else oldest[2]

    def _enter(self, lane: Lane, entry: Entry) -> None:
        entries = self.entries.setdefault(lane, set())
        if entry not in entries:
            entries.add(entry)
            heapq.heappush(self.lanes.setdefault(lane, []), entry)

    def head(self, lane: Lane) -> str | None:
        """The job that has waited longest in a lane."""
        heap = self.lanes.get(lane)
        while heap:
            entry = heap[0]
            if self.waiting.get(entry[2]) == (lane, entry):
                return entry[2]
            heapq.heappop(heap)
            self.entries[lane].discard(entry)
        return None

    def first(self, lane: Lane, count: int) -> list[str]:
        """The first jobs of a lane in order, the head among them. Costs by `count`, not by the
        length of the lane: only the top of the heap is walked."""
        heap = self.lanes.get(lane)
        found: list[str] = []
        front: list[tuple[Entry, int]] = [(heap[0], 0)] if heap else []
        looked = 0
        while heap and front and len(found) < count and looked < 4 * count:
            looked += 1
            entry, at = heapq.heappop(front)
            if self.waiting.get(entry[2]) == (lane, entry):
                found.append(entry[2])
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(heap):
                    heapq.heappush(front, (heap[child], child))
        return found

    def heads(self, non_mature_first: bool = False) -> list[tuple[Lane, str]]:
        """The head of every lane, in queue order.

        With `non_mature_first` (the exploration reserve is not filled), all others go before
        mature work, by the order in which they were queued.
        """
        found: list[tuple[tuple[int, int], Lane, str]] = []
        for lane in list(self.lanes):
            job = self.head(lane)
            if job is None:
                continue
            rank = lane[0]
            if non_mature_first:
                rank = 1 if rank == CLASS_RANK["mature"] else 0
            found.append(((rank, self.lanes[lane][0][0]), lane, job))
        found.sort(key=lambda item: item[0])
        return [(lane, job) for _, lane, job in found]

    def position(self, job: str) -> int | None:
        """A waiting job's place in queue order, 1 is next. Costs as much as there are jobs."""
        place = self.waiting.get(job)
        if place is None:
            return None
        mine = (place[0][0], place[1])
        return 1 + sum((lane[0], entry) < mine for lane, entry in self.waiting.values())

    def ahead_in_lane(self, job: str) -> int:
        """How many jobs of its own lane were queued before a waiting job."""
        place = self.waiting.get(job)
        if place is None:
            return 0
        return sum(lane == place[0] and entry < place[1] for lane, entry in self.waiting.values())

    def copy(self) -> Queue:
        """The same queue, which may change on its own."""
        return Queue(
            lanes={lane: list(heap) for lane, heap in self.lanes.items()},
            entries={lane: set(entries) for lane, entries in self.entries.items()},
            waiting=dict(self.waiting),
            sizes=dict(self.sizes),
            peers=dict(self.peers),
            peer_sizes={lane: dict(peers) for lane, peers in self.peer_sizes.items()},
            parked={
                peer: {lane: list(heap) for lane, heap in lanes.items()}
                for peer, lanes in self.parked.items()
            },
        )

    def in_order(self) -> Iterator[str]:
        """Every waiting job in queue order. Costs as much as there are jobs."""
        places = sorted((lane[0], entry) for lane, entry in self.waiting.values())
        for _, (_, _, job) in places:
            yield job

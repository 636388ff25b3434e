"""What the broker knows but does not keep: samples, connections, secrets, plans under way.

A restart empties it. Nothing starts before it is filled again: the launcher must have said which
attempts it has in hand, and the registry must have the run.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from ..protocol.claims import Envelope, HostView, Want
from ..protocol.events import SecretDigest
from ..protocol.evidence import Remnant
from ..protocol.process import ProcessIdentity
from ..protocol.reports import AttemptLingers, AttemptUnkillable, HostSampled, ProcessesSeen
from ..protocol.requests import ReportProgress
from ..protocol.room import DiskRoom
from ..protocol.text import OsText
from ..protocol.views import Progress
from .addresses import Addresses
from .demand import Demand
from .fleet import Fleet
from .host_shortage import HostShortage
from .kept_place import Reservation
from .lease_memory import LeaseMemory
from .queue import Queue
from .storm_memory import Storms
from .vault import Vault

EVENTS_KEPT = 4_096
ENVIRONMENT_CACHE = 128
WATCHERS_MAX = 100_000
JOINED_KEPT = 4_096


@dataclass(slots=True)
class Plan:
    """A placement that the registry was asked to commit."""

    job: str
    attempt: str
    envelope: Envelope
    request_id: str
    view_version: int
    """Of the host view that it was made with."""
    planned_ms: int
    """CLOCK_BOOTTIME of the plan."""


@dataclass(slots=True)
class Unanswered:
    """A request to the registry that is not answered yet."""

    what: str
    attempt: str
    at_ms: int


@dataclass(slots=True)
class Denial:
    """Why the registry granted no plan. It is asked again when that may have changed."""

    code: str
    detail: str
    view: HostView | None
    """As it was then: what others hold, how many the host takes, and who waits."""
    until_ms: int

    def holds(self, soft: SoftState) -> bool:
        """Whether asking again now would bring the same answer."""
        return soft.now_ms < self.until_ms and _same_host(self.view, soft.host_view)


def _same_host(one: HostView | None, other: HostView | None) -> bool:
    if one is other or one is None or other is None:
        return one is other
    return (one.version, one.limit, one.wants) == (other.version, other.limit, other.wants)


@dataclass(frozen=True, slots=True)
class Pause:
    """A job that waits for a while before it is tried again by itself."""

    until_ms: int
    """CLOCK_BOOTTIME milliseconds."""
    why: str


@dataclass(frozen=True, slots=True)
class Pressed:
    """Since when the host's pressure holds a job, CLOCK_BOOTTIME milliseconds."""

    since_ms: int
    empty_ms: int | None = None
    """Since when the slot that is kept for it is empty."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """What is to be read again before an attempt may run."""

    since_ms: int
    """CLOCK_BOOTTIME of its plan."""
    uuids: tuple[str, ...]
    pressure: bool
    """Whether the host's pressure is, too."""


@dataclass(slots=True)
class Watcher:
    """A client that waits for a job to change or to end."""

    address: Any
    request_id: str
    after_version: int
    known_state: str | None
    until: str


@dataclass(slots=True)
class Inquiry:
    """A client that waits for the launcher's word on whether it is part of an attempt."""

    address: Any
    request_id: str
    attempt: str
    pid: int
    until_ms: int
    asked: bool = False
    news: ReportProgress | None = None
    """The progress that it told; None when it asked only."""


@dataclass(slots=True)
class PreparedEnvironment:
    """A submitted environment, taken apart once for all submissions that share it."""

    environment_id: str
    stored: dict[str, OsText | SecretDigest]
    secrets: dict[str, OsText]
    exec_bytes: int


@dataclass(frozen=True, slots=True)
class Lingering:
    """Who keeps an attempt, and since when that is known."""

    report: AttemptLingers
    since_ms: int


@dataclass(slots=True)
class LauncherTalk:
    """What passed on the link to the launcher since it introduced itself."""

    orders: int = 0
    reports: int = 0
    unanswered: int = 0
    """Comparisons that nothing came after."""
    compare_at_ms: int = 0
    heard_ms: int = 0
    restart_at_ms: int = 0
    """When the supervisor is asked for another launcher, while none is there."""
    process: ProcessIdentity | None = None
    """The launcher itself."""
    spawned: dict[str, ProcessIdentity | None] = field(default_factory=dict)
    """Live attempts, and the launcher that was told to prepare them."""


@dataclass(slots=True)
class SoftState:
    """All of it."""

    now_ms: int = 0
    """CLOCK_BOOTTIME of this turn, milliseconds."""
    now_at_ms: int = 0
    """The wall clock of this turn, milliseconds since 1970; only beside other wall stamps."""
    run_dir: str = ""
    run_key: str = ""
    user: str = ""
    broker: ProcessIdentity | None = None
    credentials_key: bytes = b""
    queue: Queue = field(default_factory=Queue)
    lacking_credentials: dict[str, None] = field(default_factory=dict)
    vault: Vault = field(default_factory=Vault)
    environments: OrderedDict[int, tuple[dict[str, OsText], PreparedEnvironment]] = field(
        default_factory=OrderedDict
    )
    joined: OrderedDict[tuple[str, int], str] = field(default_factory=OrderedDict)
    """(request id, index) of submissions that only joined -> the job: a late copy does no more."""
    launcher_address: Any = None
    launcher_ready: bool = False
    launcher_away_ms: int = 0
    """Since when it is not ready; of no meaning while it is."""
    launcher_seen: Addresses = field(default_factory=Addresses)
    launcher_lost: Any = None
    """Where an order did not arrive: it may have been full only, and is asked to say so."""
    ask_launcher_at_ms: int = 0
    launcher_talk: LauncherTalk = field(default_factory=LauncherTalk)
    released: set[str] = field(default_factory=set)
    release_again: set[str] = field(default_factory=set)
    """Those whose GO may have been lost with the link to the launcher."""
    insiders: set[tuple[str, int]] = field(default_factory=set)
    """(attempt, pid) of processes that the launcher saw inside, and that told progress."""
    lingering: dict[str, Lingering] = field(default_factory=dict)
    """Attempts whose evaluator or shim is gone -> who keeps them, as the launcher sees it."""
    stuck_told_at_ms: dict[str, int] = field(default_factory=dict)
    stuck_untold: dict[str, AttemptUnkillable] = field(default_factory=dict)
    registry_ready: bool = False
    registry_requests: dict[str, Unanswered] = field(default_factory=dict)
    registry_counter: int = 0
    registrations: int = 0
    """How often we registered with the registry: on each connection, and after a denial."""
    register_again_at_ms: int | None = None
    claim_again_ms: dict[str, int] = field(default_factory=dict)
    """Live attempts whose claim the registry denied -> when it is asked again."""
    plans: dict[str, Plan] = field(default_factory=dict)
    held_back: dict[str, Denial] = field(default_factory=dict)
    pauses: dict[str, Pause] = field(default_factory=dict)
    """Jobs between two of their own automatic attempts."""
    shortage: HostShortage | None = None
    """What the host lacked when an attempt was to start, until one starts."""
    disk: DiskRoom | None = None
    """The room on the run's disk, as last looked at."""
    registry_denial: Denial | None = None
    host_view: HostView | None = None
    others_hold: int = 0
    """Allocations of other runs, by the host view."""
    want_reported: Want | None = None
    """What the registry was last told that we wait for."""
    fleet: Fleet = field(default_factory=Fleet)
    surveys: dict[Demand, Any] = field(default_factory=dict)
    """Demand -> its `Survey` of the devices; profiles that declare the same share one."""
    reservation: Reservation | None = None
    storms: Storms = field(default_factory=Storms)
    deadlines_ms: dict[int, float] = field(default_factory=dict)
    """Generation -> CLOCK_BOOTTIME of its deadline: a step of the wall clock does not move it."""
    sample: HostSampled | None = None
    simulated: bool = False
    """Whether the devices are: known before there is a sample of them."""
    used_at_ms: int = 0
    """When something last ran, or nothing waited; at first, when the broker started."""
    probe_known_ms: int = 0
    """When it was last known whether there are devices; at first, when the broker started."""
    probe_unknown_since_ms: int | None = None
    """Since when every sample says that the devices are unknown, CLOCK_BOOTTIME."""
    begun_ms: dict[str, int] = field(default_factory=dict)
    """Attempts and plans that the newest sample cannot show yet: CLOCK_BOOTTIME of their start."""
    unlooked: dict[str, Awaited] = field(default_factory=dict)
    """Attempts and plans that wait for a newer look at the host before GO."""
    turned_away: set[str] = field(default_factory=set)
    """Attempts that the last look sent back from their barrier: nothing is wrong with them."""
    go_held: dict[str, None] = field(default_factory=dict)
    """Attempts that wait at their barrier for that look alone."""
    slots_kept: bool = False
    """Whether slots are kept for jobs that wait only for a reading of the host."""
    pressed: dict[str, Pressed] = field(default_factory=dict)
    """Jobs at the head of their lane that nothing but the host's pressure holds."""
    sample_wanted: bool = False
    """Whether something waits that a look at the host may let start."""
    sample_asked_at_ms: int = -1_000_000
    limit_sample_ms: int = -1
    """The sample that last moved the limit, or was offered for it."""
    limit_due_ms: int | None = None
    raise_asked: bool = False
    leases: LeaseMemory = field(default_factory=LeaseMemory)
    progress: dict[str, Progress] = field(default_factory=dict)
    """By attempt: what it told last. Ended ones are dropped when another one tells."""
    processes: ProcessesSeen | None = None
    watchers: dict[str, dict[tuple[str, Any], Watcher]] = field(default_factory=dict)
    """Job -> (request id, address) -> who waits for it."""
    watcher_count: int = 0
    inquiries: dict[int, Inquiry] = field(default_factory=dict)
    inquiry_counter: int = 0
    touched: dict[str, None] = field(default_factory=dict)
    history: deque[tuple[int, Any]] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    audience: bool = False
    unpublished: list[tuple[int, Any]] = field(default_factory=list)
    published_at_ms: int = 0
    load_reported: tuple[int, int, int] | None = None
    load_reported_at_ms: int = 0
    held: bool = False
    fenced: bool = False
    """Whether the run's shutdown sentinel is there."""
    stopping: bool = False
    low_space: bool = False
    ledger_bytes: int = 0
    active_non_mature: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    remnants: tuple[Remnant, ...] = ()
    """What lies in the run's directory of experiments that the ledger does not know."""
    numbers_taken: set[str] = field(default_factory=set)
    """Jobs and attempts of them: no other gets their numbers."""
    warnings: dict[str, str] = field(default_factory=dict)

    @property
    def slots_elsewhere(self) -> int:
        """Slots of the run that those use: what lives and is no attempt of the ledger's."""
        return sum(one.lives for one in self.remnants)

    def registry_silence_ms(self) -> int:
        """How long the oldest unanswered request to the registry has waited; 0 when none does."""
        oldest = next(iter(self.registry_requests.values()), None)
        return 0 if oldest is None else self.now_ms - oldest.at_ms

    def sample_age_ms(self) -> int | None:
        """How old the newest sample is; None when there is none yet."""
        return None if self.sample is None else self.now_ms - self.sample.sampled_at_mono_ms

    def count(self, name: str) -> None:
        """One more of something that status tells."""
        self.counters[name] = self.counters.get(name, 0) + 1

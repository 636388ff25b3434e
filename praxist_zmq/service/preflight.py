"""Before a run opens: which contract is in force, and can its default profile ever run here?

A task whose profile fits no device of this host would get no job admitted, for ever, while its
peers go on. So a start is refused then, before anything of it is recorded. A driver that does not
tell in time is no reason to refuse, and a CPU profile never stands in for another.
Source: design 5 ("Preflight"); the reference of the original system, 1.
"""

from __future__ import annotations

from ..core.placement import never_fits
from ..errors import PraxistError
from ..host.clock import SystemClock
from ..protocol import codec
from ..protocol.policy import SchedulerPolicy
from ..protocol.reports import HostSampled
from ..transport.poller import Poller
from .child_config import ChildConfig
from .sample_link import SampleLink

LOOK_MS = 2_000
"""So long may the sampler and its driver take to tell what devices there are."""
ASK_AGAIN_MS = 100
PROFILES_TOLD = 6


def policy_in_force(config: ChildConfig, kept: SchedulerPolicy) -> SchedulerPolicy:
    """What the start was told, and the rest as the run has it (`kept`)."""
    cap = config.max_per_peer
    if cap is None:
        return with_cap(config.policy or kept, kept.max_parallel_runs_per_peer)
    return with_cap(config.policy or kept, None if cap == "none" else cap)


def with_cap(policy: SchedulerPolicy, cap: int | None) -> SchedulerPolicy:
    """The policy with another cap on the running jobs of one peer; None is no cap."""
    return policy.model_copy(update={"max_parallel_runs_per_peer": cap})


def preflight(
    config: ChildConfig, policy: SchedulerPolicy, sample: HostSampled | None, in_hand: int
) -> str | None:
    """Why the default profile can never run on this host, where that is to be told only.

    Raises `profile_unsatisfiable` where the start is to be refused for it. A run that has attempts
    in hand is not refused: they must be adopted, also when the driver is gone.
    """
    profile = policy.profiles[policy.default_profile]
    if config.preflight == "skip" or sample is None:
        return None
    reason = never_fits(profile, sample)
    if reason is None:
        return None
    text = (
        f"default profile {policy.default_profile!r} {reason}; "
        f"accelerator probe {sample.probe_state}; declared profiles: {_declared(policy)}"
    )
    if config.preflight == "refuse" and not in_hand:
        raise PraxistError("profile_unsatisfiable", text)
    return text


def _declared(policy: SchedulerPolicy) -> str:
    told = [f"{name} ({policy.profiles[name].accelerator})" for name in sorted(policy.profiles)]
    more = len(told) - PROFILES_TOLD
    return ", ".join(told[:PROFILES_TOLD]) + (f" and {more} more" if more > 0 else "")


def look(config: ChildConfig, policy: SchedulerPolicy) -> HostSampled | None:
    """The sampler's first word on the devices, or its last within the time there is; None where
    the start need not wait for one. Simulated devices are there at once, and who starts a run with
    them sets their load next."""
    on_cpu = policy.profiles[policy.default_profile].accelerator == "cpu"
    if config.preflight == "skip" or (on_cpu and config.sim is None):
        return None
    clock = SystemClock()
    deadline_ms = clock.mono_ms() + LOOK_MS
    samples = SampleLink(config.samples, config.secret_bytes, clock.mono_ms)
    poller = Poller()
    poller.register(samples)
    found: HostSampled | None = None
    try:
        while found is None or found.probe_state == "unknown":
            left_ms = deadline_ms - clock.mono_ms()
            if left_ms <= 0:
                break
            samples.ask()
            poller.wait(min(left_ms, ASK_AGAIN_MS))
            for body in samples.drain():
                found = codec.decode(HostSampled, body)
    finally:
        samples.close()
    return found

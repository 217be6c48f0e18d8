"""Follows the ranks of a trial while they run, wherever that is: passes their steps on and sees what ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from autotuner.core.measurement import StepReport
from autotuner.core.trial import FailureKind, Stopped
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.ranks import Ranks, launcher_work
from autotuner.launch.reports import TrialReports
from autotuner.launch.verdict import is_complete
from autotuner.ports import TrialWatcher

GRACE_S = 3.0
"""What a rank gets to leave after SIGTERM, or to say what it saw of a peer's death; gloo and torchrun were seen to need
about one second."""

_CAUSE_S = 60.0
"""What the cause gets to show where a rank has only said that it lost its peers: on a busy node torchrun was seen to
need more than ten seconds to find a killed rank, and the engine to pass that on."""

_POLL_S = 0.05

Ending = Stopped | Literal["measured", "failed", "timeout", "ended"]
"""What made a launcher end a trial: the watcher's wish, a complete result, a rank's failure, the time limit, or that
the ranks were gone."""


def follow(
    spec: TrialSpec,
    ranks: Ranks,
    reports: TrialReports,
    watcher: TrialWatcher,
    *,
    deadline: float,
    peers_s: float = GRACE_S,
    meanwhile: Callable[[], None] = lambda: None,
) -> Ending:
    """Pass steps on until the whole result is there, the ranks are gone, the watcher wants a stop, or time is up.

    Args:
        spec: The trial.
        ranks: Started; they are not ended here.
        reports: What they write.
        watcher: What it raises comes out as it is.
        deadline: On the monotonic clock.
        peers_s: What the other ranks get to say what they saw, once it is known why the first one failed.
        meanwhile: Called at every look, many times a second.

    Raises:
        CannotRun: The reports cannot be read.
    """
    peers_leave_by = float("inf")
    while not (seen := _look(ranks, reports)).have_ended:
        meanwhile()
        pass_on(seen.steps, reports, watcher)
        if is_complete(spec, reports):
            return "measured"
        if stopped := watcher.stop_requested():
            return stopped
        now = time.monotonic()
        if now >= deadline:
            return "timeout"
        if seen.has_failed:  # the others may say what they saw, then they are ended
            peers_leave_by = min(peers_leave_by, now + (peers_s if seen.knows_cause else _CAUSE_S))
        if now >= peers_leave_by:
            return "failed"
        time.sleep(_POLL_S)
    return "ended"


def pass_on(steps: Sequence[StepReport], reports: TrialReports, watcher: TrialWatcher) -> None:
    """Tell the watcher steps, and what was read of links with them."""
    for step in steps:
        watcher.on_step(step)
    for event in reports.new_link_events():
        watcher.on_link_event(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What there was to see of the ranks at one moment."""

    have_ended: bool
    has_failed: bool = False
    knows_cause: bool = False
    steps: Sequence[StepReport] = ()


def _look(ranks: Ranks, reports: TrialReports) -> _Seen:
    with launcher_work():
        if ranks.ended():
            return _Seen(have_ended=True)  # what they reported last is read when they have been ended for certain
        steps = reports.new_steps()
        failures, deaths = reports.failures, ranks.deaths()
        lost_peers = {failure.rank for failure in failures if failure.kind == FailureKind.COMMUNICATION}
        failed = {*(failure.rank for failure in failures), *(death.rank for death in deaths)}
        return _Seen(
            have_ended=False,
            has_failed=bool(failed),
            knows_cause=bool(failed - lost_peers),
            steps=steps,
        )

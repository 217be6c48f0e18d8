"""The announcement of a sweep that has ended."""

from __future__ import annotations

from autotuner.core.jobs.cluster import SIMULATED
from autotuner.core.runs.sweep import SweepOverview
from autotuner.core.upkeep.announcement import Announcement, AnnouncementKind

__all__ = ["announce_end"]


def announce_end(sweep: SweepOverview) -> Announcement:
    """What is told of a finished sweep: how it ended, and the best that it found; anew where it had ended before."""
    source, times = _source(sweep), sweep.interventions.num_reopened
    best = "" if sweep.best_mfu is None else f", best MFU {100 * sweep.best_mfu:.1f} % {source}"
    return Announcement(
        id=f"an-{sweep.id}" if not times else f"an-{sweep.id}-{times + 1}",
        at=sweep.finished_at or sweep.created_at,
        kind=AnnouncementKind.SWEEP_FINISHED,
        title=f"Sweep {sweep.name or sweep.id}, {sweep.model} on {sweep.cluster}: {sweep.state.value}{best}",
        text=sweep.stop_detail,
        path=f"/sweeps/{sweep.id}",
        subject_id=sweep.id,
        facts={
            "name": sweep.name,
            "model": sweep.model,
            "cluster": sweep.cluster,
            "state": sweep.state.value,
            "stop_reason": sweep.stop_reason.value if sweep.stop_reason else None,
            "num_trials": sum(sweep.num_trials.values()),
            "accelerator_hours": sweep.accelerator_hours,
            f"best_{source}_mfu": sweep.best_mfu,
        },
    )


def _source(sweep: SweepOverview) -> str:
    """What its figures are called, as in its answers over REST."""
    if sweep.trial_cluster is not None:
        return "estimated"
    return "simulated" if sweep.engine == SIMULATED else "measured"

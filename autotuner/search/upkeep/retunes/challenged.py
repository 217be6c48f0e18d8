"""The sweep that a run of a retune starts: its template, with what is in use now and what that reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from autotuner.core.cluster import Cluster
from autotuner.core.comparison import Challenge
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import PastTrial
from autotuner.core.upkeep import Retune
from autotuner.search.space.trainers import trial_rules

_MINUTE_S = 60


def challenged_sweep(
    retune: Retune,
    incumbent: Layout | None,
    *,
    due_at: float,
    cluster: Cluster | None = None,
    is_new_phase: bool = False,
) -> SweepRequest:
    """What the run of that due time measures.

    Each run has a seed of its own, or all would look at the same corners of the space. It predicts, and proposes, by
    the links as they are now, and keeps them with what it finds.

    Args:
        retune: Whose run it is.
        incumbent: The layout in use.
        due_at: When it is due.
        cluster: The job's, with its links as they are today; None: as the template says.
        is_new_phase: What the incumbent reached before does not count: it was on other links.
    """
    request = retune.request
    baseline = () if is_new_phase else retune.baseline
    challenge = Challenge(incumbent=incumbent, baseline=baseline, test=request.test, searches=request.searches)
    seed = request.template.seed + int(due_at) // _MINUTE_S
    job = request.template.job
    job = replace(job, cluster=cluster or job.cluster)
    return replace(request.template, job=job, challenge=challenge, seed=seed, name=f"retune {retune.name}")


def best_known(request: SweepRequest, past: Iterable[PastTrial]) -> Layout | None:
    """The fastest layout that was measured of the job before; None: none was.

    Layouts that change the mathematics are passed over, since a trial by itself does not tell whether they train as
    well.
    """
    rules = trial_rules(request.trainer)
    measured = [(one.step_time_s, one.layout) for one in past if one.step_time_s is not None]
    for _, layout in sorted(measured, key=lambda pair: pair[0]):
        if layout.is_equivalent and not reasons(layout, request.trial_job, rules):
            return layout
    return None

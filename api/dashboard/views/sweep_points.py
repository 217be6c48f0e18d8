"""Trials of a sweep as its pictures take them."""

from __future__ import annotations

from collections.abc import Iterable

from api.dashboard.charts.spread import Spread
from api.dashboard.charts.sweep.points import TrialPoint
from api.dashboard.views.layouts import degrees
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.objective import Figures, Objective
from autotuner.core.prediction import TrialEstimate
from autotuner.core.trial import FailureKind, Trial

_HEALTHY = Objective()


def trial_points(
    trials: Iterable[Trial],
    *,
    root: str = "",
    incumbent: Layout | None = None,
    objective: Objective = _HEALTHY,
) -> tuple[TrialPoint, ...]:
    """Trials that ended, in the order they ran, without repeats and without formats that the hardware lacks.

    Args:
        trials: Of one sweep, by number.
        root: Path before every address of the service.
        incumbent: The layout that runs today; None where nobody knows.
        objective: Of the sweep: under a fault trace, points are robust MFU.
    """
    shown = (trial for trial in trials if trial.state.finished and trial.repeats is None)
    return tuple(_point(trial, root, incumbent, objective) for trial in shown if not trial.layout.is_emulated)


def _point(trial: Trial, root: str, incumbent: Layout | None, objective: Objective) -> TrialPoint:
    predicted, reached = trial.prediction, trial.reached if trial.is_ranked else None
    counted = None if reached is None else objective.counted(reached)
    robust_mfu = predicted.robust_mfu if objective.under_faults else None
    return TrialPoint(
        number=trial.number,
        name=layout_in_short(trial.layout),
        href=f"{root}/trials/{trial.id}",
        predicted=Spread.within_factor(robust_mfu or predicted.mfu, predicted.relative_error),
        predicted_bytes=predicted.memory.total_bytes,
        reached=None if counted is None else Spread.within(counted.mfu, half_of(counted)),
        peak_bytes=None if reached is None else peak_of(reached),
        failure=_failure(trial),
        is_out_of_memory=trial.failure is not None and trial.failure.kind is FailureKind.OOM,
        expected_gain=None if objective.front else trial.expected_gain,  # of a front it is no height of the picture
        is_incumbent=trial.layout == incumbent,
    )


def half_of(reached: Figures) -> float:
    """Half the 95 % interval of an MFU, from that of the step time."""
    return reached.mfu * reached.step_time_error_s / reached.step_time_s


def peak_of(reached: Measurement | TrialEstimate) -> float | None:
    """What the fullest rank had, or is estimated to have; None where nobody told."""
    match reached:
        case Measurement():
            return max(reached.peak_bytes, default=None)
        case TrialEstimate():
            return reached.full_size.peak_bytes


def layout_in_short(layout: Layout) -> str:
    """Degrees above 1 and the micro-batch: ``tp4 pp4 dp2 mb1``."""
    return " ".join(f"{one.letters}{one.value}" for one in degrees(layout) if one.value > 1 or one.letters == "mb")


_KINDS = {
    FailureKind.OOM: "out of memory",
    FailureKind.TIMEOUT: "timed out",
    FailureKind.COMMUNICATION: "communication failed",
    FailureKind.NUMERICS: "loss is no number",
    FailureKind.CRASH: "crashed",
    FailureKind.INTERRUPTED: "interrupted",
    FailureKind.INFRASTRUCTURE: "nodes were lost",
}


def _failure(trial: Trial) -> str:
    """Why it has no result, in words; empty where it has one, or was ended on purpose."""
    if trial.failure is not None:
        return _KINDS[trial.failure.kind]
    if trial.reached is None or trial.is_valid:
        return ""
    return "no rank: it failed its loss gate" if trial.gate is not None else "no rank: no loss gate passed it"

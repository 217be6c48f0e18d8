"""The pictures of a sweep's page, and its trials as these take them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.drawing import for_both
from api.dashboard.charts.spread import Spread
from api.dashboard.charts.sweep.calibration import agreement
from api.dashboard.charts.sweep.fronts import memory_front, on_front
from api.dashboard.charts.sweep.history import Improvement, history, improvements
from api.dashboard.charts.sweep.marks import CloudPoint, TrialPoint, reached
from api.dashboard.views.sweep_answer import EffectsView, ParallelView
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.objective import Figures, Objective
from autotuner.core.prediction import TrialEstimate
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import FailureKind, Trial
from autotuner.report.layouts import degrees
from autotuner.search.results.accuracy import Accuracy
from autotuner.search.results.accuracy import accuracy as how_right
from autotuner.search.results.sensitivity import Choices
from autotuner.search.results.sensitivity import choices as what_mattered

# Trials of a sweep as its pictures take them.

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


# The pictures of a sweep with the numbers that stand beside them: worked out once.


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    """Best so far."""

    drawn: Markup
    rises: tuple[Improvement, ...]
    """Trials that raised it."""
    has_band: bool
    """Whether what was expected to be found is known of any trial."""
    num_failed: int

    @classmethod
    def of(cls, points: Sequence[TrialPoint], remaining_gain: float | None) -> Self | None:
        """None where no trial has a result."""
        if not reached(points):
            return None
        return cls(
            drawn=for_both(lambda width: history(points, width, remaining_gain=remaining_gain) or Markup("")),
            rises=improvements(points),
            has_band=any(point.expected_gain is not None for point in points),
            num_failed=sum(1 for point in points if point.failure),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontView:
    """MFU against memory."""

    drawn: Markup
    front: tuple[TrialPoint, ...]
    """Trials that none beats with no more memory, by rising memory."""
    limit_bytes: float | None
    is_far: bool
    """The limit lies so far away that the picture does not reach it."""
    num_predicted: int
    num_out_of_memory: int

    @classmethod
    def of(cls, points: Sequence[TrialPoint], limit: float | None, predicted: Sequence[CloudPoint]) -> Self | None:
        """None where no trial has a result."""
        front = on_front(points)
        if not front:
            return None
        drawn = for_both(
            lambda width: memory_front(points, width, limit_bytes=limit, predicted=predicted) or Markup("")
        )
        return cls(
            drawn=drawn,
            front=front,
            limit_bytes=limit,
            is_far='class="limit"' not in drawn,
            num_predicted=len(predicted),
            num_out_of_memory=sum(1 for point in points if point.is_out_of_memory),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementView:
    """Predicted against measured, and how many predictions kept their interval."""

    drawn: Markup
    accuracy: Accuracy

    @classmethod
    def of(cls, points: Sequence[TrialPoint], kind: str, accuracy: Accuracy) -> Self | None:
        """None where no trial has a result."""
        if not reached(points):
            return None
        drawn = for_both(lambda width: agreement(points, width, kind=kind) or Markup(""), wide=560)
        return cls(drawn=drawn, accuracy=accuracy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """Every picture of a sweep; each None where there is nothing to show."""

    kind: str
    """What the figures are called: measured, simulated or estimated."""
    history: HistoryView | None
    front: FrontView | None
    parallel: ParallelView | None
    effects: EffectsView
    agreement: AgreementView | None

    @classmethod
    def of(
        cls,
        request: SweepRequest,
        trials: Sequence[Trial],
        *,
        kind: str,
        choices: Choices | None = None,
        accuracy: Accuracy | None = None,
        root: str = "",
        remaining_gain: float | None = None,
        predicted: Sequence[CloudPoint] = (),
    ) -> Self:
        """The pictures of a sweep.

        Args:
            request: What was asked.
            trials: All trials, by number.
            kind: What their figures are called.
            choices: What mattered; None: it is worked out.
            accuracy: How right predictions were; None: it is worked out.
            root: Path before every address of the service.
            remaining_gain: Share that one more trial is expected to gain; None where nobody knows.
            predicted: Layouts that are predicted to fit and never ran.
        """
        incumbent = request.challenge.incumbent if request.challenge else None
        points = trial_points(trials, root=root, incumbent=incumbent, objective=request.objective)
        mattered = choices or what_mattered(request, trials)
        with_result = [point for point, _ in reached(points)]
        layouts = {trial.number: trial.layout for trial in trials}
        return cls(
            kind=kind,
            history=HistoryView.of(points, remaining_gain),
            front=FrontView.of(points, _limit_bytes(request), predicted),
            parallel=ParallelView.of(with_result, [layouts[point.number] for point in with_result], mattered),
            effects=EffectsView.of(mattered),
            agreement=AgreementView.of(points, kind, accuracy or how_right(request, trials)),
        )


def _limit_bytes(request: SweepRequest) -> float:
    """What a rank may use, of a trial and so of the job."""
    return float(request.trial_job.cluster.accelerator.memory_bytes)

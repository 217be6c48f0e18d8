"""The pictures of a sweep with the numbers that stand beside them: worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.svg import for_both
from api.dashboard.charts.sweep.calibration import agreement
from api.dashboard.charts.sweep.front import memory_front, on_front
from api.dashboard.charts.sweep.history import Improvement, history, improvements
from api.dashboard.charts.sweep.points import CloudPoint, TrialPoint, reached
from api.dashboard.views.sweep_choices import EffectsView, ParallelView
from api.dashboard.views.sweep_points import trial_points
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.search.results.accuracy import Accuracy
from autotuner.search.results.accuracy import accuracy as how_right
from autotuner.search.results.choices import Choices
from autotuner.search.results.choices import choices as what_mattered


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    """Best so far.

    Attributes:
        rises: Trials that raised it.
        has_band: Whether what was expected to be found is known of any trial.
    """

    drawn: Markup
    rises: tuple[Improvement, ...]
    has_band: bool
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
    """MFU against memory.

    Attributes:
        front: Trials that none beats with no more memory, by rising memory.
        is_far: The limit lies so far away that the picture does not reach it.
    """

    drawn: Markup
    front: tuple[TrialPoint, ...]
    limit_bytes: float | None
    is_far: bool
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
    """Every picture of a sweep; each None where there is nothing to show.

    Attributes:
        kind: What the figures are called: measured, simulated or estimated.
    """

    kind: str
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

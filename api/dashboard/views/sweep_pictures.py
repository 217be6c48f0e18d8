"""The pictures of a sweep's page, with the numbers that stand beside them: drawn once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from autotuner.core.cluster import SIMULATED
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.report import sweep_charts
from autotuner.report.charts import ChoiceAxis
from autotuner.report.drawing import draw, title_of
from autotuner.report.parallel import draw_parallel
from autotuner.report.sweep_charts import CloudPoint, TrialPoint, trial_points
from autotuner.search.results.accuracy import Accuracy
from autotuner.search.results.accuracy import accuracy as how_right
from autotuner.search.results.pairs import Insight
from autotuner.search.results.sensitivity import Choices
from autotuner.search.results.sensitivity import choices as what_mattered

_MOST_EFFECTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    """Best so far."""

    drawn: Markup
    rises: tuple[tuple[int, TrialPoint, float | None], ...]
    """Trials that raised it: after how many trials, which, and by what share."""
    has_band: bool
    """Whether what was expected to be found is known of any trial."""
    num_failed: int

    @classmethod
    def of(cls, points: Sequence[TrialPoint], remaining_gain: float | None) -> Self | None:
        """None where no trial has a result."""
        chart = sweep_charts.best_so_far(points, remaining_gain)
        if chart is None:
            return None
        return cls(
            drawn=draw(chart),
            rises=tuple(sweep_charts.rises(points)),
            has_band=any(point.expected_gain is not None for point in points),
            num_failed=sum(1 for point in points if point.failure),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontView:
    """MFU against memory."""

    drawn: Markup
    front: tuple[TrialPoint, ...]
    """Trials that none beats with no more memory, by rising memory."""
    limit_bytes: float
    is_far: bool
    """The limit lies so far away that the picture does not reach it."""
    num_predicted: int
    num_out_of_memory: int

    @classmethod
    def of(cls, points: Sequence[TrialPoint], limit_bytes: float, predicted: Sequence[CloudPoint]) -> Self | None:
        """None where no trial has a result."""
        chart = sweep_charts.memory_front(points, limit_bytes, predicted)
        if chart is None:
            return None
        return cls(
            drawn=draw(chart),
            front=tuple(sweep_charts.on_front(points)),
            limit_bytes=limit_bytes,
            is_far=not sweep_charts.is_limit_near(points, limit_bytes),
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
        chart = sweep_charts.agreement(points, kind)
        return None if chart is None else cls(drawn=draw(chart), accuracy=accuracy)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsView:
    """What mattered."""

    effects: Markup | None
    """What single changes gained; None without a pair."""
    importance: Markup | None
    """What each choice explains; None of too few trials."""
    rows: tuple[tuple[str, Insight], ...]
    """The changes that are drawn, as a table has them."""
    explained: float | None
    num_ranked: int
    num_others: int
    """Effects that have no room."""

    @classmethod
    def of(cls, found: Choices) -> Self:
        """Those with the largest medians, and the choices that explain most."""
        rows = [one for one in found.effects if one.num_pairs]
        effects, importance = sweep_charts.effects(rows[:_MOST_EFFECTS]), sweep_charts.importance(found)
        return cls(
            effects=draw(effects) if effects else None,
            importance=draw(importance) if importance else None,
            rows=tuple((sweep_charts.change_of(one), one) for one in rows[:_MOST_EFFECTS]),
            explained=found.explained,
            num_ranked=found.num_ranked,
            num_others=max(0, len(rows) - _MOST_EFFECTS),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelView:
    """All choices at once."""

    drawn: Markup
    axes: tuple[tuple[str, str, Sequence[str]], ...]
    """From left to right: name, label, and the words of a choice."""
    left_out: tuple[str, ...]
    """Labels of choices that vary and have no room."""

    @classmethod
    def of(cls, points: Sequence[TrialPoint], found: Choices) -> Self | None:
        """None of fewer than two trials with a result."""
        chart, left_out = sweep_charts.parallel(points, found)
        if chart is None:
            return None
        axes = [
            (axis.name, axis.label, axis.words)
            if isinstance(axis, ChoiceAxis)
            else (axis.name, title_of(axis.axis), ())
            for axis in chart.axes
        ]
        return cls(drawn=draw_parallel(chart), axes=tuple(axes), left_out=tuple(left_out))


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
        is_simulated = request.runs_on.engine == SIMULATED
        points = trial_points(trials, request.objective, root=root, incumbent=incumbent, is_simulated=is_simulated)
        mattered = choices or what_mattered(request, trials)
        return cls(
            kind=kind,
            history=HistoryView.of(points, remaining_gain),
            front=FrontView.of(points, _limit_bytes(request), predicted),
            parallel=ParallelView.of(points, mattered),
            effects=EffectsView.of(mattered),
            agreement=AgreementView.of(points, kind, accuracy or how_right(request, trials)),
        )


def _limit_bytes(request: SweepRequest) -> float:
    """What a rank may use, of a trial and so of the job."""
    return float(request.trial_job.cluster.accelerator.memory_bytes)

"""From what is stored to what is shown, for REST and the dashboard alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from api.schemas import (
    LayoutChange,
    LayoutExplanation,
    Predicted,
    PredictedLayout,
    Progress,
    RankedTrial,
    SweepDetail,
    SweepRules,
    SweepSummary,
    TrialCounts,
    TrialDetail,
    TrialView,
)
from autotuner.costmodel.columns import LayoutColumns
from autotuner.domain.layout import Layout
from autotuner.domain.prediction import Prediction
from autotuner.domain.sweep import Budget, Sweep
from autotuner.domain.trial import Trial
from autotuner.ports import Page, Store
from autotuner.search.explain.explanation import Change, Explanation, explain
from autotuner.search.explain.pairwise import insights
from autotuner.search.sweeps.history import all_trials

__all__ = [
    "explanation",
    "predicted",
    "predicted_layout",
    "ranked",
    "sweep_detail",
    "sweep_rules",
    "sweep_summary",
    "trial_detail",
    "trial_explanation",
    "trial_view",
]


# ---------------------------------------------------------------- predictions and trials
def predicted(prediction: Prediction) -> Predicted:
    """The prediction with its totals beside its parts."""
    same = (
        "tokens_per_s",
        "mfu",
        "hfu",
        "fits",
        "fit_probability",
        "relative_error",
        "validated",
        "step_time",
        "memory",
    )
    return Predicted(
        step_time_s=prediction.step_time.total_s,
        peak_bytes=prediction.memory.total_bytes,
        **{name: getattr(prediction, name) for name in same},
    )


def predicted_layout(rank: int, layout: Layout, prediction: Prediction) -> PredictedLayout:
    """A row of a table of predictions."""
    return PredictedLayout(rank=rank, label=str(layout), layout=layout, predicted=predicted(prediction))


def trial_view(trial: Trial) -> TrialView:
    """The trial without its steps."""
    return TrialView(**_trial_fields(trial))


def trial_detail(trial: Trial) -> TrialDetail:
    """The trial with its steps."""
    return TrialDetail(**_trial_fields(trial), steps=trial.steps)


def ranked(trials: Sequence[Trial], page: Page) -> tuple[RankedTrial, ...]:
    """The trials of one page of a ranking with their places."""
    return tuple(RankedTrial(**_trial_fields(t), rank=rank) for rank, t in enumerate(trials, page.offset + 1))


def _trial_fields(trial: Trial) -> dict[str, Any]:
    same = ("id", "sweep_id", "number", "state", "layout", "attempts", "started_at", "finished_at", "failure")
    return {
        **{name: getattr(trial, name) for name in same},
        "label": str(trial.layout),
        "predicted": predicted(trial.prediction),
        "measured": trial.measurement,
    }


# ---------------------------------------------------------------- explanations
def explanation(explained: Explanation) -> LayoutExplanation:
    """The explanation with totals beside parts and layouts in short."""
    same = ("layout", "time", "memory", "limit_bytes", "margin_bytes", "illegal")
    return LayoutExplanation(
        label=str(explained.layout),
        predicted=predicted(explained.prediction),
        helpful=tuple(_change(change) for change in explained.helpful),
        too_large=tuple(_change(change) for change in explained.too_large),
        **{name: getattr(explained, name) for name in same},
    )


def trial_explanation(store: Store, trial: Trial) -> LayoutExplanation:
    """What today's cost model says of a trial's layout, within the memory that the trial had.

    Raises:
        InvalidInput: A rule that is younger than the trial forbids its layout.
    """
    return explanation(explain(trial.layout, store.get_sweep(trial.sweep_id).request.trial_job))


def _change(change: Change) -> LayoutChange:
    same = ("change", "layout", "saved_share", "excess_bytes", "sentence")
    return LayoutChange(
        label=str(change.layout),
        predicted=predicted(change.prediction),
        **{name: getattr(change, name) for name in same},
    )


# ---------------------------------------------------------------- sweeps
def sweep_rules(trials: Iterable[Trial]) -> SweepRules:
    """What the measured ones among the trials say about one choice at a time."""
    measured = [(trial.layout, trial.measurement.step_time_s) for trial in trials if trial.measurement]
    layouts = LayoutColumns.from_layouts(layout for layout, _ in measured)
    step_time_s = np.array([seconds for _, seconds in measured], dtype=np.float64)
    return SweepRules(num_measured=len(measured), items=insights([(layouts, step_time_s)]))


def sweep_summary(store: Store, sweep: Sweep, now: float) -> SweepSummary:
    """The sweep with how far it has come."""
    return SweepSummary(**_sweep_fields(store, sweep, now))


def sweep_detail(store: Store, sweep: Sweep, now: float) -> SweepDetail:
    """The sweep with its request and its best trial."""
    best = _best(store, sweep)
    return SweepDetail(
        **_sweep_fields(store, sweep, now), request=sweep.request, best=trial_view(best) if best else None
    )


def _sweep_fields(store: Store, sweep: Sweep, now: float) -> dict[str, Any]:
    trials = tuple(all_trials(store, sweep.id))
    counts = TrialCounts(**Counter(trial.state.value for trial in trials))
    best = _best(store, sweep)
    same = ("id", "state", "created_at", "started_at", "finished_at", "cancel_requested", "stop_reason", "stop_detail")
    return {
        **{name: getattr(sweep, name) for name in same},
        "name": sweep.request.name,
        "model": sweep.request.job.model.name,
        "cluster": sweep.request.job.cluster.name,
        "budget": sweep.request.budget,
        "progress": _progress(sweep, trials, counts, now),
        "trials": counts,
        "best_measured_mfu": best.measurement.mfu if best and best.measurement else None,
    }


def _best(store: Store, sweep: Sweep) -> Trial | None:
    trials, _ = store.ranking(sweep.id, page=Page(limit=1))
    return trials[0] if trials else None


def _progress(sweep: Sweep, trials: Sequence[Trial], counts: TrialCounts, now: float) -> Progress:
    elapsed_s = 0.0 if sweep.started_at is None else (sweep.finished_at or now) - sweep.started_at
    hours = sum(trial.accelerator_hours(now) for trial in trials)
    shares = _shares(sweep.request.budget, counts.ran, elapsed_s, hours)
    fraction = 1.0 if sweep.state.finished else min(1.0, max(shares))
    return Progress(fraction=fraction, num_trials=counts.ran, elapsed_s=elapsed_s, accelerator_hours=hours)


def _shares(budget: Budget, num_trials: int, elapsed_s: float, hours: float) -> Iterator[float]:
    yield num_trials / budget.num_trials
    if budget.wall_clock_s is not None:
        yield elapsed_s / budget.wall_clock_s
    if budget.accelerator_hours is not None:
        yield hours / budget.accelerator_hours

"""All that the page of a trial shows, from the store and today's cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self
from urllib.parse import urlencode

from markupsafe import Markup

from api.dashboard import words
from api.dashboard.charts.loss_curves import loss_curves
from api.dashboard.charts.spread import Spread
from api.dashboard.charts.step_series import step_series
from api.dashboard.views.address import Permalink
from api.dashboard.views.links import BandwidthView, EventRow
from api.dashboard.views.timelines import LinkTimelinesView, TimelineView, link_timelines_view, timeline_view
from api.dashboard.views.trial_heading import (
    ChangeRow,
    Figure,
    FlagsView,
    LookedAt,
    Place,
    change_rows,
    figures,
    place_of,
)
from api.dashboard.views.trial_parts import MemoryView, RankGroupsView, StepView, rank_groups_view
from api.schemas.explanations import LayoutExplanation
from api.schemas.trials import TrialDetail
from autotuner.core.errors import InvalidInput
from autotuner.core.measurement import Measurement
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.search.explain.bandwidth import trial_bandwidth_curve
from autotuner.search.explain.explanation import TrialParts, trial_parts
from autotuner.search.explain.links import trial_link_timelines
from autotuner.search.explain.timeline import trial_rank_groups, trial_timelines
from autotuner.search.results.failures import FailureGroup, failures
from autotuner.search.text.sentences import EMULATED
from autotuner.search.text.trials import overlap_sentence, time_to_loss_in_words
from autotuner.service.build import App

_HALF, _WHOLE = 632, 1296
"""Pixels of a picture that has half of a desk's page, and all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPage:
    """A trial with everything that is known of it."""

    sweep: Sweep
    trial: TrialDetail
    source: Literal["measured", "simulated"]
    """What figures of what ran are called."""
    engine: str
    """Who runs it; empty on the service's own machine."""
    emulated: str
    place: Place | None
    """Its rank; None where it has none."""
    figures: tuple[Figure, ...]
    explore: str
    """Where its layout can be changed by hand."""
    compare: str
    """Where it can be set beside the best of its sweep, or others be chosen."""
    verdict: str
    """What of the step is no computation, and the nearest gain: sentences; empty where it is not explained."""
    explanation: LayoutExplanation | None
    """None where a rule that is younger than the trial forbids its layout; so is what is made of it."""
    step: StepView | None
    memory: MemoryView | None
    changes: tuple[ChangeRow, ...]
    timeline: TimelineView | None
    links: LinkTimelinesView | None
    ranks: RankGroupsView | None
    steps: Markup
    """Its steps one by one; empty without one."""
    events: tuple[EventRow, ...]
    """What its pipeline found out about links and ranks, and did about it."""
    failed: FailureGroup | None
    """Why it died, what else did so, and the way out; None where it did not."""
    losses: Markup
    """The curves of its loss gate; empty without."""
    to_loss: str
    """When it and its reference come to the reference's last loss, in words; empty where that is not known."""
    measured: Measurement | None
    """What ran measured: the trial, or the small one in its place."""
    flags: FlagsView | None
    now: float
    """Epoch seconds."""

    @classmethod
    def of(cls, app: App, trial: Trial, looked_at: LookedAt) -> Self:
        """Everything, asked once."""
        sweep = app.store.get_sweep(trial.sweep_id)
        detail, source = TrialDetail.of(trial), words.source(sweep.request)
        explanation, parts = _explained(app, trial)
        place = place_of(trial.id, app.store.ranked_times(sweep.id))
        at = Permalink.of_sweep(sweep, trial.layout)
        return cls(
            sweep=sweep,
            trial=detail,
            source=source,
            engine=words.engine(sweep.request.runs_on.engine, sweep.request.runs_on.queue),
            emulated=EMULATED if trial.layout.is_emulated else "",
            place=place,
            figures=figures(detail, source, parts.limit_bytes if parts and not parts.is_small else None),
            explore=at.to("/explore"),
            compare=_compare(trial, place),
            verdict=_verdict(parts, explanation) if parts and explanation else "",
            explanation=explanation,
            step=_step(parts, trial, source) if parts else None,
            memory=MemoryView.of(parts, wide=_HALF) if parts else None,
            changes=change_rows(explanation, at) if explanation else (),
            timeline=timeline_of(app, trial, looked_at) if explanation else None,
            links=links_of(app, trial, looked_at) if explanation else None,
            ranks=ranks_of(app, trial, looked_at) if explanation else None,
            steps=_steps(trial),
            events=tuple(map(EventRow.of, trial.measurement.link_events if trial.measurement else ())),
            failed=_failed(app, trial, sweep),
            losses=loss_curves(trial.gate) if trial.gate else Markup(""),
            to_loss=_to_loss(trial),
            measured=trial.measurement,
            flags=FlagsView.of(sweep.request, trial.layout, looked_at),
            now=app.clock.now(),
        )


def _explained(app: App, trial: Trial) -> tuple[LayoutExplanation | None, TrialParts | None]:
    """Nothing where a rule that is younger than the trial forbids its layout."""
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    try:
        return LayoutExplanation.of_trial(app, trial), app.asides.ask(trial_parts, trial, request)
    except InvalidInput:
        return None, None


def _to_loss(trial: Trial) -> str:
    if trial.gate is None:
        return ""
    return time_to_loss_in_words(trial.gate, None if trial.reached is None else trial.reached.step_time_s)


def _verdict(parts: TrialParts, explanation: LayoutExplanation) -> str:
    whose = "Of the small trial: " if parts.is_small else ""
    if not explanation.helpful:
        return f"{whose}{parts.largest_loss} No change of one step that fits is predicted to save 1 %."
    first = explanation.helpful[0]
    saved = f"{100 * abs(first.saved_share):.1f} % {'less' if first.saved_share >= 0 else 'more'} step time"
    how = saved if abs(first.saved_share) >= 0.001 else "fits more surely"
    return f"{whose}{parts.largest_loss} Nearest gain, predicted: {first.change}, {how}."


def _compare(trial: Trial, place: Place | None) -> str:
    of = [trial.id] if place is None or place.best_id == trial.id else [place.best_id, trial.id]
    return f"/compare?{urlencode([('of', one) for one in of])}"


def _step(parts: TrialParts, trial: Trial, source: str) -> StepView:
    error = None if parts.is_small else trial.prediction.relative_error
    measured = trial.measurement
    reached = None if measured is None else Spread.within(measured.step_time_s, measured.step_time_error_s)
    predicted = Spread.within_factor(parts.step.predicted_s, error)
    overlap = overlap_sentence(parts.predicted_overlap, parts.measured_overlap)
    return StepView.of(parts.step, predicted=predicted, reached=reached, reached_name=source, overlap=overlap)


def _steps(trial: Trial) -> Markup:
    if not trial.steps:
        return Markup("")
    measured = trial.measurement
    median = None if measured is None else Spread.within(measured.step_time_s, measured.step_time_error_s)
    robust = None if measured is None else measured.robust
    return step_series(trial.steps, median, robust=robust, events=measured.link_events if measured else ())


def timeline_of(app: App, trial: Trial, looked_at: LookedAt) -> TimelineView | None:
    """The timeline of what ran, as it is looked at.

    Raises:
        InvalidInput: A rule that is younger than the trial forbids its layout.
    """
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    found = app.asides.ask(trial_timelines, trial, request)
    return timeline_view(
        found.predicted, found.measured, looked_at.timeline_at, shown=looked_at.show, window=looked_at.window
    )


def bandwidth_of(app: App, trial: Trial) -> BandwidthView | None:
    """The bandwidth curve of its layout; None on a single node, or where a younger rule forbids it."""
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    try:
        return BandwidthView.of(app.asides.ask(trial_bandwidth_curve, trial, request), _WHOLE)
    except InvalidInput:
        return None


def links_of(app: App, trial: Trial, looked_at: LookedAt) -> LinkTimelinesView | None:
    """What ran with healthy links beside it with slow ones; None where no link is known to be slow.

    Raises:
        InvalidInput: A rule that is younger than the trial forbids its layout.
    """
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    if request.fault_trace is None and not request.runs_on.link_health:
        return None
    found = app.asides.ask(trial_link_timelines, trial, request)
    return link_timelines_view(found, looked_at.links_at, window=looked_at.links_window)


def ranks_of(app: App, trial: Trial, looked_at: LookedAt) -> RankGroupsView:
    """The groups of the rank that is looked at, or of the last where there is no such rank.

    Raises:
        InvalidInput: A rule that is younger than the trial forbids its layout.
    """
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    rank = min(looked_at.rank, trial.ran.world_size - 1)
    return rank_groups_view(app.asides.ask(trial_rank_groups, trial, request, rank), looked_at.rank_at)


def _failed(app: App, trial: Trial, sweep: Sweep) -> FailureGroup | None:
    """Its own death beside the trials of its sweep that ran."""
    if trial.failure is None:
        return None
    others = app.kept_trials.of(sweep.id).trials
    groups = failures(sweep.request, [trial, *(one for one in others if one.id != trial.id)])
    return next((group for group in groups if any(died.trial_id == trial.id for died in group.trials)), None)

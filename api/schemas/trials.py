"""Trials, and their ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.documents import extended
from autotuner.core.layout import Layout
from autotuner.core.measurement import Footprint, Measurement, StepReport
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import (
    EngineJob,
    ScaledTrial,
    Stopped,
    Trial,
    TrialFailure,
    TrialState,
    Waiting,
    time_to_loss_s,
)
from autotuner.search.results.reached import Standing, standings
from autotuner.search.text.trials import unranked_in_words
from autotuner.store.options import Page, TrialFilter

if TYPE_CHECKING:
    from autotuner.store.sql import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallTrialView:
    """What ran in the place of a layout, on fewer ranks than its job has."""

    label: str
    """The small layout in short."""
    layout: Layout
    num_ranks: int
    """Ranks that it runs on."""
    num_layers: int
    """Layers of the model that it runs."""
    global_batch_size: int
    """Sequences per step."""
    measured_parts: tuple[str, ...]
    """Parts of the full-size step that it runs just so."""
    measured: Measurement | None
    """Of the small run, not of the layout that it stands for; null unless the trial is complete."""

    @classmethod
    def of(cls, scaled: ScaledTrial, measured: Measurement | None) -> Self:
        """The small trial with what it measured."""
        return extended(cls, scaled, label=str(scaled.layout), num_ranks=scaled.num_ranks, measured=measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """What a layout would reach at full size, concluded from trials on fewer ranks. Never a measurement."""

    said: str
    """Where it comes from: how many of how many ranks ran."""
    step_time_s: float
    """Expected seconds of a step at full size."""
    relative_error: float
    """Half-width e of the 80 % interval of the step time, as that of a prediction."""
    tokens_per_s: float
    """Of the whole job, at the expected step time."""
    mfu: float
    """The same, as MFU."""
    peak_bytes: float
    """Expected peak of the fullest rank at full size."""
    fit_probability: float
    """How likely it is to fit at full size, 0..1."""
    measured_parts: tuple[str, ...]
    """Parts of the step that the small trial ran as the full-size layout would."""
    modelled_parts: tuple[str, ...]
    """The other parts: the cost model's word, corrected by what all trials told."""
    measured_share: float
    """Share of the full-size step in measured parts, by the model's breakdown, 0..1."""
    num_small_trials: int
    """Trials that it rests on."""
    num_trial_ranks: int
    """Ranks that the trial ran on."""
    num_ranks: int
    """Ranks of the job."""
    footprint: Footprint | None = None
    """What the whole job takes beside time; null in records older than this field."""

    @classmethod
    def of(cls, estimate: TrialEstimate) -> Self:
        """What is estimated, in one table."""
        full_size = estimate.full_size
        return extended(cls, estimate, full_size, said=estimate.said, step_time_s=estimate.step_time_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """One layout of a sweep: what was predicted, what was measured, or why it died."""

    id: str
    sweep_id: str
    number: int
    """Counts from 0 inside its sweep."""
    state: TrialState
    label: str
    """The layout in short."""
    layout: Layout
    attempts: int
    """How often it was started; above 1 after an interruption."""
    started_at: float | None
    """Epoch seconds; later by the time that it waited for devices of the service's own machine."""
    finished_at: float | None
    """Epoch seconds."""
    predicted: Prediction
    measured: Measurement | None
    """Null unless the trial is complete, and of one that ran on fewer ranks than its job has."""
    measured_precision_utilization: float | None
    """Measured model FLOP over the dense peak of the layout's own precision, 0..1; never ranked by."""
    failure: TrialFailure | None
    """Null unless the trial failed."""
    stopped: Stopped | None
    """Why it was pruned or cancelled; null otherwise, and in records older than this field."""
    gate_outcome: GateOutcome | None
    """What the loss gate says of a layout that changes the mathematics; null for any other."""
    jobs: tuple[EngineJob, ...] = ()
    """What engines were given for it, in order; empty where it runs on the service's own machine."""
    small: SmallTrialView | None = None
    """What ran in the layout's place, on fewer ranks than its job has, and what that measured; null where the layout
    itself runs."""
    estimated: Estimated | None = None
    """What the layout would reach at full size, of such a trial that was measured."""
    repeats: int | None = None
    """Number of the trial whose layout it runs again, to be compared; it has no rank. Null: it repeats none."""
    expected_gain: float | None = None
    """By which fraction a trial was expected to raise the best value when this one was chosen; null where nothing was
    measured before, the search did not choose it, and in records older than this field."""
    unranked: str | None = None
    """Why it has no rank though it was measured; null where it has one, repeats another, or was not."""
    waiting: Waiting | None = None
    """Why it has no devices yet, and since when; null unless its state is ``waiting``. Waiting takes no
    accelerator-hours."""

    @classmethod
    def of(cls, trial: Trial) -> TrialView:
        """The trial without its steps."""
        measured = trial.measurement if trial.scaled is None else None
        return extended(
            TrialView,
            trial,
            label=str(trial.layout),
            predicted=trial.prediction,
            measured=measured,
            measured_precision_utilization=measured.precision_utilization if measured else None,
            gate_outcome=_gate_outcome(trial),
            small=SmallTrialView.of(trial.scaled, trial.measurement) if trial.scaled else None,
            estimated=Estimated.of(trial.estimate) if trial.estimate else None,
            unranked=unranked_in_words(trial) or None,
        )


def _gate_outcome(trial: Trial) -> GateOutcome | None:
    if trial.gate is not None:
        return trial.gate.outcome
    return GateOutcome.NOT_GATED if trial.measurement and not trial.layout.is_equivalent else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDetail(TrialView):
    """A trial with the steps of its running or last attempt."""

    steps: tuple[StepReport, ...]
    gate: GateResult | None
    """What the loss gate found, with the curves of the candidate and of its reference; null where none ran."""
    trainer: str | None = None
    """Name of the registered trainer that runs it; null: our own decoder does."""
    time_to_loss_s: float | None = None
    """Seconds to the loss that a plain layout has behind the steps of a gate of lossy ones; null where that is not
    known."""

    @classmethod
    def of(cls, trial: Trial) -> TrialDetail:
        """The trial with its steps."""
        return extended(cls, TrialView.of(trial), steps=trial.steps, gate=trial.gate)

    @classmethod
    def of_stored(cls, store: Store, trial: Trial) -> TrialDetail:
        """The trial with its steps, and with what its sweep says of it."""
        request = store.get_sweep(trial.sweep_id).request
        return extended(
            cls,
            TrialView.of(trial),
            steps=trial.steps,
            gate=trial.gate,
            trainer=request.trainer and request.trainer.name,
            time_to_loss_s=time_to_loss_s(trial, request.loss_gate),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPage:
    """Trials by number."""

    items: tuple[TrialView, ...]
    total: int
    """How many match, on all pages; no more than 10,000 are counted behind this one."""
    limit: int
    offset: int

    @classmethod
    def of(cls, trials: Sequence[Trial], total: int, page: Page) -> Self:
        """The trials of one page."""
        return cls(items=tuple(TrialView.of(t) for t in trials), total=total, limit=page.limit, offset=page.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTrial(TrialView):
    """A ranked trial, its place, and how sure that is. One that ran on fewer ranks is ranked by what is estimated."""

    rank: int
    """From 1, by what the sweep maximises; by MFU among the trials of all sweeps."""
    probability_best: float | None = None
    """How likely its layout is the fastest of the sweep's ranked ones, 0..1; null across sweeps."""
    tied_with_best: bool | None = None
    """Its step time differs from that of the sweep's first by no more than chance makes them differ; null across
    sweeps."""
    time_to_loss_s: float | None = None
    """Seconds to the loss that a plain layout has behind the steps of a gate of lossy ones; null where that is not
    known, and across sweeps."""
    value: float | None = None
    """What the sweep maximises; null across sweeps."""
    footprint: Footprint | None = None
    """What it takes beside time; null in records older than this field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPage:
    """Trials that have a rank, the best first."""

    items: tuple[RankedTrial, ...]
    total: int
    """How many match, on all pages; no more than 10,000 are counted behind this one."""
    limit: int
    offset: int

    @classmethod
    def of(
        cls,
        trials: Sequence[Trial],
        total: int,
        page: Page,
        standings: Mapping[str, Standing] | None = None,
        request: SweepRequest | None = None,
    ) -> Self:
        """The trials of one page with their places, and with the standings of their sweep where it is one sweep's.

        ``request`` is what that sweep was asked for.
        """
        places = enumerate(trials, page.offset + 1)
        ranked = tuple(_ranked(trial, rank, (standings or {}).get(trial.id), request) for rank, trial in places)
        return cls(items=ranked, total=total, limit=page.limit, offset=page.offset)

    @classmethod
    def of_sweep(cls, store: Store, sweep_id: str, where: TrialFilter, page: Page) -> Self:
        """One page of a sweep's ranking."""
        trials, total = store.ranking(sweep_id, where=where, page=page)
        request = store.get_sweep(sweep_id).request
        return cls.of(trials, total, page, standings(store.ranked_times(sweep_id)), request)

    @classmethod
    def of_all(cls, store: Store, sweep_id: str, trials: Sequence[Trial], page: Page) -> Self:
        """The same page where every trial of the sweep is at hand, so that none is read again."""
        times = store.ranked_times(sweep_id)
        by_id = {trial.id: trial for trial in trials if trial.is_ranked}
        ranked = [by_id[time.trial_id] for time in times if time.trial_id in by_id]
        shown = ranked[page.offset : page.offset + page.limit]
        return cls.of(shown, len(ranked), page, standings(times), store.get_sweep(sweep_id).request)


def _ranked(trial: Trial, rank: int, standing: Standing | None, request: SweepRequest | None) -> RankedTrial:
    reached = trial.reached
    return extended(
        RankedTrial,
        TrialView.of(trial),
        rank=rank,
        probability_best=standing.probability_best if standing else None,
        tied_with_best=standing.tied_with_best if standing else None,
        time_to_loss_s=time_to_loss_s(trial, request.loss_gate) if request else None,
        value=request.objective.value(reached) if request and reached else None,
        footprint=reached.footprint if reached else None,
    )

"""Sweeps, and how far they have come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from api.schemas.trials import TrialView
from autotuner.core.cluster import SIMULATED
from autotuner.core.comparison import ChallengeFindings
from autotuner.core.documents import extended
from autotuner.core.model import ModelSize
from autotuner.core.objective import Objective
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import BestSoFar, Budget, Interventions, Progress, Sweep, SweepOverview, SweepRequest
from autotuner.core.trial import Waiting
from autotuner.search.sweeps.challenge import findings
from autotuner.search.text.caveats import approximations, calibrated_on
from autotuner.search.text.trials import findings_in_words
from autotuner.service.build import App
from autotuner.store.options import Page, SweepFilter, SweepOrder

if TYPE_CHECKING:
    from autotuner.store.sql import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCounts:
    """Trials of a sweep by state."""

    queued: int = 0
    running: int = 0
    waiting: int = 0
    complete: int = 0
    pruned: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ran(self) -> int:
        """Trials that came to an end, however."""
        return self.complete + self.pruned + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """A sweep as a line of a list."""

    id: str
    name: str
    state: RunState
    model: str
    """Its name."""
    cluster: str
    """Its name."""
    created_at: float
    """Epoch seconds, as are the next two."""
    started_at: float | None
    finished_at: float | None
    cancel_requested: bool
    """The end was asked for; a running trial is being stopped."""
    stop_reason: StopReason | None
    """Null until the sweep is finished."""
    stop_detail: str
    """The reason with its numbers, as a sentence."""
    budget: Budget
    objective: Objective
    progress: Progress
    trials: TrialCounts
    """How many there are in each state."""
    best_value: float | None
    """What the trial ranked first reached of ``objective``; null until there is one."""
    best_measured_mfu: float | None
    """MFU of the trial ranked first; null until there is one, and where nothing measured it."""
    trial_cluster: str | None
    """Name of the smaller cluster that trials run on; null where they run on ``cluster``. With one, the best value is
    an estimate."""
    best_estimated_mfu: float | None
    """MFU that is estimated of the trial ranked first; null where trials measure their layouts."""
    engine: str
    """Name of the engine that runs the trials; ``local``: the machine that runs the sweep."""
    best_simulated_mfu: float | None
    """MFU of the trial ranked first where the engine is ``simulated``; null where something ran."""
    num_repeats: int = 0
    """How many of these ran a layout again and came to an end; no budget of trials counts them."""
    pause_requested: bool = False
    """A pause was asked for; a running trial is being stopped."""
    created_by: str = ""
    """Name of the caller who asked for it; empty where nobody was asked who they are."""
    best_trial_id: str | None = None
    """Id of the trial ranked first; null until there is one."""
    best_tokens_per_s: float | None = None
    """Of the whole job in that trial; measured, estimated or simulated as its MFU is."""
    best_relative_error: float | None = None
    """Half the 95 % interval of its step time, as a share of it; null where it is not known."""
    best_so_far: tuple[BestSoFar, ...] = ()
    """Trials that were better than all of lower numbers, with what each reached of ``objective``."""
    waiting: Waiting | None = None
    """Why nobody works on it though its state is ``running``, and since when: its worker died, say. Null where somebody
    does."""

    @classmethod
    def of(cls, overview: SweepOverview, now: float) -> SweepSummary:
        """The sweep with how far it has come."""
        kind = _kind_of_best(overview)
        counts = TrialCounts(**{state.value: number for state, number in overview.num_trials.items()})
        return extended(
            SweepSummary,
            overview,
            progress=Progress.of(overview, now),
            trials=counts,
            best_measured_mfu=overview.best_mfu if kind == "measured" else None,
            best_estimated_mfu=overview.best_mfu if kind == "estimated" else None,
            best_simulated_mfu=overview.best_mfu if kind == "simulated" else None,
            waiting=overview.waiting(now),
        )


def _kind_of_best(overview: SweepOverview) -> Literal["measured", "estimated", "simulated"]:
    """What the figures of the trial ranked first are."""
    if overview.trial_cluster is not None:
        return "estimated"
    return "simulated" if overview.engine == SIMULATED else "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDetail(SweepSummary):
    """A sweep with everything that was asked of it."""

    model_size: ModelSize
    """How large the model is."""
    caveats: tuple[str, ...]
    """What its predictions were calibrated on, and what of the model they count or price as something else; sentences
    without full stops."""
    request: SweepRequest
    """As it runs: every name resolved, every default filled in."""
    best: TrialView | None
    """The trial ranked first; null until there is one."""
    trainer: str | None = None
    """Name of the registered trainer that runs as its trials; null: our own decoder does."""
    findings: ChallengeFindings | None = None
    """What the runs say that it compares, until now; null where it challenges nothing."""
    said: tuple[str, ...] = ()
    """The same in sentences without full stops."""
    interventions: Interventions = field(default_factory=Interventions)
    """What people changed of it since they asked for it."""

    @classmethod
    def of_sweep(cls, app: App, sweep: Sweep) -> SweepDetail:
        """The sweep with its request and its best trial."""
        store, now = app.store, app.clock.now()
        overview = store.overview(sweep.id, now=now)
        ranking, _ = store.ranking(sweep.id, page=Page(limit=1))
        best = TrialView.of(ranking[0]) if ranking else None
        trainer = sweep.request.trainer.name if sweep.request.trainer else None
        model = sweep.request.job.model
        found = findings(sweep.request, store.all_trials(sweep.id)) if sweep.request.challenge else None
        return extended(
            cls,
            SweepSummary.of(overview, now),
            model_size=ModelSize.of(model),
            caveats=(*calibrated_on(app.informed(sweep).request.job), *approximations(model)),
            request=sweep.request,
            best=best,
            trainer=trainer,
            interventions=sweep.interventions,
            findings=found,
            said=findings_in_words(found, is_simulated=overview.engine == SIMULATED) if found else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPage:
    """Sweeps that match, in the order that was asked for."""

    items: tuple[SweepSummary, ...]
    total: int
    """How many match, on all pages; no more than 10,000 are counted behind this one."""
    limit: int
    offset: int

    @classmethod
    def of(cls, store: Store, where: SweepFilter, order: SweepOrder, page: Page, now: float) -> Self:
        """The sweeps of one page."""
        overviews, total = store.list_overviews(now=now, where=where, order=order, page=page)
        items = tuple(SweepSummary.of(overview, now) for overview in overviews)
        return cls(items=items, total=total, limit=page.limit, offset=page.offset)

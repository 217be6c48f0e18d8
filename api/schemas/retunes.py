"""Retunes: what is asked, where each stands, its runs and their trend."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from autotuner.core.documents import extended
from autotuner.core.layout import Layout
from autotuner.core.upkeep import Retune, RetuneRequest, RetuneRun, RetuneState
from autotuner.runs.retuning import the_cron
from autotuner.search.upkeep.retune import TrendPoint, trend
from autotuner.store.options import Page

if TYPE_CHECKING:
    from autotuner.store.sql import Store

_MOST_POINTS = 500
"""Runs that a trend goes back; a year of nights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneView:
    """A retune as a line of a list."""

    name: str
    cron: str
    cron_in_words: str
    """When it is due, in English."""
    time_zone: str
    model: str
    """Its name."""
    cluster: str
    """Its name."""
    engine: str
    """Name of the engine that its trials run on; with ``simulated`` nothing runs, and what stands under ``measured`` is
    what the cost model says, with seeded noise."""
    is_paused: bool
    incumbent: Layout | None
    """The layout in use; null before it is known."""
    measured_tokens_per_s: float | None
    """What the incumbent is held to, the mean of its baseline; null without one, as the next."""
    measured_mfu: float | None
    """The same as MFU."""
    num_baseline_runs: int
    """Runs that the baseline is made of."""
    created_at: float
    next_due_at: float | None
    """Epoch seconds; null while it is paused."""
    last_run: RetuneRun | None
    """The newest that is not skipped; null before the first."""
    created_by: str = ""
    """Name of the caller who asked for it, whom its sweeps count for; empty where nobody was asked."""

    @classmethod
    def of(cls, retune: Retune, last_run: RetuneRun | None) -> RetuneView:
        """The retune with its newest run."""
        request, job = retune.request, retune.request.template.job
        groups = retune.baseline
        return extended(
            RetuneView,
            request,
            retune,
            name=retune.name,
            cron_in_words=the_cron(request).in_words,
            model=job.model.name,
            cluster=job.cluster.name,
            engine=request.template.runs_on.engine,
            measured_tokens_per_s=statistics.fmean(rate for one in groups for rate in one.rates) if groups else None,
            measured_mfu=statistics.fmean(one.mfu for one in groups) if groups else None,
            num_baseline_runs=len(groups),
            last_run=last_run,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneDetail(RetuneView):
    """A retune with everything that was asked of it."""

    request: RetuneRequest
    """Every name resolved, every default filled in."""

    @classmethod
    def of_retune(cls, store: Store, retune: Retune) -> RetuneDetail:
        """The retune with its newest run."""
        return extended(cls, RetuneView.of(retune, _last_run(store, retune.name)), request=retune.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneList:
    """All retunes, by name."""

    items: tuple[RetuneView, ...]

    @classmethod
    def of(cls, store: Store) -> Self:
        """Each with its newest run."""
        return cls(items=tuple(RetuneView.of(one, _last_run(store, one.name)) for one in store.retunes.list()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneRunPage:
    """Runs of a retune, newest first."""

    items: tuple[RetuneRun, ...]
    total: int
    """How many there are in all."""
    limit: int
    offset: int

    @classmethod
    def of(cls, store: Store, name: str, page: Page) -> Self:
        """Those of one page."""
        store.retunes.get(name)
        runs, total = store.retunes.runs(name, page=page)
        return cls(items=tuple(runs), total=total, limit=page.limit, offset=page.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneTrend:
    """What the layout in use reached, run by run."""

    items: tuple[TrendPoint, ...]
    """The oldest first; runs that measured nothing have none."""

    @classmethod
    def of(cls, store: Store, name: str) -> Self:
        """The last 500 runs."""
        store.retunes.get(name)
        return cls(items=trend(store.retunes.runs(name, page=Page(limit=_MOST_POINTS))[0]))


def _last_run(store: Store, name: str) -> RetuneRun | None:
    runs: Sequence[RetuneRun] = store.retunes.runs(name, page=Page(limit=20))[0]
    return next((run for run in runs if run.state is not RetuneState.SKIPPED), None)

"""Scheduler: starts the runs of scheduled retunings when they are due."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import structlog

from autotuner.core.cluster import Cluster
from autotuner.core.comparison import EnvironmentChange, environment_changes
from autotuner.core.errors import NotFound, QuotaExceeded, StoreUnavailable
from autotuner.core.link import links_in_brief
from autotuner.core.upkeep import Retune, RetuneRun, Trigger
from autotuner.runs.clock import Clock
from autotuner.runs.retuning import Retuning, last_measured, runs_here
from autotuner.search.upkeep.cron import due_run

if TYPE_CHECKING:
    from autotuner.store.sql import Store

_LEAST_CHANGE = 0.25
"""Smallest relative change of the bandwidth between nodes that starts a run. This is an assumption: checks of an
unchanged network differ by less."""


def links_changed(then: Cluster, now: Cluster) -> bool:
    """Return True if the links changed from ``then`` to ``now``, so that a retune should run again.

    A change is that a link degraded or recovered, or that the bandwidth between nodes changed by more than 25 %.
    """
    ailments = [links_in_brief(one.link_health, between_nodes=one.num_nodes > 1) for one in (then, now)]
    before, after = (one.inter_node_link.bandwidth_bytes_per_s for one in (then, now))
    is_other = now.num_nodes > 1 and abs(after - before) > _LEAST_CHANGE * max(before, after)
    return ailments[0] != ailments[1] or is_other


_SOFTWARE_EVERY_S = 60.0
"""Seconds between two checks for new software on this machine."""

_log = structlog.get_logger(__name__)

Software = Callable[[], Mapping[str, str]]


class RetuneScheduler:
    """The scheduler that starts the runs of scheduled retunings ("retunes"). Several schedulers may share one store.

    Each start is one transaction. If several schedulers try it, only one of them succeeds.

    Args:
        store: The store of retunes.
        clock: Source of the time.
        software: Returns the software versions of this machine, as far as they are known without a trial.
    """

    def __init__(self, store: Store, clock: Clock, software: Software) -> None:
        self._store = store
        self._clock = clock
        self._software = software
        self._retuning = Retuning(store, clock)
        self._looked_at: float | None = None
        self._answered: dict[str, Mapping[str, str]] = {}

    def step(self) -> None:
        """Start every run that should start now: its due time has come, or software or links have changed."""
        self._start_due()
        self._start_for_new_software()
        self._start_for_new_links()

    # ------------------------------------------------------------------ starting
    def _start_due(self) -> None:
        now = self._clock.now()
        for retune in self._store.retunes.due(now):
            with _kept_apart(retune.name):
                running = self._store.retunes.unfinished_run(retune.name)
                if running is not None and self._is_over(running):
                    continue  # a worker ends this run now, so that other runs that are due need not be skipped
                if due := due_run(retune, now=now, is_running=running is not None):
                    _say(self._retuning.begin_due(retune, due))

    def _is_over(self, run: RetuneRun) -> bool:
        return run.child_id is None or self._store.get_sweep(run.child_id).state.is_finished

    def _start_for_new_software(self) -> None:
        """Start the retunings that wait for new software, once for each change of this machine's software.

        No more often, since trials are forked from a process that may still have the old software.
        """
        now = self._clock.now()
        if self._looked_at is not None and now - self._looked_at < _SOFTWARE_EVERY_S:
            return
        self._looked_at = now
        for retune in self._store.retunes.list():
            looks_out = not retune.is_paused and retune.request.on_new_environment and runs_here(retune.request)
            if looks_out and self._is_new(retune, software := self._software()):
                self._answered[retune.name] = software
                with suppress(QuotaExceeded):  # the next due time looks again
                    _say(self._retuning.begin_out_of_turn(retune, Trigger.ENVIRONMENT))

    def _is_new(self, retune: Retune, software: Mapping[str, str]) -> bool:
        """Return True if the last measuring run had other software and no run was started for the new one yet."""
        last = last_measured(self._store, retune.name)
        if last is None or self._answered.get(retune.name) == software:
            return False
        newest, _ = self._store.retunes.runs(retune.name)
        if newest[0].request.trigger is Trigger.ENVIRONMENT and newest[0].id != last.id:
            return False  # that run could not measure; the next due time tries again
        assert last.result is not None
        assert last.result.findings is not None
        assert last.result.findings.runs is not None
        return bool(software_changes(last.result.findings.runs.environment, software))

    def _start_for_new_links(self) -> None:
        """Start the retunings that wait for new links, once for each change that exceeds the noise of a check."""
        for retune in self._store.retunes.list():
            if retune.request.on_new_links and not retune.is_paused and self._has_new_links(retune):
                with suppress(QuotaExceeded):  # the next due time looks again
                    _say(self._retuning.begin_out_of_turn(retune, Trigger.LINKS))

    def _has_new_links(self, retune: Retune) -> bool:
        """Return True if the cluster's links differ from those that the last run measured with, or tried to."""
        newest, _ = self._store.retunes.runs(retune.name)
        tried = next((run for run in newest if run.request.trigger is Trigger.LINKS), None)
        measured = last_measured(self._store, retune.name)
        last = max(filter(None, (tried, measured)), key=lambda run: run.request.started_at, default=None)
        if last is None or last.child_id is None:
            return False
        try:
            then = self._store.get_sweep(last.child_id).request.job.cluster
        except NotFound:  # retention removed it
            return False
        now = self._retuning.links_today(retune.request.template.job.cluster)
        return now is not None and links_changed(then, now)


@contextmanager
def _kept_apart(name: str) -> Iterator[None]:
    """Log an error of the block, except ``StoreUnavailable``, instead of raising it, so that other retunes run."""
    try:
        yield
    except StoreUnavailable:
        raise
    except Exception:
        _log.exception("retune.error", retune=name)


def software_changes(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[EnvironmentChange, ...]:
    """Return the software whose version changed since a trial ran here; empty if the trial ran on another machine."""
    if then.get("host") != now.get("host"):
        return ()
    both = then.keys() & now.keys()
    return environment_changes({name: then[name] for name in both}, {name: now[name] for name in both})


def _say(run: RetuneRun | None) -> None:
    if run is not None:
        _log.info(
            "retune.started",
            retune=run.subject,
            run_id=run.id,
            trigger=run.request.trigger.value,
            state=run.word,
            sweep_id=run.child_id,
            num_missed=run.request.num_missed,
        )

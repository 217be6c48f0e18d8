"""Metrics of what is stored, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from autotuner.core.errors import StoreUnavailable
from autotuner.core.run import RunState
from autotuner.core.trial import TrialState
from autotuner.ports import Clock, Store
from autotuner.ports.gauges import Gauges

State = TypeVar("State", bound=StrEnum)


class StoredMetrics(Collector):
    """Sweeps, trials, workers and deliveries as the database has them; where it does not answer, only that."""

    def __init__(self, open_store: Callable[[], Store], clock: Clock) -> None:
        self._open_store = open_store
        self._clock = clock

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing: the registry would otherwise ask the database when the service is made."""
        return []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The gauges as they stand now."""
        now = self._clock.now()
        try:
            store = self._open_store()
            gauges, workers = store.gauges.read(now=now), store.workers.list()
        except StoreUnavailable:
            yield _gauge("database_up", "Whether the database answers.", 0)
            return
        yield _gauge("database_up", "Whether the database answers.", 1)
        num_workers = sum(worker.is_alive(now) for worker in workers)
        yield _gauge("workers_alive", "Workers that said within a minute that they live.", num_workers)
        yield from _families(gauges, now)


def _families(gauges: Gauges, now: float) -> Iterable[GaugeMetricFamily]:
    yield _by_state("sweeps", "Sweeps by state.", RunState, gauges.num_sweeps)
    yield _by_state("open_trials", "Trials of unfinished sweeps by state.", TrialState, gauges.num_open_trials)
    yield _by_state(
        "trials_ended_last_hour",
        "Trials that ended within the last hour, by state.",
        TrialState,
        gauges.num_ended_trials,
    )
    yield _gauge("queue_age_seconds", "How long the oldest queued sweep waits.", _age(gauges.oldest_queued_at, now))
    yield _gauge("deliveries_pending", "Deliveries to webhooks that are pending.", gauges.num_pending_deliveries)
    yield _gauge(
        "delivery_age_seconds", "How long the oldest pending delivery waits.", _age(gauges.oldest_pending_at, now)
    )


def _age(since: float | None, now: float) -> float:
    return 0.0 if since is None else max(0.0, now - since)


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"autotuner_{name}", what, value=value)


def _by_state(name: str, what: str, states: type[State], counts: Mapping[State, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"autotuner_{name}", what, labels=["state"])
    for state in states:  # those without any too: a line that begins late looks like a jump
        family.add_metric([state.value], counts.get(state, 0))
    return family

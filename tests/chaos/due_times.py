"""Whether every due time of a retune has its run: what is stored of its runs, as an account that must balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from typing import TypeVar

from autotuner.core.upkeep import Retune, RetuneRun, Trigger
from autotuner.store.options import Page
from autotuner.store.sql import Store

Item = TypeVar("Item")

_MINUTE_S = 60.0
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimes:
    """The due times of retunes that are due every minute, by how they were read."""

    due: int = 0
    """All that came."""
    started: int = 0
    """Those with a run of their own."""
    skipped: int = 0
    """Those that came while the run before was not finished."""
    missed: int = 0
    """Those that a later run stands for."""
    lost: int = 0
    """Those that nothing stands for."""
    twice: int = 0
    """Those that two runs stand for, runs with two sweeps, and outcomes that were told twice."""
    caught_up: int = 0
    """Runs that began late."""
    concluded: int = 0
    """Runs with an outcome."""
    untold: int = 0
    """Runs with an outcome that nobody was told of."""

    @property
    def is_right(self) -> bool:
        """Nothing is lost, twice or untold."""
        return not (self.lost or self.twice or self.untold)

    def __add__(self, other: DueTimes) -> DueTimes:
        return DueTimes(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


def account(store: Store, first_due_at: float) -> DueTimes:
    """Of all retunes of a store, each due every minute since ``first_due_at``; nothing else starts sweeps there."""
    told = Counter(one.subject_id for one in _every(lambda page: store.announcements.feed(page=page)))
    total, num_measuring = DueTimes(), 0
    for retune in store.retunes.list():
        runs = list(_every(partial(_page_of_runs, store, retune.name)))
        num_measuring += sum(run.child_id is not None for run in runs)
        total += _of_runs(retune, runs, first_due_at) + _of_outcomes(runs, told)
    return total + DueTimes(twice=abs(store.runs.list("sweep")[1] - num_measuring))


def _of_runs(retune: Retune, runs: Sequence[RetuneRun], first_due_at: float) -> DueTimes:
    """From one due time with a row to the next: as many lie between as the later one says it stands for."""
    assert retune.next_due_at is not None, "none is paused"
    rows = sorted(run.request.due_at for run in runs)
    missed = {run.request.due_at: run.request.num_missed for run in runs}
    lost = twice = 0
    before = first_due_at - _MINUTE_S
    for due_at in chain(rows, [retune.next_due_at]):
        unaccounted = round((due_at - before) / _MINUTE_S) - 1 - missed.get(due_at, 0)
        lost, twice = lost + max(0, unaccounted), twice + max(0, -unaccounted)
        before = due_at
    return DueTimes(
        due=round((retune.next_due_at - first_due_at) / _MINUTE_S),
        started=sum(not run.request.is_skipped for run in runs),
        skipped=sum(run.request.is_skipped for run in runs),
        missed=sum(missed.values()),
        lost=lost,
        twice=twice,
        caught_up=sum(run.request.trigger is Trigger.CAUGHT_UP and not run.request.is_skipped for run in runs),
    )


def _of_outcomes(runs: Sequence[RetuneRun], told: Counter[str]) -> DueTimes:
    concluded = [run.id for run in runs if run.result is not None]
    return DueTimes(
        concluded=len(concluded),
        untold=sum(told[run_id] == 0 for run_id in concluded),
        twice=sum(max(0, told[run.id] - 1) for run in runs),
    )


def _page_of_runs(store: Store, name: str, page: Page) -> tuple[Sequence[RetuneRun], int]:
    return store.retunes.runs(name, page=page)


def _every(read: Callable[[Page], tuple[Sequence[Item], int]]) -> Iterator[Item]:
    """All pages of a list."""
    total, offset = 1, 0
    while offset < total:
        items, total = read(Page(limit=_PAGE, offset=offset))
        yield from items
        offset += _PAGE

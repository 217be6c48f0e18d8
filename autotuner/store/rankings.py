"""Rankings of trials, in the order of indexes of ``measurements``, so that nothing is sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from sqlalchemy import Engine, Select, select

from autotuner.core.trial import RankedTime, Trial
from autotuner.store.descriptions import trial_id as id_of
from autotuner.store.engine import AnySelect, reading, window
from autotuner.store.options import Page, TrialFilter
from autotuner.store.tables import measurements, trials
from autotuner.store.trials import TRIAL_COLUMNS, check_sweep, objective_of, passing


class Rankings:
    """Trials that have a rank; every method is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def ranking(
        self, sweep_id: str | None = None, *, where: TrialFilter = TrialFilter(), page: Page = Page()
    ) -> tuple[Sequence[Trial], int]:
        """Return trials that have a rank, the best first; equal ones by id. An indexed query.

        Those of one sweep are ordered by its objective's value, those of all sweeps by MFU.
        """
        with reading(self._engine) as connection:
            if sweep_id is not None:
                check_sweep(connection, sweep_id)
            ids = ranked_ids(sweep_id, where)
            rows, total = window(connection, ranking(sweep_id, where), page, counted=ids)
        return [Trial(**row._mapping) for row in rows], total

    def ranked_times(self, sweep_id: str) -> Sequence[RankedTime]:
        """Return what the order of every ranked trial of a sweep rests on, in that order, from columns alone."""
        with reading(self._engine) as connection:
            check_sweep(connection, sweep_id)
            repeated: dict[str, list[float]] = {}
            for number, step_time_s in connection.execute(repeated_times(sweep_id)):
                assert number is not None, "the query asks for those that repeat one"
                repeated.setdefault(id_of(sweep_id, number), []).append(step_time_s)
            with_worths = objective_of(connection, sweep_id).reads_footprint
            rows = connection.execute(ranked_times(sweep_id, with_worths=with_worths)).all()
            return [RankedTime(**row._mapping, repeated_s=tuple(repeated.get(row.trial_id, ()))) for row in rows]


def ranking(sweep_id: str | None, where: TrialFilter) -> AnySelect:
    """Return trials that have a rank, the best first."""
    joined = measurements.join(trials, trials.c.id == measurements.c.trial_id)
    return _best_first(select(*TRIAL_COLUMNS).select_from(joined).where(*passing(where)), sweep_id)


def ranked_ids(sweep_id: str | None, where: TrialFilter) -> AnySelect:
    """Return the ids of the same, from an index alone where nothing is filtered."""
    query = select(measurements.c.trial_id).select_from(measurements)
    if filtered := passing(where):
        query = query.join(trials, trials.c.id == measurements.c.trial_id).where(*filtered)
    return _best_first(query, sweep_id)


def ranked_times(sweep_id: str, *, with_worths: bool) -> AnySelect:
    """Return rows as ``RankedTime`` takes them, the best first, without repeats.

    Args:
        sweep_id: Whose trials.
        with_worths: Says what steps are worth, too, where that differs.
    """
    names = (field.name for field in fields(RankedTime) if field.name in measurements.c)
    worth = (measurements.c.value * measurements.c.step_time_s).label("worth_per_step")
    columns = [*(measurements.c[name] for name in names), *([worth] if with_worths else [])]
    return _best_first(select(*columns), sweep_id)


def repeated_times(sweep_id: str) -> Select[int | None, float]:
    """Return step times of trials that repeat others, with the number of the one that each repeats."""
    return (
        select(trials.c.repeats, measurements.c.step_time_s)
        .join_from(trials, measurements, measurements.c.trial_id == trials.c.id)
        .where(trials.c.sweep_id == sweep_id, trials.c.repeats.is_not(None))
        .order_by(trials.c.number)
    )


def _best_first(query: AnySelect, sweep_id: str | None) -> AnySelect:
    """Return what is ranked: a sweep by its objective's value, all sweeps by MFU; equal ones by id."""
    ranked = query.where(measurements.c.is_ranked)
    if sweep_id is None:
        return ranked.order_by(measurements.c.mfu.desc(), measurements.c.trial_id)
    mine = ranked.where(measurements.c.sweep_id == sweep_id)
    return mine.order_by(measurements.c.value.desc(), measurements.c.trial_id)

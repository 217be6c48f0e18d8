"""Performance regression gates on SQLite and PostgreSQL: runs that wait for a sweep, and their baselines."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.exc import IntegrityError

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.announcement import Announcement, AnnouncementKind
from autotuner.core.errors import InvalidInput, NotFound, NotOwner
from autotuner.core.run import Finish, NewRun
from autotuner.core.sweep import SweepRequest
from autotuner.core.upkeep import Baseline, GateRun, GateRunRequest, RegressionGateOutcome, RegressionGateResult
from autotuner.search.upkeep.gate import gate_announcement, new_baseline
from autotuner.store import announcements
from autotuner.store.descriptions import check_name, new_id
from autotuner.store.engine import reading, upsert, writing
from autotuner.store.runs import Part, Rows, get_run, insert_run, with_result
from autotuner.store.sweeps import queue_sweep
from autotuner.store.tables import baselines, runs

_DECIDED = (RegressionGateOutcome.PASSED, RegressionGateOutcome.FAILED, RegressionGateOutcome.NO_BASELINE)
"""Outcomes of gates that measured as much as they needed to decide."""


class RegressionGateStore(Part):
    """The store of performance regression gates, which show whether a change slows training, and of their baselines."""

    def create(
        self,
        asked: GateRunRequest,
        *,
        by: SweepRequest | Finish,
        now: float,
        caller: Caller = NOBODY_ASKED,
    ) -> GateRun:
        """Store a new performance regression gate, either with a sweep that measures for it or with its result.

        Args:
            asked: The request for the gate, with the baseline that the caller read.
            by: Either the request for the sweep to queue, for whose end the gate then waits; or the result, taken over
                from an earlier gate.
            now: Time of the request.
            caller: The caller. The sweep is checked against the caller's quota, as in ``Store.create_sweep``.
        """
        name = asked.gate.baseline
        check_name("gate.baseline", name)
        new = NewRun(id=new_id("mg"), kind="gate", request=asked, subject=name, created_by=caller.name)
        with writing(self._engine) as connection:
            if isinstance(by, Finish):
                self._runs.add_ended(connection, new, by, now)
            else:
                sweep = queue_sweep(connection, by, now, caller=caller, parent_id=new.id)
                insert_run(connection, replace(new, awaits=sweep.id), now)
            return get_run(connection, GATE_ROWS, new.id)

    def find_reusable(self, content: str) -> GateRun | None:
        """Return the last gate that measured the same content with a sweep of its own and was decided, or None.

        ``content`` is a hash of everything that a gate measures: its sweep, its layout and the software versions. The
        result of such a gate can be used again.
        """
        with reading(self._engine) as connection:
            gate_id = connection.scalar(select(runs.c.id).where(runs.c.unique_key == _unique(content)))
            return None if gate_id is None else get_run(connection, GATE_ROWS, gate_id)

    # ------------------------------------------------------------------ baselines
    def get_baseline(self, name: str, key: str) -> Baseline | None:
        """Return the baseline ``name`` for the job with the key ``key``, or None if it is not stored.

        A baseline is the result that later runs of a performance regression gate are compared with.
        """
        mine = (baselines.c.name == name) & (baselines.c.key == key)
        with reading(self._engine) as connection:
            return connection.scalar(select(baselines.c.document).where(mine))

    def list_baselines(self) -> Sequence[Baseline]:
        """Return all baselines (earlier results that gates compare with), ordered by name.

        Among the baselines of one name, the newest comes first.
        """
        with reading(self._engine) as connection:
            found = connection.scalars(select(baselines.c.document)).all()
        return sorted(found, key=lambda baseline: (baseline.name, -baseline.at, baseline.key))

    def remove_baseline(self, name: str, key: str) -> None:
        """Delete the baseline ``name`` for the job with the key ``key``, so that the next gate can set a new one.

        Raises:
            NotFound: There is no such baseline.
        """
        mine = (baselines.c.name == name) & (baselines.c.key == key)
        with writing(self._engine) as connection:
            if not connection.execute(delete(baselines).where(mine)).rowcount:
                raise NotFound("baseline", f"{name} of the job {key}")


# ---------------------------------------------------------------------- in the transaction that ends a gate
def _end(connection: Connection, gate_id: str, end: Finish, now: float) -> None:
    """Store the new baseline, let later gates reuse the result, and announce the end of the gate."""
    try:
        gate = get_run(connection, GATE_ROWS, gate_id)
    except InvalidInput:
        announcements.tell(connection, _unread_told(connection, gate_id, end, now))
        return
    assert gate.result is not None, "it has ended"
    result, said = gate.result, end.detail
    if (baseline := new_baseline(gate, result, now=now)) is not None:
        try:
            _require_replaceable(connection, baseline, gate)
            values = {"name": baseline.name, "key": baseline.key, "at": baseline.at, "document": baseline}
            upsert(connection, baselines, ["name", "key"], values)  # if two gates set it at once, the later one stays
        except NotOwner as error:
            said = f"{said}; no baseline was set, because another one was set meanwhile: {error}"
            connection.execute(update(runs).where(runs.c.id == gate_id).values(detail=said))
    if _is_reusable(gate, result):
        _set_reusable(connection, gate)
    announcements.tell(connection, gate_announcement(gate, result, said, at=now))


def _unread_told(connection: Connection, gate_id: str, end: Finish, now: float) -> Announcement:
    """Return the announcement for a gate that another release wrote and this one cannot read."""
    baseline = connection.scalars(select(runs.c.subject).where(runs.c.id == gate_id)).one()
    return Announcement(
        id=f"an-{gate_id}",
        at=now,
        kind=AnnouncementKind.GATE_COULD_NOT_RUN,
        title=f"Performance regression gate {baseline}: could not run",
        text=end.detail,
        path=f"/gates/{gate_id}",
        subject_id=gate_id,
        facts={"gate": gate_id, "baseline": baseline, "outcome": RegressionGateOutcome.COULD_NOT_RUN.value},
    )


def _is_reusable(gate: GateRun, result: RegressionGateResult) -> bool:
    measured = result.findings is not None and result.findings.runs is not None
    return gate.child_id is not None and measured and result.outcome in _DECIDED


def _set_reusable(connection: Connection, gate: GateRun) -> None:
    """Let later gates with the same content find this gate instead of an earlier one.

    If two gates end at the same time, one of them is found.
    """
    key = _unique(gate.request.content)
    with suppress(IntegrityError), connection.begin_nested():
        connection.execute(update(runs).where(runs.c.unique_key == key).values(unique_key=None))
        connection.execute(update(runs).where(runs.c.id == gate.id).values(unique_key=key))


def _unique(content: str) -> str:
    return f"gate {content}"


def _require_replaceable(connection: Connection, baseline: Baseline, gate: GateRun) -> None:
    """Check that the gate may replace the stored baseline: it compared with this baseline, or the same caller set it.

    Raises:
        NotOwner: Another caller has set the baseline meanwhile.
    """
    mine = (baselines.c.name == baseline.name) & (baselines.c.key == baseline.key)
    stored = connection.scalar(select(baselines.c.document).where(mine).with_for_update())
    before = gate.request.baseline
    if stored is None or (before is not None and stored.gate_id == before.gate_id):
        return
    owner = connection.scalar(select(runs.c.created_by).where(runs.c.id == stored.gate_id))
    if owner is not None and owner != gate.created_by:
        raise NotOwner("baseline", baseline.name, owner)


GATE_ROWS = Rows(
    run=GateRun,
    ended=with_result(RegressionGateResult(outcome=RegressionGateOutcome.COULD_NOT_RUN)),
    on_end=_end,
    has_jobs=lambda *_: True,  # after its sweep has ended, a gate is decided even if it is cancelled
)
"""Describes performance regression gates to the store of runs."""

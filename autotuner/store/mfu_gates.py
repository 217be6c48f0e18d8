"""MFU gates and baselines on SQLite and PostgreSQL. A gate is a run that awaits the sweep that measures for it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sqlalchemy import Connection, Engine, delete, select, update
from sqlalchemy.exc import IntegrityError

from autotuner.core import codec
from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.announcement import Announcement, AnnouncementKind
from autotuner.core.errors import InvalidInput, NotFound, NotYours
from autotuner.core.run import Finish, NewRun
from autotuner.core.sweep import SweepRequest
from autotuner.core.upkeep import Baseline, GateRunRequest, MfuGate, MfuGateOutcome, MfuGateRequest, MfuGateResult
from autotuner.search.upkeep.gate import end_of, gate_told, new_baseline
from autotuner.store import announcements
from autotuner.store.descriptions import check_name, new_id
from autotuner.store.engine import AnyRow, AnySelect, one_row, reading, upsert, window, writing
from autotuner.store.options import Page
from autotuner.store.runs import NEWEST, Rows, RunStore, insert_run, select_with_sweep
from autotuner.store.sweeps import queue_sweep
from autotuner.store.tables import baselines, read_document, runs

_GATES = select_with_sweep(
    "gate", "id", "request", "result", "state", "detail", "created_at", "finished_at", "created_by"
)

_DECIDED = (MfuGateOutcome.PASSED, MfuGateOutcome.FAILED, MfuGateOutcome.NO_BASELINE)
"""Outcomes of gates that measured as much as they needed."""


class MfuGateStore:
    """MFU gates and baselines; every method is one transaction, as in ``Store``."""

    def __init__(self, engine: Engine, run_store: RunStore) -> None:
        self._engine = engine
        self._runs = run_store

    def create(
        self,
        request: MfuGateRequest,
        *,
        key: str,
        content: str,
        baseline: Baseline | None,
        by: SweepRequest | MfuGateResult,
        now: float,
        caller: Caller = NOBODY_ASKED,
    ) -> MfuGate:
        """Store a gate that awaits the sweep that measures for it, or that is finished at once.

        Args:
            request: What was asked.
            key: Content key of the job and what runs it.
            content: Content key of the same with layout and software.
            baseline: What it is held to, as the caller read it; None: there is none.
            by: The sweep to queue, whose end frees the gate; or what an earlier gate's runs say of this one.
            now: Of the request.
            caller: Who asks, to whose quota the sweep is held as by ``Store.create_sweep``.
        """
        check_name("gate.baseline", request.baseline)
        new = NewRun(
            id=new_id("mg"),
            kind="gate",
            request=GateRunRequest(gate=request, key=key, content=content, baseline=baseline),
            subject=request.baseline,
            created_by=caller.name,
        )
        with writing(self._engine) as connection:
            if isinstance(by, MfuGateResult):
                self._runs.add_ended(connection, new, end_of(by), now)
            else:
                sweep = queue_sweep(connection, by, now, caller=caller, parent_id=new.id)
                insert_run(connection, replace(new, awaits=sweep.id), now)
            return _get(connection, new.id)

    def get(self, gate_id: str) -> MfuGate:
        """Return a gate as it stands now; ``NotFound`` without it."""
        with reading(self._engine) as connection:
            return _get(connection, gate_id)

    def list(self, *, baseline: str | None = None, page: Page = Page()) -> tuple[Sequence[MfuGate], int]:
        """Return gates, newest first, held to that baseline or all, and how many there are in all."""
        with reading(self._engine) as connection:
            rows, total = window(connection, newest_first(baseline), page)
        return [_read(row) for row in rows], total

    def find_reusable(self, content: str) -> MfuGate | None:
        """Return the last gate of that content that measured something itself and came to a decision."""
        with reading(self._engine) as connection:
            row = connection.execute(_GATES.where(runs.c.unique_key == _unique(content))).one_or_none()
            return None if row is None else _read(row)

    # ------------------------------------------------------------------ baselines
    def get_baseline(self, name: str, key: str) -> Baseline | None:
        """Return what is stored under that name for the job with that key; None without it."""
        mine = (baselines.c.name == name) & (baselines.c.key == key)
        with reading(self._engine) as connection:
            return connection.scalar(select(baselines.c.document).where(mine))

    def list_baselines(self) -> Sequence[Baseline]:
        """Return all baselines by name, then newest first."""
        with reading(self._engine) as connection:
            found = connection.scalars(select(baselines.c.document)).all()
        return sorted(found, key=lambda baseline: (baseline.name, -baseline.at, baseline.key))

    def remove_baseline(self, name: str, key: str) -> None:
        """Forget it; ``NotFound`` without it."""
        mine = (baselines.c.name == name) & (baselines.c.key == key)
        with writing(self._engine) as connection:
            if not connection.execute(delete(baselines).where(mine)).rowcount:
                raise NotFound("baseline", f"{name} of the job {key}")


# ---------------------------------------------------------------------- on a connection
def newest_first(baseline: str | None) -> AnySelect:
    """Return gates in the order of a list, those held to one baseline or all."""
    chosen = _GATES if baseline is None else _GATES.where(runs.c.subject == baseline)
    return chosen.order_by(*NEWEST)


def _get(connection: Connection, gate_id: str) -> MfuGate:
    return _read(one_row(connection, _GATES.where(runs.c.id == gate_id), "gate", gate_id))


def _read(row: AnyRow) -> MfuGate:
    asked = read_document(GateRunRequest, row.request)
    return MfuGate(
        id=row.id,
        request=asked.gate,
        key=asked.key,
        content=asked.content,
        baseline=asked.baseline,
        created_at=row.created_at,
        sweep_id=row.sweep_id,
        finished_at=row.finished_at,
        result=_result(row) if row.state.is_finished else None,
        created_by=row.created_by,
    )


def _result(row: AnyRow) -> MfuGateResult:
    """Return what a finished gate found: nothing if an error ended its run."""
    if row.result is not None:
        return read_document(MfuGateResult, row.result)
    return MfuGateResult(outcome=MfuGateOutcome.COULD_NOT_RUN, detail=row.detail)


# ---------------------------------------------------------------------- in the transaction that ends a gate
def _end(connection: Connection, gate_id: str, end: Finish, now: float) -> None:
    """Store the baseline and what is to be taken again, and tell of the gate."""
    try:
        gate = _get(connection, gate_id)
    except InvalidInput:
        announcements.tell(connection, _unread_told(connection, gate_id, end, now))
        return
    assert gate.result is not None, "it has ended"
    result = gate.result
    if (baseline := new_baseline(gate, result, now=now)) is not None:
        try:
            _require_replaceable(connection, baseline, gate)
            values = {"name": baseline.name, "key": baseline.key, "at": baseline.at, "document": baseline}
            upsert(connection, baselines, ["name", "key"], values)  # of two that come at once the later stays
        except NotYours as error:
            said = f"{result.detail}; no baseline was set, as another was set meanwhile: {error}"
            result = replace(result, detail=said)
            mine = update(runs).where(runs.c.id == gate_id)
            connection.execute(mine.values(detail=said, result=codec.dumps(result)))
    if _is_reusable(gate, result):
        _set_reusable(connection, gate)
    announcements.tell(connection, gate_told(gate, result, at=now))


def _unread_told(connection: Connection, gate_id: str, end: Finish, now: float) -> Announcement:
    """Return what is told of a gate that another release wrote and this one cannot read."""
    baseline = connection.scalars(select(runs.c.subject).where(runs.c.id == gate_id)).one()
    return Announcement(
        id=f"an-{gate_id}",
        at=now,
        kind=AnnouncementKind.GATE_COULD_NOT_RUN,
        title=f"MFU gate {baseline}: could not run",
        text=end.detail,
        path=f"/gates/{gate_id}",
        subject_id=gate_id,
        facts={"gate": gate_id, "baseline": baseline, "outcome": MfuGateOutcome.COULD_NOT_RUN.value},
    )


def _is_reusable(gate: MfuGate, result: MfuGateResult) -> bool:
    measured = result.findings is not None and result.findings.runs is not None
    return gate.sweep_id is not None and measured and result.outcome in _DECIDED


def _set_reusable(connection: Connection, gate: MfuGate) -> None:
    """Let the gate be found by its content, in the place of an earlier one; of two that end at once one is found."""
    key = _unique(gate.content)
    with suppress(IntegrityError), connection.begin_nested():
        connection.execute(update(runs).where(runs.c.unique_key == key).values(unique_key=None))
        connection.execute(update(runs).where(runs.c.id == gate.id).values(unique_key=key))


def _unique(content: str) -> str:
    return f"gate {content}"


def _require_replaceable(connection: Connection, baseline: Baseline, gate: MfuGate) -> None:
    """Return if the stored baseline is the one that the gate was held to, or was set by the same caller."""
    mine = (baselines.c.name == baseline.name) & (baselines.c.key == baseline.key)
    stored = connection.scalar(select(baselines.c.document).where(mine).with_for_update())
    if stored is None or (gate.baseline is not None and stored.gate_id == gate.baseline.gate_id):
        return
    owner = connection.scalar(select(runs.c.created_by).where(runs.c.id == stored.gate_id))
    if owner is not None and owner != gate.created_by:
        raise NotYours("baseline", baseline.name, owner)


GATE_ROWS = Rows(
    request=GateRunRequest,
    result=MfuGateResult,
    on_end=_end,
    has_jobs=lambda *_: True,  # once its sweep has ended a gate is decided, whoever cancels it
)
"""What the store of runs must know of gates."""

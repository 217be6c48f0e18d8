from __future__ import annotations

from threading import Event

import pytest
from sqlalchemy import update

from autotuner.core.announcement import AnnouncementKind
from autotuner.core.upkeep import MfuGate, MfuGateOutcome
from autotuner.runs.gate import gate_kind
from autotuner.runs.worker import Worker
from autotuner.store.engine import writing
from autotuner.store.sql import Store, memory_store
from autotuner.store.tables import runs
from tests.clocks import ManualClock
from tests.contracts.upkeep import asked_gate, end_sweep
from tests.runs import claimed


@pytest.fixture
def store() -> Store:
    return memory_store()


def worker(store: Store, clock: ManualClock, owner: str = "b") -> Worker:
    kind = gate_kind(store)
    return Worker(store.runs, {kind.name: kind}, clock, owner=owner, lease_s=10.0, shutdown=Event())


def outcome_of(store: Store, gate: MfuGate) -> MfuGateOutcome | None:
    result = store.mfu_gates.get(gate.id).result
    return None if result is None else result.outcome


def test_a_gate_waits_for_its_sweep_and_says_what_that_means(store: Store) -> None:
    gate = asked_gate(store)
    gates = worker(store, ManualClock(130.0))
    assert not gates.run_once()
    end_sweep(store, gate.sweep_id)
    assert gates.run_once()
    assert outcome_of(store, gate) is MfuGateOutcome.COULD_NOT_RUN  # nothing was measured
    assert [told.subject_id for told in store.announcements.feed()[0]] == [gate.id]


def test_a_gate_whose_worker_was_killed_is_decided_by_another(store: Store) -> None:
    gate = asked_gate(store)
    end_sweep(store, gate.sweep_id)
    claimed(store, "gate", owner="killed")
    clock = ManualClock(130.0)
    gates = worker(store, clock)
    assert not gates.run_once()
    for _ in range(12):
        clock.sleep(1.0)
        gates.run_once()
    assert outcome_of(store, gate) is MfuGateOutcome.COULD_NOT_RUN
    assert store.announcements.feed()[1] == 1


def test_a_gate_whose_sweep_cannot_be_read_could_not_run(store: Store) -> None:
    gate = asked_gate(store)
    with writing(store._engine) as connection:
        newer = '{"schema_version":1,"later":1}'
        connection.execute(update(runs).where(runs.c.id == gate.sweep_id).values(request=newer))
    store.runs.cancel("gate", gate.id, "", now=20.0)
    assert worker(store, ManualClock(130.0)).run_once()
    assert outcome_of(store, gate) is MfuGateOutcome.COULD_NOT_RUN
    assert [told.kind for told in store.announcements.feed()[0]] == [AnnouncementKind.GATE_COULD_NOT_RUN]

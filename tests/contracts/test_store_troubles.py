"""Store contract: what went wrong is told until it is mended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from autotuner.core.cluster_check import CheckRequest
from autotuner.core.health import Trouble, TroubleKind
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Sweep
from autotuner.core.upkeep import MfuGateOutcome, Verdict
from autotuner.store.sql import Store
from tests.announcements import announce
from tests.builders import cpu_cluster, tiny_job
from tests.contracts.acts import claim, create, finish, held_sweep
from tests.contracts.upkeep import (
    announcement,
    asked_gate,
    gate_result,
    mfu_gate_request,
    outcome,
    saved_retune,
    started_run,
    webhook,
)
from tests.runs import claimed, conclude_gate, conclude_retune, end


def told(store: Store, *, since: float = 0.0, **limits: Any) -> Sequence[tuple[TroubleKind, str]]:
    return [(one.kind, one.subject) for one in store.health.troubles(since=since, **limits)]


def failed(store: Store, *, now: float = 20.0, **changes: Any) -> Sweep:
    sweep = held_sweep(store, **changes)
    return finish(store, sweep, now=now, state=RunState.FAILED, reason=StopReason.CANNOT_RUN, detail="no node answers")


# ---------------------------------------------------------------------- retunes
def test_a_retune_is_told_of_by_its_last_finished_run(store: Store) -> None:
    saved_retune(store)
    conclude_retune(store, started_run(store), outcome(), "lost 10 %", now=120.0)
    (trouble,) = store.health.troubles(since=1e9)
    assert trouble == Trouble(
        kind=TroubleKind.REGRESSION, subject="nightly", name="nightly", detail="lost 10 %", at=120.0
    )
    next_night = started_run(store, expected_due_at=200.0, due_at=200.0, next_due_at=300.0, now=200.0)
    assert told(store) == [(TroubleKind.REGRESSION, "nightly")]
    conclude_retune(store, next_night, outcome(Verdict.UNCHANGED), now=220.0)
    assert told(store) == []


def test_a_retune_that_could_not_run_is_told_of(store: Store) -> None:
    saved_retune(store)
    conclude_retune(store, started_run(store), outcome(Verdict.COULD_NOT_RUN), now=120.0)
    assert told(store) == [(TroubleKind.RETUNE_COULD_NOT_RUN, "nightly")]


# ---------------------------------------------------------------------- gates
@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        (MfuGateOutcome.FAILED, TroubleKind.GATE_FAILED),
        (MfuGateOutcome.UNDECIDED, TroubleKind.GATE_UNDECIDED),
        (MfuGateOutcome.COULD_NOT_RUN, TroubleKind.GATE_COULD_NOT_RUN),
        (MfuGateOutcome.PASSED, None),
        (MfuGateOutcome.CANCELLED, None),
        (MfuGateOutcome.NO_BASELINE, None),
    ],
)
def test_gates_that_let_nothing_pass_are_told_of_for_a_time(
    store: Store, ended: MfuGateOutcome, kind: TroubleKind | None
) -> None:
    gate = asked_gate(store, request=mfu_gate_request(software="pull request 7"))
    conclude_gate(store, gate, gate_result(ended), "6 % slower", now=50.0)
    assert told(store, since=40.0) == ([(kind, gate.id)] if kind else [])
    assert told(store, since=60.0) == []
    for trouble in store.health.troubles(since=0.0):
        assert (trouble.name, trouble.detail, trouble.at) == ("pull request 7", "6 % slower", 50.0)


# ---------------------------------------------------------------------- sweeps
def test_a_sweep_that_failed_is_told_of_until_a_later_one_measured_its_job(store: Store) -> None:
    sweep = failed(store)
    (trouble,) = store.health.troubles(since=10.0)
    assert (trouble.kind, trouble.subject, trouble.name) == (TroubleKind.SWEEP_FAILED, sweep.id, "tiny on cpu:2")
    assert (trouble.detail, trouble.at) == ("no node answers", 20.0)
    assert told(store, since=30.0) == []
    create(store, now=2.0, job=tiny_job(num_cores=4))
    finish(store, claim(store))
    assert told(store) == [(TroubleKind.SWEEP_FAILED, sweep.id)]  # that was another job
    create(store, now=3.0)
    finish(store, claim(store))
    assert told(store) == []


def test_the_sweep_of_a_gate_or_a_retune_is_no_trouble_of_its_own(store: Store) -> None:
    saved_retune(store)
    started_run(store)
    asked_gate(store)
    for _ in range(2):
        sweep = claim(store, now=110.0)
        finish(store, sweep, now=120.0, state=RunState.FAILED, reason=StopReason.ERROR)
    assert told(store) == []


# ---------------------------------------------------------------------- clusters
def test_a_cluster_is_told_of_by_its_last_check_that_came_to_an_end(store: Store) -> None:
    store.descriptions.save(cpu_cluster(name="lab", engine="slurm"))

    def checked(state: RunState, at: float) -> None:
        store.descriptions.create_check("lab", CheckRequest(), now=at)
        end(store, claimed(store, "check", now=at), state, "node 7 refuses connections", now=at + 1)

    checked(RunState.FAILED, 10.0)
    checked(RunState.CANCELLED, 20.0)
    (trouble,) = store.health.troubles(since=1e9)
    assert (trouble.kind, trouble.subject) == (TroubleKind.CHECK_FAILED, "lab")
    assert (trouble.detail, trouble.at) == ("node 7 refuses connections", 11.0)
    checked(RunState.COMPLETE, 30.0)
    assert told(store) == []


# ---------------------------------------------------------------------- webhooks
def test_deliveries_that_were_given_up_are_told_of_by_webhook_until_they_are_sent_again(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    for number in range(3):
        announce(store.announcements, announcement(f"rt-{number}"))
        end(store, claimed(store, "delivery", now=30.0), RunState.FAILED, f"answered 50{number}", now=40.0 + number)
    (trouble,) = store.health.troubles(since=20.0)
    assert (trouble.kind, trouble.subject, trouble.count) == (TroubleKind.DELIVERIES_DEAD, "team", 3)
    assert (trouble.detail, trouble.at) == ("answered 502", 42.0)
    for delivery in store.announcements.deliveries()[0]:
        store.announcements.send_again(delivery.id, now=50.0)
    assert told(store) == []


def test_no_more_of_a_kind_are_told_than_asked_for_the_newest_first(store: Store) -> None:
    sweeps = [failed(store, now=20.0 + number, seed=number) for number in range(3)]
    newest = sorted(sweeps, key=lambda sweep: (sweep.created_at, sweep.id))[-2:]
    assert {subject for _, subject in told(store, limit=2)} == {sweep.id for sweep in newest}

"""Store contract: performance regression gates with the sweeps that measure for them, and baselines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from autotuner.core.access import Caller, Scope
from autotuner.core.announcement import AnnouncementKind
from autotuner.core.comparison import ChallengeFindings
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.run import RunState
from autotuner.core.upkeep import GateRun, GateRunRequest, RegressionGateOutcome, RegressionGateResult
from autotuner.search.upkeep.gate import end_of
from autotuner.store.engine import writing
from autotuner.store.options import Page
from autotuner.store.sql import Store
from autotuner.store.tables import runs
from tests.contracts.acts import LEASE_S, OWNER, claim_sweep
from tests.contracts.upkeep import (
    asked_gate,
    baseline,
    challenge_request,
    end_sweep,
    gate_result,
    regression_gate_request,
)
from tests.runs import claimed, conclude_gate, end

CALLERS = {name: Caller(name=name, scope=Scope.RUN) for name in ("ada", "bob")}


def test_a_gate_waits_with_its_queued_sweep_and_the_baseline_as_it_stood(store: Store) -> None:
    gate = asked_gate(store, baseline=baseline())
    assert store.runs.get(GateRun, gate.id) == gate
    assert gate.request == GateRunRequest(
        gate=regression_gate_request(), key="job", content="content", baseline=baseline()
    )
    assert (gate.created_at, gate.finished_at, gate.result) == (10.0, None, None)
    assert gate.child_id is not None
    sweep = store.get_sweep(gate.child_id)
    assert (sweep.state, sweep.request) == (RunState.QUEUED, challenge_request())


def test_a_gate_needs_the_name_of_a_baseline(store: Store) -> None:
    with pytest.raises(InvalidInput, match="printable"):
        asked_gate(store, request=regression_gate_request(baseline=""))
    assert store.runs.list("sweep")[1] == 0


def test_a_gate_that_is_not_stored_is_missing(store: Store) -> None:
    with pytest.raises(NotFound, match="mg-none"):
        store.runs.get(GateRun, "mg-none")


def test_gates_are_listed_newest_first_those_of_one_baseline_or_all(store: Store) -> None:
    branch = regression_gate_request(baseline="branch")
    first, other, last = (
        asked_gate(store, now=1.0),
        asked_gate(store, now=2.0, request=branch),
        asked_gate(store, now=3.0),
    )
    assert store.runs.list(GateRun) == ([last, other, first], 3)
    assert store.runs.list(GateRun, subject="main", page=Page(limit=1)) == ([last], 2)
    assert store.runs.list(GateRun, subject="none") == ([], 0)


# ---------------------------------------------------------------------- how they end
def test_a_gate_is_taken_once_its_sweep_has_ended(store: Store) -> None:
    gate = asked_gate(store)
    assert store.runs.claim(["gate"], owner="a", now=1e6, lease_s=10.0) is None
    end_sweep(store, gate.child_id)
    assert claimed(store, "gate").id == gate.id
    assert store.runs.get(GateRun, gate.id).outcome is None


def test_a_gate_that_is_known_has_ended_at_once_without_a_sweep(store: Store) -> None:
    result = gate_result(reused_from="mg-x")
    gate = asked_gate(store, by=end_of(result, "no slower"))
    assert (gate.result, gate.finished_at, gate.child_id) == (result, 10.0, None)
    assert store.runs.list("sweep")[1] == 0
    assert [told.subject_id for told in store.announcements.feed()[0]] == [gate.id]


def test_a_gate_has_its_result_and_may_set_the_baseline(store: Store) -> None:
    gate = asked_gate(store, request=regression_gate_request(sets_baseline=True))
    ended = conclude_gate(store, gate, gate_result(), now=30.0)
    assert (ended.state, ended.request, ended.result) == (RunState.COMPLETE, gate.request, gate_result())
    stored = replace(baseline(), gate_id=gate.id, model="tiny", cluster="cpu:2")
    assert store.regression_gates.get_baseline("main", "job") == stored
    (told,), total = store.announcements.feed()
    assert (told.subject_id, told.kind, told.at, total) == (gate.id, AnnouncementKind.GATE_PASSED, 30.0, 1)


def test_a_gate_is_cancelled_by_the_end_of_its_sweep(store: Store) -> None:
    gate = asked_gate(store)
    store.runs.cancel("gate", gate.id, "cancelled by request", now=20.0)
    assert gate.child_id is not None
    assert store.get_sweep(gate.child_id).state is RunState.CANCELLED
    assert store.announcements.feed()[1] == 0
    store.runs.cancel("gate", gate.id, "again", now=21.0)  # it is decided now, and only a worker says how
    assert store.runs.get(GateRun, gate.id).result is None
    assert claimed(store, "gate").id == gate.id


def test_a_gate_that_an_error_ended_could_not_run(store: Store) -> None:
    gate = asked_gate(store)
    end_sweep(store, gate.child_id)
    end(store, claimed(store, "gate"), RunState.FAILED, "KeyError: 7")
    ended = store.runs.get(GateRun, gate.id)
    assert (ended.result, ended.detail) == (
        RegressionGateResult(outcome=RegressionGateOutcome.COULD_NOT_RUN),
        "KeyError: 7",
    )
    assert [told.kind for told in store.announcements.feed()[0]] == [AnnouncementKind.GATE_COULD_NOT_RUN]


def test_a_gate_that_another_release_wrote_could_not_run_and_holds_up_no_other(store: Store) -> None:
    unreadable, other = asked_gate(store, now=10.0), asked_gate(store, now=11.0)
    for gate in (unreadable, other):
        end_sweep(store, gate.child_id)
    overwrite(store, unreadable.id)
    assert claimed(store, "gate").id == other.id
    (told,), _ = store.announcements.feed()
    assert (told.subject_id, told.kind) == (unreadable.id, AnnouncementKind.GATE_COULD_NOT_RUN)
    assert "this release cannot read" in told.text


@pytest.mark.parametrize("how", ["claimed", "cancelled"])
def test_a_gate_whose_sweep_another_release_wrote_goes_on_to_its_end(store: Store, how: str) -> None:
    gate = asked_gate(store)
    overwrite(store, gate.child_id)
    if how == "claimed":
        assert claim_sweep(store, owner=OWNER, now=20.0, lease_s=LEASE_S) is None
    else:
        store.runs.cancel("gate", gate.id, "", now=20.0)
    assert claimed(store, "gate").id == gate.id


def overwrite(store: Store, run_id: str | None) -> None:
    """Store of a run what a newer release asks."""
    with writing(store._engine) as connection:  # no method writes what cannot be read
        connection.execute(update(runs).where(runs.c.id == run_id).values(request='{"schema_version":1,"later":1}'))


# ---------------------------------------------------------------------- runs that are taken again
def test_the_last_gate_of_the_content_that_decided_is_taken_again(store: Store) -> None:
    ended = [
        conclude_gate(store, asked_gate(store, now=float(number)), gate_result(kind), now=20.0 + number)
        for number, kind in enumerate((RegressionGateOutcome.NO_BASELINE, RegressionGateOutcome.FAILED))
    ]
    asked_gate(store, now=2.0)
    asked_gate(store, now=3.0, content="other")
    assert store.regression_gates.find_reusable("content") == ended[1]
    assert store.regression_gates.find_reusable("other") is None


@pytest.mark.parametrize(
    "kind", [RegressionGateOutcome.UNDECIDED, RegressionGateOutcome.COULD_NOT_RUN, RegressionGateOutcome.CANCELLED]
)
def test_an_undecided_comparison_is_measured_again(store: Store, kind: RegressionGateOutcome) -> None:
    conclude_gate(store, asked_gate(store), gate_result(kind))
    assert store.regression_gates.find_reusable("content") is None


def test_a_gate_that_measured_nothing_itself_is_not_taken_again(store: Store) -> None:
    asked_gate(store, by=end_of(gate_result(reused_from="mg-x"), ""))
    conclude_gate(store, asked_gate(store), gate_result(findings=ChallengeFindings()))
    conclude_gate(store, asked_gate(store), gate_result(findings=None))
    assert store.regression_gates.find_reusable("content") is None


# ---------------------------------------------------------------------- baselines
SETS = regression_gate_request(sets_baseline=True)


@pytest.mark.parametrize(("by", "held_to"), [("ada", None), ("bob", "first")])
def test_a_gate_replaces_the_baseline_of_its_caller_or_the_one_it_was_held_to(
    store: Store, by: str, held_to: str | None
) -> None:
    conclude_gate(store, asked_gate(store, request=SETS, caller=CALLERS["ada"]), gate_result())
    stored = store.regression_gates.get_baseline("main", "job")
    gate = asked_gate(store, request=SETS, caller=CALLERS[by], baseline=stored if held_to else None)
    conclude_gate(store, gate, gate_result(), now=40.0)
    theirs = store.regression_gates.get_baseline("main", "job")
    assert theirs is not None
    assert (theirs.gate_id, theirs.at) == (gate.id, 40.0)


def test_a_gate_does_not_replace_a_baseline_that_another_caller_set_meanwhile(store: Store) -> None:
    first, late = (asked_gate(store, request=SETS, caller=CALLERS[name]) for name in ("ada", "bob"))
    conclude_gate(store, first, gate_result())
    ended = conclude_gate(store, late, gate_result(), now=40.0)
    assert "no baseline was set, because another one was set meanwhile" in ended.detail
    assert "'ada' made it" in ended.detail
    assert store.announcements.feed()[0][0].text == ended.detail
    stored = store.regression_gates.get_baseline("main", "job")
    assert stored is not None
    assert stored.gate_id == first.id


def stored_baseline(store: Store, name: str, *, key: str = "job", at: float = 30.0) -> None:
    conclude_gate(store, asked_gate(store, request=replace(SETS, baseline=name), key=key), gate_result(), now=at)


def test_a_later_baseline_takes_the_place_of_the_one_of_its_name_and_job(store: Store) -> None:
    for at in (30.0, 40.0):
        stored_baseline(store, "main", at=at)
    stored = store.regression_gates.get_baseline("main", "job")
    assert stored is not None
    assert stored.at == 40.0
    assert store.regression_gates.get_baseline("main", "other") is None
    assert len(store.regression_gates.list_baselines()) == 1


def test_baselines_are_listed_by_name_and_newest_first(store: Store) -> None:
    for name, key, at in (("main", "old", 11.0), ("main", "new", 12.0), ("branch", "old", 13.0)):
        stored_baseline(store, name, key=key, at=at)
    assert [(found.name, found.key) for found in store.regression_gates.list_baselines()] == [
        ("branch", "old"),
        ("main", "new"),
        ("main", "old"),
    ]


def test_a_removed_baseline_is_gone_for_that_job_alone(store: Store) -> None:
    for key in ("job", "other"):
        stored_baseline(store, "main", key=key)
    store.regression_gates.remove_baseline("main", "job")
    assert [found.key for found in store.regression_gates.list_baselines()] == ["other"]
    with pytest.raises(NotFound, match="main"):
        store.regression_gates.remove_baseline("main", "job")

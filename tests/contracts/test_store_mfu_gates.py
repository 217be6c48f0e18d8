"""Store contract: MFU gates with the sweeps that measure for them, and baselines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.access import Caller, Scope
from autotuner.core.announcement import AnnouncementKind
from autotuner.core.comparison import ChallengeFindings
from autotuner.core.errors import InvalidInput, NotFound, NotYours
from autotuner.core.run import RunState
from autotuner.core.upkeep import MfuGateOutcome
from autotuner.ports import Page, Store
from tests.contracts.crowd import in_threads
from tests.contracts.upkeep import (
    announcement,
    asked_gate,
    baseline,
    challenge_request,
    end_sweep,
    gate_result,
    mfu_gate_request,
)

NUM_THREADS = 8
CALLERS = {name: Caller(name=name, scope=Scope.RUN) for name in ("ada", "bob")}
TOLD = announcement("mg-x", kind=AnnouncementKind.GATE_PASSED)


def test_a_gate_waits_with_its_queued_sweep_and_the_baseline_as_it_stood(store: Store) -> None:
    gate = asked_gate(store, baseline=baseline())
    assert store.mfu_gates.get(gate.id) == gate
    assert (gate.request, gate.key, gate.content) == (mfu_gate_request(), "job", "content")
    assert (gate.baseline, gate.created_at, gate.finished_at, gate.result) == (baseline(), 10.0, None, None)
    assert gate.sweep_id is not None
    sweep = store.get_sweep(gate.sweep_id)
    assert (sweep.state, sweep.request) == (RunState.QUEUED, challenge_request())


def test_a_gate_needs_the_name_of_a_baseline(store: Store) -> None:
    with pytest.raises(InvalidInput, match="printable"):
        asked_gate(store, request=mfu_gate_request(baseline=""))
    assert store.list_sweeps()[1] == 0


def test_a_gate_that_is_not_stored_is_missing(store: Store) -> None:
    with pytest.raises(NotFound, match="mg-none"):
        store.mfu_gates.get("mg-none")
    with pytest.raises(NotFound, match="mg-none"):
        store.mfu_gates.conclude("mg-none", gate_result(), now=1.0)


def test_gates_are_listed_newest_first_those_of_one_baseline_or_all(store: Store) -> None:
    branch = mfu_gate_request(baseline="branch")
    first, other, last = (
        asked_gate(store, now=1.0),
        asked_gate(store, now=2.0, request=branch),
        asked_gate(store, now=3.0),
    )
    assert store.mfu_gates.list() == ([last, other, first], 3)
    assert store.mfu_gates.list(baseline="main", page=Page(limit=1)) == ([last], 2)
    assert store.mfu_gates.list(baseline="none") == ([], 0)


# ---------------------------------------------------------------------- concluding
def test_a_gate_can_be_concluded_once_its_sweep_is_finished(store: Store) -> None:
    later, first = asked_gate(store, now=11.0), asked_gate(store, now=10.0)
    assert store.mfu_gates.concludable() == []
    sweeps = [end_sweep(store, gate.sweep_id) for gate in (first, later)]
    assert store.mfu_gates.concludable() == [(first, sweeps[0]), (later, sweeps[1])]


def test_a_gate_without_a_sweep_can_be_concluded_at_once(store: Store) -> None:
    gate = asked_gate(store, sweep=None)
    assert store.mfu_gates.concludable() == [(gate, None)]


def test_a_concluded_gate_has_its_result_and_may_set_the_baseline(store: Store) -> None:
    gate = asked_gate(store)
    ended = store.mfu_gates.conclude(gate.id, gate_result(), now=30.0, baseline=baseline(), announcement=TOLD)
    assert ended == replace(gate, result=gate_result(), finished_at=30.0)
    assert store.mfu_gates.get(gate.id) == ended
    assert store.mfu_gates.get_baseline("main", "job") == baseline()
    assert store.mfu_gates.concludable() == []
    assert store.announcements.feed() == ([TOLD], 1)


def test_one_of_many_threads_concludes_a_gate(store: Store) -> None:
    gate = asked_gate(store)
    ended = in_threads(
        NUM_THREADS,
        lambda index: store.mfu_gates.conclude(
            gate.id, gate_result(), now=30.0 + index, baseline=baseline(at=index), announcement=announcement(f"{index}")
        ),
    )
    (one,) = [gate for gate in ended if gate]
    assert one == store.mfu_gates.get(gate.id)
    assert store.announcements.feed()[1] == 1
    stored = store.mfu_gates.get_baseline("main", "job")
    assert stored is not None
    assert one.finished_at == 30.0 + stored.at


# ---------------------------------------------------------------------- runs that are taken again
def test_the_newest_gate_of_the_content_that_decided_is_taken_again(store: Store) -> None:
    concluded = [
        store.mfu_gates.conclude(asked_gate(store, now=float(number)).id, gate_result(kind), now=20.0)
        for number, kind in enumerate((MfuGateOutcome.NO_BASELINE, MfuGateOutcome.FAILED))
    ]
    asked_gate(store, now=2.0)
    asked_gate(store, now=3.0, content="other")
    assert store.mfu_gates.find_reusable("content") == concluded[1]
    assert store.mfu_gates.find_reusable("other") is None


@pytest.mark.parametrize("kind", [MfuGateOutcome.UNDECIDED, MfuGateOutcome.COULD_NOT_RUN, MfuGateOutcome.CANCELLED])
def test_what_did_not_come_to_a_decision_is_measured_again(store: Store, kind: MfuGateOutcome) -> None:
    store.mfu_gates.conclude(asked_gate(store).id, gate_result(kind), now=20.0)
    assert store.mfu_gates.find_reusable("content") is None


def test_a_gate_that_measured_nothing_itself_is_not_taken_again(store: Store) -> None:
    store.mfu_gates.conclude(asked_gate(store, sweep=None).id, gate_result(reused_from="mg-x"), now=20.0)
    store.mfu_gates.conclude(asked_gate(store).id, gate_result(findings=ChallengeFindings()), now=20.0)
    store.mfu_gates.conclude(asked_gate(store).id, gate_result(findings=None), now=20.0)
    assert store.mfu_gates.find_reusable("content") is None


# ---------------------------------------------------------------------- baselines
@pytest.mark.parametrize(("by", "held_to"), [("ada", None), ("bob", "first")])
def test_a_gate_replaces_the_baseline_of_its_caller_or_the_one_it_was_held_to(
    store: Store, by: str, held_to: str | None
) -> None:
    first = asked_gate(store, caller=CALLERS["ada"])
    set_by = replace(baseline(), gate_id=first.id)
    store.mfu_gates.conclude(first.id, gate_result(), now=30.0, baseline=set_by)
    gate = asked_gate(store, caller=CALLERS[by], baseline=set_by if held_to else None)
    theirs = replace(baseline(at=40.0), gate_id=gate.id)
    store.mfu_gates.conclude(gate.id, gate_result(), now=40.0, baseline=theirs)
    assert store.mfu_gates.get_baseline("main", "job") == theirs


def test_a_gate_does_not_replace_a_baseline_that_another_caller_set_meanwhile(store: Store) -> None:
    first, late = (asked_gate(store, caller=CALLERS[name]) for name in ("ada", "bob"))
    set_by = replace(baseline(), gate_id=first.id)
    store.mfu_gates.conclude(first.id, gate_result(), now=30.0, baseline=set_by)
    with pytest.raises(NotYours, match="'ada' made it"):
        store.mfu_gates.conclude(late.id, gate_result(), now=40.0, baseline=replace(baseline(), gate_id=late.id))
    assert store.mfu_gates.get(late.id).result is None
    assert store.mfu_gates.get_baseline("main", "job") == set_by


def stored_baseline(store: Store, name: str, *, key: str = "job", at: float = 30.0) -> None:
    store.mfu_gates.conclude(asked_gate(store).id, gate_result(), now=at, baseline=baseline(name, key=key, at=at))


def test_a_later_baseline_takes_the_place_of_the_one_of_its_name_and_job(store: Store) -> None:
    for at in (30.0, 40.0):
        stored_baseline(store, "main", at=at)
    assert store.mfu_gates.get_baseline("main", "job") == baseline(at=40.0)
    assert store.mfu_gates.get_baseline("main", "other") is None
    assert len(store.mfu_gates.list_baselines()) == 1


def test_baselines_are_listed_by_name_and_newest_first(store: Store) -> None:
    for name, key, at in (("main", "old", 1.0), ("main", "new", 2.0), ("branch", "old", 3.0)):
        stored_baseline(store, name, key=key, at=at)
    assert [(found.name, found.key) for found in store.mfu_gates.list_baselines()] == [
        ("branch", "old"),
        ("main", "new"),
        ("main", "old"),
    ]


def test_a_removed_baseline_is_gone_for_that_job_alone(store: Store) -> None:
    for key in ("job", "other"):
        stored_baseline(store, "main", key=key)
    store.mfu_gates.remove_baseline("main", "job")
    assert [found.key for found in store.mfu_gates.list_baselines()] == ["other"]
    with pytest.raises(NotFound, match="main"):
        store.mfu_gates.remove_baseline("main", "job")

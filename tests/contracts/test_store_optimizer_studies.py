"""Store contract: optimizer studies, their trials, and who works on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.access import Caller, Scope
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound
from autotuner.core.run import HeldLease
from autotuner.core.study import OptimizerStudy, StudyState
from autotuner.core.trial import TrialState
from autotuner.ports import Page, Store
from tests.studies import reached_trial, study_request, study_trial

REQUEST = study_request(name="contract")


def asked(store: Store, *, now: float = 1.0) -> OptimizerStudy:
    return store.optimizer_studies.create(REQUEST, now=now)[0]


def claimed(store: Store, owner: str = "a", *, now: float = 2.0, lapsed: tuple[HeldLease, ...] = ()) -> OptimizerStudy:
    study = store.optimizer_studies.claim(owner=owner, now=now, lease_s=10.0, lapsed=lapsed)
    assert study is not None
    return study


def test_a_study_waits_as_it_was_asked_for(store: Store) -> None:
    study = asked(store)
    assert store.optimizer_studies.get(study.id) == study
    assert (study.request, study.state) == (REQUEST, StudyState.QUEUED)
    assert store.optimizer_studies.trials(study.id) == []


def test_studies_are_listed_newest_first(store: Store) -> None:
    first, second = asked(store), asked(store, now=2.0)
    assert store.optimizer_studies.list() == ([second, first], 2)
    assert store.optimizer_studies.list(page=Page(limit=1, offset=1)) == ([first], 2)


def test_what_is_not_stored_is_not_found(store: Store) -> None:
    for ask in (store.optimizer_studies.get, store.optimizer_studies.trials):
        with pytest.raises(NotFound):
            ask("os-nowhere")


def test_a_key_makes_one_study_for_each_caller(store: Store) -> None:
    studies = store.optimizer_studies
    first, is_new = studies.create(REQUEST, now=1.0, idempotency_key="k")
    assert is_new
    assert studies.create(REQUEST, now=2.0, idempotency_key="k") == (first, False)
    ada = Caller(name="ada", scope=Scope.RUN)
    assert studies.create(REQUEST, now=2.0, idempotency_key="k", caller=ada)[0].created_by == "ada"
    with pytest.raises(Conflict, match=first.id):
        studies.create(replace(REQUEST, seed=1), now=3.0, idempotency_key="k")


def test_the_oldest_study_is_claimed_first_and_by_one_worker(store: Store) -> None:
    later, earlier = asked(store, now=2.0), asked(store, now=1.0)
    assert [claimed(store, owner).id for owner in ("a", "b")] == [earlier.id, later.id]
    assert store.optimizer_studies.claim(owner="c", now=3.0, lease_s=10.0) is None


def test_trials_are_kept_by_number_and_replaced_as_they_go_on(store: Store) -> None:
    study = claimed(store, now=asked(store).created_at + 1)
    running = replace(study_trial(1, 6.0, state=TrialState.RUNNING), study_id=study.id)
    ended = replace(reached_trial(1, 2.0, 1.0), study_id=study.id)
    first = replace(study_trial(0, 6.0), study_id=study.id)
    for trial in (running, first, ended):
        seen = store.optimizer_studies.save_trial(trial, owner="a", now=4.0, lease_s=10.0)
    assert store.optimizer_studies.trials(study.id) == [first, ended]
    assert (seen.renewals, seen.lease_until) == (study.renewals + 3, 14.0)


def test_a_worker_that_lost_its_study_changes_nothing(store: Store) -> None:
    asked(store)
    study = claimed(store)
    (lease,) = store.optimizer_studies.held()
    assert claimed(store, "b", lapsed=(lease,)).id == study.id
    trial = replace(study_trial(0, 6.0), study_id=study.id)
    with pytest.raises(LeaseLost):
        store.optimizer_studies.save_trial(trial, owner="a", now=5.0, lease_s=10.0)
    with pytest.raises(LeaseLost):
        store.optimizer_studies.renew(study.id, owner="a", now=5.0, lease_s=10.0)
    with pytest.raises(LeaseLost):
        store.optimizer_studies.finish(study.id, StudyState.COMPLETE, "", owner="a", now=5.0)
    assert store.optimizer_studies.trials(study.id) == []


def test_a_study_that_is_given_back_is_claimed_at_once(store: Store) -> None:
    asked(store)
    study = claimed(store)
    store.optimizer_studies.release(study.id, owner="a", now=3.0)
    again = claimed(store, "b", now=4.0)
    assert (again.id, again.started_at) == (study.id, 2.0)


def test_a_queued_study_is_cancelled_at_once_and_a_running_one_by_its_worker(store: Store) -> None:
    studies = store.optimizer_studies
    queued = asked(store)
    assert studies.request_cancel(queued.id, now=2.0).state is StudyState.CANCELLED
    running = claimed(store, now=asked(store, now=3.0).created_at)
    assert studies.request_cancel(running.id, now=4.0).state is StudyState.RUNNING
    assert studies.renew(running.id, owner="a", now=5.0, lease_s=10.0).cancel_requested
    ended = studies.finish(running.id, StudyState.CANCELLED, "cancelled by request", owner="a", now=6.0)
    assert (ended.owner, ended.finished_at) == (None, 6.0)
    assert studies.request_cancel(running.id, now=7.0) == ended


def test_a_study_ends_in_a_state_that_is_an_end(store: Store) -> None:
    asked(store)
    study = claimed(store)
    with pytest.raises(InvalidInput, match="must be an end"):
        store.optimizer_studies.finish(study.id, StudyState.RUNNING, "", owner="a", now=3.0)

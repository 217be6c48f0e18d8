"""Store contract: optimizer studies, which are runs, and their trials."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.access import Caller, Scope
from autotuner.core.errors import Conflict, LeaseLost, NotFound
from autotuner.core.run import Run, RunState
from autotuner.core.trial import TrialState
from autotuner.store.sql import Store
from tests.runs import claimed, lease_of
from tests.studies import reached_trial, study_request, study_trial

REQUEST = study_request(name="contract")


def asked(store: Store) -> Run:
    return store.optimizer_studies.create(REQUEST, now=1.0)[0]


def test_a_study_waits_as_it_was_asked_for(store: Store) -> None:
    study = asked(store)
    assert store.runs.get("study", study.id) == study
    assert (study.request, study.state) == (REQUEST, RunState.QUEUED)
    assert store.optimizer_studies.trials(study.id) == []


def test_trials_of_a_study_that_is_not_stored_are_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="optimizer study"):
        store.optimizer_studies.trials("os-nowhere")


def test_a_key_makes_one_study_for_each_caller(store: Store) -> None:
    studies = store.optimizer_studies
    first, is_new = studies.create(REQUEST, now=1.0, idempotency_key="k")
    assert is_new
    assert studies.create(REQUEST, now=2.0, idempotency_key="k") == (first, False)
    ada = Caller(name="ada", scope=Scope.RUN)
    assert studies.create(REQUEST, now=2.0, idempotency_key="k", caller=ada)[0].created_by == "ada"
    with pytest.raises(Conflict, match=first.id):
        studies.create(replace(REQUEST, seed=1), now=3.0, idempotency_key="k")


def test_trials_are_kept_by_number_and_replaced_as_they_go_on(store: Store) -> None:
    asked(store)
    study = claimed(store, "study")
    running = replace(study_trial(1, 6.0, state=TrialState.RUNNING), study_id=study.id)
    ended = replace(reached_trial(1, 2.0, 1.0), study_id=study.id)
    first = replace(study_trial(0, 6.0), study_id=study.id)
    for trial in (running, first, ended):
        store.optimizer_studies.save_trial(trial, lease_of(study))
    assert store.optimizer_studies.trials(study.id) == [first, ended]


def test_a_worker_that_lost_its_study_stores_no_trial(store: Store) -> None:
    asked(store)
    first = claimed(store, "study")
    assert store.runs.claim(["study"], owner="b", now=5.0, lease_s=10.0, lapsed=[lease_of(first)]) is not None
    with pytest.raises(LeaseLost):
        store.optimizer_studies.save_trial(replace(study_trial(0, 6.0), study_id=first.id), lease_of(first))
    assert store.optimizer_studies.trials(first.id) == []

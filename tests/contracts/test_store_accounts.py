"""Store contract: what callers take, how their sweeps are held to their quotas, and the audit log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.access import AuditEntry, Caller, Quota, Scope, Usage
from autotuner.core.errors import Conflict, InvalidInput, QuotaExceeded
from autotuner.core.sweep import Budget, Sweep
from autotuner.store.options import Page
from autotuner.store.sql import Store
from tests.builders import cpu_layout, measurement, sweep_request
from tests.contracts import acts
from tests.contracts.acts import claim, finish, gate_result, lease_of
from tests.contracts.crowd import in_threads
from tests.contracts.upkeep import asked_gate, saved_retune, started_run

DAY_S = 24 * 3600.0


def caller(name: str = "ada", **quota: Any) -> Caller:
    return Caller(name=name, scope=Scope.RUN, quota=Quota(**quota))


def ask(store: Store, who: Caller, *, now: float = 1.0, hours: float | None = None, key: str | None = None) -> Sweep:
    budget = Budget(num_trials=4, min_gain=0, accelerator_hours=hours)
    return store.create_sweep(sweep_request(budget=budget), now=now, idempotency_key=key, caller=who)[0]


def run_trial(store: Store, sweep: Sweep, number: int, *, start: float, end: float | None) -> str:
    """A trial of a held sweep, which runs from then to then."""
    trial = acts.start(store, sweep, number, now=start, layout=cpu_layout(tensor_parallel_degree=2))
    if end is not None:
        acts.end(store, trial, measurement(), now=end)
    return trial.id


# ---------------------------------------------------------------------- who asked
def test_a_sweep_says_who_asked_for_it(store: Store) -> None:
    sweep = ask(store, caller())
    assert (sweep.created_by, store.get_sweep(sweep.id).created_by) == ("ada", "ada")
    assert store.overview(sweep.id, now=2.0).created_by == "ada"


def test_the_sweep_of_a_gate_or_a_retune_is_theirs_who_asked_for_it(store: Store) -> None:
    gate = asked_gate(store, caller=caller("ada"))
    saved_retune(store)
    run = started_run(store, caller=caller("bob"))
    assert store.runs.get("gate", gate.id).created_by == "ada"
    assert [store.get_sweep(each.child_id or "").created_by for each in (gate, run)] == ["ada", "bob"]


def test_one_key_of_two_callers_makes_two_sweeps(store: Store) -> None:
    first, second = ask(store, caller("ada"), key="nightly"), ask(store, caller("bob"), key="nightly")
    assert first.id != second.id
    assert ask(store, caller("ada"), key="nightly") == first


# ---------------------------------------------------------------------- what is used
def test_usage_counts_what_is_unfinished_and_the_hours_of_the_last_day(store: Store) -> None:
    sweep = ask(store, caller(), hours=10.0)
    claim(store)
    trial_id = run_trial(store, sweep, 0, start=0.0, end=3600.0)
    run_trial(store, sweep, 1, start=3600.0, end=None)
    store.add_gate(trial_id, gate_result(accelerator_hours=0.5), lease=lease_of(store, trial_id), now=3600.0)
    ask(store, caller("bob"), hours=1.0)
    used = store.access.usage("ada", now=5400.0)
    assert used == Usage(unfinished_sweeps=1, accelerator_hours=3.5, promised_hours=6.5)


def test_hours_are_free_again_a_day_after_they_were_used(store: Store) -> None:
    sweep = ask(store, caller(), hours=10.0)
    claim(store)
    run_trial(store, sweep, 0, start=0.0, end=3600.0)
    finish(store, sweep, now=3700.0)
    assert store.access.usage("ada", now=3600.0 + DAY_S - 1).accelerator_hours == 2.0
    assert store.access.usage("ada", now=3600.0 + DAY_S).accelerator_hours == 0.0


def test_an_unfinished_sweep_without_a_budget_of_hours_promises_no_number(store: Store) -> None:
    ask(store, caller())
    assert store.access.usage("ada", now=2.0).promised_hours is None


def test_who_made_nothing_uses_nothing(store: Store) -> None:
    nothing = Usage(unfinished_sweeps=0, accelerator_hours=0.0, promised_hours=0.0)
    assert store.access.usage("nobody", now=1.0) == nothing


# ---------------------------------------------------------------------- what is left
def test_one_more_sweep_than_may_be_unfinished_is_refused_until_one_ends(store: Store) -> None:
    who = caller(unfinished_sweeps=1)
    first = ask(store, who)
    with pytest.raises(QuotaExceeded, match="1 of the 1 sweeps"):
        ask(store, who)
    assert ask(store, caller("bob", unfinished_sweeps=1)).created_by == "bob"
    store.request_cancel(first.id, now=2.0)
    assert ask(store, who).created_by == "ada"


def test_a_sweep_that_names_no_hours_gets_what_the_day_has_left(store: Store) -> None:
    who = caller(accelerator_hours_per_day=10.0)
    ask(store, who, hours=4.0)
    held = ask(store, who)
    assert (held.request.budget.accelerator_hours, store.get_sweep(held.id)) == (6.0, held)
    assert store.overview(held.id, now=2.0).budget.accelerator_hours == 6.0


def test_hours_that_are_promised_or_used_are_not_given_twice(store: Store) -> None:
    who = caller(accelerator_hours_per_day=10.0)
    sweep = ask(store, who, hours=4.0)
    claim(store)
    run_trial(store, sweep, 0, start=0.0, end=3600.0)
    with pytest.raises(
        QuotaExceeded, match=r"2 were used in the last 24 hours, 2 more are promised .* 6 are left"
    ) as no:
        ask(store, who, now=3600.0, hours=7.0)
    assert no.value.retry_after_s == DAY_S
    finish(store, sweep, now=3700.0)
    assert ask(store, who, now=3700.0, hours=8.0).request.budget.accelerator_hours == 8.0


def test_nothing_that_runs_frees_hours_by_itself(store: Store) -> None:
    who = caller(accelerator_hours_per_day=10.0)
    ask(store, who)
    with pytest.raises(QuotaExceeded, match="when one of your sweeps ends") as no:
        ask(store, who)
    assert no.value.retry_after_s is None


def test_more_hours_than_a_day_has_are_refused_with_the_most(store: Store) -> None:
    with pytest.raises(InvalidInput) as refused:
        ask(store, caller(accelerator_hours_per_day=10.0), hours=11.0)
    assert (refused.value.field, refused.value.nearest) == ("budget.accelerator_hours", 10.0)


def test_nothing_is_promised_beside_a_sweep_that_may_take_all(store: Store) -> None:
    ask(store, caller())
    with pytest.raises(QuotaExceeded, match="no budget of accelerator-hours"):
        ask(store, caller(accelerator_hours_per_day=10.0), hours=1.0)


def test_a_key_is_answered_with_its_sweep_whatever_is_left_and_however_it_was_held(store: Store) -> None:
    who = caller(accelerator_hours_per_day=10.0, unfinished_sweeps=1)
    held = ask(store, who, key="nightly")
    assert ask(store, who, key="nightly") == held
    assert held.request.budget.accelerator_hours == 10.0
    with pytest.raises(Conflict, match=held.id):
        ask(store, who, key="nightly", hours=10.0)


@pytest.mark.parametrize("quota", [{"unfinished_sweeps": 2}, {"accelerator_hours_per_day": 2.0}], ids=str)
def test_of_many_requests_at_once_no_more_than_the_quota_has_are_let_through(store: Store, quota: Any) -> None:
    who = caller(**quota)

    def try_one(_: int) -> bool:
        try:
            ask(store, who, hours=1.0)
        except QuotaExceeded:
            return False
        return True

    assert in_threads(8, try_one).count(True) == 2


def test_sweeps_of_gates_and_retunes_are_held_to_the_quota_too(store: Store) -> None:
    who = caller(unfinished_sweeps=1)
    ask(store, who)
    saved_retune(store)
    with pytest.raises(QuotaExceeded):
        asked_gate(store, caller=who)
    with pytest.raises(QuotaExceeded):
        started_run(store, caller=who)
    assert (store.runs.list("gate")[1], store.retunes.runs("nightly")[1]) == (0, 0)


# ---------------------------------------------------------------------- the audit log
def entry(**changes: Any) -> AuditEntry:
    one = AuditEntry(
        at=1.0,
        caller="ada",
        token_id="k3v7q2mx",
        action="cancel_run",
        subject="/api/v1/runs/sw-k3v7q2mxn5/cancel",
        status=200,
        request_id="r-1",
        address="10.0.0.7",
    )
    return replace(one, **changes)


def test_the_audit_log_keeps_every_entry_newest_first(store: Store) -> None:
    entries = [entry(at=float(at), caller=name) for at, name in enumerate(("ada", "bob", "ada"))]
    for one in entries:
        store.access.record(one)
    assert store.access.audit() == (entries[::-1], 3)
    assert store.access.audit(caller="ada") == ([entries[2], entries[0]], 2)
    assert store.access.audit(page=Page(limit=1, offset=1)) == ([entries[1]], 3)


def test_the_audit_log_keeps_equal_entries_and_text_of_any_kind(store: Store) -> None:
    odd = entry(caller="\0", token_id=None, subject="/\ud800")
    for _ in range(2):
        store.access.record(odd)
    found, total = store.access.audit()
    assert total == 2
    assert found == [replace(odd, caller="\\0", subject="/\\ud800")] * 2

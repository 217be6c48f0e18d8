"""Store contract: tokens, quotas, sign-ins, the audit log and owners."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.access import AuditEntry, Caller, Quota, Scope, Session, Token, Usage
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest
from autotuner.core.errors import Conflict, InvalidInput, NotFound, QuotaExceeded
from autotuner.core.model import TransformerSpec
from autotuner.core.sweep import Budget, Sweep
from autotuner.store.options import Page
from autotuner.store.sql import Store
from tests.builders import cpu_layout, h100_cluster, measurement, sweep_request, tiny_model
from tests.contracts import acts
from tests.contracts.acts import claim, create, finish, gate_result, lease_of
from tests.contracts.crowd import in_threads
from tests.contracts.test_store_names import PAIR
from tests.contracts.upkeep import asked_gate, retune_request, saved_retune, started_run, webhook

# ---------------------------------------------------------------- access
DIGEST = "$argon2id$v=19$m=8,t=1,p=1$c2FsdA$ZGlnZXN0"
NUM_THREADS = 8


def token(token_id: str = "k3v7q2mxn5", **changes: Any) -> Token:
    return replace(Token(id=token_id, name="ada", scope=Scope.RUN, created_at=10.0), **changes)


def session(session_id: str = "a" * 64, **changes: Any) -> Session:
    value = Session(id=session_id, token_id="k3v7q2mxn5", created_at=20.0, expires_at=120.0)
    return replace(value, **changes)


def saved(store: Store, one: Token | None = None) -> Token:
    added = one or token()
    store.access.add_token(added, DIGEST)
    return added


# ---------------------------------------------------------------------- tokens
def test_a_token_is_read_as_it_was_added_with_its_digest(store: Store) -> None:
    quota = Quota(unfinished_sweeps=2, accelerator_hours_per_day=64.0, requests_per_minute=60)
    added = saved(store, token(quota=quota, created_by="root", expires_at=99.0))
    assert store.access.get_token(added.id) == (added, DIGEST)


def test_a_token_whose_id_is_taken_is_refused(store: Store) -> None:
    saved(store)
    with pytest.raises(Conflict, match="k3v7q2mxn5"):
        store.access.add_token(token(name="mallory"), DIGEST)
    assert store.access.get_token("k3v7q2mxn5")[0].name == "ada"


def test_a_token_needs_a_name_that_can_be_read(store: Store) -> None:
    with pytest.raises(InvalidInput, match="printable"):
        store.access.add_token(token(name=""), DIGEST)


@pytest.mark.parametrize("token_id", ["nobody", "nul\x00", "half a pair \ud800"])
def test_a_token_that_is_not_stored_is_missing_whatever_its_id(store: Store, token_id: str) -> None:
    for act in (lambda: store.access.get_token(token_id), lambda: store.access.revoke_token(token_id, now=1.0)):
        with pytest.raises(NotFound):
            act()


def test_tokens_are_listed_by_name_then_newest_first_revoked_ones_too(store: Store) -> None:
    for token_id, name, at in (("a", "bob", 1.0), ("b", "ada", 2.0), ("c", "ada", 3.0), ("d", "Zoe", 4.0)):
        saved(store, token(token_id, name=name, created_at=at))
    store.access.revoke_token("c", now=5.0)
    assert [one.id for one in store.access.list_tokens()] == ["d", "c", "b", "a"]


def test_a_token_is_revoked_once_and_keeps_when_that_was(store: Store) -> None:
    saved(store)
    assert store.access.revoke_token("k3v7q2mxn5", now=30.0).revoked_at == 30.0
    assert store.access.revoke_token("k3v7q2mxn5", now=40.0).revoked_at == 30.0


def test_the_last_use_of_a_token_is_kept(store: Store) -> None:
    saved(store)
    store.access.touch_token("k3v7q2mxn5", now=33.0)
    assert store.access.get_token("k3v7q2mxn5")[0].last_used_at == 33.0
    store.access.touch_token("nobody", now=33.0)


def test_one_of_several_simultaneous_writers_adds_an_id(store: Store) -> None:
    def add(index: int) -> bool:
        try:
            store.access.add_token(token(name=f"n{index}"), DIGEST)
        except Conflict:
            return False
        return True

    assert sum(in_threads(NUM_THREADS, add)) == 1


# ---------------------------------------------------------------------- sessions
def test_a_session_is_read_as_it_was_added_until_it_is_removed(store: Store) -> None:
    saved(store)
    store.access.add_session(session())
    assert store.access.get_session("a" * 64) == session()
    for _ in range(2):
        store.access.remove_session("a" * 64)
    with pytest.raises(NotFound) as missing:
        store.access.get_session("a" * 64)
    assert "a" * 64 not in str(missing.value)


def test_a_session_needs_a_stored_token(store: Store) -> None:
    with pytest.raises(NotFound, match="k3v7q2mxn5"):
        store.access.add_session(session())


def test_a_new_session_sweeps_out_those_that_are_over(store: Store) -> None:
    saved(store)
    store.access.add_session(session("old", created_at=1.0, expires_at=20.0))
    store.access.add_session(session("valid", created_at=2.0, expires_at=21.0))
    store.access.add_session(session("new", created_at=20.0))
    with pytest.raises(NotFound):
        store.access.get_session("old")
    assert store.access.get_session("valid").token_id == store.access.get_session("new").token_id


def test_a_revoked_token_takes_its_sessions_along_and_no_others(store: Store) -> None:
    saved(store)
    saved(store, token("other"))
    store.access.add_session(session("hers"))
    store.access.add_session(session("his", token_id="other"))
    store.access.revoke_token("k3v7q2mxn5", now=30.0)
    with pytest.raises(NotFound):
        store.access.get_session("hers")
    assert store.access.get_session("his").token_id == "other"


# ---------------------------------------------------------------- accounts
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


def test_a_caller_without_runs_uses_nothing(store: Store) -> None:
    nothing = Usage(unfinished_sweeps=0, accelerator_hours=0.0, promised_hours=0.0)
    assert store.access.usage("nobody", now=1.0) == nothing


# ---------------------------------------------------------------------- what is left
def test_one_more_sweep_than_may_be_unfinished_is_refused_until_one_ends(store: Store) -> None:
    who = caller(unfinished_sweeps=1)
    first = ask(store, who)
    with pytest.raises(QuotaExceeded, match="allows at most 1"):
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
        QuotaExceeded, match=r"2 were used in the last 24 hours, 2 more are reserved .* 6 are left"
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
    with pytest.raises(QuotaExceeded, match="has no limit of accelerator-hours"):
        ask(store, caller(accelerator_hours_per_day=10.0), hours=1.0)


def test_a_key_is_answered_with_its_sweep_whatever_is_left_and_however_it_was_held(store: Store) -> None:
    who = caller(accelerator_hours_per_day=10.0, unfinished_sweeps=1)
    held = ask(store, who, key="nightly")
    assert ask(store, who, key="nightly") == held
    assert held.request.budget.accelerator_hours == 10.0
    with pytest.raises(Conflict, match=held.id):
        ask(store, who, key="nightly", hours=10.0)


@pytest.mark.parametrize("quota", [{"unfinished_sweeps": 2}, {"accelerator_hours_per_day": 2.0}], ids=str)
def test_many_simultaneous_requests_do_not_exceed_the_quota(store: Store, quota: Any) -> None:
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


# ---------------------------------------------------------------- owners
def test_a_description_is_theirs_who_stored_it_first(store: Store) -> None:
    for name in ("ada", "bob"):
        store.descriptions.save(tiny_model(), created_by=name)
        store.descriptions.save(h100_cluster(), created_by=name)
    store.descriptions.save(tiny_model(name="old"))
    assert store.descriptions.stored(TransformerSpec).created_by == {"tiny": "ada", "old": ""}
    assert store.descriptions.stored(Cluster).created_by == {"h100:64": "ada"}


def test_a_removed_model_is_gone_and_sweeps_keep_theirs(store: Store) -> None:
    store.descriptions.save(tiny_model())
    sweep = create(store)
    store.descriptions.remove(TransformerSpec, "tiny")
    assert store.descriptions.stored(TransformerSpec).items == ()
    assert store.get_sweep(sweep.id).request == sweep_request()
    store.descriptions.save(tiny_model(num_layers=5))  # the name is free
    with pytest.raises(NotFound) as missing:
        store.descriptions.remove(TransformerSpec, "tny")
    assert missing.value.nearest == "tiny"


def test_a_check_a_retune_and_a_webhook_say_who_asked_for_them(store: Store) -> None:
    store.descriptions.save(PAIR)
    check = store.descriptions.create_check("pair", CheckRequest(), now=1.0, created_by="ada")
    store.retunes.save(retune_request(), now=1.0, next_due_at=None, created_by="bob")
    store.announcements.save_webhook(replace(webhook(), created_by="eve"))
    found = (store.runs.get("check", check.id), store.retunes.get("nightly"), store.announcements.get_webhook("team"))
    assert [each.created_by for each in found] == ["ada", "bob", "eve"]

"""Store contract: plans, their answers, and who computes them."""

from __future__ import annotations

import pytest

from autotuner.core.errors import LeaseLost, NotFound
from autotuner.core.run import HeldLease, StoredPlan
from autotuner.ports import Store

PLAN = "0123456789abcdef"


def asked(store: Store, plan_id: str = PLAN, *, now: float = 1.0) -> StoredPlan:
    store.plans.add(plan_id, '{"question":1}', now=now)
    return store.plans.get(plan_id)


def claimed(store: Store, owner: str = "a", *, lapsed: tuple[HeldLease, ...] = ()) -> StoredPlan:
    return store.plans.claim(PLAN, owner=owner, now=2.0, lease_s=10.0, lapsed=lapsed)


def test_a_plan_is_stored_once_as_it_was_first_asked_for(store: Store) -> None:
    plan = asked(store)
    assert plan == StoredPlan(id=PLAN, question='{"question":1}', created_at=1.0)
    store.plans.add(PLAN, '{"question":2}', now=5.0)
    assert store.plans.get(PLAN) == plan


def test_a_plan_that_was_never_asked_for_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        store.plans.get(PLAN)
    with pytest.raises(NotFound):
        claimed(store)


def test_a_plan_is_held_by_who_claims_it_first(store: Store) -> None:
    asked(store)
    mine = claimed(store)
    assert (mine.owner, mine.lease_until, mine.lease_s, mine.renewals) == ("a", 12.0, 10.0, 1)
    assert claimed(store, "b") == mine
    assert [(lease.id, lease.owner) for lease in store.plans.held()] == [(PLAN, "a")]


def test_who_lost_sight_of_a_plan_of_its_own_claims_it_again(store: Store) -> None:
    asked(store)
    claimed(store)
    assert (claimed(store).owner, claimed(store).renewals) == ("a", 3)


def test_how_far_a_plan_is_can_be_read_by_all_and_is_a_sign_of_life(store: Store) -> None:
    asked(store)
    claimed(store)
    (before,) = store.plans.held()
    store.plans.tell(PLAN, 3, 9, owner="a", now=4.0, lease_s=10.0)
    plan = store.plans.get(PLAN)
    assert (plan.num_done, plan.num_known, plan.renewals, plan.lease_until) == (3, 9, 2, 14.0)
    assert claimed(store, "b", lapsed=(before,)).owner == "a"


def test_a_plan_whose_owner_was_silent_is_begun_anew_by_another(store: Store) -> None:
    asked(store)
    claimed(store)
    store.plans.tell(PLAN, 3, 9, owner="a", now=4.0, lease_s=10.0)
    taken = claimed(store, "b", lapsed=tuple(store.plans.held()))
    assert (taken.owner, taken.num_done, taken.num_known) == ("b", 0, 0)
    with pytest.raises(LeaseLost):
        store.plans.tell(PLAN, 4, 9, owner="a", now=5.0, lease_s=10.0)
    with pytest.raises(LeaseLost):
        store.plans.answer(PLAN, "{}", owner="a", now=5.0)
    with pytest.raises(LeaseLost):
        store.plans.release(PLAN, owner="a", now=5.0)
    assert store.plans.get(PLAN) == taken


def test_an_answered_plan_is_nobodys_and_stays_as_it_is(store: Store) -> None:
    asked(store)
    claimed(store)
    store.plans.answer(PLAN, '{"answer":1}', owner="a", now=7.0)
    plan = store.plans.get(PLAN)
    assert (plan.answer, plan.computed_at, plan.owner, plan.lease_until) == ('{"answer":1}', 7.0, None, None)
    assert store.plans.held() == []
    assert claimed(store, "b") == plan
    with pytest.raises(LeaseLost):
        store.plans.answer(PLAN, '{"answer":2}', owner="a", now=8.0)


def test_a_plan_that_is_given_back_is_claimed_at_once(store: Store) -> None:
    asked(store)
    claimed(store)
    store.plans.release(PLAN, owner="a", now=3.0)
    assert store.plans.held() == []
    assert claimed(store, "b").owner == "b"


def test_old_plans_are_removed(store: Store) -> None:
    asked(store, "old", now=1.0)
    young = asked(store, now=50.0)
    assert [store.retention.prune_plans(before=50.0) for _ in range(2)] == [1, 0]
    assert store.plans.get(PLAN) == young
    with pytest.raises(NotFound):
        store.plans.get("old")

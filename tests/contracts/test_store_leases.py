"""Store contract: a sweep stays its owner's until somebody has watched it stand still, whatever clocks say."""

from __future__ import annotations

from sqlalchemy import update

from autotuner.core.run import HeldLease
from autotuner.ports import Store
from autotuner.store.engine import make_engine
from autotuner.store.sql import open_store
from autotuner.store.tables import sweeps
from tests.contracts.acts import LEASE_S, OTHER, OWNER, create, finish, held_sweep


def test_a_held_sweep_is_told_with_what_its_owner_promised(store: Store) -> None:
    create(store, now=2.0)
    sweep = held_sweep(store)
    assert store.held_sweeps() == [
        HeldLease(id=sweep.id, owner=OWNER, renewals=1, lease_until=40.0, lease_s=LEASE_S),
    ]


def test_no_time_of_day_takes_a_sweep_from_its_owner(store: Store) -> None:
    held_sweep(store)
    assert store.claim_sweep(owner=OTHER, now=1e9, lease_s=LEASE_S) is None


def test_a_sweep_whose_lease_was_seen_to_stand_still_is_taken_over(store: Store) -> None:
    sweep = held_sweep(store)
    taken = store.claim_sweep(owner=OTHER, now=5.0, lease_s=60.0, lapsed=store.held_sweeps())
    assert taken is not None
    assert (taken.id, taken.owner, taken.lease_s, taken.renewals) == (sweep.id, OTHER, 60.0, 2)


def test_a_sign_of_life_until_the_claim_keeps_the_sweep(store: Store) -> None:
    sweep = held_sweep(store)
    seen = store.held_sweeps()
    store.renew_lease(sweep.id, owner=OWNER, now=10.0, lease_s=LEASE_S)  # at the time of the claim, by its own clock
    assert store.claim_sweep(owner=OTHER, now=1e9, lease_s=LEASE_S, lapsed=seen) is None


def test_a_renewal_that_a_worker_of_an_older_release_did_not_count_keeps_the_sweep(database_url: str) -> None:
    store, engine = open_store(database_url), make_engine(database_url)
    held_sweep(store)
    seen = store.held_sweeps()
    with engine.begin() as connection:
        connection.execute(update(sweeps).values(lease_until=50.0))
    assert store.claim_sweep(owner=OTHER, now=1e9, lease_s=LEASE_S, lapsed=seen) is None
    engine.dispose()
    store.close()


def test_a_takeover_leaves_alone_who_took_over_before(store: Store) -> None:
    held_sweep(store)
    seen = store.held_sweeps()
    assert store.claim_sweep(owner=OTHER, now=50.0, lease_s=LEASE_S, lapsed=seen) is not None
    assert store.claim_sweep(owner="worker-c", now=50.0, lease_s=LEASE_S, lapsed=seen) is None


def test_nobody_holds_a_sweep_that_was_given_back_or_has_ended(store: Store) -> None:
    finish(store, held_sweep(store))
    store.release_sweep(held_sweep(store).id, owner=OWNER, now=11.0)
    assert store.held_sweeps() == []


def test_a_renewal_counts_though_the_clock_was_set_back(store: Store) -> None:
    sweep = held_sweep(store)
    assert store.renew_lease(sweep.id, owner=OWNER, now=-3590.0, lease_s=LEASE_S).renewals == sweep.renewals + 1

"""Store contract: a sweep stays its owner's until somebody has watched it stand still, whatever clocks say."""

from __future__ import annotations

import pytest

from autotuner.core.errors import LeaseLost
from autotuner.core.run import Lease
from autotuner.store.sql import Store
from tests.builders import cpu_layout, prediction
from tests.contracts.acts import (
    LEASE_S,
    OTHER,
    OWNER,
    claim_sweep,
    create,
    finish,
    held_sweep,
    held_sweeps,
    release_sweep,
    renew_lease,
    take_over,
)


def test_a_held_sweep_is_told_with_what_its_owner_promised(store: Store) -> None:
    create(store, now=2.0)
    sweep = held_sweep(store)
    assert held_sweeps(store) == [
        Lease(run_id=sweep.id, owner=OWNER, claim=1, renewals=1, lease_s=LEASE_S),
    ]


def test_no_time_of_day_takes_a_sweep_from_its_owner(store: Store) -> None:
    held_sweep(store)
    assert claim_sweep(store, owner=OTHER, now=1e9, lease_s=LEASE_S) is None


def test_a_sweep_whose_lease_was_seen_to_stand_still_is_taken_over(store: Store) -> None:
    sweep = held_sweep(store)
    taken = claim_sweep(store, owner=OTHER, now=5.0, lease_s=60.0, lapsed=held_sweeps(store))
    assert taken is not None
    assert taken.lease == Lease(run_id=sweep.id, owner=OTHER, claim=2, renewals=2, lease_s=60.0)


def test_a_sign_of_life_until_the_claim_keeps_the_sweep(store: Store) -> None:
    sweep = held_sweep(store)
    seen = held_sweeps(store)
    renew_lease(store, sweep.id, owner=OWNER, now=10.0)  # at the time of the claim, by its own clock
    assert claim_sweep(store, owner=OTHER, now=1e9, lease_s=LEASE_S, lapsed=seen) is None


def test_a_takeover_leaves_alone_who_took_over_before(store: Store) -> None:
    held_sweep(store)
    seen = held_sweeps(store)
    assert claim_sweep(store, owner=OTHER, now=50.0, lease_s=LEASE_S, lapsed=seen) is not None
    assert claim_sweep(store, owner="worker-c", now=50.0, lease_s=LEASE_S, lapsed=seen) is None


def test_nobody_holds_a_sweep_that_was_given_back_or_has_ended(store: Store) -> None:
    finish(store, held_sweep(store))
    release_sweep(store, held_sweep(store).id, owner=OWNER, now=11.0)
    assert held_sweeps(store) == []


def test_a_renewal_counts_though_the_clock_was_set_back(store: Store) -> None:
    sweep = held_sweep(store)
    renew_lease(store, sweep.id, owner=OWNER, now=-3590.0)
    assert [lease.renewals for lease in held_sweeps(store)] == [2]


def test_a_worker_that_shares_its_name_with_the_next_holder_has_lost_its_lease(store: Store) -> None:
    sweep = held_sweep(store)
    assert sweep.lease is not None
    take_over(store, owner=OWNER)
    with pytest.raises(LeaseLost):
        store.add_trial(sweep.id, lease=sweep.lease, number=0, layout=cpu_layout(), prediction=prediction())


def test_a_sweep_that_a_service_with_a_fast_clock_stored_is_claimed_at_once(store: Store) -> None:
    sweep = create(store, now=1e9)
    claimed = claim_sweep(store, owner=OWNER, now=10.0, lease_s=LEASE_S)
    assert claimed is not None
    assert claimed.id == sweep.id


def test_a_sweep_that_was_given_back_comes_before_those_that_were_asked_for_later(store: Store) -> None:
    sweep = held_sweep(store)
    create(store, now=5.0)
    release_sweep(store, sweep.id, owner=OWNER, now=20.0)
    claimed = claim_sweep(store, owner=OTHER, now=21.0, lease_s=LEASE_S)
    assert claimed is not None
    assert claimed.id == sweep.id

"""Store contract: a sweep stays its owner's until somebody has watched it stand still, whatever clocks say."""

from __future__ import annotations

import pytest

from autotuner.core.errors import LeaseLost
from autotuner.store.sql import Store
from tests.builders import cpu_layout, prediction
from tests.contracts.acts import (
    LEASE_S,
    OTHER,
    OWNER,
    claim_sweep,
    create,
    held_sweep,
    held_sweeps,
    release_sweep,
    renew_lease,
    take_over,
)


def test_no_time_of_day_takes_a_sweep_from_its_owner(store: Store) -> None:
    held_sweep(store)
    assert claim_sweep(store, owner=OTHER, now=1e9, lease_s=LEASE_S) is None


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

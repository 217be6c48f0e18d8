"""Store contract: checks of clusters, and clusters that are removed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from autotuner.core.cluster_check import CheckFindings, CheckRequest, CheckState, ClusterCheck
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound
from autotuner.core.run import HeldLease
from autotuner.ports import Page, Store
from tests.builders import cpu_cluster, engine_job, measurement, profile, sweep_request, tiny_job

PAIR = replace(cpu_cluster(2), name="pair", num_nodes=2, engine="two")


def asked(store: Store, name: str = "pair", *, now: float = 1.0, request: CheckRequest | None = None) -> ClusterCheck:
    store.save_cluster(replace(PAIR, name=name))
    return store.create_check(name, request or CheckRequest(), now=now)


def claimed(store: Store, owner: str = "a", *, now: float = 2.0, lapsed: Collection[HeldLease] = ()) -> ClusterCheck:
    check = store.claim_check(owner=owner, now=now, lease_s=10.0, lapsed=lapsed)
    assert check is not None
    return check


def test_a_check_waits_with_the_cluster_as_it_was_stored(store: Store) -> None:
    check = asked(store, request=CheckRequest(num_nodes=1, quick=True))
    assert store.get_check(check.id) == check
    assert (check.cluster, check.state, check.request.quick) == (PAIR, CheckState.QUEUED, True)
    assert (check.nodes.num_nodes, check.findings) == (1, CheckFindings())


def test_a_cluster_that_is_not_stored_is_not_checked(store: Store) -> None:
    store.save_cluster(PAIR)
    with pytest.raises(NotFound) as missing:
        store.create_check("pai", CheckRequest(), now=1.0)
    assert missing.value.nearest == "pair"


def test_a_cluster_has_one_check_at_a_time(store: Store) -> None:
    first = asked(store)
    with pytest.raises(Conflict, match=first.id):
        store.create_check("pair", CheckRequest(), now=2.0)
    store.request_check_cancel(first.id, now=3.0)
    second = store.create_check("pair", CheckRequest(), now=4.0)
    assert store.list_checks("pair") == ([second, store.get_check(first.id)], 2)
    assert store.list_checks("pair", page=Page(limit=1)) == ([second], 2)


def test_the_oldest_check_is_claimed_first_and_by_one_worker(store: Store) -> None:
    later, earlier = asked(store, "later", now=2.0), asked(store, "earlier", now=1.0)
    assert [claimed(store, owner).id for owner in ("a", "b")] == [earlier.id, later.id]
    assert store.claim_check(owner="c", now=3.0, lease_s=10.0) is None
    assert store.get_check(earlier.id).state is CheckState.RUNNING


def test_findings_are_stored_with_the_lease_and_come_back_with_a_request_to_cancel(store: Store) -> None:
    check = asked(store)
    claimed(store)
    found = CheckFindings(engine="emulated", trial=measurement(), num_points=3, jobs=(engine_job(),)).said(
        "begins", 2.5
    )
    held = store.save_findings(check.id, found, owner="a", now=5.0, lease_s=10.0)
    assert (held.findings, held.lease_until, held.cancel_requested) == (found, 15.0, False)
    assert store.request_check_cancel(check.id, now=6.0).state is CheckState.RUNNING
    assert store.save_findings(check.id, found, owner="a", now=7.0, lease_s=10.0).cancel_requested
    assert store.claim_check(owner="b", now=1e9, lease_s=10.0) is None


def test_a_check_whose_worker_is_silent_goes_to_another_with_what_was_found(store: Store) -> None:
    check = asked(store)
    claimed(store)
    found = CheckFindings(jobs=(engine_job(),))
    store.save_findings(check.id, found, owner="a", now=3.0, lease_s=10.0)
    (seen,) = store.held_checks()
    assert (seen.id, seen.owner, seen.renewals, seen.lease_s) == (check.id, "a", 2, 10.0)
    taken = claimed(store, "b", lapsed=[seen])
    assert (taken.findings, taken.started_at, taken.owner) == (found, 2.0, "b")
    with pytest.raises(LeaseLost):
        store.save_findings(check.id, found, owner="a", now=14.0, lease_s=10.0)
    with pytest.raises(LeaseLost):
        store.finish_check(check.id, CheckState.COMPLETE, found, owner="a", now=14.0)


def test_a_sign_of_life_keeps_a_check_for_its_worker(store: Store) -> None:
    check = asked(store)
    claimed(store)
    seen = store.held_checks()
    store.save_findings(check.id, CheckFindings(), owner="a", now=2.0, lease_s=10.0)
    assert store.claim_check(owner="b", now=1e9, lease_s=10.0, lapsed=seen) is None


def test_a_check_that_is_given_back_is_free_at_once(store: Store) -> None:
    check = asked(store)
    claimed(store)
    store.release_check(check.id, owner="a", now=3.0)
    assert claimed(store, "b", now=3.0).id == check.id


def test_a_finished_check_says_how_it_ended_and_stays_so(store: Store) -> None:
    check = asked(store)
    claimed(store)
    found = CheckFindings(profile_at=4.0).said("the profile is stored", 4.0)
    ended = store.finish_check(check.id, CheckState.COMPLETE, found, owner="a", now=4.0)
    assert ended == store.get_check(check.id) == store.request_check_cancel(check.id, now=5.0)
    assert (ended.state, ended.finished_at, ended.owner, ended.findings) == (CheckState.COMPLETE, 4.0, None, found)
    assert store.claim_check(owner="b", now=100.0, lease_s=10.0) is None


def test_an_end_is_no_beginning(store: Store) -> None:
    check = asked(store)
    claimed(store)
    with pytest.raises(InvalidInput, match="must be an end"):
        store.finish_check(check.id, CheckState.RUNNING, CheckFindings(), owner="a", now=4.0)


def test_a_check_that_nobody_runs_is_cancelled_at_once(store: Store) -> None:
    ended = store.request_check_cancel(asked(store).id, now=3.0)
    assert (ended.state, ended.finished_at) == (CheckState.CANCELLED, 3.0)
    assert ended.findings.lines[-1].text == "cancelled before it began"


def test_a_removed_cluster_takes_its_checks_and_its_profile_along_and_sweeps_keep_theirs(store: Store) -> None:
    check = asked(store)
    store.request_check_cancel(check.id, now=2.0)
    store.save_profile(replace(profile("pair"), cluster="pair"))
    sweep, _ = store.create_sweep(sweep_request(job=tiny_job(cluster=PAIR)), now=1.0)
    store.remove_cluster("pair")
    for read in (store.get_cluster, store.get_profile, store.remove_cluster):
        with pytest.raises(NotFound):
            read("pair")
    with pytest.raises(NotFound):
        store.get_check(check.id)
    assert store.get_sweep(sweep.id).request.job.cluster == PAIR
    store.save_cluster(replace(PAIR, num_nodes=3))  # the name is free


def test_a_machines_profile_of_the_same_name_stays(store: Store) -> None:
    store.save_cluster(PAIR)
    store.save_profile(profile("pair"))
    store.remove_cluster("pair")
    assert store.get_profile("pair") == profile("pair")


def test_a_cluster_that_is_being_checked_is_not_removed(store: Store) -> None:
    check = asked(store)
    with pytest.raises(Conflict, match=check.id):
        store.remove_cluster("pair")

"""Store contract: checks of clusters, and clusters that are removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckFindings, CheckRequest
from autotuner.core.errors import Conflict, NotFound
from autotuner.core.profile import DeviceProfile
from autotuner.core.run import Run, RunState, Stop
from autotuner.store.sql import Store
from tests import runs
from tests.builders import cpu_cluster, profile, sweep_request, tiny_job

PAIR = replace(cpu_cluster(2), name="pair", num_nodes=2, engine="two")


def asked(store: Store, name: str = "pair", *, request: CheckRequest | None = None) -> Run:
    store.descriptions.save(replace(PAIR, name=name))
    return store.descriptions.create_check(name, request or CheckRequest(), now=1.0)


def cancelled(store: Store, check: Run, *, now: float = 3.0) -> Run:
    run: Run = store.runs.cancel("check", check.id, "cancelled before it began", now=now)
    return run


def test_a_check_waits_with_the_cluster_as_it_was_stored(store: Store) -> None:
    check = asked(store, request=CheckRequest(num_nodes=1, quick=True))
    assert (check.request.cluster, check.state, check.request.request.quick) == (PAIR, RunState.QUEUED, True)
    assert (check.request.nodes.num_nodes, check.progress) == (1, CheckFindings())


def test_a_cluster_that_is_not_stored_is_not_checked(store: Store) -> None:
    store.descriptions.save(PAIR)
    with pytest.raises(NotFound) as missing:
        store.descriptions.create_check("pai", CheckRequest(), now=1.0)
    assert missing.value.nearest == "pair"


def test_a_cluster_has_one_check_at_a_time(store: Store) -> None:
    first = asked(store)
    with pytest.raises(Conflict, match=first.id):
        store.descriptions.create_check("pair", CheckRequest(), now=2.0)
    cancelled(store, first)
    assert store.descriptions.create_check("pair", CheckRequest(), now=4.0).id != first.id


def test_a_check_that_no_worker_has_begun_with_is_cancelled_at_once(store: Store) -> None:
    ended = cancelled(store, asked(store))
    assert (ended.state, ended.finished_at, ended.detail) == (RunState.CANCELLED, 3.0, "cancelled before it began")
    assert cancelled(store, ended, now=5.0) == ended


def test_a_check_that_a_worker_began_with_is_cancelled_by_a_worker(store: Store) -> None:
    check = asked(store)
    held = runs.claimed(store, "check")
    assert cancelled(store, check).wanted is Stop.CANCEL
    store.runs.release(runs.lease_of(held), now=4.0)
    assert cancelled(store, check).state is RunState.RUNNING
    assert runs.claimed(store, "check").wanted is Stop.CANCEL


def test_a_removed_cluster_takes_its_checks_and_its_profile_along_and_sweeps_keep_theirs(store: Store) -> None:
    check = asked(store)
    cancelled(store, check)
    store.descriptions.save(replace(profile("pair"), cluster="pair"))
    sweep, _ = store.create_sweep(sweep_request(job=tiny_job(cluster=PAIR)), now=1.0)
    store.descriptions.remove(Cluster, "pair")
    with pytest.raises(NotFound):
        store.descriptions.get(Cluster, "pair")
    with pytest.raises(NotFound):
        store.descriptions.get(DeviceProfile, "pair")
    with pytest.raises(NotFound):
        store.descriptions.remove(Cluster, "pair")
    with pytest.raises(NotFound):
        store.runs.get("check", check.id)
    assert store.get_sweep(sweep.id).request.job.cluster == PAIR
    store.descriptions.save(replace(PAIR, num_nodes=3))  # the name is free


def test_a_machines_profile_of_the_same_name_stays(store: Store) -> None:
    store.descriptions.save(PAIR)
    store.descriptions.save(profile("pair"))
    store.descriptions.remove(Cluster, "pair")
    assert store.descriptions.get(DeviceProfile, "pair") == profile("pair")


def test_a_cluster_that_is_being_checked_is_not_removed(store: Store) -> None:
    check = asked(store)
    with pytest.raises(Conflict, match=check.id):
        store.descriptions.remove(Cluster, "pair")

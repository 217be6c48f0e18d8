"""Store contract: models, clusters and profiles that are stored by a name, and checks of clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckFindings, CheckRequest
from autotuner.core.errors import Conflict, InvalidInput, NotFound
from autotuner.core.model import TransformerSpec
from autotuner.core.profile import DeviceProfile
from autotuner.core.run import Run, RunState, Stop
from autotuner.store.sql import Store
from tests import runs
from tests.builders import cpu_cluster, h100_cluster, llama_70b, profile, sweep_request, tiny_job, tiny_model
from tests.contracts.acts import create, held_sweep, measure


# ---------------------------------------------------------------- names
def test_a_saved_model_and_cluster_read_back_by_name(store: Store) -> None:
    store.descriptions.save(llama_70b())
    store.descriptions.save(h100_cluster(price_per_accelerator_hour=2.5))
    assert store.descriptions.get(TransformerSpec, "llama-3-70b") == llama_70b()
    assert store.descriptions.get(Cluster, "h100:64") == h100_cluster(price_per_accelerator_hour=2.5)


def test_saving_an_equal_description_again_is_fine(store: Store) -> None:
    for _ in range(2):
        store.descriptions.save(tiny_model())
        store.descriptions.save(h100_cluster())
    assert store.descriptions.stored(TransformerSpec).items == (tiny_model(),)
    assert store.descriptions.stored(Cluster).items == (h100_cluster(),)


def test_a_name_is_not_given_to_a_second_description(store: Store) -> None:
    store.descriptions.save(tiny_model())
    store.descriptions.save(h100_cluster())
    with pytest.raises(Conflict, match="'tiny'"):
        store.descriptions.save(tiny_model(num_layers=5))
    with pytest.raises(Conflict, match="'h100:64'"):
        store.descriptions.save(h100_cluster(oversubscription=2.0))
    assert store.descriptions.get(TransformerSpec, "tiny") == tiny_model()
    assert store.descriptions.get(Cluster, "h100:64") == h100_cluster()


def test_descriptions_are_listed_by_name(store: Store) -> None:
    names = ["b", "B", "a-2", "a", "ä", "A 1", "a_1"]  # an order that locales disagree about
    for name in names:
        store.descriptions.save(tiny_model(name=name))
        store.descriptions.save(h100_cluster(name=name))
    assert [model.name for model in store.descriptions.stored(TransformerSpec).items] == sorted(names)
    assert [cluster.name for cluster in store.descriptions.stored(Cluster).items] == sorted(names)


def test_a_misspelt_name_is_not_found_and_the_nearest_is_named(store: Store) -> None:
    store.descriptions.save(llama_70b())
    store.descriptions.save(h100_cluster())
    with pytest.raises(NotFound) as missing_model:
        store.descriptions.get(TransformerSpec, "lama-3-70b")
    with pytest.raises(NotFound) as missing_cluster:
        store.descriptions.get(Cluster, "h100:46")
    assert (missing_model.value.kind, missing_model.value.nearest) == ("model", "llama-3-70b")
    assert (missing_cluster.value.kind, missing_cluster.value.nearest) == ("cluster", "h100:64")


def test_a_name_unlike_any_is_not_found_without_a_suggestion(store: Store) -> None:
    store.descriptions.save(llama_70b())
    with pytest.raises(NotFound) as missing:
        store.descriptions.get(TransformerSpec, "qwen")
    assert missing.value.nearest is None


def test_a_newer_profile_takes_the_place_of_the_older_one(store: Store) -> None:
    store.descriptions.save(profile("node"))
    store.descriptions.save(profile("local"))
    store.descriptions.save(profile("node", measured_at=2.0))
    assert store.descriptions.get(DeviceProfile, "node") == profile("node", measured_at=2.0)
    assert store.descriptions.stored(DeviceProfile).items == (profile("local"), profile("node", measured_at=2.0))


@pytest.mark.parametrize("name", ["", "a\0b", "a\ud800b", "a\nb"], ids=ascii)
def test_a_name_that_does_not_print_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"model\.name"):
        store.descriptions.save(tiny_model(name=name))
    with pytest.raises(InvalidInput, match=r"cluster\.name"):
        store.descriptions.save(h100_cluster(name=name))
    with pytest.raises(InvalidInput, match=r"profile\.name"):
        store.descriptions.save(profile(name))


READS: dict[str, Callable[[Store, str], Any]] = {
    "get_sweep": lambda store, key: store.get_sweep(key),
    "request_cancel": lambda store, key: store.request_cancel(key, now=1.0),
    "get_trial": lambda store, key: store.get_trial(key),
    "list_trials": lambda store, key: store.list_trials(key),
    "ranking": lambda store, key: store.ranking(key),
    "ranked_times": lambda store, key: store.ranked_times(key),
    "trials_version": lambda store, key: store.trials_version(key),
    "overview": lambda store, key: store.overview(key, now=1.0),
    "events": lambda store, key: store.events(key),
    "get_model": lambda store, key: store.descriptions.get(TransformerSpec, key),
    "get_cluster": lambda store, key: store.descriptions.get(Cluster, key),
    "get_profile": lambda store, key: store.descriptions.get(DeviceProfile, key),
    "runs": lambda store, key: store.runs.get("check", key),
    "remove_cluster": lambda store, key: store.descriptions.remove(Cluster, key),
    "create_check": lambda store, key: store.descriptions.create_check(key, CheckRequest(), now=1.0),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_key_that_is_not_stored_is_not_found_whatever_it_holds(
    store: Store, read: Callable[[Store, str], Any]
) -> None:
    for key in ("", "missing", "\0", "\ud800", "' OR 1=1 --"):
        with pytest.raises(NotFound) as missing:
            read(store, key)
        assert missing.value.key == key


def test_any_text_is_an_idempotency_key(store: Store) -> None:
    keys = ["", "\0", "\ud800", "µ", "'"]
    ids = [store.create_sweep(sweep_request(), now=1.0, idempotency_key=key)[0].id for key in keys]
    again = [store.create_sweep(sweep_request(), now=1.0, idempotency_key=key)[0].id for key in keys]
    assert len(set(ids)) == len(keys)
    assert again == ids


def test_a_healthy_store_names_its_revision(store: Store) -> None:
    assert store.check()


# ---------------------------------------------------------------- known hardware
def test_only_accelerators_that_a_trial_has_ended_on_are_known(store: Store) -> None:
    assert store.history.accelerators() == []
    sweep = held_sweep(store)
    assert store.history.accelerators() == []
    measure(store, sweep, 0, mfu=0.3)
    measure(store, sweep, 1, mfu=0.4)
    assert store.history.accelerators() == [sweep.request.job.cluster.accelerator.name]


def test_simulated_accelerators_are_not_known(store: Store) -> None:
    job = tiny_job()
    held = held_sweep(store, job=replace(job, cluster=replace(job.cluster, engine="simulated")))
    measure(store, held, 0, mfu=0.3)
    create(store)
    assert store.history.accelerators() == []


# ---------------------------------------------------------------- checks
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

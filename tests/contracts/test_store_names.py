"""Store contract: models and clusters by name, keys that find nothing, and health."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest
from autotuner.core.errors import Conflict, InvalidInput, NotFound
from autotuner.core.model import TransformerSpec
from autotuner.core.profile import DeviceProfile
from autotuner.store.sql import Store
from tests.builders import h100_cluster, llama_70b, profile, sweep_request, tiny_model


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

"""Store contract: who stored descriptions, retunes, webhooks and checks, and models that are removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest
from autotuner.core.errors import NotFound
from autotuner.core.model import TransformerSpec
from autotuner.store.sql import Store
from tests.builders import h100_cluster, sweep_request, tiny_model
from tests.contracts.acts import create
from tests.contracts.test_store_checks import PAIR
from tests.contracts.upkeep import retune_request, webhook


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

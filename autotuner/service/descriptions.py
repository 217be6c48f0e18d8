"""Descriptions: models and clusters as callers store them under names of their own, and forget them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotuner.catalog.hardware import load_accelerator
from autotuner.catalog.models import models
from autotuner.core.access import Caller
from autotuner.core.cluster import Cluster
from autotuner.core.errors import Conflict, NotFound
from autotuner.core.model import TransformerSpec

if TYPE_CHECKING:
    from autotuner.store.sql import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptions:
    """What is stored for everybody, and whose it is: no name of the catalog, and removed by its maker or an admin."""

    store: Store

    def add_model(self, model: TransformerSpec, caller: Caller) -> None:
        """Store a model under its name.

        Raises:
            Conflict: The catalog or another stored model has that name.
        """
        if model.name.lower() in models():
            raise _catalogued("model", model.name)
        self.store.save_model(model, created_by=caller.name)

    def remove_model(self, name: str, caller: Caller) -> TransformerSpec:
        """Forget a stored model, and return it; sweeps keep what they were given.

        Raises:
            NotYours: Somebody else stored it.
        """
        model = self.store.get_model(name)
        caller.require_own("model", name, self.store.model_owners().get(name, ""))
        self.store.remove_model(name)
        return model

    def add_cluster(self, cluster: Cluster, caller: Caller) -> None:
        """Store a cluster under its name.

        Raises:
            Conflict: The name is a short form of the catalog (``h100:64``), or another stored cluster has it.
        """
        if _is_short_form(cluster.name):
            raise _catalogued("cluster", cluster.name)
        self.store.save_cluster(cluster, created_by=caller.name)

    def remove_cluster(self, name: str, caller: Caller) -> Cluster:
        """Forget a stored cluster, its checks and what they measured, and return it.

        Raises:
            Conflict: A check of it is not finished.
            NotYours: Somebody else stored it.
        """
        cluster = self.store.get_cluster(name)
        caller.require_own("cluster", name, self.store.cluster_owners().get(name, ""))
        self.store.remove_cluster(name)
        return cluster


def _is_short_form(name: str) -> bool:
    """Whether it begins with an accelerator of the catalog, with whatever count."""
    try:
        load_accelerator(name.partition("@")[0].partition(":")[0])
    except NotFound:
        return False
    return True


def _catalogued(kind: str, name: str) -> Conflict:
    own = name.replace(":", "-")
    return Conflict(f"{name} means a {kind} of the catalog, for everybody; give yours another name, such as my-{own}")

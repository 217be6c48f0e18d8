"""Catalog, models, clusters, and the service's own state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotuner.catalog.load import Fact
from autotuner.catalog.stack_profiles import StackProfile
from autotuner.domain.jobs.cluster import Accelerator, Cluster
from autotuner.domain.jobs.model import TransformerSpec
from autotuner.domain.jobs.stack import Stack

__all__ = [
    "AcceleratorDetail",
    "AcceleratorList",
    "ClusterList",
    "Health",
    "ModelList",
    "Readiness",
    "StackList",
    "StackProfileList",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorList:
    """Accelerators of the catalog, by name."""

    items: tuple[Accelerator, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorDetail:
    """An accelerator of the catalog with the origin of every value.

    Attributes:
        facts: By field: the value, the source it was read in, and when.
    """

    accelerator: Accelerator
    facts: dict[str, Fact]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList:
    """Models by name."""

    items: tuple[TransformerSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackList:
    """Training software of the catalog, by name."""

    items: tuple[Stack, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackProfileList:
    """Training software with its versions and the runs that it was fitted to."""

    items: tuple[StackProfile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterList:
    """Clusters by name."""

    items: tuple[Cluster, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The process answers."""

    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The database answers and is migrated.

    Attributes:
        schema_revision: The migration that the database is at.
    """

    schema_revision: str
    status: Literal["ready"] = "ready"

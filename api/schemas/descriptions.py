"""Catalog, models, clusters, and the service's own state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from autotuner.catalog.facts import Fact
from autotuner.catalog.software import StackProfile
from autotuner.core.accelerator import Accelerator
from autotuner.core.cluster import Cluster
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack


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
    """Models by name.

    Attributes:
        created_by: Who stored each, by its name; empty text where nobody was asked who they are.
    """

    items: tuple[TransformerSpec, ...]
    created_by: dict[str, str] = field(default_factory=dict)


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
    """Clusters by name.

    Attributes:
        created_by: Who stored each, by its name; empty text where nobody was asked who they are.
    """

    items: tuple[Cluster, ...]
    created_by: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The process answers."""

    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The database answers, is migrated and takes writes.

    Attributes:
        schema_revision: The migration that the database is at.
        num_workers: Workers that told of themselves within a minute; without one, sweeps wait.
    """

    schema_revision: str
    num_workers: int
    status: Literal["ready"] = "ready"

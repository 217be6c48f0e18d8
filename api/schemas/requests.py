"""What callers send."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from api.dataclass_schema import DescribedBy
from autotuner.domain.cluster import Cluster
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from autotuner.domain.search_space import SearchSpace
from autotuner.domain.sweep import Budget
from autotuner.domain.trial import TrialSettings
from autotuner.domain.workload import Workload

__all__ = ["ExplanationRequest", "PredictionRequest", "SweepCreate"]


ModelReference = Annotated[object, DescribedBy(str | TransformerSpec)]
ClusterReference = Annotated[object, DescribedBy(str | Cluster)]
PartialSpace = Annotated[dict[str, object], DescribedBy(SearchSpace)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCreate:
    """A sweep to start.

    Attributes:
        model: Name of a stored or catalog model, or the model itself.
        cluster: Name of a stored cluster, a catalog accelerator and how many (``h100:64``), ``local`` for the
            machine the service runs on, or the cluster itself.
        space: Values each axis may take; an axis left out takes the default that suits the cluster.
        seed: Same seed, same sequence of trials.
        name: For people; need not be unique.
    """

    model: ModelReference
    cluster: ClusterReference
    workload: Workload
    space: PartialSpace = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    trial: TrialSettings = field(default_factory=TrialSettings)
    seed: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRequest:
    """A layout to predict, or a space to predict the best layouts of.

    Attributes:
        model: As in a sweep.
        cluster: As in a sweep.
        layout: Predict this one only; a field left out takes its default.
        space: Without a layout: values each axis may take, as in a sweep.
        limit: Without a layout: rows of the table, 1..1000.
        stack: Name of the software that would run it, from the catalog.
    """

    model: ModelReference
    cluster: ClusterReference
    workload: Workload
    layout: Layout | None = None
    space: PartialSpace = field(default_factory=dict)
    limit: int = 10
    stack: str = "torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationRequest:
    """A layout to explain.

    Attributes:
        model: As in a sweep.
        cluster: As in a sweep.
        layout: A field left out takes its default.
        stack: As in a prediction.
    """

    model: ModelReference
    cluster: ClusterReference
    workload: Workload
    layout: Layout
    stack: str = "torch"

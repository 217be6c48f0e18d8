"""Suggestions for a table of predictions: options outside the space, changes that make a job fit, today's layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from autotuner.catalog.hardware import node_size
from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.rule import Reason, Rule
from autotuner.core.space import SearchSpace
from autotuner.core.value import derived
from autotuner.costmodel.predict import predict, predict_one
from autotuner.costmodel.resource_cost import resource_cost_of
from autotuner.costmodel.shared.table import row
from autotuner.search.predicted_ranking import BestLayouts, PredictedLayout, best_predicted
from autotuner.search.space.legal import SpaceTooLarge
from autotuner.search.space.moves import Alternative, neighbours

_WORTHWHILE = 0.005
"""Smallest share of a step for which an option is suggested: half of what ``explain`` requires, because several are
suggested together."""

_DERIVED = "data_parallel_replicate_degree"
"""Name of the degree without an axis, which is computed from the others."""


def unsearched(
    best: PredictedLayout, job: Job, space: SearchSpace, rules: Sequence[Rule] = RULES
) -> tuple[Alternative, ...]:
    """Return faster layouts outside the space that differ from its best layout in one option.

    The largest saving comes first. The other value of the option is not in the space, but the device and the software
    support it. A layout is included if its expected MFU (predicted MFU x probability to fit in memory) is higher than
    that of the best layout, and if it saves at least 0.5 % of the step time.
    """
    outside = tuple(_outside(best.layout, job, space, rules))
    predictions = predict(LayoutColumns.from_layouts(outside), job)
    found = [
        Alternative.of(layout, row(predictions, index), job, before=best.layout, own=best.prediction)
        for index, layout in enumerate(outside)
    ]
    paying = [
        one
        for one in found
        if one.prediction.fits and one.prediction.expected_mfu > best.prediction.expected_mfu
        if one.saved_share >= _WORTHWHILE
    ]
    return tuple(sorted(paying, key=lambda one: -one.saved_share))


def _outside(best: Layout, job: Job, space: SearchSpace, rules: Sequence[Rule]) -> Iterator[Layout]:
    """Yield the neighbours of the best layout that are outside the space and keep the rules."""
    for layout in neighbours(best, job):
        changed = [name for name in OPTIONS if getattr(layout, name) != getattr(best, name) and name != _DERIVED]
        is_outside = any(not _is_named(layout, name, space) for name in changed)
        if is_outside and not reasons(layout, job, rules):
            yield layout


def _is_named(layout: Layout, name: str, space: SearchSpace) -> bool:
    values = space.values(name)
    return values is None or getattr(layout, name) in values


_FACTORS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Factors by which the number of nodes is multiplied in a search for a larger cluster. The sizes divide batches and
layers."""

_MAX_TRIED = 600_000
"""Largest number of layouts in one of the up to twenty further spaces that are predicted. A default space of 256
experts on 512 ranks has 530,000."""

_SURE = 0.8
"""Probability to fit that a layout must have on a cluster that is suggested."""

_ANY_SPLIT: Mapping[str, tuple[int, ...] | None] = {
    "data_parallel_shard_degree": None,
    "tensor_parallel_degree": None,
    "context_parallel_degree": None,
    "expert_parallel_degree": None,
    "pipeline_parallel_degree": None,
    "virtual_stages_per_rank": None,
    "micro_batch_size": None,
    "shard_level": (ShardLevel.NONE, ShardLevel.OPTIMIZER, ShardLevel.PARAMETERS),
    "reshard_after_forward": (False, True),
    "sequence_parallel": (False, True),
}
"""Axes with every way to split the model, its states and the batch."""


class RemedyKind(StrEnum):
    """A kind of change to the search space or to the workload, by which a layout may fit in memory."""

    FULL_RECOMPUTATION = "full_recomputation"
    ANY_SPLIT = "any_split"  # of the ranks
    OFFLOADED_ACTIVATIONS = "offloaded_activations"  # to the host
    BF16_MOMENTS = "bf16_moments"  # of AdamW


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Changes to the search space or to the workload by which a layout may fit, with the best layout after them."""

    kinds: tuple[RemedyKind, ...]
    """Kinds of changes that the remedy makes."""
    candidate: PredictedLayout
    """Best layout after the changes; if none fits, the one with the smallest peak."""
    missing_bytes: float
    """Bytes that the candidate lacks; 0 if it fits in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerCluster:
    """A cluster with more nodes of the same accelerators, on which a layout of the search space fits in memory."""

    num_nodes: int
    accelerators_per_node: int
    best: PredictedLayout

    @property
    @derived
    def num_accelerators(self) -> int:
        """Number of accelerators of all nodes together."""
        return self.num_nodes * self.accelerators_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The memory that is missing because no layout of a space fits, and changes by which one would fit."""

    nearest: PredictedLayout
    """The layout of the space with the smallest peak."""
    missing_bytes: float
    """Bytes that the rank with most memory lacks."""
    remedies: tuple[Remedy, ...]
    """Changes that make a layout fit, the fastest first. If no single change is enough, all changes together."""
    larger: LargerCluster | None
    """Smallest cluster on which a layout of the unchanged space fits. None: no cluster with up to 128 times the nodes
    is large enough, or the spaces are too large to be predicted."""


def shortfall(nearest: PredictedLayout, job: Job, space: SearchSpace) -> Shortfall:
    """Return the missing memory and possible remedies for a space in which no layout fits.

    Args:
        nearest: The layout of the space with the smallest predicted peak.
        job: The job.
        space: The search space.
    """
    return Shortfall(
        nearest=nearest,
        missing_bytes=_missing_bytes(nearest, job),
        remedies=_remedies(job, space),
        larger=_larger(job, space),
    )


def _missing_bytes(candidate: PredictedLayout, job: Job) -> float:
    return max(0.0, candidate.prediction.memory.total_bytes - job.cluster.accelerator.memory_bytes)


def _remedies(job: Job, space: SearchSpace) -> tuple[Remedy, ...]:
    changes = tuple(_changes(job, space))
    each = tuple(remedy for change in changes if (remedy := _tried([change], job, space)) is not None)
    helpful = tuple(remedy for remedy in each if not remedy.missing_bytes)
    if helpful:
        return tuple(sorted(helpful, key=lambda remedy: -remedy.candidate.prediction.tokens_per_s))
    together = _tried(changes, job, space) if len(changes) > 1 else None
    return each if together is None else (together,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Axes with other values, and True if the optimizer's moments get a smaller format."""

    kind: RemedyKind
    axes: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    shrinks_moments: bool = False


def _changes(job: Job, space: SearchSpace) -> Iterator[_Change]:
    """Yield the possible changes. Changes that the space already contains are left out."""
    if Recompute.FULL not in (space.values("recompute") or ()):
        yield _Change(kind=RemedyKind.FULL_RECOMPUTATION, axes={"recompute": (Recompute.FULL,)})
    if any(space.values(name) not in (values, None) for name, values in _ANY_SPLIT.items()):
        yield _Change(kind=RemedyKind.ANY_SPLIT, axes=_ANY_SPLIT)
    if job.cluster.accelerator.kind != "cpu" and True not in (space.values("offload_activations") or ()):
        yield _Change(kind=RemedyKind.OFFLOADED_ACTIVATIONS, axes={"offload_activations": (True,)})
    if job.workload.optimizer_state_precision == "fp32":
        yield _Change(kind=RemedyKind.BF16_MOMENTS, shrinks_moments=True)


def _tried(changes: Sequence[_Change], job: Job, space: SearchSpace) -> Remedy | None:
    """Return the result of changes to the space.

    Return None if they leave no legal layout, or too many to predict.
    """
    for change in changes:
        space = space.with_axes(**change.axes)
        if change.shrinks_moments:
            job = replace(job, workload=replace(job.workload, optimizer_state_precision="bf16"))
    table = _best(job, space)
    candidate = (table.rows[0] if table.rows else table.nearest) if table else None
    if candidate is None:
        return None
    kinds = tuple(change.kind for change in changes)
    return Remedy(kinds=kinds, candidate=candidate, missing_bytes=_missing_bytes(candidate, job))


def _larger(job: Job, space: SearchSpace) -> LargerCluster | None:
    for cluster in _growing(job.cluster):
        table = _best(replace(job, cluster=cluster), space)
        if table is None:
            return None
        if table.rows and table.rows[0].prediction.expected_mfu > _SURE * table.rows[0].prediction.mfu:
            num_nodes, per_node = cluster.num_nodes, cluster.accelerators_per_node
            return LargerCluster(num_nodes=num_nodes, accelerators_per_node=per_node, best=table.rows[0])
    return None


def _best(job: Job, space: SearchSpace) -> BestLayouts | None:
    """Return the best layout of a space; None if the space is too large for a suggestion."""
    try:
        return best_predicted(job, space, limit=1, most=_MAX_TRIED)
    except SpaceTooLarge:
        return None


def _growing(cluster: Cluster) -> Iterator[Cluster]:
    """Yield clusters with more and more of the same accelerators. Nodes are filled first."""
    whole, per_node = node_size(cluster.accelerator), cluster.accelerators_per_node
    if cluster.num_nodes == 1:
        while whole and per_node < whole:
            per_node = min(whole, 2 * per_node)
            yield cluster.resized(accelerators_per_node=per_node)
    for factor in _FACTORS:
        yield cluster.resized(num_nodes=cluster.num_nodes * factor, accelerators_per_node=per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Advice after a search: faster options outside the space or, if no layout fits in memory, helpful changes."""

    not_searched: tuple[Alternative, ...] = ()
    """Options outside the space that are expected to help, the largest saving first."""
    shortfall: Shortfall | None = None
    """Missing memory, and changes that would make a layout fit; None if a layout fits."""


def advice(job: Job, space: SearchSpace, table: BestLayouts, rules: Sequence[Rule] = RULES) -> Advice:
    """Return advice after a search: faster options outside the space or, if none fits in memory, changes that help.

    Args:
        job: The job.
        space: The search space.
        table: The best layouts of the space.
        rules: Rules that an advised option outside the space must keep.
    """
    if table.nearest is not None:
        return Advice(shortfall=shortfall(table.nearest, job, space))
    return Advice(not_searched=unsearched(table.rows[0], job, space, rules)) if table.rows else Advice()


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The layout that runs today, compared with the best layouts of a prediction table."""

    layout: Layout
    """Layout that runs today, as it was given."""
    candidate: PredictedLayout | None = None
    """Prediction of this layout; None if it breaks a rule."""
    reasons: tuple[Reason, ...] = ()
    """All rules that this layout breaks."""
    best: Alternative | None = None
    """Comparison of this layout with the first row of the table; None without a prediction or without a row."""
    unchanged: Alternative | None = None
    """Comparison of this layout with the best layout that is numerically equivalent to plain training; None if the
    first row of the table is equivalent."""

    @property
    @derived
    def label(self) -> str:
        """Name of the layout, such as ``tp2 pp4 1f1b mb1``: its degrees above 1 and its non-default options."""
        return str(self.layout)


def current_beside(
    layout: Layout, job: Job, *, best: PredictedLayout | None, unchanged: PredictedLayout | None
) -> Current:
    """Compare the layout that runs today with the best layouts of a prediction table; or say which rules it breaks.

    Args:
        layout: The layout that runs today.
        job: The job.
        best: First row of the table; None: the table is empty.
        unchanged: Best layout that is numerically equivalent to plain training; None: the table has such a layout
            already, or no layout is equivalent.
    """
    if broken := reasons(layout, job):
        return Current(layout=layout, reasons=broken)
    predicted = predict_one(layout, job)
    today = PredictedLayout(layout=layout, prediction=predicted, resource_cost=resource_cost_of(layout, job, predicted))
    return Current(
        layout=layout,
        candidate=today,
        best=_instead(best, today, job),
        unchanged=_instead(unchanged, today, job),
    )


def _instead(one: PredictedLayout | None, today: PredictedLayout, job: Job) -> Alternative | None:
    if one is None:
        return None
    return Alternative.of(one.layout, one.prediction, job, before=today.layout, own=today.prediction)

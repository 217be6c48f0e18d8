"""Dry run: the memory that a layout allocates, without devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from autotuner.core.layout import Layout
from autotuner.core.stages import V_SCHEDULES
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.value import derived, value


@value
class DryRunRequest:
    """A request to count the memory and operations of a trial."""

    spec: TrialSpec
    ranks: tuple[int, ...]
    """Ranks of the whole job that are run; ``telling_ranks`` returns those that decide the peak."""
    exact: bool = False
    """Run every layer and micro-batch, however long that takes. Otherwise fewer run, and the rest is extrapolated
    linearly."""


@value
class HeldBytes:
    """Bytes of a rank's tensors at the moment of its peak; the parts sum to ``peak_bytes``."""

    parameters_bytes: float
    """Bytes of the model that the rank keeps between steps."""
    gathered_bytes: float
    """Bytes of parameters of other ranks that FSDP has gathered."""
    gradients_bytes: float
    """Bytes of gradients that have accumulated."""
    optimizer_bytes: float
    """Bytes of master weights and moments."""
    activations_bytes: float
    """Bytes of everything else: saved for the backward pass, temporary, sent or received."""

    @property
    def peak_bytes(self) -> float:
        """The sum of all parts."""
        return float(sum(getattr(self, f.name) for f in fields(self)))


@value
class CollectiveCount:
    """Collectives of one kind in one step."""

    kind: str
    """``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``broadcast``, ``send``, ``receive``."""
    num_calls: float
    num_bytes: float
    """Bytes of the whole tensors: the result of an all-gather, the input of a reduce-scatter."""


@value
class OperationCounts:
    """The operations that one rank executes in one step."""

    flop: float
    """FLOP of matrix products and attention, including recomputation."""
    moved_bytes: float
    """Bytes that all operations read and write, as if each were a separate kernel."""
    num_operations: float
    """Number of these kernels. Views are not counted."""
    collectives: tuple[CollectiveCount, ...]


@value
class RankDryRun:
    """The dry run of one rank."""

    rank: int
    held: HeldBytes
    counts: OperationCounts


@value
class DryRun:
    """The dry runs of all requested ranks."""

    ranks: tuple[RankDryRun, ...]
    layers_run: tuple[int, ...] = ()
    """Layers per stage that ran if the model has more; empty: all layers ran."""
    micro_batches_run: tuple[int, ...] = ()
    """Micro-batches that ran if a replica has more; empty: all of them ran."""
    notes: tuple[str, ...] = ()
    """Differences between the job that ran and the requested one."""

    @property
    def fullest(self) -> RankDryRun:
        """The dry run of the rank with the highest peak."""
        return max(self.ranks, key=lambda answer: answer.held.peak_bytes)

    @property
    @derived
    def fullest_rank(self) -> int:
        """The rank with the highest peak."""
        return self.fullest.rank


def telling_ranks(layout: Layout) -> tuple[int, ...]:
    """Return ranks that include the fullest rank: one of each pipeline rank that may be it.

    The first pipeline rank embeds and has most micro-batches in flight, the last one holds the logits, and in a V the
    first does both. Where the first gives layers away, the second may be fuller. Within a pipeline rank the first
    rank is the fullest: shards that do not come out even leave the later ranks less.
    """
    last = layout.pipeline_parallel_degree - 1
    gives_away = layout.first_stage_less_layers > 0 or (
        layout.pipeline_schedule in V_SCHEDULES and layout.last_stage_less_layers > 0
    )
    places: Sequence[int] = sorted({0, min(1, last), last} if gives_away else {0, last})
    ranks_per_place = layout.world_size // layout.pipeline_parallel_degree
    return tuple(place * ranks_per_place for place in places)

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
    """A request for a dry run: it counts the memory and the operations of a trial without a device."""

    spec: TrialSpec
    ranks: tuple[int, ...]
    """Ranks of the whole job to run; ``telling_ranks`` returns the ranks that may have the highest peak."""
    exact: bool = False
    """Run every layer and micro-batch, however long that takes. Otherwise fewer of them run, and the rest is
    extrapolated linearly."""


@value
class HeldBytes:
    """The bytes of a rank's tensors by kind, at the moment when they need most memory. They sum to ``peak_bytes``."""

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
        """The peak memory of the rank in bytes: the sum of all parts."""
        return float(sum(getattr(self, f.name) for f in fields(self)))


@value
class CollectiveCount:
    """The number and the size of the collectives of one kind in one step."""

    kind: str
    """Kind of the collective: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``broadcast``,
    ``send`` or ``receive``."""
    num_calls: float
    num_bytes: float
    """Bytes of the whole tensor: the result of an all-gather, the input of a reduce-scatter."""


@value
class OperationCounts:
    """The operations of one rank in one step: FLOP, bytes, kernels and collectives."""

    flop: float
    """FLOP of matrix products and attention, including recomputation."""
    moved_bytes: float
    """Bytes that all operations read and write, as if each were a separate kernel."""
    num_operations: float
    """Number of operations, each counted as one kernel. Views are not counted."""
    collectives: tuple[CollectiveCount, ...]


@value
class RankDryRun:
    """The memory and the operations of one rank, counted without a device."""

    rank: int
    held: HeldBytes
    counts: OperationCounts


@value
class DryRun:
    """The dry runs of all requested ranks: their memory and operations, counted without a device."""

    ranks: tuple[RankDryRun, ...]
    layers_run: tuple[int, ...] = ()
    """Numbers of layers per stage that ran, if the model has more; empty: all layers ran."""
    micro_batches_run: tuple[int, ...] = ()
    """Numbers of micro-batches that ran, if a replica has more; empty: all of them ran."""
    notes: tuple[str, ...] = ()
    """Differences between the job that ran and the requested one."""

    @property
    def fullest(self) -> RankDryRun:
        """The dry run of the rank with the highest peak memory."""
        return max(self.ranks, key=lambda answer: answer.held.peak_bytes)

    @property
    @derived
    def fullest_rank(self) -> int:
        """The number of the rank with the highest peak memory."""
        return self.fullest.rank


def telling_ranks(layout: Layout) -> tuple[int, ...]:
    """Return a few ranks, one per pipeline rank, that include the rank with the highest peak memory.

    The first pipeline rank holds the embedding and the most micro-batches in flight. The last pipeline rank holds the
    logits; in V-shaped schedules the first one holds them, too. If the first stage has fewer layers than others, the
    second pipeline rank may have the highest peak. Within a pipeline rank, the first rank has the highest peak, because
    later ranks may hold smaller shards.
    """
    last = layout.pipeline_parallel_degree - 1
    gives_away = layout.first_stage_less_layers > 0 or (
        layout.pipeline_schedule in V_SCHEDULES and layout.last_stage_less_layers > 0
    )
    places: Sequence[int] = sorted({0, min(1, last), last} if gives_away else {0, last})
    ranks_per_place = layout.world_size // layout.pipeline_parallel_degree
    return tuple(place * ranks_per_place for place in places)

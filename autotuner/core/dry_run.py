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
    """What is to be counted."""

    spec: TrialSpec
    ranks: tuple[int, ...]
    """Ranks of the whole job that are run; which ones tell, ``telling_ranks`` knows."""
    exact: bool = False
    """Run every layer and micro-batch, however long that takes; else fewer, and go on in a straight line."""


@value
class HeldBytes:
    """Bytes of a rank's tensors at the moment when they are most; the parts sum to ``peak_bytes``."""

    parameters_bytes: float
    """What the rank keeps of the model between steps."""
    gathered_bytes: float
    """Parameters of others that FSDP has gathered."""
    gradients_bytes: float
    """Gradients of parameters, accumulated so far."""
    optimizer_bytes: float
    """Master weights and moments."""
    activations_bytes: float
    """All else: saved for the backward pass, worked on, sent or received."""

    @property
    def peak_bytes(self) -> float:
        """All parts together."""
        return float(sum(getattr(self, f.name) for f in fields(self)))


@value
class CollectiveCount:
    """Collectives of one kind in one step."""

    kind: str
    """``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``broadcast``, ``send``, ``receive``."""
    num_calls: float
    num_bytes: float
    """Bytes of the whole tensors: what an all-gather gives, what a reduce-scatter takes."""


@value
class OperationCounts:
    """What one step of one rank executes."""

    flop: float
    """Operations of matrix products and attention, with what is recomputed."""
    moved_bytes: float
    """Read and written by all operations, as if each were a kernel of its own."""
    num_operations: float
    """Those kernels; views are none."""
    collectives: tuple[CollectiveCount, ...]


@value
class RankDryRun:
    """The answer for one rank."""

    rank: int
    held: HeldBytes
    counts: OperationCounts


@value
class DryRun:
    """The answer for all ranks that were asked for."""

    ranks: tuple[RankDryRun, ...]
    layers_run: tuple[int, ...] = ()
    """Layers per stage that ran where the model's have more; empty: all of them ran."""
    micro_batches_run: tuple[int, ...] = ()
    """Micro-batches that ran where a replica has more; empty: all of them ran."""
    notes: tuple[str, ...] = ()
    """In what the job that ran differs from the one asked for."""

    @property
    def fullest(self) -> RankDryRun:
        """The answer of the rank with the highest peak."""
        return max(self.ranks, key=lambda answer: answer.held.peak_bytes)

    @property
    @derived
    def fullest_rank(self) -> int:
        """The rank with the highest peak."""
        return self.fullest.rank


def telling_ranks(layout: Layout) -> tuple[int, ...]:
    """The ranks among which the fullest is, one of each pipeline rank that may be it.

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

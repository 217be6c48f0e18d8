"""Dry run: the memory that a layout allocates, without devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from autotuner.core.layout import Layout
from autotuner.core.stages import V_SCHEDULES
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.value import value


@value
class DryRunRequest:
    """What is to be counted.

    Attributes:
        ranks: Ranks of the whole job that are run; which ones tell, ``telling_ranks`` knows.
        exact: Run every layer and micro-batch, however long that takes; else fewer, and go on in a straight line.
    """

    spec: TrialSpec
    ranks: tuple[int, ...]
    exact: bool = False


@value
class HeldBytes:
    """Bytes of a rank's tensors at the moment when they are most; the parts sum to ``peak_bytes``.

    Attributes:
        parameters_bytes: What the rank keeps of the model between steps.
        gathered_bytes: Parameters of others that FSDP has gathered.
        gradients_bytes: Gradients of parameters, accumulated so far.
        optimizer_bytes: Master weights and moments.
        activations_bytes: All else: saved for the backward pass, worked on, sent or received.
    """

    parameters_bytes: float
    gathered_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float

    @property
    def peak_bytes(self) -> float:
        """All parts together."""
        return float(sum(getattr(self, f.name) for f in fields(self)))


@value
class CollectiveCount:
    """Collectives of one kind in one step.

    Attributes:
        kind: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``broadcast``, ``send``, ``receive``.
        num_bytes: Bytes of the whole tensors: what an all-gather gives, what a reduce-scatter takes.
    """

    kind: str
    num_calls: float
    num_bytes: float


@value
class OperationCounts:
    """What one step of one rank executes.

    Attributes:
        flop: Operations of matrix products and attention, with what is recomputed.
        moved_bytes: Read and written by all operations, as if each were a kernel of its own.
        num_operations: Those kernels; views are none.
    """

    flop: float
    moved_bytes: float
    num_operations: float
    collectives: tuple[CollectiveCount, ...]


@value
class RankDryRun:
    """The answer for one rank."""

    rank: int
    held: HeldBytes
    counts: OperationCounts


@value
class DryRun:
    """The answer for all ranks that were asked for.

    Attributes:
        layers_run: Layers per stage that ran where the model's have more; empty: all of them ran.
        micro_batches_run: Micro-batches that ran where a replica has more; empty: all of them ran.
        notes: In what the job that ran differs from the one asked for.
    """

    ranks: tuple[RankDryRun, ...]
    layers_run: tuple[int, ...] = ()
    micro_batches_run: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fullest(self) -> RankDryRun:
        """The rank with the highest peak."""
        return max(self.ranks, key=lambda answer: answer.held.peak_bytes)


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

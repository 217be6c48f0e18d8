"""What a core spends beside products, memory traffic and messages: Python, dispatch, and waking its threads.

On a GPU the host launches kernels while the device computes. A core does both, one after the other, and what it calls
may take longer than what it computes, above all where layers are distributed tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CoreTimes", "PassTimes", "ShardTimes", "SplitTimes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Seconds of one micro-batch, either way."""

    forward_s: float
    backward_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTimes:
    """What splitting a layer over tensor ranks adds: dispatch of distributed tensors, and waiting for each other.

    Attributes:
        num_ranks: Tensor ranks.
        layer: Of one layer, with the start of its collectives and the wait for the other ranks, without their bytes.
        ends: Of embedding, last norm, output and loss together, in the same way.
        dispatch_s: What of the layer's forward pass is no waiting.
    """

    num_ranks: int
    sequence_parallel: bool
    layer: PassTimes
    ends: PassTimes
    dispatch_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTimes:
    """What sharding a layer's parameters adds to each use of them, with the start of collectives, without their bytes.

    Attributes:
        num_ranks: Shards; with others it grows with the steps of a ring.
        gather_s: Before use.
        reduce_s: Of gradients, after it.
    """

    num_ranks: int
    gather_s: float
    reduce_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTimes:
    """Seconds of a core's own for a micro-batch, as a profile measured them; all but the first two are further ones.

    Attributes:
        layer: A layer that nothing splits.
        ends: Embedding, last norm, output and loss together.
        selective: A layer that recomputes what products do not need, each operation of which is watched.
        full: A layer that recomputes all.
        sharded: A layer whose parameters are sharded; None where there was one rank.
        split: Layers on tensor ranks, by their number, with and without sequence parallelism.
        pointwise_bytes_per_s: At which what lies between products seems to move its operands once.
    """

    layer: PassTimes
    ends: PassTimes
    selective: PassTimes
    full: PassTimes
    sharded: ShardTimes | None
    split: tuple[SplitTimes, ...]
    pointwise_bytes_per_s: float

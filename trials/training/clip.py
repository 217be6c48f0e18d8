"""Gradient clipping by the norm of the whole model's gradient, however it is spread over ranks.

torch's ``clip_grad_norm_`` knows the axes that its DTensors are split over, and neither the pipeline's nor flat
buckets: each stage would clip by a norm of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.choices import GradientClip
from trials.clipping.bound import bucket_bound, clip, squared_norms
from trials.distributed.data.flat_buckets import BucketShard
from trials.distributed.data.optimizer_shard import OptimizerShard
from trials.distributed.mesh import Grid
from trials.distributed.tied import TiedTables

_TIED_COPIES = 4
"""Buckets that the two copies of a tied table count for: their sum may have twice the norm of either."""


def total_norm(
    gradients: Sequence[Tensor],
    num_replicas: Sequence[int],
    groups: Sequence[dist.ProcessGroup | None] = (None,),
) -> Tensor:
    """Norm over the ranks of a gradient, each element counted once: its squares are divided among those that hold it.

    Args:
        gradients: What this rank holds, in fp32.
        num_replicas: How often the ranks together hold the same elements, of each tensor.
        groups: Axes of ranks to sum over, one after the other; by default the whole job.
    """
    squares = torch._foreach_div(squared_norms(gradients), [float(number) for number in num_replicas])
    total = torch.stack(squares).sum()
    for group in groups:
        dist.all_reduce(total, group=group)
    return total.sqrt()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaClip:
    """Clips this replica's own gradient, whole, before any of it is reduced.

    Attributes:
        buckets: All that this rank holds.
        groups: Axes of the ranks that hold the replica together.
        tied: Its copies of a tied table, whose gradients are one sum.
    """

    buckets: Sequence[BucketShard]
    max_norm: float
    groups: Sequence[dist.ProcessGroup]
    tied: TiedTables | None

    def __call__(self) -> None:
        """The last backward pass of the step is done."""
        gradients = [bucket.own_gradient() for bucket in self.buckets]
        if self.tied is not None:
            self.tied.sum(gradients)
        norm = total_norm(gradients, [bucket.num_copies for bucket in self.buckets], self.groups)
        clip(gradients, norm, self.max_norm)


def clip_before_reduction(
    shards: Sequence[OptimizerShard], grid: Grid, max_norm: float | None, tied: TiedTables | None
) -> Callable[[], None] | None:
    """What clips at the end of the backward passes, where each replica clips its own gradient whole.

    None where nobody does; buckets that are clipped as they fill know their bound from now on.
    """
    clips = grid.layout.gradient_clip
    if max_norm is None or clips == GradientClip.POST:
        return None
    buckets = [shard for shard in shards if isinstance(shard, BucketShard)]
    assert len(buckets) == len(shards), "a rank that clips before the reduction reduces by itself"
    if clips == GradientClip.BUCKET:
        _bound(buckets, max_norm)
        return None
    groups = grid.axis("tp").get_group(), grid.pipeline
    return ReplicaClip(buckets=buckets, max_norm=max_norm, groups=groups, tied=tied)


def _bound(buckets: Sequence[BucketShard], max_norm: float) -> None:
    """Tell every bucket the norm that it may have, by how many the whole model has.

    Tensor ranks and stages hold buckets of their own, and copies of one count once.
    """
    own = sum((_TIED_COPIES if bucket.is_tied else 1) / bucket.num_holders for bucket in buckets)
    number = torch.tensor(own, dtype=torch.float64, device=buckets[0].values().device)
    dist.all_reduce(number)
    for bucket in buckets:
        bucket.max_norm = bucket_bound(max_norm, number)

"""Divides a stage's parameters into the optimizer shards that a rank updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from autotuner.core.choices import ShardLevel
from autotuner.core.trial_spec import TrialSpec
from autotuner.training.clipping import Overlap, average
from autotuner.training.communicator import Communicator
from trials.distributed.mesh import Grid
from trials.distributed.optimizer_shards import (
    BucketShard,
    OptimizerShard,
    ParameterShard,
    Reduction,
    buckets,
    num_parts,
)
from trials.model.decoder import Decoder, parameter_dtype


class _Kind(NamedTuple):
    """What parameters of one bucket have in common."""

    num_replicas: int
    is_tied: bool


def optimizer_shards(stage: nn.Module, spec: TrialSpec, grid: Grid, overlap: Overlap) -> list[OptimizerShard]:
    """The shards of all parameters of a stage; where nobody else reduces them, they lie in flat buckets from now on.

    What is reduced by DDP or in flat buckets is counted in ``overlap``; of FSDP's own reductions nobody hears.
    """
    if isinstance(stage, DistributedDataParallel):
        average(
            stage,
            dtype=torch.float32 if spec.layout.fp32_gradient_reduce else None,
            overlap=overlap,
            all_reduce=grid.communicator(grid.replicas).all_reduce if grid.has_own_collectives else None,
        )
    if not _is_flat(stage, grid):
        return [ParameterShard(parameter, **kind._asdict()) for parameter, kind in _parameters(stage, spec, grid)]
    kinds: dict[_Kind, list[nn.Parameter]] = defaultdict(list)
    for parameter, kind in _parameters(stage, spec, grid):
        kinds[kind].append(parameter)
    reduction = _reduction(spec, grid, overlap)
    return [
        BucketShard(stage, bucket, reduction, **kind._asdict())
        for kind, parameters in kinds.items()
        for bucket in buckets(parameters, spec.layout.gradient_bucket_bytes)
    ]


def _is_flat(stage: nn.Module, grid: Grid) -> bool:
    """Whether somebody must reduce the gradients, and neither FSDP nor DDP does."""
    level = grid.layout.shard_level
    if level == ShardLevel.NONE:
        return grid.num_losses > 1 and not isinstance(stage, DistributedDataParallel)
    return level == ShardLevel.OPTIMIZER


def _reduction(spec: TrialSpec, grid: Grid, overlap: Overlap) -> Reduction:
    layout = spec.layout
    shards: Communicator | None
    replicas: Communicator | None
    if layout.shard_level == ShardLevel.NONE:
        shards, replicas = None, grid.communicator(grid.replicas)
    else:
        shards = grid.communicator(grid.axis("shard"))
        is_replicated = layout.data_parallel_replicate_degree > 1 and grid.sums_over_replicas
        replicas = grid.communicator(grid.axis("dp_replicate")) if is_replicated else None
    dtype = torch.float32 if layout.fp32_gradient_reduce else parameter_dtype(layout.precision)
    return Reduction(shards=shards, replicas=replicas, num_losses=grid.num_losses, dtype=dtype, overlap=overlap)


def _parameters(stage: nn.Module, spec: TrialSpec, grid: Grid) -> Iterator[tuple[nn.Parameter, _Kind]]:
    """Each parameter once, with how many ranks of its gradient hold the elements that this rank holds of it."""
    ranks_per_stage = grid.gradient.size() // spec.layout.pipeline_parallel_degree
    elsewhere = _table_elsewhere(stage, spec)
    for parameter in stage.parameters():
        is_tied = parameter is elsewhere
        num_replicas = ranks_per_stage // num_parts(parameter)
        yield parameter, _Kind(num_replicas=2 * num_replicas if is_tied else num_replicas, is_tied=is_tied)


def _table_elsewhere(stage: nn.Module, spec: TrialSpec) -> nn.Parameter | None:
    """The tied table of this stage, where its other copy is on another stage."""
    decoder = next(module for module in stage.modules() if isinstance(module, Decoder))
    if not spec.model.tied_embeddings or spec.layout.num_stages == 1:
        return None
    for table in (decoder.embedding, decoder.output):
        if table is not None and isinstance(table.weight, nn.Parameter):
            return table.weight
    return None

"""Which shares of a stage a rank updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from autotuner.domain.choice import ShardLevel
from autotuner.domain.trial import TrialSpec
from trials.distributed.data.flat_buckets import Reduction, Slice, buckets
from trials.distributed.data.optimizer_shard import ParameterShare, Share, num_parts
from trials.distributed.mesh import Grid
from trials.model.decoder import Decoder
from trials.model.weights import parameter_dtype

__all__ = ["shares_of"]


class _Kind(NamedTuple):
    """What parameters of one bucket have in common."""

    num_copies: int
    is_tied: bool


def shares_of(stage: nn.Module, spec: TrialSpec, grid: Grid) -> list[Share]:
    """The shares of all parameters of a stage; where nobody else reduces them, they lie in flat memory from now on."""
    if not _is_flat(stage, grid):
        return [ParameterShare(parameter, **kind._asdict()) for parameter, kind in _parameters(stage, spec)]
    kinds: dict[_Kind, list[nn.Parameter]] = defaultdict(list)
    for parameter, kind in _parameters(stage, spec):
        kinds[kind].append(parameter)
    reduction = _reduction(spec, grid)
    return [
        Slice(stage, bucket, reduction, **kind._asdict())
        for kind, parameters in kinds.items()
        for bucket in buckets(parameters, spec.layout.gradient_bucket_bytes)
    ]


def _is_flat(stage: nn.Module, grid: Grid) -> bool:
    """Whether somebody must reduce the gradients, and neither FSDP nor DDP does."""
    level = grid.layout.shard_level
    if level == ShardLevel.NONE:
        return grid.num_losses > 1 and not isinstance(stage, DistributedDataParallel)
    return level == ShardLevel.OPTIMIZER


def _reduction(spec: TrialSpec, grid: Grid) -> Reduction:
    layout = spec.layout
    shards: DeviceMesh | None
    copies: DeviceMesh | None
    if layout.shard_level == ShardLevel.NONE:
        shards, copies = None, grid.copies
    else:
        shards = grid.axis("shard")
        copies = grid.axis("dp_replicate") if layout.data_parallel_replicate_degree > 1 else None
    dtype = torch.float32 if layout.fp32_gradient_reduce else parameter_dtype(layout.precision)
    return Reduction(shards=shards, copies=copies, num_losses=grid.num_losses, dtype=dtype)


def _parameters(stage: nn.Module, spec: TrialSpec) -> Iterator[tuple[nn.Parameter, _Kind]]:
    """Each parameter once, with the places of the whole job that hold its elements as this rank does."""
    layout = spec.layout
    ranks_per_stage = layout.world_size // layout.pipeline_parallel_degree
    elsewhere = _table_elsewhere(stage, spec)
    for parameter in stage.parameters():
        is_tied = parameter is elsewhere
        copies = ranks_per_stage // num_parts(parameter)
        yield parameter, _Kind(num_copies=2 * copies if is_tied else copies, is_tied=is_tied)


def _table_elsewhere(stage: nn.Module, spec: TrialSpec) -> nn.Parameter | None:
    """The tied table of this stage, where the other of its two places is on another stage."""
    decoder = next(module for module in stage.modules() if isinstance(module, Decoder))
    if not spec.model.tied_embeddings or spec.layout.num_stages == 1:
        return None
    for place in (decoder.embedding, decoder.output):
        if place is not None and isinstance(place.weight, nn.Parameter):
            return place.weight
    return None

"""Makes a decoder parallel, layer by layer; each kind of parallelism and each option has its own module.

A layer is complete on a rank only between its initialisation and its sharding, so a model whose shards fit never has to
fit as a whole.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from autotuner.core.stages import stage_layers, stages_of_rank
from autotuner.core.trial_spec import TrialSpec
from autotuner.trials.distributed.context import context_core, context_part
from autotuner.trials.distributed.expert import local_experts, spread_experts
from autotuner.trials.distributed.fsdp_ddp import replicated_or_sharded, shard, shard_experts
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.distributed.tensor import split_ends, split_layer
from autotuner.trials.model.attention import attention_core
from autotuner.trials.model.decoder import Decoder, materialise, parameter_dtype
from autotuner.trials.options import compiled, offloaded, recomputed, use_fp8


def parallel_stages(spec: TrialSpec, grid: Grid, device: torch.device) -> tuple[nn.Module, ...]:
    """Return this rank's pipeline stages in model order, split and sharded as the layout says and ready to train."""
    stages = stages_of_rank(spec.layout, grid.position("pp"))
    return tuple(_parallel_stage(spec, grid, device, stage) for stage in stages)


def first_layer(stage: nn.Module) -> nn.Module:
    """Return the first transformer layer of a stage that ``parallel_stages`` returned."""
    layers = next(module for module in stage.modules() if isinstance(module, nn.ModuleDict))
    return next(iter(layers.values()))


def _parallel_stage(spec: TrialSpec, grid: Grid, device: torch.device, stage: int) -> nn.Module:
    decoder = _meta_decoder(spec, grid, device, stage)
    fill = partial(materialise, seed=spec.seed, device=device, dtype=parameter_dtype(spec.layout.precision))
    for index_in_stage, (index, layer) in enumerate(list(decoder.layers.items())):
        fill(layer, f"layers.{index}")
        decoder.layers[index] = _parallel_layer(layer, spec, grid, device, index_in_stage=index_in_stage)
    for name in ("embedding", "positions", "norm", "output"):
        if (module := getattr(decoder, name)) is not None:
            # a tied table that is not on this stage as an embedding has an embedding's values all the same
            fill(module, "embedding" if name == "output" and spec.model.tied_embeddings else name)
    split_ends(decoder, spec, grid)
    if spec.model.tied_embeddings and decoder.output is not None and decoder.embedding is not None:
        decoder.output.weight = decoder.embedding.weight
    return replicated_or_sharded(decoder, grid)


def _meta_decoder(spec: TrialSpec, grid: Grid, device: torch.device, stage: int) -> Decoder:
    """Return the layers of a stage on the meta device, without memory."""
    layout, seq_len = spec.layout, spec.workload.seq_len
    core = context_core(attention_core(layout.attention_kernel, seq_len=seq_len, device=device), grid, device)
    positions, experts = context_part(grid).own_positions, local_experts(grid)
    with torch.device("meta"):
        return Decoder(
            spec.model,
            seq_len=seq_len // layout.context_parallel_degree,
            layers=stage_layers(layout, spec.model.num_layers, stage),
            token_positions=positions,
            core=core,
            experts=experts,
            fused_norm=layout.fused_norm,
        )


def _parallel_layer(
    layer: nn.Module, spec: TrialSpec, grid: Grid, device: torch.device, *, index_in_stage: int
) -> nn.Module:
    """Return a layer with its values, split, wrapped and sharded."""
    layout = spec.layout
    use_fp8(layer, layout)
    spread_experts(layer, grid)
    split_layer(layer, spec, grid)
    layer = recomputed(layer, layout, index_in_stage=index_in_stage)
    layer = offloaded(compiled(layer, layout, grid.axis("tp")), layout, device)
    shard_experts(layer, grid)
    shard(layer, grid)
    return layer

"""Makes a decoder parallel: tensor parallelism, recomputation, then data parallelism, layer by layer.

A layer exists in full on a rank only between its first values and its sharding, so a model whose shards fit never
has to fit as a whole.
"""

from __future__ import annotations

import warnings
from functools import partial

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn.parallel import DistributedDataParallel

from autotuner.domain.choice import Recompute
from autotuner.domain.trial import TrialSpec
from trials.mesh import Grid, stage_layers
from trials.model import Decoder
from trials.weights import materialise, parameter_dtype

__all__ = ["first_layer", "parallel_decoder"]

_Plan = dict[str, ParallelStyle]


def parallel_decoder(spec: TrialSpec, grid: Grid, device: torch.device) -> nn.Module:
    """This rank's part of the model, ready to train."""
    layout = spec.layout
    layers = stage_layers(spec.model.num_layers, layout.num_stages, grid.position("pp"))
    with torch.device("meta"):
        decoder = Decoder(spec.model, seq_len=spec.workload.seq_len, layers=layers)
    fill = partial(materialise, seed=spec.seed, device=device, dtype=parameter_dtype(layout.precision))
    for index, layer in list(decoder.layers.items()):
        fill(layer, f"layers.{index}")
        _split(layer, _layer_plan(spec), grid)
        if layout.recompute == Recompute.FULL:
            layer = decoder.layers[index] = checkpoint_wrapper(layer)  # noqa: PLW2901  # the same layer, wrapped
        if layout.data_parallel_shard_degree > 1:
            _shard(layer, grid)
    for name in ("embedding", "positions", "norm", "output"):
        if (module := getattr(decoder, name)) is not None:
            fill(module, name)
    _split(decoder, _ends_plan(sequence_parallel=layout.sequence_parallel), grid)
    if spec.model.tied_embeddings and decoder.output is not None and decoder.embedding is not None:
        decoder.output.weight = decoder.embedding.weight
    return _data_parallel(decoder, grid)


def first_layer(model: nn.Module) -> nn.Module:
    """The first layer that this rank holds of a ``parallel_decoder``."""
    layers = next(module for module in model.modules() if isinstance(module, nn.ModuleDict))
    return next(iter(layers.values()))


def _data_parallel(decoder: Decoder, grid: Grid) -> nn.Module:
    layout = grid.layout
    if layout.data_parallel_shard_degree > 1:
        _shard(decoder, grid)
        return decoder
    if layout.data_parallel_replicate_degree == 1:
        return decoder
    if layout.tensor_parallel_degree > 1:
        _pre_dp_module_transform(decoder)  # DDP reduces plain tensors, the forward gets its DTensors back
    return DistributedDataParallel(
        decoder,
        process_group=grid.axis("dp_replicate").get_group(),
        init_sync=False,  # the first values are equal by construction
        gradient_as_bucket_view=True,
    )


def _shard(module: nn.Module, grid: Grid) -> None:
    """FSDP2, or HSDP where the shards are replicated as well."""
    hybrid = grid.layout.data_parallel_replicate_degree > 1
    mesh = grid.axis("dp_replicate", "dp_shard") if hybrid else grid.axis("dp_shard")
    # the logits of a tensor rank are a view of a DTensor; the warning is for those who write into them
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    fully_shard(module, mesh=mesh, reshard_after_forward=grid.layout.reshard_after_forward)


def _split(module: nn.Module, plan: _Plan, grid: Grid) -> None:
    """Split what the plan names over the tensor ranks; each keeps its part of the values it already has."""
    if grid.layout.tensor_parallel_degree == 1:
        return
    present = {name: style for name, style in plan.items() if isinstance(_submodule(module, name), nn.Module)}
    parallelize_module(module, grid.axis("tp"), present, src_data_rank=None)


def _submodule(module: nn.Module, name: str) -> object:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _layer_plan(spec: TrialSpec) -> _Plan:
    """Megatron's split (arXiv 1909.08053, section 3); with sequence parallelism (arXiv 2205.05198, section 4.2.2).

    Queries, keys and values read one prepared input, so its gradient is reduced once and not three times.
    """
    between = Shard(1) if spec.layout.sequence_parallel else Replicate()
    entry = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    plan: _Plan = {
        "attention": PrepareModuleInput(input_layouts=(between, None), desired_input_layouts=(Replicate(), None)),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.output": RowwiseParallel(output_layouts=between),
        "mlp": entry,
        "mlp.gate": ColwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=between),
    }
    if spec.model.qk_norm:  # the heads are split, so each rank's gradient of the norm is a part of the sum
        plan["attention.query_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
        plan["attention.key_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
    if spec.layout.sequence_parallel:
        plan["attention_norm"] = SequenceParallel()
        plan["mlp_norm"] = SequenceParallel()
    return plan


def _ends_plan(*, sequence_parallel: bool) -> _Plan:
    """Both vocabulary tables split by rows; the logits stay split (``loss``)."""
    between = Shard(1) if sequence_parallel else Replicate()
    plan: _Plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "positions": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "output": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1)),
    }
    if sequence_parallel:
        plan["norm"] = SequenceParallel()
    return plan

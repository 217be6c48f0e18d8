"""Tensor parallelism: which matrix is split how, with or without sequence parallelism."""

from __future__ import annotations

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from autotuner.core.trial_spec import TrialSpec
from trials.distributed.expert import routed_plan
from trials.distributed.loss import splits_logits
from trials.distributed.mesh import Grid
from trials.distributed.split_table import SplitTable
from trials.model.decoder import Decoder
from trials.model.experts import SparseFeedForward

_Plan = dict[str, ParallelStyle]


def split_layer(layer: nn.Module, spec: TrialSpec, grid: Grid) -> None:
    """Split a layer's matrices over the tensor ranks; each keeps its part of the values it already has."""
    plan = _layer_plan(spec)
    if isinstance(layer.mlp, SparseFeedForward):
        plan |= routed_plan(spec.layout, "mlp.routed") | _feed_forward_plan(spec, "mlp.shared")
    else:
        plan |= _feed_forward_plan(spec, "mlp")
    _split(layer, plan, grid)


def split_ends(decoder: Decoder, spec: TrialSpec, grid: Grid) -> None:
    """Split the embedding and the output over the tensor ranks, where this part of the model has them."""
    _split(decoder, _ends_plan(spec), grid)
    if grid.layout.compiled and grid.layout.tensor_parallel_degree > 1 and decoder.embedding is not None:
        # a compiled layer takes the embedding for a view of a DTensor and loses its gradient (torch 2.13); not a copy
        decoder.embedding.register_forward_hook(lambda module, args, x: x.clone())


def _split(module: nn.Module, plan: _Plan, grid: Grid) -> None:
    if grid.layout.tensor_parallel_degree == 1:
        return
    present = {name: style for name, style in plan.items() if isinstance(_submodule(module, name), nn.Module)}
    parallelize_module(module, grid.axis("tp"), present, src_data_rank=None)


def _submodule(module: nn.Module, name: str) -> object:
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _layer_plan(spec: TrialSpec) -> _Plan:
    """Megatron's split (arXiv 1909.08053, section 3); with sequence parallelism (arXiv 2205.05198, section 4.2.2).

    Queries, keys and values read one prepared input, so its gradient is reduced once and not three times.
    """
    between = Shard(1) if spec.layout.sequence_parallel else Replicate()
    plan: _Plan = {
        "attention": PrepareModuleInput(
            input_layouts=(between, None, None), desired_input_layouts=(Replicate(), None, None)
        ),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.output": RowwiseParallel(output_layouts=between),
    }
    if spec.model.qk_norm:  # the heads are split, so each rank's gradient of the norm is a part of the sum
        plan["attention.query_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
        plan["attention.key_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
    if spec.layout.sequence_parallel:
        plan["attention_norm"] = SequenceParallel()
        plan["mlp_norm"] = SequenceParallel()
    return plan


def _feed_forward_plan(spec: TrialSpec, path: str) -> _Plan:
    between = Shard(1) if spec.layout.sequence_parallel else Replicate()
    return {
        path: PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
        f"{path}.gate": ColwiseParallel(),
        f"{path}.up": ColwiseParallel(),
        f"{path}.down": RowwiseParallel(output_layouts=between),
    }


def _ends_plan(spec: TrialSpec) -> _Plan:
    """Both vocabulary tables split by rows; the logits stay split if the loss takes them so (``loss``)."""
    between = Shard(1) if spec.layout.sequence_parallel else Replicate()
    logits = Shard(-1) if splits_logits(spec.layout) else Replicate()
    plan: _Plan = {
        "embedding": SplitTable(between),
        "positions": SplitTable(between),
        "output": ColwiseParallel(input_layouts=between, output_layouts=logits),
    }
    if spec.layout.sequence_parallel:
        plan["norm"] = SequenceParallel()
    return plan

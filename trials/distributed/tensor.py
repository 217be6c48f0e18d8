"""Tensor parallelism: how each matrix is split, including the vocabulary table and the loss of split logits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional

from autotuner.core.layout import Layout
from autotuner.core.trial_spec import TrialSpec
from autotuner.trials.distributed.expert import routed_plan
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.model.decoder import Decoder, Loss, cross_entropy
from autotuner.trials.model.experts import SparseFeedForward

# A vocabulary table whose rows are split over the tensor ranks.


class SplitTable(ParallelStyle):
    """The parallel style of a split embedding: each rank looks up tokens in its own rows, and the results are summed.

    Source: arXiv 1909.08053, section 3. ``RowwiseParallel`` does the same in the forward pass. In the backward pass,
    however, ``RowwiseParallel`` creates a gradient of the whole table on every rank, and keeps it until the end of the
    step (``embedding_dense_backward`` of DTensor, torch 2.13).
    """

    def __init__(self, found: Placement) -> None:
        self._found = found

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        module = distribute_module(module, device_mesh, _split_rows)
        module.forward = partial(_look_up, module, device_mesh, self._found)
        return module


def _split_rows(name: str, module: nn.Module, device_mesh: DeviceMesh) -> None:
    del name
    for leaf, parameter in list(module.named_parameters(recurse=False)):
        held = distribute_tensor(parameter, device_mesh, [Shard(0)], src_data_rank=None)
        setattr(module, leaf, nn.Parameter(held))


def _look_up(module: nn.Module, device_mesh: DeviceMesh, found: Placement, rows: Tensor) -> Tensor:
    table = module.weight
    assert isinstance(table, DTensor)
    held = table.to_local()
    first = device_mesh.get_local_rank() * -(-len(table) // device_mesh.size())  # DTensor fills the ranks in turn
    is_held = (rows >= first) & (rows < first + len(held))
    part = functional.embedding((rows - first).where(is_held, 0), held).where(is_held[..., None], 0)
    whole = DTensor.from_local(part, device_mesh, [Partial()], run_check=False).redistribute(placements=[found])
    local: Tensor = whole.to_local()
    return local


# The loss of logits whose vocabulary is split over the tensor ranks (``loss_parallel``), or gathered.


def splits_logits(layout: Layout) -> bool:
    """Return True if each tensor rank has only the logits of its part of the vocabulary; False if it has all logits."""
    return layout.tensor_parallel_degree > 1 and layout.loss_parallel


def loss_of(layout: Layout, tensor_axis: DeviceMesh, vocab_size: int) -> Loss:
    """Return the loss function for the logits of a rank of this layout. Call the function inside ``loss_context``."""
    return _vocabulary_parallel_cross_entropy(tensor_axis, vocab_size) if splits_logits(layout) else cross_entropy


def loss_context(layout: Layout) -> AbstractContextManager[None]:
    """Return a context in which the forward and the backward pass of the loss must run.

    If each tensor rank has only a part of the logits, DTensor computes the loss from all parts in this context.
    Otherwise the context changes nothing.
    """
    return loss_parallel() if splits_logits(layout) else nullcontext()


def logits_per_token(layout: Layout, vocab_size: int, rank: int) -> int:
    """Return the number of logits of a token on one tensor rank.

    DTensor gives each rank as many logits as the first one until none are left. So the last ranks may have fewer.
    """
    if not splits_logits(layout):
        return vocab_size
    num_per_rank = -(-vocab_size // layout.tensor_parallel_degree)
    return max(0, min(num_per_rank, vocab_size - rank * num_per_rank))


def _vocabulary_parallel_cross_entropy(tensor_axis: DeviceMesh, vocab_size: int) -> Loss:
    """Return a cross-entropy that is computed from each rank's part of the logits, which are never gathered."""

    def loss(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
        shape = torch.Size((*logits_BSV.shape[:2], vocab_size))
        stride = (shape[1] * vocab_size, vocab_size, 1)
        whole = DTensor.from_local(logits_BSV, tensor_axis, [Shard(2)], run_check=False, shape=shape, stride=stride)
        total = cross_entropy(whole, labels_BS)
        return total.to_local() if isinstance(total, DTensor) else total

    return loss


# Tensor parallelism: which matrix is split how, with or without sequence parallelism.

_Plan = dict[str, ParallelStyle]


def split_layer(layer: nn.Module, spec: TrialSpec, grid: Grid) -> None:
    """Split the matrices of a layer over the tensor ranks. Each rank keeps its part of the matrices' values."""
    plan = _layer_plan(spec)
    if isinstance(layer.mlp, SparseFeedForward):
        plan |= routed_plan(spec.layout, "mlp.routed") | _feed_forward_plan(spec, "mlp.shared")
    else:
        plan |= _feed_forward_plan(spec, "mlp")
    _split(layer, plan, grid)


def split_ends(decoder: Decoder, spec: TrialSpec, grid: Grid) -> None:
    """Split the embedding and the output projection over the tensor ranks, if this part of the model contains them."""
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
    """Return Megatron's split of a layer (arXiv 1909.08053, section 3), with or without sequence parallelism.

    Sequence parallelism follows arXiv 2205.05198, section 4.2.2. Queries, keys and values share one prepared input, so
    its gradient is reduced once instead of three times.
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
    """Return the split of both vocabulary tables by rows; the logits stay split if the loss accepts split logits."""
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


# A tied vocabulary table that lies on two pipeline stages: the gradients of its two copies are one sum.


class TiedTables:
    """The copies of a tied vocabulary table on this rank: the first stage's embedding and the last stage's output.

    Both copies begin with the same values and get the same gradients, so they stay equal without a comparison. The two
    ranks that hold the same part of the table are the first and the last rank of one pipeline. With a V-shaped
    schedule, the first rank holds both copies.
    """

    def __init__(self, tied: Sequence[int], pipeline: dist.ProcessGroup) -> None:
        """Store the indices of the tied tables (one or two) among this rank's optimizer shards."""
        self._tied = tied
        self._group = pipeline
        self._last = dist.get_world_size(pipeline) - 1

    def sum(self, gradients: Sequence[Tensor]) -> None:
        """Replace the gradient of each copy of the table by the sum over all copies, in place.

        Args:
            gradients: The gradients of all optimizer shards of this rank, in their order.
        """
        own = [gradients[index] for index in self._tied]
        if len(own) == 2:
            own[0] += own[1]
            own[1].copy_(own[0])
        else:
            own[0] += self._exchanged(own[0])

    def _exchanged(self, gradient: Tensor) -> Tensor:
        """Exchange gradients with the other end of the pipeline, and return the gradient of the other copy."""
        theirs = torch.empty_like(gradient)
        end = self._last if dist.get_rank(self._group) == 0 else 0
        peer = dist.get_global_rank(self._group, end)
        send = dist.P2POp(dist.isend, gradient, peer, self._group)
        receive = dist.P2POp(dist.irecv, theirs, peer, self._group)
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()
        return theirs

"""The loss of logits whose vocabulary is split over the tensor ranks (``loss_parallel``), or gathered."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel

from autotuner.core.layout import Layout
from trials.model.loss import Loss, cross_entropy


def splits_logits(layout: Layout) -> bool:
    """Each tensor rank keeps its part of the vocabulary's logits; else every rank has all of them."""
    return layout.tensor_parallel_degree > 1 and layout.loss_parallel


def loss_of(layout: Layout, tensor_axis: DeviceMesh, vocab_size: int) -> Loss:
    """The loss of the logits that a rank of the layout computes; call it inside ``loss_context``."""
    return _vocabulary_parallel_cross_entropy(tensor_axis, vocab_size) if splits_logits(layout) else cross_entropy


def loss_context(layout: Layout) -> AbstractContextManager[None]:
    """Where forward and backward of the loss must run."""
    return loss_parallel() if splits_logits(layout) else nullcontext()


def logits_per_token(layout: Layout, vocab_size: int, rank: int) -> int:
    """Logits of a token on one tensor rank: DTensor fills the ranks in turn, so the last may hold fewer."""
    if not splits_logits(layout):
        return vocab_size
    num_per_rank = -(-vocab_size // layout.tensor_parallel_degree)
    return max(0, min(num_per_rank, vocab_size - rank * num_per_rank))


def _vocabulary_parallel_cross_entropy(tensor_axis: DeviceMesh, vocab_size: int) -> Loss:
    """Cross-entropy from each rank's part of the logits, which is never gathered."""

    def loss(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
        shape = torch.Size((*logits_BSV.shape[:2], vocab_size))
        stride = (shape[1] * vocab_size, vocab_size, 1)
        whole = DTensor.from_local(logits_BSV, tensor_axis, [Shard(2)], run_check=False, shape=shape, stride=stride)
        total = cross_entropy(whole, labels_BS)
        return total.to_local() if isinstance(total, DTensor) else total

    return loss

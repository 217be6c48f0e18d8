"""Cross-entropy of the next token, on whole logits or on logits whose vocabulary is split over the tensor ranks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional

from autotuner.domain.layout import Layout

__all__ = ["Loss", "cross_entropy", "logits_per_token", "loss_context", "loss_of", "splits_logits"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""From logits_BSV and labels_BS to the mean over B and S, in fp32."""


def splits_logits(layout: Layout) -> bool:
    """Each tensor rank keeps its part of the vocabulary's logits; else every rank has all of them."""
    return layout.tensor_parallel_degree > 1 and layout.loss_parallel


def loss_of(layout: Layout, tensor_axis: DeviceMesh, vocab_size: int) -> Loss:
    """The loss of the logits that a rank of the layout computes; call it inside ``loss_context``."""
    return _vocabulary_parallel_cross_entropy(tensor_axis, vocab_size) if splits_logits(layout) else cross_entropy


def cross_entropy(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Mean over all tokens, computed in fp32 whatever the logits are in."""
    return functional.cross_entropy(logits_BSV.flatten(0, 1).float(), labels_BS.flatten())


def _vocabulary_parallel_cross_entropy(tensor_axis: DeviceMesh, vocab_size: int) -> Loss:
    """The same from each rank's part of the logits, which is never gathered."""

    def loss(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
        shape = torch.Size((*logits_BSV.shape[:2], vocab_size))
        stride = (shape[1] * vocab_size, vocab_size, 1)
        whole = DTensor.from_local(logits_BSV, tensor_axis, [Shard(2)], run_check=False, shape=shape, stride=stride)
        mean = cross_entropy(whole, labels_BS)
        return mean.to_local() if isinstance(mean, DTensor) else mean

    return loss


def logits_per_token(layout: Layout, vocab_size: int, rank: int) -> int:
    """Logits of a token on one tensor rank: DTensor fills the ranks in turn, so the last may hold fewer."""
    if not splits_logits(layout):
        return vocab_size
    share = -(-vocab_size // layout.tensor_parallel_degree)
    return max(0, min(share, vocab_size - rank * share))


def loss_context(layout: Layout) -> AbstractContextManager[None]:
    """Where forward and backward of the loss must run."""
    return loss_parallel() if splits_logits(layout) else nullcontext()

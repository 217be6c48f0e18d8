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

__all__ = ["Loss", "cross_entropy", "loss_context", "vocabulary_parallel_cross_entropy", "vocabulary_part"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""From logits_BSV and labels_BS to the mean over B and S, in fp32."""


def cross_entropy(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Mean over all tokens, computed in fp32 whatever the logits are in."""
    return functional.cross_entropy(logits_BSV.flatten(0, 1).float(), labels_BS.flatten())


def vocabulary_parallel_cross_entropy(tensor_axis: DeviceMesh, vocab_size: int) -> Loss:
    """The same from each rank's part of the logits, which is never gathered; call it inside ``loss_context``."""

    def loss(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
        shape = torch.Size((*logits_BSV.shape[:2], vocab_size))
        stride = (shape[1] * vocab_size, vocab_size, 1)
        whole = DTensor.from_local(logits_BSV, tensor_axis, [Shard(2)], run_check=False, shape=shape, stride=stride)
        mean = cross_entropy(whole, labels_BS)
        return mean.to_local() if isinstance(mean, DTensor) else mean

    return loss


def vocabulary_part(vocab_size: int, num_ranks: int, rank: int) -> int:
    """Entries of the vocabulary on one tensor rank: DTensor fills the ranks in turn, so the last may hold fewer."""
    share = -(-vocab_size // num_ranks)
    return max(0, min(share, vocab_size - rank * share))


def loss_context(tensor_parallel_degree: int) -> AbstractContextManager[None]:
    """Where forward and backward of the loss must run."""
    return loss_parallel() if tensor_parallel_degree > 1 else nullcontext()

"""The attention core: causal scaled dot-product attention by the kernel of the layout.

Tensor suffixes: B sequences, S tokens, H heads of this rank, K kv heads of this rank, E head dim.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from autotuner.core.choices import AttentionKernel
from autotuner.core.layout import Layout
from autotuner.training.batches import WHOLE_ROWS, Documents, attend_by_document, document_mask


class AttentionCore(Protocol):
    """The interface of a function that computes causal attention.

    Tokens attend only to tokens of the same document, or of the same row if the row has no documents.
    """

    def __call__(self, q_BSHE: Tensor, k_BSKE: Tensor, v_BSKE: Tensor, documents: Documents = WHOLE_ROWS, /) -> Tensor:
        """Return attended_BSHE of queries, keys and values."""


BACKENDS = {
    AttentionKernel.MATH: SDPBackend.MATH,
    AttentionKernel.EFFICIENT: SDPBackend.EFFICIENT_ATTENTION,
    AttentionKernel.FLASH: SDPBackend.FLASH_ATTENTION,
    AttentionKernel.CUDNN: SDPBackend.CUDNN_ATTENTION,
}
"""Kernels of ``scaled_dot_product_attention``, by torch's names for them."""


def attention_core(kernel: AttentionKernel, *, seq_len: int, device: torch.device) -> AttentionCore:
    """Return the function that computes attention over whole sequences with this kernel.

    Args:
        kernel: The attention kernel.
        seq_len: The number of tokens of a sequence, for which FlexAttention prepares its mask.
        device: The device of this rank.
    """
    return _FlexCore(seq_len, device) if kernel == AttentionKernel.FLEX else attend


def attend(q_BSHE: Tensor, k_BSKE: Tensor, v_BSKE: Tensor, documents: Documents = WHOLE_ROWS, /) -> Tensor:
    """Compute causal attention over whole sequences, for each document separately.

    The enclosing ``kernel_context`` chooses the kernel.
    """
    if documents:
        return attend_by_document(attend, q_BSHE, k_BSKE, v_BSKE, documents)
    attended_BHSE = functional.scaled_dot_product_attention(
        q_BSHE.transpose(1, 2),
        k_BSKE.transpose(1, 2),
        v_BSKE.transpose(1, 2),
        is_causal=True,
        enable_gqa=q_BSHE.shape[2] != k_BSKE.shape[2],
    )
    return attended_BHSE.transpose(1, 2)


def kernel_context(layout: Layout) -> AbstractContextManager[None]:
    """Return a context in which ``attend`` uses the attention kernel of the layout, forward and backward."""
    backend = BACKENDS.get(layout.attention_kernel)
    return nullcontext() if backend is None else sdpa_kernel(backend)


class _FlexCore:
    """FlexAttention, which skips the blocks of scores that the causal mask hides and those between documents.

    It is meant to be compiled, which makes it a single kernel on CUDA. Elsewhere it runs as plain operations, forward
    only. Selective recomputation keeps the result of the compiled kernel only if the kernel is wrapped as one
    operation.
    """

    def __init__(self, seq_len: int, device: torch.device) -> None:
        self._device = device
        self._whole = (seq_len,)
        self._mask_of_whole = document_mask(self._whole, device)
        self._mask = lru_cache(maxsize=1)(document_mask)  # the layers of a micro-batch have one
        self._flex: Callable[..., Any] = flex_attention
        if device.type == "cuda":
            self._flex = _compiled_flex()

    def __call__(self, q_BSHE: Tensor, k_BSKE: Tensor, v_BSKE: Tensor, documents: Documents = WHOLE_ROWS, /) -> Tensor:
        """Compute causal attention, as ``AttentionCore`` describes."""
        documents = documents or (q_BSHE.shape[1],)
        mask = self._mask_of_whole if documents == self._whole else self._mask(documents, self._device)
        attended_BHSE: Tensor = self._flex(
            q_BSHE.transpose(1, 2),
            k_BSKE.transpose(1, 2),
            v_BSKE.transpose(1, 2),
            block_mask=mask,
            enable_gqa=q_BSHE.shape[2] != k_BSKE.shape[2],
        )
        return attended_BHSE.transpose(1, 2)


def _compiled_flex() -> Callable[..., Any]:
    config: Any = torch._inductor.config
    config.compile_threads = 1  # as for whole layers (``options.compile``)
    wrapped = "wrap_inductor_compiled_regions"  # a torch that cannot wrap computes the core again
    compiled: Callable[..., Any] = torch.compile(
        flex_attention, options={wrapped: True} if hasattr(config, wrapped) else None
    )
    return compiled

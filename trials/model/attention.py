"""The attention core: causal scaled dot-product attention by the kernel of the layout.

Tensor suffixes: B sequences, S tokens, H heads of this rank, K kv heads of this rank, E head dim.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from autotuner.domain.layouts.choice import AttentionKernel
from autotuner.domain.layouts.layout import Layout

__all__ = ["BACKENDS", "AttentionCore", "attend", "attention_core", "causal_mask", "is_visible", "kernel_context"]

AttentionCore = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From q_BSHE, k_BSKE and v_BSKE to attended_BSHE, where each token attends to itself and those before it."""

BACKENDS = {
    AttentionKernel.MATH: SDPBackend.MATH,
    AttentionKernel.EFFICIENT: SDPBackend.EFFICIENT_ATTENTION,
    AttentionKernel.FLASH: SDPBackend.FLASH_ATTENTION,
    AttentionKernel.CUDNN: SDPBackend.CUDNN_ATTENTION,
}
"""Kernels of ``scaled_dot_product_attention``, by torch's names for them."""

_BLOCK = 128
"""Tokens on a side of a block of scores; FlexAttention's default (torch 2.13)."""


def attention_core(kernel: AttentionKernel, *, seq_len: int, device: torch.device) -> AttentionCore:
    """Attention within one rank over whole sequences."""
    return _FlexCore(seq_len, device) if kernel == AttentionKernel.FLEX else attend


def attend(q_BSHE: Tensor, k_BSKE: Tensor, v_BSKE: Tensor) -> Tensor:
    """Attention within one rank, by the kernel of the ``kernel_context`` it is called in."""
    attended_BHSE = functional.scaled_dot_product_attention(
        q_BSHE.transpose(1, 2),
        k_BSKE.transpose(1, 2),
        v_BSKE.transpose(1, 2),
        is_causal=True,
        enable_gqa=q_BSHE.shape[2] != k_BSKE.shape[2],
    )
    return attended_BHSE.transpose(1, 2)


def kernel_context(layout: Layout) -> AbstractContextManager[None]:
    """Where ``attend`` calls the kernel of the layout, forward and backward."""
    backend = BACKENDS.get(layout.attention_kernel)
    return nullcontext() if backend is None else sdpa_kernel(backend)


class _FlexCore:
    """FlexAttention with a causal mask, which skips the blocks of scores that the mask hides.

    It is meant to be compiled: on CUDA that makes one kernel of it. Elsewhere it runs as plain operations, forward
    only. A selective recomputation sees the compiled kernel as one operation, which it keeps, only if it is wrapped.
    """

    def __init__(self, seq_len: int, device: torch.device) -> None:
        self._mask = causal_mask(seq_len, device)
        self._flex: Callable[..., Any] = flex_attention
        if device.type == "cuda":
            self._flex = _compiled_flex()

    def __call__(self, q_BSHE: Tensor, k_BSKE: Tensor, v_BSKE: Tensor) -> Tensor:
        """Causal attention, as an ``AttentionCore`` does it."""
        attended_BHSE: Tensor = self._flex(
            q_BSHE.transpose(1, 2),
            k_BSKE.transpose(1, 2),
            v_BSKE.transpose(1, 2),
            block_mask=self._mask,
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


def causal_mask(seq_len: int, device: torch.device) -> BlockMask:
    """Which blocks of scores to compute: those before the diagonal as they are, those on it masked.

    torch's ``create_block_mask`` finds the same by looking at every score, which takes a byte for each of them.
    """
    num_blocks = -(-seq_len // _BLOCK)
    block = torch.arange(num_blocks, device=device)
    full = block[:, None] > block
    if seq_len % _BLOCK:
        full[-1] = False  # the last row has queries that are none
    partial = (block[:, None] >= block) & ~full
    mask: BlockMask = BlockMask.from_kv_blocks(
        *_numbers_and_columns(partial),
        *_numbers_and_columns(full),
        BLOCK_SIZE=_BLOCK,
        mask_mod=is_visible,
        seq_lengths=(seq_len, seq_len),
    )
    return mask


def _numbers_and_columns(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row has and which, for all sequences and heads alike."""
    columns = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], columns.int()[None, None]


def is_visible(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A token attends to itself and to those before it."""
    del sequence, head
    return query >= key

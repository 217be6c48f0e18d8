"""Attention of some queries to some keys, and of one rank's queries to keys that come block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from autotuner.core.choices import AttentionKernel

# Attention of some queries to some keys: what context parallelism puts together to attention over a sequence.
#
# A block gives its output and, per query, the log of the sum of its exponentiated scores; with these, outputs of the
# same queries over different keys are merged exactly. Going backward, each block needs the output and the log-sum-exp
# of the *whole* row, and its gradients add up (FlashAttention-2, arXiv 2307.08691, section 2.3).
#
# Tensor suffixes: B sequences, H heads, K kv heads, Q queries, S keys, E head dim.

_aten = torch.ops.aten

Rest: TypeAlias = tuple[Any, ...]
"""Values that a kernel's forward pass returns for its backward pass, such as the seeds of a dropout that no layer here
uses."""


class Attended(NamedTuple):
    """A block of keys with the queries that attended to it, and the results of the whole rows of these queries."""

    q_BHQE: Tensor
    k_BKSE: Tensor
    v_BKSE: Tensor
    output_BHQE: Tensor
    log_sum_exp_BHQ: Tensor
    rest: Rest


@dataclass(frozen=True, slots=True)
class BlockKernel:
    """An attention kernel that computes attention to one block of keys: its forward and its backward function."""

    forward: Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor, Rest]]
    """Function from q_BHQE, k_BKSE, v_BKSE and a flag for a causal block (then Q is S) to output_BHQE, log_sum_exp_BHQ
    and the rest."""
    backward: Callable[[Tensor, Attended, bool], tuple[Tensor, Tensor, Tensor]]
    """Function from the output's gradient, the block and a flag for a causal block to the gradients of q, k and v."""


def block_kernel(kernel: AttentionKernel, device: torch.device) -> BlockKernel:
    """Return the forward and backward functions of this attention kernel for one block of keys on this device."""
    if kernel == AttentionKernel.FLASH and device.type == "cpu":
        return _FLASH_CPU
    return BLOCK_KERNELS[kernel]


# ---------------------------------------------------------------- math: plain operations, scores in fp32
def _math_forward(q_BHQE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor, causal: bool) -> tuple[Tensor, Tensor, Rest]:
    scores_BHQS = _scores(q_BHQE, k_BKSE, causal)
    log_sum_exp_BHQ = scores_BHQS.logsumexp(-1)
    weights_BHQS = (scores_BHQS - log_sum_exp_BHQ[..., None]).exp()
    output_BHQE = weights_BHQS @ _per_head(v_BKSE, q_BHQE).float()
    return output_BHQE.to(q_BHQE.dtype), log_sum_exp_BHQ, ()


def _math_backward(gradient_BHQE: Tensor, block: Attended, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v.

    The scores are computed again; storing them would take Q x S numbers per head.
    """
    q_BHQE, k_BKSE, v_BKSE, output_BHQE, log_sum_exp_BHQ, _ = block
    gradient_BHQE = gradient_BHQE.float()
    weights_BHQS = (_scores(q_BHQE, k_BKSE, causal) - log_sum_exp_BHQ[..., None]).exp()
    along_BHQ = (gradient_BHQE * output_BHQE.float()).sum(-1)  # the softmax's own part, arXiv 2205.14135 appendix B.2
    from_values_BHQS = gradient_BHQE @ _per_head(v_BKSE, q_BHQE).float().transpose(-1, -2)
    scores_BHQS = weights_BHQS * (from_values_BHQS - along_BHQ[..., None]) * q_BHQE.shape[-1] ** -0.5
    q_gradient = scores_BHQS @ _per_head(k_BKSE, q_BHQE).float()
    k_gradient = _per_kv_head(scores_BHQS.transpose(-1, -2) @ q_BHQE.float(), k_BKSE)
    v_gradient = _per_kv_head(weights_BHQS.transpose(-1, -2) @ gradient_BHQE, v_BKSE)
    return q_gradient, k_gradient, v_gradient


def _scores(q_BHQE: Tensor, k_BKSE: Tensor, causal: bool) -> Tensor:
    products_BHQS: Tensor = q_BHQE.float() @ _per_head(k_BKSE, q_BHQE).float().transpose(-1, -2)
    scores_BHQS: Tensor = products_BHQS * q_BHQE.shape[-1] ** -0.5
    if not causal:
        return scores_BHQS
    hidden_QS = torch.ones(scores_BHQS.shape[-2:], dtype=torch.bool, device=scores_BHQS.device).triu(1)
    return scores_BHQS.masked_fill(hidden_QS, -torch.inf)


def _per_head(kv_BKSE: Tensor, q_BHQE: Tensor) -> Tensor:
    """Repeat each kv head for every query head that shares it."""
    return kv_BKSE.repeat_interleave(q_BHQE.shape[1] // kv_BKSE.shape[1], dim=1)


def _per_kv_head(gradient_BHSE: Tensor, kv_BKSE: Tensor) -> Tensor:
    sequences, heads, tokens, width = gradient_BHSE.shape
    num_kv_heads = kv_BKSE.shape[1]
    return gradient_BHSE.reshape(sequences, num_kv_heads, heads // num_kv_heads, tokens, width).sum(2)


# ---------------------------------------------------------------- torch's fused kernels
def _flash_cpu_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor, Rest]:
    output, log_sum_exp = _aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return output, log_sum_exp, ()


def _flash_cpu_backward(gradient: Tensor, block: Attended, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, output, log_sum_exp, _ = block
    gradients: tuple[Tensor, Tensor, Tensor] = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, q, k, v, output, log_sum_exp, 0.0, causal
    )
    return gradients


def _flash_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor, Rest]:
    output, log_sum_exp, *_, seed, offset, _ = _aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
    return output, log_sum_exp, (seed, offset)


def _flash_backward(gradient: Tensor, block: Attended, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, output, log_sum_exp, rest = block
    no_ragged_rows = (None, None, q.shape[2], k.shape[2])
    gradients: tuple[Tensor, Tensor, Tensor] = _aten._scaled_dot_product_flash_attention_backward(
        gradient, q, k, v, output, log_sum_exp.contiguous(), *no_ragged_rows, 0.0, causal, *rest
    )
    return gradients


_ROWS = 32
"""Number of rows in a group of the log-sum-exp that the memory-efficient kernel reads; it expects infinity for missing
rows (``kAlignLSE`` of aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h)."""


def _efficient_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor, Rest]:
    output, padded, *rest = _aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
    return output, padded[..., : q.shape[2]], tuple(rest)


def _efficient_backward(gradient: Tensor, block: Attended, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, output, log_sum_exp, rest = block
    padded = functional.pad(log_sum_exp, (0, -q.shape[2] % _ROWS), value=torch.inf)
    wanted = (True, True, True, False)
    q_gradient, k_gradient, v_gradient, _ = _aten._scaled_dot_product_efficient_attention_backward(
        gradient, q, k, v, None, output, padded, *rest, 0.0, wanted, causal
    )
    return q_gradient, k_gradient, v_gradient


_FLASH_CPU = BlockKernel(_flash_cpu_forward, _flash_cpu_backward)

BLOCK_KERNELS = {
    AttentionKernel.MATH: BlockKernel(_math_forward, _math_backward),
    AttentionKernel.FLASH: BlockKernel(_flash_forward, _flash_backward),
    AttentionKernel.EFFICIENT: BlockKernel(_efficient_forward, _efficient_backward),
}


# Attention of one rank's queries to keys that come block by block.
#
# Tensor suffixes: B sequences, H heads, K kv heads, S tokens of this rank, E head dim. Keys and values of a block
# have as many tokens as it has.


class OnlineSoftmax:
    """Attention of this rank's queries to all blocks of keys that have arrived so far, accumulated in fp32.

    It starts with this rank's own block of keys. Further blocks are added with ``merge``.
    """

    def __init__(self, kernel: BlockKernel, q_BHSE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor) -> None:
        self._kernel = kernel
        self._q_BHSE = q_BHSE
        output_BHSE, self.log_sum_exp_BHS, self.rest = kernel.forward(q_BHSE, k_BKSE, v_BKSE, True)
        self._output_BHSE = output_BHSE.float()

    def output(self) -> Tensor:
        """Return the attention output over all blocks so far, output_BHSE, in the dtype of the queries."""
        return self._output_BHSE.to(self._q_BHSE.dtype)

    def merge(self, k: Tensor, v: Tensor, *, first_query: int = 0) -> None:
        """Add another block of keys and values: the queries from index ``first_query`` on attend to all its keys.

        The new output is a weighted mean of the earlier output and the output of this block. The weights are those of
        one softmax over all keys.
        """
        rows = slice(first_query, None)
        output, log_sum_exp, self.rest = self._kernel.forward(self._q_BHSE[:, :, rows], k, v, False)
        before = self.log_sum_exp_BHS[..., rows]
        both = torch.logaddexp(before, log_sum_exp)
        old, new = (before - both).exp()[..., None], (log_sum_exp - both).exp()[..., None]
        merged = self._output_BHSE[:, :, rows] * old + output.float() * new
        self._output_BHSE = torch.cat((self._output_BHSE[:, :, :first_query], merged), 2)
        self.log_sum_exp_BHS = torch.cat((self.log_sum_exp_BHS[..., :first_query], both), -1)


class OnlineSoftmaxGradients:
    """Computes the backward pass of an ``OnlineSoftmax`` block by block.

    Gradients of queries are accumulated in fp32.
    """

    def __init__(
        self,
        kernel: BlockKernel,
        gradient_BHSE: Tensor,
        q_BHSE: Tensor,
        output_BHSE: Tensor,
        log_sum_exp_BHS: Tensor,
        rest: Rest,
    ) -> None:
        self._kernel = kernel
        self._rows = gradient_BHSE, q_BHSE, output_BHSE, log_sum_exp_BHS
        self._rest = rest
        self._of_queries_BHSE = torch.zeros_like(q_BHSE, dtype=torch.float32)

    def queries(self) -> Tensor:
        """Return the gradient of the queries over all blocks so far, in the dtype of the queries."""
        return self._of_queries_BHSE.to(self._rows[1].dtype)

    def own_block(self, k_BKSE: Tensor, v_BKSE: Tensor) -> Tensor:
        """Return the gradients of this rank's keys and values that come from its own queries.

        The two gradients are stacked along a new first dim.
        """
        return self._block(k_BKSE, v_BKSE, causal=True, first_query=0)

    def merged_block(self, k: Tensor, v: Tensor, *, first_query: int = 0) -> Tensor:
        """Return the gradients of another block's keys and values, stacked along a new first dim.

        Only the queries from index ``first_query`` on attended to that block, so only they contribute.
        """
        return self._block(k, v, causal=False, first_query=first_query)

    def _block(self, k: Tensor, v: Tensor, *, causal: bool, first_query: int) -> Tensor:
        gradient, q, output, log_sum_exp = (rows[:, :, first_query:] for rows in self._rows)
        of_q, of_k, of_v = self._kernel.backward(gradient, Attended(q, k, v, output, log_sum_exp, self._rest), causal)
        self._of_queries_BHSE[:, :, first_query:] += of_q
        return torch.stack((of_k, of_v)).float()

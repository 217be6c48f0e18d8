"""The attention core of a layer: shapes and seconds.

Fused kernels (xformers, FlashAttention) keep the scores on chip. Their time has a term for products, a term for
exponentials (which other units compute), and a term for the ends of each block of queries. Unfused kernels are batched
products with the scores in memory, and memory passes over the scores in between.

Constants: catalog/kernels.toml, from the figures of arXiv 2307.08691 and 2407.08608 by research/fit_kernels.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autotuner.core.choices import AttentionKernel
from autotuner.core.columns import Choices, Floats, Integers
from autotuner.core.kernels import AttentionLaw, FusedPass, UnfusedAttention
from autotuner.costmodel.layer.matrix_products import gemm_s

Sizes = Floats | Integers | float

_BLOCK = 128  # number of queries per thread block: 64 to 128 forward and backward, arXiv 2307.08691 section 3.3
_FORWARD_PRODUCTS = (1, 1)  # over the width of a key: scores; of a value: outputs
_BACKWARD_PRODUCTS = (3, 2)  # the scores again, gradients of queries and keys; gradients of values and of scores


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Shape of causal attention on one rank. Each field is a number, or a column with one row per layout."""

    batch: Sizes
    num_heads: Sizes
    """Number of query heads on the rank. ``num_kv_heads`` is the number of its key and value heads."""
    num_kv_heads: Sizes
    head_dim: Sizes
    """Width of a query and of a key."""
    query_len: Sizes
    """Number of queries of a sequence on the rank."""
    key_len: Sizes
    """Number of keys of a sequence. With a causal mask, a query attends to half of them on average. A rank of a
    balanced context group has its part of the queries and all keys."""
    value_dim: Sizes = 0
    """Width of a value; 0: as wide as a key."""

    def columns(self) -> list[Floats]:
        """Return the fields as a list of float arrays, in the order of the fields and broadcast to one common shape.

        ``value_dim`` comes last. Where it is 0, it is replaced by the width of a key.
        """
        values = np.where(np.asarray(self.value_dim) > 0, self.value_dim, self.head_dim)
        sizes = (self.batch, self.num_heads, self.num_kv_heads, self.head_dim, self.query_len, self.key_len, values)
        return list(np.broadcast_arrays(*(np.asarray(size, dtype=np.float64) for size in sizes)))


def attention_s(shape: AttentionShape, kernel: Choices | int, law: AttentionLaw) -> tuple[Floats, Floats]:
    """Return the seconds of the attention core: in the forward pass, and in the backward pass.

    The attention core is everything between the projections. Times hold for the clock of a short benchmark on an idle
    device. The backward pass of a fused kernel includes its own recomputation of the scores.

    Args:
        shape: Shape of attention, as numbers or with one row per layout.
        kernel: Attention kernel of each row.
        law: Constants of the kernels. The times of a kernel without constants are ``nan``.

    Returns:
        Two arrays, broadcast over the shape and the kernels.
    """
    *sizes, codes = np.broadcast_arrays(*shape.columns(), np.asarray(kernel))
    forward_s, backward_s = np.full(codes.shape, np.nan), np.full(codes.shape, np.nan)
    for member in (*law.fused, *law.unfused):
        rows = codes == member
        if rows.any():
            forward_s[rows], backward_s[rows] = _kernel_s(_Columns(*(size[rows] for size in sizes)), member, law)
    return forward_s, backward_s


class _Columns(NamedTuple):
    """The fields of ``AttentionShape`` as columns of equal length."""

    batch: Floats
    num_heads: Floats
    num_kv_heads: Floats
    head_dim: Floats
    query_len: Floats
    key_len: Floats
    value_dim: Floats

    @property
    def num_scores(self) -> Floats:
        return self.batch * self.num_heads * self.query_len * self.key_len


def _kernel_s(x: _Columns, kernel: AttentionKernel, law: AttentionLaw) -> tuple[Floats, Floats]:
    if kernel in law.unfused:
        return _unfused_s(x, law.unfused[kernel], law)
    forward, backward = law.fused[kernel]
    # each operand moves once: q, k, v and the output; in the backward pass also their gradients
    moved_s = _operand_bytes(x, law) / law.products.memory_bandwidth_bytes_per_s
    return (
        np.maximum(_fused_s(x, forward, _FORWARD_PRODUCTS, law), moved_s),
        np.maximum(_fused_s(x, backward, _BACKWARD_PRODUCTS, law), 2 * moved_s),
    )


def _fused_s(x: _Columns, one_pass: FusedPass, num_products: tuple[int, int], law: AttentionLaw) -> Floats:
    """Return the time of a fused kernel. With few blocks of queries, some multiprocessors are idle.

    With a causal mask, a block of queries processes half of the keys, and half of the block on the diagonal.
    """
    visited_keys = x.key_len / 2 + _BLOCK / 2 if one_pass.skips_masked else x.key_len
    num_rows = x.batch * x.num_heads * x.query_len
    widths = num_products[0] * x.head_dim + num_products[1] * x.value_dim
    flop_per_score = 2 * widths / one_pass.product_share + one_pass.softmax_flop_per_score
    num_blocks = x.batch * x.num_heads * np.ceil(x.query_len / _BLOCK)
    idle = np.maximum(law.products.num_multiprocessors / num_blocks, 1.0)
    flop = num_rows * (visited_keys + one_pass.overhead_keys) * flop_per_score * idle
    return np.asarray(flop / law.products.peak_flop_per_s)


def _unfused_s(x: _Columns, kernel: UnfusedAttention, law: AttentionLaw) -> tuple[Floats, Floats]:
    """Return the time of an unfused kernel: batched products of all scores, masked or not, and passes over the scores.

    The inner dimension of the products is the head dimension for scores and their gradients, and the sequence for
    outputs and for the gradients of queries, keys and values.
    """
    count = x.batch * x.num_heads
    scores_s = gemm_s(x.query_len, x.key_len, x.head_dim, law.products, count=count)
    keys_s = gemm_s(x.query_len, x.head_dim, x.key_len, law.products, count=count)
    values_s = gemm_s(x.query_len, x.value_dim, x.key_len, law.products, count=count)
    score_s = x.num_scores / law.products.memory_bandwidth_bytes_per_s
    forward_s = scores_s + values_s + kernel.forward_bytes * score_s
    backward_s = scores_s + 2 * keys_s + values_s + kernel.backward_bytes * score_s
    return forward_s, backward_s


def _operand_bytes(x: _Columns, law: AttentionLaw) -> Floats:
    """Return the bytes of queries, keys, values and output."""
    rows = x.num_heads * x.query_len + x.num_kv_heads * x.key_len
    return law.products.product_bytes * x.batch * rows * (x.head_dim + x.value_dim)

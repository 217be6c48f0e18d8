"""Laws of kernels: the share of an accelerator's peak that a matrix product or an attention kernel reaches.

The laws are in ``costmodel``, the constants of each device in ``catalog/kernels.toml``. Shares are of the dense peak or
of the stated memory bandwidth, so a law moves to a device that nobody has measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import prod

from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.value import Count, NonNegative, Positive, PositiveShare, Seconds, Share, value


@value
class GemmLaw:
    """The constants of a law for the time of matrix products on one device in one precision."""

    peak_flop_per_s: Positive
    """Dense peak."""
    peak_share: PositiveShare
    """Share of the peak that is reached with full waves of the best tile and an unlimited inner dimension."""
    memory_bandwidth_bytes_per_s: Positive
    """Bandwidth that streaming kernels reach."""
    num_multiprocessors: Count
    operand_bytes: float
    """Size of one element that is read; the product's elements are ``product_bytes`` wide."""
    product_bytes: float
    prologue: NonNegative
    """Number of inner elements that filling and draining a tile's pipeline costs."""
    wave_loss: Share
    """Share of an incomplete wave's idle multiprocessors that stays idle, 0..1: 1 for one tile per multiprocessor and
    wave, 0 where kernels split the remainder among all."""
    latency_s: Seconds
    """Time of the smallest product, back to back with others."""
    tiles: tuple[tuple[int, int], ...]
    """Rows and columns of the parts that a multiprocessor may compute at a time; those with less than the area of the
    largest multiply at ``small_tile_share`` of its rate."""
    small_tile_share: Share = 1.0
    splits: tuple[int, ...] = (1,)
    """Numbers of parts into which a kernel may cut the inner dimension to keep all multiprocessors busy."""
    unaligned_shares: tuple[float, float] = (1.0, 1.0)
    """Share of the rate that remains if rows start on 4 or 8 bytes instead of 16, and on less."""
    sustained_share: Positive = 1.0
    """Share of the rate of a short benchmark that a training step keeps."""
    promoted_share: PositiveShare = 1.0
    """Share of the rate that remains if sums are promoted to fp32 registers for accuracy."""
    rowwise_share: PositiveShare = 1.0
    """Share of the rate that remains with a scale for each row of either factor."""
    blockwise_share: PositiveShare = 1.0
    """Share of the rate that remains with a scale for each block that is applied outside of the tensor cores."""
    mxfp8_share: PositiveShare = 1.0
    """Share of the rate that remains if tensor cores apply the scales."""

    def rate_share(self, tile: tuple[int, int]) -> float:
        """Return the rate of a product with this tile size, as a share of the rate with the largest tile."""
        return 1.0 if prod(tile) == max(map(prod, self.tiles)) else self.small_tile_share


@value
class FusedPass:
    """The constants of one direction (forward or backward) of a fused attention kernel (scores stay on chip)."""

    product_share: PositiveShare
    """Share of the dense peak that its products reach."""
    softmax_flop_per_score: NonNegative = 0.0
    """Cost of the exponential and the sums per score, as FLOP at the dense peak."""
    overhead_keys: NonNegative = 0.0
    """Number of keys that a block of queries could have visited while it started, ended or waited for others."""
    skips_masked: bool = True
    """True if the kernel skips the masked half of the scores."""


@value
class UnfusedAttention:
    """The constants of an attention kernel that writes the scores to memory between two batched matrix products.

    Masked scores are computed, too.
    """

    forward_bytes: NonNegative
    """Bytes read and written per score between the two products; ``backward_bytes`` is the same for
    the backward pass."""
    backward_bytes: NonNegative


@value
class AttentionLaw:
    """The constants of laws for the time of attention on one device in one precision, by attention kernel."""

    products: GemmLaw
    """The batched products of unfused kernels; also the peak, the bandwidth and the element's width."""
    fused: Mapping[AttentionKernel, tuple[FusedPass, FusedPass]] = field(default_factory=dict)
    """Laws of the forward and backward pass of each kernel that keeps the scores on chip."""
    unfused: Mapping[AttentionKernel, UnfusedAttention] = field(default_factory=dict)
    """Laws of every other kernel."""


@value
class KernelLaws:
    """The laws for the time of all kernels of one accelerator."""

    gemm: Mapping[Precision, GemmLaw]
    """Laws by precision. Formats that the hardware lacks are missing, here and in ``attention``."""
    attention: Mapping[Precision, AttentionLaw]
    """Laws by precision of the matrix products. With fp8 the attention core computes in bf16."""

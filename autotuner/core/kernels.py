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
    """Matrix products of one device in one precision.

    Attributes:
        peak_flop_per_s: Dense peak.
        peak_share: Share of the peak that is reached with full waves of the best tile and an endless inner dimension.
        memory_bandwidth_bytes_per_s: What streaming kernels reach.
        operand_bytes: Size of one element that is read; the product's elements are ``product_bytes`` wide.
        prologue: Inner elements that filling and draining a tile's pipeline costs.
        tiles: Rows and columns of the parts that a multiprocessor may compute at a time; those with less than the
            area of the largest multiply at ``small_tile_share`` of its rate.
        wave_loss: Share of an incomplete wave's idle multiprocessors that stays idle, 0..1: 1 for one tile per
            multiprocessor and wave, 0 where kernels split the remainder among all.
        splits: Into how many parts a kernel may cut the inner dimension to keep all multiprocessors busy.
        unaligned_shares: What is left of the rate where rows do not start on 16 bytes but on 4 or 8, and on less.
        latency_s: Time of the smallest product, back to back with others.
        sustained_share: Share of the rate of a short benchmark that a training step keeps.
        promoted_share: What is left of the rate where sums are promoted to fp32 registers as they go, for accuracy.
        rowwise_share: What is left with a scale for each row of either factor.
        blockwise_share: What is left with a scale for each block, applied outside of the tensor cores.
        mxfp8_share: What is left where tensor cores apply the scales.
    """

    peak_flop_per_s: Positive
    peak_share: PositiveShare
    memory_bandwidth_bytes_per_s: Positive
    num_multiprocessors: Count
    operand_bytes: float
    product_bytes: float
    prologue: NonNegative
    wave_loss: Share
    latency_s: Seconds
    tiles: tuple[tuple[int, int], ...]
    small_tile_share: Share = 1.0
    splits: tuple[int, ...] = (1,)
    unaligned_shares: tuple[float, float] = (1.0, 1.0)
    sustained_share: Positive = 1.0
    promoted_share: PositiveShare = 1.0
    rowwise_share: PositiveShare = 1.0
    blockwise_share: PositiveShare = 1.0
    mxfp8_share: PositiveShare = 1.0

    def rate_share(self, tile: tuple[int, int]) -> float:
        """Rate with that tile over the rate with the largest."""
        return 1.0 if prod(tile) == max(map(prod, self.tiles)) else self.small_tile_share


@value
class FusedPass:
    """One direction of an attention kernel that keeps the scores on chip.

    Attributes:
        product_share: What its products reach of the dense peak.
        softmax_flop_per_score: What the exponential and the sums of a score cost, as FLOP at the dense peak.
        overhead_keys: Keys that a block of queries could have visited while it started, ended or waited for others.
        skips_masked: Whether the masked half of the scores is left out.
    """

    product_share: PositiveShare
    softmax_flop_per_score: NonNegative = 0.0
    overhead_keys: NonNegative = 0.0
    skips_masked: bool = True


@value
class UnfusedAttention:
    """Two batched products with the scores in memory, masked ones too.

    Attributes:
        forward_bytes: Read and written per score between the two products; ``backward_bytes`` the same backward.
    """

    forward_bytes: NonNegative
    backward_bytes: NonNegative


@value
class AttentionLaw:
    """The attention core of one device in one precision.

    Attributes:
        products: The batched products of unfused kernels; also the peak, the bandwidth and the element's width.
        fused: Forward and backward of each kernel that keeps the scores on chip.
        unfused: Every other kernel.
    """

    products: GemmLaw
    fused: Mapping[AttentionKernel, tuple[FusedPass, FusedPass]] = field(default_factory=dict)
    unfused: Mapping[AttentionKernel, UnfusedAttention] = field(default_factory=dict)


@value
class KernelLaws:
    """Everything about one accelerator's kernels.

    Attributes:
        gemm: By precision; formats that the hardware lacks are missing, here and in ``attention``.
        attention: By precision of the matrix products; with fp8 the core computes in bf16.
    """

    gemm: Mapping[Precision, GemmLaw]
    attention: Mapping[Precision, AttentionLaw]

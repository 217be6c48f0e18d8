"""Laws of kernels: the share of an accelerator's peak that a matrix product or an attention kernel reaches.

The laws are in ``costmodel``, the constants of each device in ``catalog/kernels.toml``. Laws use shares of the dense
peak or of the stated memory bandwidth, so that a law also works for a device that nobody has measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import prod

from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.value import Count, NonNegative, Positive, PositiveShare, Seconds, Share, value


@value
class GemmLaw:
    """The constants of a law (a formula) for the time of matrix products on one device in one precision."""

    peak_flop_per_s: Positive
    """Dense peak of matrix products."""
    peak_share: PositiveShare
    """Share of the peak that a product reaches with full waves of the best tile and an unlimited inner dimension."""
    memory_bandwidth_bytes_per_s: Positive
    """Bandwidth that kernels reach when they only stream memory."""
    num_multiprocessors: Count
    operand_bytes: float
    """Size of one operand element in bytes; an element of the product has ``product_bytes``."""
    product_bytes: float
    prologue: NonNegative
    """Cost of filling and draining a tile's pipeline, as a number of inner elements."""
    wave_loss: Share
    """Share of idle multiprocessors in an incomplete wave that stays idle, 0..1. It is 1 if each multiprocessor
    computes one tile per wave, and 0 if kernels split the remainder among all multiprocessors."""
    latency_s: Seconds
    """Time of the smallest product in a sequence of products."""
    tiles: tuple[tuple[int, int], ...]
    """Tile sizes: rows and columns of the part that one multiprocessor computes at a time. Tiles smaller than the
    largest one multiply at ``small_tile_share`` of its rate."""
    small_tile_share: Share = 1.0
    splits: tuple[int, ...] = (1,)
    """Numbers of parts into which a kernel may split the inner dimension (split-K) to keep all multiprocessors busy."""
    unaligned_shares: tuple[float, float] = (1.0, 1.0)
    """Share of the rate that remains if rows are aligned to 4 or 8 bytes instead of 16, and if they are aligned to
    less."""
    sustained_share: Positive = 1.0
    """Share of the rate of a short benchmark that a training step keeps."""
    promoted_share: PositiveShare = 1.0
    """Share of the rate that remains if sums are accumulated in fp32 registers for accuracy."""
    rowwise_share: PositiveShare = 1.0
    """Share of the rate that remains with a scale for each row of either factor."""
    blockwise_share: PositiveShare = 1.0
    """Share of the rate that remains with a scale for each block, which is applied outside of the tensor cores."""
    mxfp8_share: PositiveShare = 1.0
    """Share of the rate that remains if the tensor cores apply the scales (mxfp8)."""

    def rate_share(self, tile: tuple[int, int]) -> float:
        """Return the rate of a product with this tile size, as a share of the rate with the largest tile.

        Args:
            tile: Rows and columns of the result that one thread block computes.
        """
        return 1.0 if prod(tile) == max(map(prod, self.tiles)) else self.small_tile_share


@value
class FusedPass:
    """The constants of the forward or the backward pass of a fused attention kernel, which keeps scores on the chip."""

    product_share: PositiveShare
    """Share of the dense peak that the matrix products of the pass reach."""
    softmax_flop_per_score: NonNegative = 0.0
    """Cost of the exponential and the sums per score, as FLOP at the dense peak."""
    overhead_keys: NonNegative = 0.0
    """Overhead of a block of queries (start, end and waiting), as a number of keys that it could have processed
    instead."""
    skips_masked: bool = True
    """True if the kernel skips the masked half of the scores."""


@value
class UnfusedAttention:
    """The constants of an attention kernel that writes the scores to memory between two batched matrix products.

    Such a kernel also computes the scores that the causal mask hides.
    """

    forward_bytes: NonNegative
    """Bytes read and written per score between the two products; ``backward_bytes`` is the same for
    the backward pass."""
    backward_bytes: NonNegative


@value
class AttentionLaw:
    """The constants of the laws (formulas) for the time of attention on one device in one precision, by kernel."""

    products: GemmLaw
    """Law of the batched products of unfused kernels. It also states the peak, the bandwidth and the size of an
    element."""
    fused: Mapping[AttentionKernel, tuple[FusedPass, FusedPass]] = field(default_factory=dict)
    """Laws of the forward and the backward pass, for each kernel that keeps the scores on chip."""
    unfused: Mapping[AttentionKernel, UnfusedAttention] = field(default_factory=dict)
    """Laws of every other kernel."""


@value
class KernelLaws:
    """The laws (formulas) for the time of matrix products and of attention on one accelerator, by precision."""

    gemm: Mapping[Precision, GemmLaw]
    """Law of matrix products for each precision. Formats that the hardware lacks are missing."""
    attention: Mapping[Precision, AttentionLaw]
    """Law of attention for each precision of the matrix products. With fp8 the attention core computes in bf16."""

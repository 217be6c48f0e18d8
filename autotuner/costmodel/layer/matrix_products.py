"""Matrix products of a layer: their shapes, tiles and times.

Times follow the device's ``GemmLaw``, for the clock that the device sustains and with the slowdown of the stack.

A device computes a product tile by tile, one tile per multiprocessor at a time. Shapes lose time to tiles that reach
over the edge, to a last wave that leaves multiprocessors idle, to filling each tile's pipeline, and to rows that do not
start where vector loads can. Libraries try several tile shapes, and split the inner dimension if there are too few
tiles. The formula takes the best choice.

Constants and errors: catalog/kernels.toml, by research/fit_kernels.py; tests/published/test_kernels.py checks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import TypeVar

import numpy as np

from autotuner.catalog.kernels import kernels_for
from autotuner.core.blocks import LatentAttention, MixtureOfExperts
from autotuner.core.choices import NARROW_PRECISIONS, Fp8Recipe, Precision
from autotuner.core.columns import Booleans, Choices, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.kernels import AttentionLaw, GemmLaw
from autotuner.core.layout import options_entering
from autotuner.core.option import CostPart
from autotuner.costmodel.layer.quantization import casts_s
from autotuner.costmodel.shared.micro_batch import (
    hidden_split,
    local_experts,
    own_tokens,
    rows_per_expert,
    tokens_per_pass,
    width_split,
)
from autotuner.costmodel.shared.sequences import with_batch_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """``count`` matrix products of equal shape: (tokens, inputs) x (inputs, outputs).

    Each field is a number, or a column with one row per layout.
    """

    tokens: Floats
    inputs: Floats | float
    outputs: Floats | float
    count: Floats | float = 1.0
    launches: Floats | float = 1.0
    """Number of equal kernels, one after the other; not a whole number if only some layers have the matrix."""

    def rows(self, rows: Booleans) -> Floats:
        """Return the five fields in the rows of a mask, as an array of shape (5, selected rows).

        Args:
            rows: Mask over the layouts that selects rows of the columns.
        """
        sizes = np.empty((5, len(rows)))
        for number, size in enumerate((self.tokens, self.inputs, self.outputs, self.count, self.launches)):
            sizes[number] = size
        return sizes[:, rows]


def layer_products(x: LayoutColumns, job: Job, *, sparse: bool) -> Iterator[Product]:
    """Yield the matrix products of a layer on one rank, without the product of the router, which scores the experts.

    The gate projection and the up projection of a feed-forward block are one product of twice the width.

    Args:
        x: Layouts, one per row.
        job: The job.
        sparse: True for a layer with experts.
    """
    yield from _attention_products(x, job)
    experts = job.model.experts
    if sparse and experts:
        yield from _expert_products(x, job, experts)
    else:
        yield from _block(tokens_per_pass(x, job), job, job.model.ffn_size / x.tensor_parallel_degree)


def router_product(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Product:
    """Return the matrix product that scores every expert for every token (the router), which runs in 16 or 32 bits."""
    return Product(tokens=own_tokens(x, job), inputs=job.model.hidden_size, outputs=experts.num_experts)


def _attention_products(x: LayoutColumns, job: Job) -> Iterator[Product]:
    """Yield the products before and after the attention core.

    Products of linear attention count for the layers that have it.
    """
    model, tensor, tokens = job.model, x.tensor_parallel_degree, tokens_per_pass(x, job)
    attending = 1.0 - model.linear_share
    if model.latent_attention:
        yield from _latent_products(x, job, model.latent_attention)
    else:
        projected = model.query_size + model.key_value_size + model.output_gate_size
        yield Product(tokens=tokens, inputs=model.hidden_size, outputs=projected / tensor, launches=attending)
    output = model.attention_output_size / tensor
    yield Product(tokens=tokens, inputs=output, outputs=model.hidden_size, launches=attending)
    if model.linear_attention:
        linear, share = model.linear_attention, model.linear_share
        yield Product(tokens=tokens, inputs=model.hidden_size, outputs=linear.projected_size / tensor, launches=share)
        yield Product(tokens=tokens, inputs=linear.output_size / tensor, outputs=model.hidden_size, launches=share)
        if linear.gate_rank:
            gates = 2 * linear.output_size / tensor
            yield Product(tokens=tokens, inputs=linear.gate_rank, outputs=gates, launches=share)


def _latent_products(x: LayoutColumns, job: Job, latent: LatentAttention) -> Iterator[Product]:
    """Yield the products from the hidden state to the latents, on every tensor rank, and from the latents to the heads.

    Megatron-LM, core/transformer/multi_latent_attention.py (core 0.13, 2025-07): ``linear_q_down_proj`` and
    ``linear_kv_down_proj`` are duplicated, the projections up are split by heads.
    """
    model, tensor, tokens = job.model, x.tensor_parallel_degree, tokens_per_pass(x, job)
    hidden, held, attending = model.hidden_size, tokens / hidden_split(x), 1.0 - model.linear_share
    if latent.query_rank:
        yield Product(tokens=held, inputs=hidden, outputs=latent.query_rank, launches=attending)
    if latent.query_rank and latent.indexer_heads:  # every rank chooses keys for all heads
        yield Product(tokens=held, inputs=latent.query_rank, outputs=latent.indexer_size, launches=attending)
        yield Product(tokens=held, inputs=hidden, outputs=latent.indexer_key_size, launches=attending)
    queries_from = latent.query_rank or hidden
    yield Product(tokens=tokens, inputs=queries_from, outputs=model.query_size / tensor, launches=attending)
    down = latent.key_value_rank + latent.rope_head_dim
    yield Product(tokens=held, inputs=hidden, outputs=down, launches=attending)
    per_head = model.head_dim + latent.value_head_dim
    up = model.num_heads * per_head / tensor
    yield Product(tokens=tokens, inputs=latent.key_value_rank, outputs=up, launches=attending)


def _expert_products(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Iterator[Product]:
    """Yield the products of experts, in one kernel or one after the other, and of shared experts."""
    local, width = local_experts(x, experts), experts.expert_ffn_size / width_split(x, job)
    count, launches = (local, 1.0) if job.stack.groups_experts else (1.0, local)
    yield from _block(rows_per_expert(x, job, experts), job, width, count=count, launches=launches)
    if experts.shared_ffn_size:
        shared = experts.shared_ffn_size / x.tensor_parallel_degree
        yield from _block(tokens_per_pass(x, job), job, shared)


def _block(
    tokens: Floats, job: Job, width: Floats | float, count: Floats | float = 1.0, launches: Floats | float = 1.0
) -> Iterator[Product]:
    """Yield the products at the start and at the end of a feed-forward block."""
    hidden, wide = job.model.hidden_size, 2 if job.model.gated_mlp else 1
    yield Product(tokens=tokens, inputs=hidden, outputs=wide * width, count=count, launches=launches)
    yield Product(tokens=tokens, inputs=width, outputs=hidden, count=count, launches=launches)


Law = TypeVar("Law", GemmLaw, AttentionLaw)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductTimes:
    """Seconds of matrix products: for the forward pass, for gradients of inputs, and for gradients of weights."""

    forward_s: Floats
    input_gradient_s: Floats
    weight_gradient_s: Floats

    @property
    def backward_s(self) -> Floats:
        """The seconds of the products in the whole backward pass: gradients of inputs and of weights."""
        return self.input_gradient_s + self.weight_gradient_s

    def __add__(self, other: ProductTimes) -> ProductTimes:
        return ProductTimes(
            forward_s=self.forward_s + other.forward_s,
            input_gradient_s=self.input_gradient_s + other.input_gradient_s,
            weight_gradient_s=self.weight_gradient_s + other.weight_gradient_s,
        )

    def take(self, index: Integers) -> ProductTimes:
        """Return the times in the given rows, in the order of ``index``."""
        return ProductTimes(
            forward_s=self.forward_s[index],
            input_gradient_s=self.input_gradient_s[index],
            weight_gradient_s=self.weight_gradient_s[index],
        )


def layer_products_s(x: LayoutColumns, job: Job, *, sparse: bool) -> ProductTimes:
    """Return the seconds of a layer's matrix products, without the time to round their inputs to low precision.

    The products are computed once for each combination of the options that their shapes depend on.

    Args:
        x: Layouts, one per row.
        job: The job.
        sparse: True for a layer with experts.
    """
    few, which = x.distinct(*with_batch_fields(SHAPE_FIELDS, job))
    layer = _products_s(few, job, list(layer_products(few, job, sparse=sparse)))
    if sparse and job.model.experts:
        layer = layer + _products_s(few, job, [router_product(few, job, job.model.experts)], in_fp8=False)
    return layer.take(which)


def projection_s(x: LayoutColumns, job: Job) -> ProductTimes:
    """Return the seconds of the output projection, which stays in 16 bits even if layers multiply in fp8."""
    few, which = x.distinct(*with_batch_fields(SHAPE_FIELDS, job))
    outputs = job.model.vocab_size / few.tensor_parallel_degree
    projection = Product(tokens=tokens_per_pass(few, job), inputs=job.model.hidden_size, outputs=outputs)
    return _products_s(few, job, [projection], in_fp8=False).take(which)


def layer_matrix_s(x: LayoutColumns, job: Job, *, sparse: bool) -> ProductTimes:
    """Return the seconds of a layer's matrix products, with the time to round their inputs to low precision.

    Args:
        x: Layouts, one per row.
        job: The job.
        sparse: True for a layer with experts.
    """
    products, casts = layer_products_s(x, job, sparse=sparse), casts_s(x, job, sparse=sparse)
    return ProductTimes(
        forward_s=products.forward_s + casts.forward_s,
        input_gradient_s=products.input_gradient_s + casts.input_gradient_s,
        weight_gradient_s=products.weight_gradient_s + casts.weight_gradient_s,
    )


SHAPE_FIELDS = options_entering(CostPart.PRODUCTS)
"""Options that the shapes and the number format of a layer's products depend on."""


def _products_s(x: LayoutColumns, job: Job, products: list[Product], *, in_fp8: bool = True) -> ProductTimes:
    """Return the time of all products of one pass: forward, and backward for each of the two gradients."""
    laws = kernels_for(job.cluster.accelerator).gemm
    if not in_fp8 and Precision.BF16 in laws:
        laws = {precision: laws[Precision.BF16 if precision in NARROW_PRECISIONS else precision] for precision in laws}
    total = np.zeros((3, len(x)))
    for rows, law in by_precision(x, laws):
        # all products and passes at once, because there are few rows and each call has a fixed cost
        tokens, inputs, outputs, count, launches = np.stack([product.rows(rows) for product in products], axis=1)
        m, n, k = (
            np.stack([tokens, tokens, inputs]),
            np.stack([outputs, inputs, outputs]),
            np.stack([inputs, outputs, tokens if job.workload.lengths is None else whole_vectors(tokens, law)]),
        )
        # a stack's slowdown is for GPUs; products on CPU cores were timed in training
        slowdown = (1.0 if job.cluster.accelerator.core else job.stack.matrix_slowdown) / law.sustained_share
        seconds = launches * gemm_s(m, n, k, law, count=count) * slowdown
        summed_s = reduce(np.add, (seconds[:, number] for number in range(len(products))))
        total[:, rows] = summed_s / _rate_shares(x.fp8_recipe[rows], law)
    return ProductTimes(forward_s=total[0], input_gradient_s=total[1], weight_gradient_s=total[2])


def _rate_shares(recipes: Choices, law: GemmLaw) -> Floats:
    """Return the share of the matrix rate that remains with each row's fp8 recipe, forward and backward.

    With one scale per tensor, sums are promoted to fp32 only in the backward pass (``Float8LinearConfig`` of torchao
    0.13, ``_2X_ACC_DGRAD`` of Transformer Engine 2.8). With a scale per row they are not promoted.
    """
    shares = np.empty((len(Fp8Recipe), 3))
    shares[:] = (1.0, law.promoted_share, law.promoted_share)
    shares[Fp8Recipe.ROWWISE] = law.rowwise_share
    shares[Fp8Recipe.BLOCKWISE] = law.blockwise_share
    shares[Fp8Recipe.MXFP8] = law.mxfp8_share
    by_row: Floats = shares[recipes].T
    return by_row


def by_precision(x: LayoutColumns, laws: Mapping[Precision, Law]) -> Iterator[tuple[Booleans, Law]]:
    """Yield the constants of each precision's kernels, with a mask of the rows (layouts) that use this precision.

    Rows whose precision the hardware lacks appear in no mask.

    Args:
        x: Layouts, one per row.
        laws: Constants ("law") of the kernels, by precision that the hardware has.
    """
    for precision, law in laws.items():
        rows: Booleans = x.precision == precision
        if rows.any():
            yield rows, law


_PARTIAL_SUM_BYTES = 4  # products accumulate in fp32
_VECTOR_BYTES = 16  # most bytes of one load instruction, if its address is a multiple of them
# the smallest size that an asynchronous copy to shared memory fetches (CUDA's cp.async: 4, 8 or 16)
_HALF_VECTOR_BYTES = 4

Sizes = Floats | Integers | float


def gemm_s(m: Sizes, n: Sizes, k: Sizes, law: GemmLaw, *, count: Sizes = 1) -> Floats:
    """Return the seconds of ``count`` independent matrix products (m, k) x (k, n), launched as one batched kernel.

    Times hold for the clock of a short benchmark on an idle device. The caller multiplies by the factor for the clock
    that a training step sustains. The time depends on the alignment of matrix rows in memory, whose lengths are ``k``
    and ``n``.

    Returns:
        Seconds, broadcast over the shapes.
    """
    m, n, k, count = (np.asarray(size, dtype=np.float64) for size in (m, n, k, count))
    ways = (_tiled_s(m, n, k, count, law, tiling) for tiling in product(law.tiles, law.splits))
    computed_s = reduce(np.minimum, ways) / _aligned_share(n, k, law)
    moved_bytes = law.operand_bytes * (m * k + k * n) + law.product_bytes * m * n
    return law.latency_s + np.maximum(computed_s, count * moved_bytes / law.memory_bandwidth_bytes_per_s)


def whole_vectors(size: Floats, law: GemmLaw) -> Floats:
    """Return the nearest size that is a multiple of one vector load, and at least one vector load.

    Use it for a mean of many sizes, because the mean may be a size that never occurs. If the law has no cost for
    alignment, the size stays as it is.

    Args:
        size: Number of elements of a matrix row.
        law: Constants of matrix products, with the bytes of an element.
    """
    vector = _VECTOR_BYTES / law.operand_bytes
    return np.maximum(np.rint(size / vector), 1.0) * vector if min(law.unaligned_shares) < 1 else size


def _tiled_s(
    m: Floats, n: Floats, k: Floats, count: Floats, law: GemmLaw, tiling: tuple[tuple[int, int], int]
) -> Floats:
    """Return the time of a product with one tiling: a tile shape, and a number of parts of the inner dimension.

    The partial sums are added through memory.
    """
    (rows, columns), split = tiling
    exact_waves = count * np.ceil(m / rows) * np.ceil(n / columns) * split / law.num_multiprocessors
    waves = np.maximum(exact_waves + law.wave_loss * (np.ceil(exact_waves) - exact_waves), 1.0)
    flop = 2 * rows * columns * (k / split + law.prologue) * law.num_multiprocessors
    seconds: Floats = waves * flop / (law.peak_flop_per_s * law.peak_share * law.rate_share((rows, columns)))
    if split > 1:
        summed_bytes = _PARTIAL_SUM_BYTES * (split + 1) * count * m * n
        seconds = seconds + summed_bytes / law.memory_bandwidth_bytes_per_s
    return seconds


def _aligned_share(n: Floats, k: Floats, law: GemmLaw) -> Floats:
    """Return the share of the rate that remains if rows of ``n`` or ``k`` elements are not aligned to vector loads."""
    half, less = law.unaligned_shares
    whole_vectors = _divides(_VECTOR_BYTES, n, k, law)
    half_vectors = _divides(_HALF_VECTOR_BYTES, n, k, law)
    return np.where(whole_vectors, 1.0, np.where(half_vectors, half, less))


def _divides(num_bytes: int, n: Floats, k: Floats, law: GemmLaw) -> Floats:
    return np.asarray((n * law.operand_bytes % num_bytes == 0) & (k * law.operand_bytes % num_bytes == 0))

"""Matrix products of a layout: which shapes its ranks multiply, and how long they take.

Seconds are what the laws of ``gemm`` say, slowed by the clock that the device sustains and by the stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

import numpy as np

from autotuner.catalog.kernels import kernels_for
from autotuner.core.choices import NARROW_PRECISIONS, Fp8Recipe, Precision
from autotuner.core.columns import Booleans, Choices, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.kernels import AttentionLaw, GemmLaw
from autotuner.core.layout import options_entering
from autotuner.core.option import CostPart
from autotuner.costmodel.kernels.casts import casts_s
from autotuner.costmodel.kernels.gemm import gemm_s, whole_vectors
from autotuner.costmodel.kernels.products import Product, layer_products, router_product
from autotuner.costmodel.micro_batch import tokens_per_pass
from autotuner.costmodel.sequences import with_dealing

Law = TypeVar("Law", GemmLaw, AttentionLaw)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductTimes:
    """Seconds of some products: forward, and backward by gradient."""

    forward_s: Floats
    input_gradient_s: Floats
    weight_gradient_s: Floats

    @property
    def backward_s(self) -> Floats:
        """Both gradients."""
        return self.input_gradient_s + self.weight_gradient_s

    def __add__(self, other: ProductTimes) -> ProductTimes:
        return ProductTimes(
            forward_s=self.forward_s + other.forward_s,
            input_gradient_s=self.input_gradient_s + other.input_gradient_s,
            weight_gradient_s=self.weight_gradient_s + other.weight_gradient_s,
        )

    def take(self, index: Integers) -> ProductTimes:
        """The times of some layouts, in the order of the index."""
        return ProductTimes(
            forward_s=self.forward_s[index],
            input_gradient_s=self.input_gradient_s[index],
            weight_gradient_s=self.weight_gradient_s[index],
        )


def layer_products_s(x: LayoutColumns, job: Job, *, sparse: bool) -> ProductTimes:
    """Seconds of a layer's products, timed once for each combination of what their shapes depend on."""
    few, which = x.distinct(*with_dealing(SHAPE_FIELDS, job))
    layer = _products_s(few, job, list(layer_products(few, job, sparse=sparse)))
    if sparse and job.model.experts:
        layer = layer + _products_s(few, job, [router_product(few, job, job.model.experts)], in_fp8=False)
    return layer.take(which)


def projection_s(x: LayoutColumns, job: Job) -> ProductTimes:
    """Seconds of the output projection, which stays in 16 bits where layers multiply in fp8; timed as layers are."""
    few, which = x.distinct(*with_dealing(SHAPE_FIELDS, job))
    outputs = job.model.vocab_size / few.tensor_parallel_degree
    projection = Product(tokens=tokens_per_pass(few, job), inputs=job.model.hidden_size, outputs=outputs)
    return _products_s(few, job, [projection], in_fp8=False).take(which)


def layer_matrix_s(x: LayoutColumns, job: Job, *, sparse: bool) -> ProductTimes:
    """Seconds of a layer's products and of rounding their factors."""
    products, casts = layer_products_s(x, job, sparse=sparse), casts_s(x, job, sparse=sparse)
    return ProductTimes(
        forward_s=products.forward_s + casts.forward_s,
        input_gradient_s=products.input_gradient_s + casts.input_gradient_s,
        weight_gradient_s=products.weight_gradient_s + casts.weight_gradient_s,
    )


SHAPE_FIELDS = options_entering(CostPart.PRODUCTS)
"""All that the shapes of a layer's products depend on, and the format that they are in."""


def _products_s(x: LayoutColumns, job: Job, products: list[Product], *, in_fp8: bool = True) -> ProductTimes:
    """Seconds of all products of one pass, forward, and backward by gradient."""
    laws = kernels_for(job.cluster.accelerator).gemm
    if not in_fp8 and Precision.BF16 in laws:
        laws = {precision: laws[Precision.BF16 if precision in NARROW_PRECISIONS else precision] for precision in laws}
    total = np.zeros((3, len(x)))
    for rows, law in by_precision(x, laws):
        # all products and passes at once: there are few rows, and each call has a price
        tokens, inputs, outputs, count, launches = np.stack([product.rows(rows) for product in products], axis=1)
        m, n, k = (
            np.stack([tokens, tokens, inputs]),
            np.stack([outputs, inputs, outputs]),
            np.stack([inputs, outputs, tokens if job.workload.lengths is None else whole_vectors(tokens, law)]),
        )
        # a stack's slowdown is that of GPUs in training; a core's products were timed as they run
        slowdown = (1.0 if job.cluster.accelerator.core else job.stack.matrix_slowdown) / law.sustained_share
        seconds = launches * gemm_s(m, n, k, law, count=count) * slowdown
        summed_s = reduce(np.add, (seconds[:, number] for number in range(len(products))))
        total[:, rows] = summed_s / _rate_shares(x.fp8_recipe[rows], law)
    return ProductTimes(forward_s=total[0], input_gradient_s=total[1], weight_gradient_s=total[2])


def _rate_shares(recipes: Choices, law: GemmLaw) -> Floats:
    """What the recipe of each row leaves of the rate: forward, and in both products of the backward.

    With a scale per tensor, sums are promoted in the backward alone (``Float8LinearConfig`` of torchao 0.13,
    ``_2X_ACC_DGRAD`` of Transformer Engine 2.8); a scale per row does without.
    """
    shares = np.empty((len(Fp8Recipe), 3))
    shares[:] = (1.0, law.promoted_share, law.promoted_share)
    shares[Fp8Recipe.ROWWISE] = law.rowwise_share
    shares[Fp8Recipe.BLOCKWISE] = law.blockwise_share
    shares[Fp8Recipe.MXFP8] = law.mxfp8_share
    by_row: Floats = shares[recipes].T
    return by_row


def by_precision(x: LayoutColumns, laws: Mapping[Precision, Law]) -> Iterator[tuple[Booleans, Law]]:
    """Which rows each law is for; rows whose format the hardware lacks are for none."""
    for precision, law in laws.items():
        rows: Booleans = x.precision == precision
        if rows.any():
            yield rows, law

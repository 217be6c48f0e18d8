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
from autotuner.costmodel.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.costmodel.kernels.gemm import gemm_s, quantise_s
from autotuner.costmodel.kernels.products import Product, layer_products, router_product
from autotuner.costmodel.micro_batch import tokens_per_pass
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.kernel_law import AttentionLaw, GemmLaw
from autotuner.domain.layouts.choice import NARROW_PRECISIONS, Fp8Recipe, Precision
from autotuner.domain.layouts.layout import fields_entering
from autotuner.domain.layouts.option import CostPart

__all__ = ["ProductTimes", "by_precision", "layer_products_s", "projection_s"]

ROWWISE_CASTS = 2.0
"""Conversions per operand with a scale per row, over those with one scale: the two products that an operand is part of
sum over different dimensions, so it is rounded along each (torchao's ``rowwise`` recipe), and one scale serves both.

Of the tokens per second that tensorwise fp8 gains on bf16, rowwise gains less than half: 5,760, 6,424 and 7,186 for
Llama 3 8B on 8 H100, of which the latter also gathers parameters in fp8 (pytorch/torchtitan@7a04053).
"""

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
    few, which = x.distinct(*SHAPE_FIELDS)
    layer = _products_s(few, job, list(layer_products(few, job, sparse=sparse)))
    if sparse and job.model.experts:
        layer = layer + _products_s(few, job, [router_product(few, job, job.model.experts)], in_fp8=False)
    return layer.take(which)


def projection_s(x: LayoutColumns, job: Job) -> ProductTimes:
    """Seconds of the output projection, which stays in 16 bits where layers multiply in fp8; timed as layers are."""
    few, which = x.distinct(*SHAPE_FIELDS)
    outputs = job.model.vocab_size / few.tensor_parallel_degree
    projection = Product(tokens=tokens_per_pass(few, job), inputs=job.model.hidden_size, outputs=outputs)
    return _products_s(few, job, [projection], in_fp8=False).take(which)


SHAPE_FIELDS = fields_entering(CostPart.MATRIX_PRODUCTS)
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
        casts = np.where(x.fp8_recipe[rows] == Fp8Recipe.ROWWISE, ROWWISE_CASTS, 1.0)
        convert_s = quantise_s(casts * tokens * (inputs + outputs) * count * launches / 2, law)
        m, n, k = (
            np.stack([tokens, tokens, inputs]),
            np.stack([outputs, inputs, outputs]),
            np.stack([inputs, outputs, tokens]),
        )
        # a stack's slowdown is that of GPUs in training; a core's products were timed as they run
        slowdown = (1.0 if job.cluster.accelerator.core else job.stack.matrix_slowdown) / law.sustained_share
        seconds = launches * gemm_s(m, n, k, law, count=count) * slowdown + convert_s
        total[:, rows] = reduce(np.add, (seconds[:, number] for number in range(len(products))))
    return ProductTimes(forward_s=total[0], input_gradient_s=total[1], weight_gradient_s=total[2])


def by_precision(x: LayoutColumns, laws: Mapping[Precision, Law]) -> Iterator[tuple[Booleans, Law]]:
    """Which rows each law is for; rows whose format the hardware lacks are for none."""
    for precision, law in laws.items():
        rows: Booleans = x.precision == precision
        if rows.any():
            yield rows, law

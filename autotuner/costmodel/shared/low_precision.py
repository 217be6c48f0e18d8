"""Low precision: layouts that round to 8 bits or fewer, and the bytes that rounded tensors need.

``layer.quantization`` computes the cost of rounding, and ``layer.matrix_products`` the time of the products.
"""

from __future__ import annotations

import numpy as np

from autotuner.core.choices import Fp8Recipe, Precision
from autotuner.core.columns import Booleans, Floats, LayoutColumns, is_one_of
from autotuner.core.job import Job

TENSOR_RECIPES = (Fp8Recipe.TENSORWISE, Fp8Recipe.DELAYED)
"""Recipes with one scale for a whole tensor. Both products of the tensor use the same rounded values."""

BLOCK_RECIPES = (Fp8Recipe.BLOCKWISE, Fp8Recipe.MXFP8)
"""Recipes with a scale for each block along one direction. They round once along each direction."""

NVFP4_BYTES = 0.5 + 1 / 16
"""Bytes of an nvfp4 value: 4 bits, and an fp8 scale for every 16 values (arXiv 2509.25149, section 2)."""


def is_bf16_on_cores(x: LayoutColumns, job: Job) -> Booleans:
    """Return a mask over the layouts: True for layouts on CPU cores that do not multiply in fp32.

    Their MFU is still a share of the fp32 peak of the cores.
    """
    accelerator = job.cluster.accelerator
    found: Booleans = (x.precision != accelerator.reference_precision) & (accelerator.kind == "cpu")
    return found


def is_narrow(x: LayoutColumns) -> Booleans:
    """Return a mask over the layouts: True where matrix products multiply values of 8 bits or fewer.

    It is False for a layout that only emulates low precision: its values are rounded, but stored and multiplied in 16
    bits.
    """
    return is_one_of(x.precision, (Precision.FP8, Precision.NVFP4))


def narrow_bytes(x: LayoutColumns) -> Floats:
    """Return the bytes of one value that is rounded to low precision, including its share of the scale factor.

    The result is 1 byte for every precision except NVFP4.
    """
    return np.where(x.precision == Precision.NVFP4, NVFP4_BYTES, 1.0)


def lays_out_twice(job: Job) -> bool:
    """Return True if the accelerator's tensor cores need some 8-bit matrices in two memory layouts.

    Tensor cores of Ada and Hopper read 8-bit matrices only along the dimension that the product sums over. Blackwell
    reads them along both dimensions (user guide of Transformer Engine 2.15, current scaling).
    """
    accelerator = job.cluster.accelerator
    return accelerator.kind == "cuda" and not accelerator.applies_block_scales


def matrix_share(job: Job) -> float:
    """Return the share of the model's weights that belongs to layers, from 0 to 1.

    Low precision applies to these weights. The embedding and the output projection stay in 16 bits.
    """
    return min(1.0, job.model.num_layer_parameters / job.model.num_parameters)


def saved_share(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes that are kept of a matrix product's input, divided by the input's bytes in 16 bits.

    The input is kept to compute the gradient of the weight. Transformer Engine keeps a rounded copy of the input for
    the backward pass. torchao keeps the input itself and rounds it again (``Linear`` of Transformer Engine 2.8,
    ``Float8Linear`` of torchao 0.13).
    """
    keeps_narrow = is_narrow(x) & (job.stack.fp8_implementation == "transformer_engine")
    return np.where(keeps_narrow, narrow_bytes(x) / 2, 1.0)


def sent_share(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes of activations or gradients that tensor ranks gather, divided by their bytes in 16 bits.

    A software stack may round these values before it sends them. With a scale per block, a gradient is gathered twice:
    once with blocks along each of its two dimensions.
    """
    rounded = is_narrow(x) & job.stack.gathers_fp8_activations & (x.fp8_recipe != Fp8Recipe.ROWWISE)
    by_block = is_one_of(x.fp8_recipe, BLOCK_RECIPES) | (x.precision == Precision.NVFP4)
    return np.where(rounded, np.where(by_block, 1.5, 1.0) * narrow_bytes(x) / 2, 1.0)


def gathers_parameters(x: LayoutColumns, job: Job) -> Booleans:
    """Return a mask over the layouts: True where data-parallel ranks gather weights in 8 bits.

    Weights can be gathered in 8 bits only if each tensor has one scale, which all ranks know. Megatron-LM gathers mxfp8
    weights in 16 bits into the buffer of the gradients and rounds them there (``reuse_grad_buf_for_mxfp8_param_ag``,
    core 0.14).
    """
    rounded: Booleans = (
        (x.precision == Precision.FP8) & job.stack.gathers_fp8_parameters & is_one_of(x.fp8_recipe, TENSOR_RECIPES)
    )
    return rounded


def gathered_share(x: LayoutColumns, job: Job) -> Floats | float:
    """Return the bytes of weights that data-parallel ranks gather, divided by the bytes of the same weights in 16 bits.

    The result is 1.0 if the software stack gathers all weights in 16 bits.
    """
    if not job.stack.gathers_fp8_parameters:
        return 1.0
    return 1.0 - gathers_parameters(x, job) * matrix_share(job) / 2


def weight_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes of one element of a layer's weights on a rank that holds the whole weight, with rounded copies.

    Transformer Engine keeps rounded copies from the first micro-batch of a step to the last (``is_first_microbatch``),
    in two memory layouts if the products need both. If data-parallel ranks gather rounded weights, no 16-bit weight is
    kept (``fp8_param_gather`` of Megatron-LM). torchao rounds for each product and keeps no copy.
    """
    by_tensor = is_one_of(x.fp8_recipe, TENSOR_RECIPES) & (x.precision == Precision.FP8)
    copies = np.where(by_tensor, 1.0 + lays_out_twice(job), 2.0) * narrow_bytes(x)
    cached = is_narrow(x) & (job.stack.fp8_implementation == "transformer_engine")
    alone = gathers_parameters(x, job) & cached
    whole: Floats = np.where(alone, 0.0, x.element_bytes) + cached * copies
    return whole


def parameter_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the average bytes per weight of the model on a rank with unsharded weights, including rounded copies."""
    if job.stack.fp8_implementation != "transformer_engine" or not is_narrow(x).any():
        return x.element_bytes
    share = matrix_share(job)
    mean: Floats = share * weight_bytes(x, job) + (1 - share) * x.element_bytes
    return mean

"""Cost of casts to 8 bits or fewer.

Casts are counted per tensor. A product's input is rounded in the forward pass and is used for the gradient of the
weight too. The gradient of its output is rounded once for both products of the backward pass. Weights are rounded once
per step or in every pass. The bytes that each cast moves depend on the recipe, the software and the device:

=====================  ==========================================================================
one scale, delayed     read 2 bytes, write 1, and 1 more where tensor cores need a second layout
one scale, current     and read 2 before, to find the largest value
a scale per block      read 2, write 1 along each direction, and the scales
=====================  ==========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autotuner.core.choices import NARROW_PRECISIONS, Fp8Recipe, Precision
from autotuner.core.columns import Floats, LayoutColumns, is_one_of
from autotuner.core.job import Job
from autotuner.costmodel.layer.memory_bound import stream_rate
from autotuner.costmodel.shared.low_precision import gathers_parameters, lays_out_twice, matrix_share
from autotuner.costmodel.shared.micro_batch import hidden_split, local_experts, tokens_per_pass, width_split


@dataclass(frozen=True, slots=True, kw_only=True)
class CastTimes:
    """Seconds to round a layer's tensors to low precision, for three uses: forward pass, input and weight gradients."""

    forward_s: Floats
    input_gradient_s: Floats
    weight_gradient_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class CastBytes:
    """Bytes that a GPU reads and writes to round one element of each tensor to low precision, as numbers or columns."""

    input: Floats | float
    """Bytes moved to round a product's input in the forward pass."""
    again: Floats | float = 0.0
    """Bytes moved to round this input again in the backward pass."""
    gradient: Floats | float
    """Bytes moved to round the gradient of a product's output."""
    weight: Floats | float = 0.0
    """Bytes moved to round a weight in every micro-batch."""
    weight_per_step: Floats | float = 0.0
    """Bytes moved to round a weight once per step."""
    second_layout: Floats | float = 0.0
    """Additional bytes for an input or a gradient that is written in a second memory layout. A separate kernel also
    reads it."""
    behind_norm: Floats | float = 0.0
    """Bytes that are saved if a norm writes its output already rounded. Its second memory layout then needs a separate
    kernel."""


_READ, _WRITE = 2.0, 1.0
"""Bytes to read a 16-bit value, and to write a rounded value."""

_SCALES = {Fp8Recipe.BLOCKWISE: 2 * 4 / 128, Fp8Recipe.MXFP8: 2 * 1 / 32}
"""Bytes of the scales per element in both directions: fp32 for 128 values, or a power of two for 32 values."""


def _transformer_engine(recipe: Fp8Recipe, *, twice: bool) -> CastBytes:
    """Return the bytes of casts in Transformer Engine 2.8: one kernel rounds, and transposes if needed.

    A norm writes its output rounded if the scale is known before (delayed scaling). A separate kernel then makes the
    second memory layout, as it does for tensors that were gathered after rounding. Weights are rounded in a step's
    first micro-batch (``transformer_engine/pytorch/module/layernorm_linear.py``). Transformer Engine has no scale per
    row; that recipe is counted as one scale per block.
    """
    if recipe not in (Fp8Recipe.TENSORWISE, Fp8Recipe.DELAYED):
        both = _READ + 2 * _WRITE + _SCALES.get(recipe, 0.0)
        return CastBytes(input=both, gradient=both, weight_per_step=both)
    largest = _READ if recipe == Fp8Recipe.TENSORWISE else 0.0
    rounded, second = _READ + largest + _WRITE, _WRITE if twice else 0.0
    return CastBytes(
        input=rounded,
        gradient=rounded,
        weight_per_step=rounded + second,
        second_layout=second,
        # the tensor is neither written in 16 bits nor read again
        behind_norm=2 * _READ if recipe == Fp8Recipe.DELAYED else 0.0,
    )


def _torchao_compiled(recipe: Fp8Recipe) -> CastBytes:
    """Return the bytes of casts in compiled ``Float8Linear`` (torchao 0.13), which rounds saved 16-bit tensors again.

    With one scale per tensor, the largest value is found by the kernel that made the tensor (except for weights and the
    output of attention) and kept. A tensor is written in one memory layout in the forward pass, a gradient in both
    (``float8/roofline_utils.py``). With one scale per row, the largest values of rows and of columns take a pass each,
    and columns are transposed. Since sums are promoted to fp32 in the backward pass, a separate kernel scales the
    gradient of the input (``float8/float8_ops.py``, pytorch/ao#2184).
    """
    row, column, scaled = _READ + _WRITE, _READ + _WRITE + 2 * _WRITE, 2 * _READ
    if recipe in (Fp8Recipe.TENSORWISE, Fp8Recipe.DELAYED):
        largest = 0.25 * _READ  # one of a layer's four inputs
        return CastBytes(
            input=largest + row, again=row, gradient=largest + _READ + 2 * _WRITE, weight=_READ + row + row
        )
    return CastBytes(
        input=_READ + row,
        again=_READ + column + scaled,
        gradient=2 * _READ + row + column,
        weight=2 * _READ + row + column,
    )


_EAGER = (2 + 2) + 2 + (2 + 4) + (4 + 4) + (4 + 4) + (4 + 1)
"""Bytes moved by an eager cast of torchao, whose operations are separate kernels: absolute value, maximum, conversion
to fp32, scaling, clamping, rounding (``hp_tensor_and_scale_to_float8``, torchao 0.13)."""

_TORCHAO_EAGER = CastBytes(input=_EAGER, again=_EAGER, gradient=2 * _EAGER, weight=2 * _EAGER)

_WIDENED = 1 + 2
"""Bytes read and written when emulation converts a rounded operand back to 16 bits, once for each of its products."""

_NVFP4 = CastBytes(
    input=2 + 2 * (2 + 0.5 + 1 / 16),
    gradient=2 + 2 * (2 + 0.5 + 1 / 16),
    weight_per_step=2 + 2 + 2 * (0.5 + 1 / 16),
)
"""Bytes moved by casts of Transformer Engine 2.8 to nvfp4: one kernel finds the largest value, then one kernel rounds
in each direction. The kernel for the gradient of the weight rotates values first. Weights share a scale in square
blocks, so that one kernel is enough."""


def _emulated(cast: CastBytes) -> CastBytes:
    return CastBytes(
        input=cast.input + _WIDENED,
        again=cast.again + _WIDENED,
        gradient=cast.gradient + 2 * _WIDENED,
        weight=cast.weight + 2 * _WIDENED,
    )


def _bytes_of(job: Job, precision: Precision, recipe: Fp8Recipe, *, compiled: bool) -> CastBytes:
    if precision not in NARROW_PRECISIONS:
        return CastBytes(input=0.0, gradient=0.0)
    if precision == Precision.NVFP4:
        return _NVFP4
    torchao = _torchao_compiled(recipe) if compiled else _TORCHAO_EAGER
    if precision == Precision.FP8_EMULATED:
        return _emulated(torchao)
    if job.stack.fp8_implementation == "transformer_engine":
        return _transformer_engine(recipe, twice=lays_out_twice(job))
    return torchao


def _columns(x: LayoutColumns, job: Job) -> CastBytes:
    """Return the bytes of each layout's casts, as one column per field."""
    kinds, which = x.distinct("precision", "fp8_recipe", "compiled")
    precisions, recipes = tuple(Precision), tuple(Fp8Recipe)
    table = [
        _bytes_of(job, precisions[precision], recipes[recipe], compiled=bool(compiled))
        for precision, recipe, compiled in zip(kinds.precision, kinds.fp8_recipe, kinds.compiled, strict=True)
    ]
    return CastBytes(**{f.name: np.array([getattr(kind, f.name) for kind in table])[which] for f in fields(CastBytes)})


def casts_s(x: LayoutColumns, job: Job, *, sparse: bool) -> CastTimes:
    """Return the seconds that a layer spends on rounding to low precision in one micro-batch; 0.0 without rounding.

    Every tensor rank needs the whole inputs of attention and the feed-forward block, and the whole gradients of the
    outputs of both blocks. Each of these tensors has as many elements per token as the hidden size. If tensor ranks
    gather the tensors in rounded form, each rank rounds only its own part. The output of the attention core, the inner
    activations of the feed-forward block, and the gradients of queries, keys, values and inner products are split over
    the tensor ranks.

    Args:
        x: Layouts, one per row.
        job: The job.
        sparse: True for a layer with experts.
    """
    if not is_one_of(x.precision, NARROW_PRECISIONS).any():
        return CastTimes(**dict.fromkeys(("forward_s", "input_gradient_s", "weight_gradient_s"), np.zeros(len(x))))
    model, per_element = job.model, _columns(x, job)
    tokens, rate = tokens_per_pass(x, job), stream_rate(job) / job.stack.cast_traffic
    own = np.where(job.stack.gathers_fp8_activations, hidden_split(x), 1)
    whole, inner, products = _sizes(job, sparse=sparse)
    split_inputs = (model.attention_output_size + inner) / x.tensor_parallel_degree
    split_gradients = (model.mean_projected_size + products) / x.tensor_parallel_degree
    second = per_element.second_layout
    second_input = np.where((own > 1) | (per_element.behind_norm > 0), 2 * second, second)
    second_gradient = np.where(own > 1, 2 * second, second)
    forward = whole * ((per_element.input - per_element.behind_norm) / own + second_input)
    forward = forward + split_inputs * (per_element.input + second)
    backward = whole * (per_element.gradient / own + second_gradient)
    backward = backward + split_gradients * (per_element.gradient + second)
    again = (whole / own + split_inputs) * per_element.again
    weights = _matrix_elements(x, job, sparse=sparse) * per_element.weight * ~gathers_parameters(x, job)
    return CastTimes(
        forward_s=(tokens * forward + weights / 2) / rate,
        input_gradient_s=(tokens * backward + weights / 2) / rate,
        weight_gradient_s=tokens * again / rate,
    )


def weight_casts_s(x: LayoutColumns, job: Job, num_elements: Floats) -> Floats:
    """Return the seconds per step to round the weights of a rank; 0 if its software does not round once per step.

    Weights that are gathered in rounded form are not rounded again: they only need a second memory layout.

    Args:
        x: Layouts, one per row.
        job: The job.
        num_elements: Weights on the rank, of shape (layouts,).
    """
    if not is_one_of(x.precision, NARROW_PRECISIONS).any():
        return np.zeros(len(x))
    laid_out = 2 * _WRITE if lays_out_twice(job) else 0.0
    once = _columns(x, job).weight_per_step
    moved_bytes = np.where(gathers_parameters(x, job) & (once > 0), laid_out, once)
    seconds: Floats = moved_bytes * matrix_share(job) * num_elements * job.stack.cast_traffic / stream_rate(job)
    return seconds


def cast_kernels(x: LayoutColumns, job: Job) -> Floats:
    """Return the number of kernels per pass that round tensors in a dense layer; 0 for layouts without rounding.

    Transformer Engine launches 6 such kernels, torchao 8 if the layer is compiled. If it is not compiled, torchao
    launches six operations for each of eight tensors.
    """
    rounds = is_one_of(x.precision, NARROW_PRECISIONS)
    eager = 8.0 * 6  # six operations for each of eight tensors
    torchao = np.where(x.compiled, 8.0, eager)
    kernels: Floats = np.multiply(rounds, 6.0 if job.stack.fp8_implementation == "transformer_engine" else torchao)
    return kernels


def _sizes(job: Job, *, sparse: bool) -> tuple[float, float, float]:
    """Return three numbers of elements per token: inputs of blocks, inputs of their last products, outputs of gates.

    There are as many gradients as elements that products compute. Routed tokens are rounded after they were sent to
    their experts.
    """
    model, wide = job.model, 2 if job.model.gated_mlp else 1
    if not (sparse and model.experts):
        return 2.0 * model.hidden_size, model.ffn_size, wide * model.ffn_size
    experts = model.experts
    active = experts.experts_per_token * experts.expert_ffn_size + experts.shared_ffn_size
    routed = experts.experts_per_token * model.hidden_size
    whole = (1.0 + (experts.num_shared_experts > 0)) * model.hidden_size
    return whole, active + routed, wide * active + routed


def _matrix_elements(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    """Return the number of weights of a layer that a rank multiplies with."""
    model = job.model
    if not (sparse and model.experts):
        return (model.mean_attention_matrix_parameters + model.mlp_matrix_parameters) / x.tensor_parallel_degree
    shared = model.shared_expert_matrix_parameters
    routed = local_experts(x, model.experts) * model.expert_matrix_parameters / width_split(x, job)
    elements: Floats = (model.mean_attention_matrix_parameters + shared) / x.tensor_parallel_degree + routed
    return elements

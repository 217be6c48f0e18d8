"""Recomputation: what a layer's backward pass computes again instead of keeping it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import SAC_IGNORED_OPS, CheckpointPolicy, create_selective_checkpoint_contexts

from autotuner.core.choices import Recompute
from autotuner.core.layout import Layout

_aten = torch.ops.aten
_collectives = torch.ops._c10d_functional

_MATRIX_PRODUCTS = (
    _aten.mm.default,  # a linear module, in fp8 too: there the two factors are what differs
    _aten.addmm.default,
    _aten.linear.default,
    _aten._scaled_mm.default,
)
_SCALES = (_aten.max.default, _aten.amax.default)
"""The largest value of a tensor or row scales it to fp8: few numbers, and a pass over all values to find them."""

_ATTENTION_CORES = (
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
    _aten._scaled_dot_product_fused_attention_overrideable.default,
    getattr(torch.ops.higher_order, "flex_attention", None),
    # FlexAttention again, where it alone is compiled (``attention``); the youngest of these, and not in every torch
    getattr(torch.ops.higher_order, "inductor_compiled_code", None),
)
_COLLECTIVES = (
    _collectives.all_reduce.default,
    _collectives.all_gather_into_tensor.default,
    _collectives.reduce_scatter_tensor.default,
    _collectives.all_to_all_single.default,
)
_MARKS = (
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
)
"""What FSDP tells the profiler. torch counts it among the operations that a recomputation has to repeat in number, and
experts that are sharded in a layer say less the second time, when their parameters are there already."""

_SAVED = frozenset({*_MATRIX_PRODUCTS, *_SCALES, *_ATTENTION_CORES, *_COLLECTIVES} - {None})


def recomputed(layer: nn.Module, layout: Layout, *, index_in_stage: int) -> nn.Module:
    """The layer, recomputing what the layout says; ``index_in_stage`` counts its layers from 0."""
    if layout.recompute == Recompute.NONE or index_in_stage % layout.recompute_every:
        return layer
    # nothing here draws random numbers, so their state need not be kept and restored
    options: dict[str, Any] = {"preserve_rng_state": False}
    if layout.recompute == Recompute.SELECTIVE:  # the compiler takes no context that does nothing
        SAC_IGNORED_OPS.update(_MARKS)
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    wrapped: nn.Module = checkpoint_wrapper(layer, **options)
    return wrapped


def _policy(context: object, operation: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    """Keep what takes long to compute or another rank to tell: products of matrices, attention cores, collectives.

    Norms, rotations and activations are computed again, and with the math kernel the attention core: its scores are
    products of batches of matrices, which are short to compute and large to keep (arXiv 2205.05198, section 5).
    """
    del context, args, kwargs
    return CheckpointPolicy.MUST_SAVE if operation in _SAVED else CheckpointPolicy.PREFER_RECOMPUTE

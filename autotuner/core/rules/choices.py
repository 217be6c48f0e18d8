"""Rules for options that exclude or need each other.

An option that has no effect with the other values of the layout must stay at its default, so that equal runs are equal
layouts.
"""

from __future__ import annotations

from collections.abc import Iterable

from autotuner.core.choices import (
    FP8_PRECISIONS,
    NARROW_PRECISIONS,
    AttentionKernel,
    ContextExchange,
    Fp8Recipe,
    P2PTransport,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.option import OptionSpec
from autotuner.core.rules.exchange import SHARDED_GRADIENTS, num_gradients
from autotuner.core.rules.rule import Limit, Rule, any_of, held, idle, lacking, named, refuse
from autotuner.core.value import nearest_divisor

_IN_16_BITS = (AttentionKernel.FLASH, AttentionKernel.FLASH_1, AttentionKernel.FLASH_3, AttentionKernel.CUDNN)
"""Attention kernels that run only in 16-bit formats on a GPU."""

_FP8_BLOCK = 16
"""Block size in fp8: both dims of a product's second operand must be multiples of it (torch 2.13, ``_scaled_mm``). In
nvfp4, so many values share a scale."""

_MXFP8_BLOCK = 32
"""Block size in mxfp8: so many values share a scale, and both dims must be multiples of it (Transformer Engine
2.15)."""


def _block(x: Layout) -> int:
    """Return the block size of the layout's format: the dims of a product's operands must be multiples of it."""
    return _FP8_BLOCK + (_MXFP8_BLOCK - _FP8_BLOCK) * (x.fp8_recipe == Fp8Recipe.MXFP8)


def _kv_size(job: Job) -> int:
    return job.model.num_kv_heads * job.model.head_dim


def _splits_blocks(x: Layout, job: Job) -> bool:
    """Return True if a tensor rank's part of a matrix is not a whole number of blocks."""
    model, block = job.model, _block(x) * x.tensor_parallel_degree
    return (model.ffn_size % block != 0) | (model.query_size % block != 0) | (_kv_size(job) % block != 0)


def _format(x: Layout) -> str:
    """Return the name of the number format of the operands of matrix products."""
    return str(x.fp8_recipe if x.fp8_recipe == Fp8Recipe.MXFP8 else x.precision)


def _in_software(one: OptionSpec) -> Limit:
    """Return the rule that an option keeps its default if the job's software stack does not support the option."""
    message = (
        f"the option {one.label} works only with the software stacks {', '.join(one.only_in)}, not with "
        "{j.stack.name}"
    )
    return lacking(one.name, message, lambda x, j: j.stack.name not in one.only_in)


def _labels(members: Iterable[object]) -> str:
    return ", ".join(str(m) for m in members)


CHOICE_RULES: tuple[Rule, ...] = named(
    {
        "shard-degree-fits-level": refuse(
            "shard_level",
            # context ranks shard together with data-parallel ranks, even if there is only one of these
            lambda x, j: (
                ((x.data_parallel_shard_degree > 1) & (x.shard_level == ShardLevel.NONE))
                | ((x.data_parallel_shard_degree * x.context_parallel_degree == 1) & (x.shard_level != ShardLevel.NONE))
            ),
            "shard level {x.shard_level} does not fit {x.data_parallel_shard_degree} data-parallel shard rank(s): one "
            "rank has nothing to shard and needs level none; several ranks need optimizer, gradients or parameters",
            lambda x, j: (ShardLevel.PARAMETERS if x.data_parallel_shard_degree > 1 else ShardLevel.NONE).label,
        ),
        "reshard-needs-sharded-parameters": held(
            "reshard_after_forward",
            False,
            "resharding after the forward pass needs shard level parameters, and this layout has shard level "
            "{x.shard_level}",
            lambda x, j: x.shard_level != ShardLevel.PARAMETERS,
        ),
        "attention-kernel-on-hardware": refuse(
            "attention_kernel",
            lambda x, j: any_of(x.attention_kernel, j.cluster.accelerator.attention_kernels) == 0,
            lambda x, j: (
                f"the accelerator {j.cluster.accelerator.name} has only the attention kernels "
                f"{_labels(j.cluster.accelerator.attention_kernels)}, not {x.attention_kernel}"
            ),
            lambda x, j: j.cluster.accelerator.attention_kernels[-1].label,
            is_of_hardware=True,
        ),
        "flash-needs-half-precision": refuse(
            "attention_kernel",
            lambda x, j: (
                any_of(x.attention_kernel, _IN_16_BITS)
                & (x.precision == Precision.FP32)
                & (j.cluster.accelerator.kind != "cpu")
            ),
            "on a GPU the attention kernel {x.attention_kernel} computes only in 16-bit formats, and the "
            "precision of this layout is fp32",
            AttentionKernel.MATH,
        ),
        "precision-on-hardware": refuse(
            "precision",
            lambda x, j: any_of(x.precision, j.cluster.accelerator.precisions) == 0,
            lambda x, j: (
                f"the accelerator {j.cluster.accelerator.name} multiplies matrices only in "
                f"{_labels(j.cluster.accelerator.precisions)}, not in {x.precision}"
            ),
            lambda x, j: [p for p in j.cluster.accelerator.precisions if p != Precision.FP8_EMULATED][-1].label,
        ),
        "fp8-block-shape": refuse(
            "precision",
            lambda x, j: (
                any_of(x.precision, NARROW_PRECISIONS) & ((j.model.hidden_size % _block(x) != 0) | _splits_blocks(x, j))
            ),
            lambda x, j: (
                f"{_format(x)} multiplies matrices in blocks of {_block(x)} elements, so {_block(x)} must divide the "
                f"hidden size {j.model.hidden_size}; after a split over {x.tensor_parallel_degree} tensor rank(s), it "
                f"must also divide the ffn size {j.model.ffn_size}, the size of all query heads, {j.model.query_size}, "
                f"and the size of all kv heads, {_kv_size(j)}"
            ),
            Precision.BF16,
        ),
        "fp8-token-blocks": refuse(
            "precision",
            lambda x, j: (
                any_of(x.precision, (Precision.FP8, Precision.NVFP4))
                & (x.micro_batch_size * j.workload.seq_len % (_block(x) * x.context_parallel_degree) != 0)
            ),
            lambda x, j: (
                f"{_format(x)} sums the gradient of a weight over blocks of {_block(x)} tokens, so {_block(x)} must "
                f"divide the tokens of a micro-batch on each rank: {x.micro_batch_size} sequence(s) of "
                f"{j.workload.seq_len} tokens, split over {x.context_parallel_degree} context rank(s)"
            ),
            Precision.BF16,
        ),
        "recipe-needs-fp8": idle(
            "fp8_recipe",
            "precision {x.precision} does not use fp8, so the fp8 recipe {x.fp8_recipe} has no effect",
            lambda x, j: any_of(x.precision, FP8_PRECISIONS) == 0,
        ),
        "recipe-on-hardware": refuse(
            "fp8_recipe",
            lambda x, j: (
                (x.precision == Precision.FP8) & (any_of(x.fp8_recipe, j.cluster.accelerator.fp8_recipes) == 0)
            ),
            lambda x, j: (
                f"the accelerator {j.cluster.accelerator.name} supports only the fp8 recipes "
                f"{_labels(j.cluster.accelerator.fp8_recipes)}, not {x.fp8_recipe}"
            ),
            Fp8Recipe.TENSORWISE,
            is_of_hardware=True,
        ),
        "gathered-logits-need-tensor-ranks": idle(
            "loss_parallel",
            "with one tensor rank, each rank has all logits already, so there are no logits to gather",
            lambda x, j: x.tensor_parallel_degree == 1,
        ),
        "async-tensor-parallel-needs": idle(
            "async_tensor_parallel",
            lambda x, j: (
                "asynchronous tensor parallelism needs two or more tensor ranks, and both sequence_parallel "
                "and compiled must be true"
                if j.stack.compiles
                else "asynchronous tensor parallelism needs two or more tensor ranks, and sequence_parallel must "
                "be true"
            ),
            lambda x, j: (
                (x.tensor_parallel_degree == 1)
                | (x.sequence_parallel == 0)
                | ((x.compiled == 0) & j.stack.compiles)  # other software has its own kernels for it
            ),
        ),
        "async-tensor-parallel-on-hardware": lacking(
            "async_tensor_parallel",
            "asynchronous tensor parallelism needs symmetric memory, which PyTorch has only on CUDA GPUs, not on "
            "{j.cluster.accelerator.name}",
            lambda x, j: j.cluster.accelerator.kind != "cuda",
        ),
        "context-exchange-needs-context-ranks": idle(
            "context_exchange",
            "with one context rank, each rank has the whole sequence, so there are no keys and values to exchange",
            lambda x, j: x.context_parallel_degree == 1,
        ),
        "heads-per-context-rank": refuse(
            "context_exchange",
            lambda x, j: (
                (x.context_exchange == ContextExchange.ALL_TO_ALL)
                & (j.model.num_kv_heads % (x.tensor_parallel_degree * x.context_parallel_degree) != 0)
            ),
            lambda x, j: (
                f"the context exchange all_to_all gives each rank whole kv heads, and the {j.model.num_kv_heads} kv "
                f"heads of the model do not split over {x.tensor_parallel_degree * x.context_parallel_degree} ranks "
                "(tensor degree times context degree)"
            ),
            ContextExchange.RING,
        ),
        "recompute-interval-needs-recompute": idle(
            "recompute_every",
            "recompute is none, so no layer is recomputed, and the interval between recomputed layers has no effect",
            lambda x, j: x.recompute == Recompute.NONE,
        ),
        "recompute-interval-within-stage": refuse(
            "recompute_every",
            lambda x, j: (x.recompute_every > 1) & (x.recompute_every * x.num_stages > j.model.num_layers),
            lambda x, j: (
                f"must be at most {j.model.num_layers // x.num_stages}, the number of layers of a stage, so that every "
                "stage recomputes a layer"
            ),
            lambda x, j: max(1, j.model.num_layers // x.num_stages),
        ),
        "buckets-need-replicas": idle(
            "gradient_bucket_bytes",
            lambda x, j: (
                "no gradients are all-reduced between ranks, so the size of a gradient bucket has no effect"
                if num_gradients(x) == 1
                else (
                    f"shard level {x.shard_level} reduces gradients layer by layer, so the size of a gradient bucket "
                    "has no effect"
                )
            ),
            lambda x, j: (num_gradients(x) == 1) | any_of(x.shard_level, SHARDED_GRADIENTS),
        ),
        "fp32-reduce-needs-half-precision": idle(
            "fp32_gradient_reduce",
            lambda x, j: (
                "the precision is fp32, so gradients are already summed in fp32"
                if x.precision == Precision.FP32
                else "no two ranks sum their gradients, so the format of the sum has no effect"
            ),
            lambda x, j: (x.precision == Precision.FP32) | (num_gradients(x) == 1),
        ),
        "offload-on-hardware": lacking(
            "offload_activations",
            "the accelerators of this cluster are CPUs: their activations are already in the host's memory "
            "and cannot be offloaded to it",
            lambda x, j: j.cluster.accelerator.kind == "cpu",
        ),
        "optimizer-offload-on-hardware": lacking(
            "optimizer_offload_percent",
            "the accelerators of this cluster are CPUs: their optimizer states are already in the host's "
            "memory and cannot be offloaded to it",
            lambda x, j: j.cluster.accelerator.kind == "cpu",
        ),
        "slack-needs-adaptive-schedule": idle(
            "extra_slack",
            "schedule {x.pipeline_schedule} runs a fixed number of forward passes before the first backward "
            "pass; only schedule adaptive can run more of them (extra slack)",
            lambda x, j: x.pipeline_schedule != PipelineSchedule.ADAPTIVE,
        ),
        "slack-below-micro-batches": refuse(
            "extra_slack",
            lambda x, j: (x.extra_slack > 0) & (x.extra_slack >= j.workload.num_micro_batches(x)),
            lambda x, j: (
                "extra slack is the number of additional forward passes before the first backward pass, so it must be "
                f"less than the number of micro-batches, {j.workload.num_micro_batches(x)}"
            ),
            lambda x, j: max(0, j.workload.num_micro_batches(x) - 1),
        ),
        "delegates-need-stages": idle(
            "p2p_transport",
            "with one pipeline rank, no stage sends activations to another rank, so this option has no effect",
            lambda x, j: x.pipeline_parallel_degree == 1,
        ),
        "delegates-in-software": held(
            "p2p_transport",
            P2PTransport.INLINE,
            "delegates (helper processes that send for a rank) exist only in the software stack torch, not in "
            "{j.stack.name}",
            lambda x, j: j.stack.name != "torch",
        ),
        "number-of-delegates-needs-delegates": idle(
            "num_delegates",
            "p2p_transport is {x.p2p_transport}, which uses no delegates (helper processes that send for a "
            "rank), so their number has no effect",
            lambda x, j: x.p2p_transport != P2PTransport.DELEGATED,
        ),
        "delegates-share-micro-batches": refuse(
            "num_delegates",
            lambda x, j: j.workload.num_micro_batches(x) % x.num_delegates != 0,
            lambda x, j: (
                "delegates (helper processes that send for a rank) take micro-batches in turn, so their number must "
                f"divide the number of micro-batches, {j.workload.num_micro_batches(x)}"
            ),
            lambda x, j: nearest_divisor(x.num_delegates, j.workload.num_micro_batches(x)),
        ),
        "rank-order-needs-both-axes": idle(
            "rank_order",
            "the rank order has an effect only with two or more pipeline ranks and two or more data-parallel replicas",
            lambda x, j: (x.pipeline_parallel_degree == 1) | (x.data_parallel_replicate_degree == 1),
        ),
        "rotation-below-stages": refuse(
            "stage_rotation",
            lambda x, j: x.stage_rotation >= x.pipeline_parallel_degree,
            "must be less than the number of pipeline ranks, {x.pipeline_parallel_degree}",
            lambda x, j: x.stage_rotation % x.pipeline_parallel_degree,
        ),
        "rotation-needs-unequal-links": idle(
            "stage_rotation",
            "link_health names no slow or dead link of the cluster, so a rotation of the stages has no effect",
            lambda x, j: not j.cluster.link_health,
        ),
        **{f"{one.name.replace('_', '-')}-in-software": _in_software(one) for one in OPTIONS.values() if one.only_in},
    }
)

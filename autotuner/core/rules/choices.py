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
    message = f"{one.label} works only with the stacks {', '.join(one.only_in)}, not with {{j.stack.name}}"
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
            "shard level {x.shard_level} does not fit {x.data_parallel_shard_degree} shard rank(s): "
            "one rank has nothing to shard, and several ranks need another level than none",
            lambda x, j: (ShardLevel.PARAMETERS if x.data_parallel_shard_degree > 1 else ShardLevel.NONE).label,
        ),
        "reshard-needs-sharded-parameters": held(
            "reshard_after_forward",
            False,
            "resharding after the forward pass needs sharded parameters, and the shard level is {x.shard_level}",
            lambda x, j: x.shard_level != ShardLevel.PARAMETERS,
        ),
        "attention-kernel-on-hardware": refuse(
            "attention_kernel",
            lambda x, j: any_of(x.attention_kernel, j.cluster.accelerator.attention_kernels) == 0,
            lambda x, j: (
                f"{j.cluster.accelerator.name} has the attention kernels "
                f"{_labels(j.cluster.accelerator.attention_kernels)}, but not {x.attention_kernel}"
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
            "on a GPU {x.attention_kernel} attention computes in 16 bits, not in fp32",
            AttentionKernel.MATH,
        ),
        "precision-on-hardware": refuse(
            "precision",
            lambda x, j: any_of(x.precision, j.cluster.accelerator.precisions) == 0,
            lambda x, j: (
                f"{j.cluster.accelerator.name} multiplies matrices in "
                f"{_labels(j.cluster.accelerator.precisions)}, but not in {x.precision}"
            ),
            lambda x, j: [p for p in j.cluster.accelerator.precisions if p != Precision.FP8_EMULATED][-1].label,
        ),
        "fp8-block-shape": refuse(
            "precision",
            lambda x, j: (
                any_of(x.precision, NARROW_PRECISIONS) & ((j.model.hidden_size % _block(x) != 0) | _splits_blocks(x, j))
            ),
            lambda x, j: (
                f"{_format(x)} multiplies blocks of {_block(x)}, so {_block(x)} must divide the hidden size "
                f"{j.model.hidden_size}, and also the ffn size {j.model.ffn_size}, the query size "
                f"{j.model.query_size} and the kv size {_kv_size(j)} after they are split over "
                f"{x.tensor_parallel_degree} tensor rank(s)"
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
                f"{_format(x)} sums the gradient of a weight over blocks of {_block(x)} tokens, so "
                f"{_block(x)} must divide the tokens of a micro-batch on each rank: {x.micro_batch_size} "
                f"sequence(s) of {j.workload.seq_len} tokens on {x.context_parallel_degree} context rank(s)"
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
                f"{j.cluster.accelerator.name} supports the fp8 recipes "
                f"{_labels(j.cluster.accelerator.fp8_recipes)}, but not {x.fp8_recipe}"
            ),
            Fp8Recipe.TENSORWISE,
            is_of_hardware=True,
        ),
        "gathered-logits-need-tensor-ranks": idle(
            "loss_parallel",
            "one tensor rank holds all logits, so there is nothing to gather",
            lambda x, j: x.tensor_parallel_degree == 1,
        ),
        "async-tensor-parallel-needs": idle(
            "async_tensor_parallel",
            lambda x, j: (
                "asynchronous tensor parallelism needs two or more tensor ranks, sequence_parallel and compiled"
                if j.stack.compiles
                else "asynchronous tensor parallelism needs two or more tensor ranks and sequence_parallel"
            ),
            lambda x, j: (
                (x.tensor_parallel_degree == 1)
                | (x.sequence_parallel == 0)
                | ((x.compiled == 0) & j.stack.compiles)  # other software has its own kernels for it
            ),
        ),
        "async-tensor-parallel-on-hardware": lacking(
            "async_tensor_parallel",
            "asynchronous tensor parallelism needs symmetric memory, which PyTorch has only on CUDA, "
            "not on {j.cluster.accelerator.name}",
            lambda x, j: j.cluster.accelerator.kind != "cuda",
        ),
        "context-exchange-needs-context-ranks": idle(
            "context_exchange",
            "one context rank holds the whole sequence, so there is nothing to exchange",
            lambda x, j: x.context_parallel_degree == 1,
        ),
        "heads-per-context-rank": refuse(
            "context_exchange",
            lambda x, j: (
                (x.context_exchange == ContextExchange.ALL_TO_ALL)
                & (j.model.num_kv_heads % (x.tensor_parallel_degree * x.context_parallel_degree) != 0)
            ),
            lambda x, j: (
                f"all_to_all gives whole kv heads to each rank, and {j.model.num_kv_heads} kv heads do not "
                f"split over {x.tensor_parallel_degree * x.context_parallel_degree} tensor and context ranks"
            ),
            ContextExchange.RING,
        ),
        "recompute-interval-needs-recompute": idle(
            "recompute_every",
            "no layer recomputes, so an interval of recomputed layers has no effect",
            lambda x, j: x.recompute == Recompute.NONE,
        ),
        "recompute-interval-within-stage": refuse(
            "recompute_every",
            lambda x, j: (x.recompute_every > 1) & (x.recompute_every * x.num_stages > j.model.num_layers),
            lambda x, j: (
                f"a stage has {j.model.num_layers // x.num_stages} layers, fewer than the recompute "
                f"interval of {x.recompute_every}"
            ),
            lambda x, j: max(1, j.model.num_layers // x.num_stages),
        ),
        "buckets-need-replicas": idle(
            "gradient_bucket_bytes",
            lambda x, j: (
                "no gradients are all-reduced between ranks, so the size of a bucket has no effect"
                if num_gradients(x) == 1
                else (
                    f"shard level {x.shard_level} reduces gradients layer by layer, so the size of a bucket has "
                    "no effect"
                )
            ),
            lambda x, j: (num_gradients(x) == 1) | any_of(x.shard_level, SHARDED_GRADIENTS),
        ),
        "fp32-reduce-needs-half-precision": idle(
            "fp32_gradient_reduce",
            "gradients are already in fp32, or no two ranks sum their gradients, so this option has no effect",
            lambda x, j: (x.precision == Precision.FP32) | (num_gradients(x) == 1),
        ),
        "offload-on-hardware": lacking(
            "offload_activations",
            "the activations of a CPU are already in the host's memory, so they cannot be offloaded",
            lambda x, j: j.cluster.accelerator.kind == "cpu",
        ),
        "optimizer-offload-on-hardware": lacking(
            "optimizer_offload_percent",
            "the optimizer states of a CPU are already in the host's memory, so they cannot be offloaded",
            lambda x, j: j.cluster.accelerator.kind == "cpu",
        ),
        "slack-needs-adaptive-schedule": idle(
            "extra_slack",
            "schedule {x.pipeline_schedule} has a fixed warm-up; only the adaptive schedule has extra slack",
            lambda x, j: x.pipeline_schedule != PipelineSchedule.ADAPTIVE,
        ),
        "slack-below-micro-batches": refuse(
            "extra_slack",
            lambda x, j: (x.extra_slack > 0) & (x.extra_slack >= j.workload.num_micro_batches(x)),
            lambda x, j: (
                f"with {j.workload.num_micro_batches(x)} micro-batches, a stage cannot run {x.extra_slack} "
                "more of them ahead"
            ),
            lambda x, j: max(0, j.workload.num_micro_batches(x) - 1),
        ),
        "delegates-need-stages": idle(
            "p2p_transport",
            "one pipeline rank has no other stage to send to",
            lambda x, j: x.pipeline_parallel_degree == 1,
        ),
        "delegates-in-software": held(
            "p2p_transport",
            P2PTransport.INLINE,
            "{j.stack.name} sends inline; only the stack torch has delegates",
            lambda x, j: j.stack.name != "torch",
        ),
        "number-of-delegates-needs-delegates": idle(
            "num_delegates",
            "{x.p2p_transport} sends do not use delegates, so their number has no effect",
            lambda x, j: x.p2p_transport != P2PTransport.DELEGATED,
        ),
        "delegates-share-micro-batches": refuse(
            "num_delegates",
            lambda x, j: j.workload.num_micro_batches(x) % x.num_delegates != 0,
            lambda x, j: (
                f"delegates take micro-batches in turn, so the number of delegates ({x.num_delegates}) must "
                f"divide the number of micro-batches ({j.workload.num_micro_batches(x)})"
            ),
            lambda x, j: nearest_divisor(x.num_delegates, j.workload.num_micro_batches(x)),
        ),
        "rank-order-needs-both-axes": idle(
            "rank_order",
            "the rank order has an effect only with two or more pipeline ranks and two or more replicas",
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
            "all links of the cluster are alike, so a rotation of the stages has no effect",
            lambda x, j: not j.cluster.link_health,
        ),
        **{f"{one.name.replace('_', '-')}-in-software": _in_software(one) for one in OPTIONS.values() if one.only_in},
    }
)

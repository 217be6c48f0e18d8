"""Rules of the exchange of gradients between replicas."""

from __future__ import annotations

from autotuner.core.choices import MOMENTUM_SYNCS, BatchBalance, GradientClip, GradientSync, ShardLevel
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.rule import Limit, Rule, any_of, held, idle, named, refuse
from autotuner.core.value import nearest_divisor

_OF_ELEMENTS = (GradientSync.RANDOM, GradientSync.STRIDING)
"""Gradient exchanges that send single elements of the momentum."""

_LOSSY = (*MOMENTUM_SYNCS, GradientSync.DILOCO)

_DEALT = (BatchBalance.SNAKE, BatchBalance.STRATIFIED_SNAKE)
"""Batch balances that redistribute the sequences of a group of ranks among its ranks."""

SHARDED_GRADIENTS = (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS)
"""Shard levels that shard gradients, so that gradients are reduced layer by layer during the backward pass."""


def num_gradients(x: Layout) -> int:
    """Return the number of ranks whose gradients of one parameter are summed in each step."""
    replicas = 1 + (x.data_parallel_replicate_degree - 1) * (x.gradient_sync == GradientSync.FULL)
    return replicas * x.data_parallel_shard_degree * x.context_parallel_degree


def _of_exchange(field: str, syncs: tuple[GradientSync, ...], what: str) -> Limit:
    """Return the rule that an option which only some exchanges use keeps its default with other exchanges."""
    message = f"only {what}; this layout has gradient_sync {{x.gradient_sync}}, so this option has no effect"
    return idle(field, message, lambda x, j: any_of(x.gradient_sync, syncs) == 0)


def _torch_alone(field: str, what: str) -> Limit:
    return held(field, OPTIONS[field].default, f"{{j.stack.name}} {what}", lambda x, j: j.stack.name != "torch")


EXCHANGE_RULES: tuple[Rule, ...] = named(
    {
        "lossy-exchange-needs-replicas": idle(
            "gradient_sync",
            "with one data-parallel replica there is no other replica to exchange gradients with, so this "
            "option has no effect",
            lambda x, j: x.data_parallel_replicate_degree == 1,
        ),
        "gradient-sync-in-software": _torch_alone(
            "gradient_sync",
            "always sums all gradients in every step; only the software stack torch has other gradient exchanges",
        ),
        "sync-sparsity-needs-its-exchange": _of_exchange(
            "sync_sparsity", _OF_ELEMENTS, "the gradient exchanges random and striding send one element of several"
        ),
        "sync-chunk-needs-its-exchange": _of_exchange(
            "sync_chunk", (GradientSync.DEMO,), "the gradient exchange demo divides the momentum into chunks"
        ),
        "sync-top-k-needs-its-exchange": _of_exchange(
            "sync_top_k", (GradientSync.DEMO,), "the gradient exchange demo sends the largest components of each chunk"
        ),
        "sync-period-needs-its-exchange": _of_exchange(
            "sync_period",
            (GradientSync.DILOCO,),
            "the gradient exchange diloco waits several steps between two exchanges",
        ),
        "sync-sign-needs-its-exchange": _of_exchange(
            "sync_sign",
            MOMENTUM_SYNCS,
            "the gradient exchanges demo, random and striding can send the sign of the momentum instead of its value",
        ),
        "sync-decay-permille-needs-its-exchange": _of_exchange(
            "sync_decay_permille",
            MOMENTUM_SYNCS,
            "the gradient exchanges demo, random and striding keep a momentum that decays",
        ),
        "payload-precision-needs-its-exchange": _of_exchange(
            "payload_precision",
            _LOSSY,
            "the gradient exchanges demo, random, striding and diloco have a number format of their own for "
            "the data that they send",
        ),
        "top-k-within-chunk": refuse(
            "sync_top_k",
            lambda x, j: x.sync_top_k > x.sync_chunk,
            "must be at most {x.sync_chunk}, the number of components in a chunk (sync_chunk)",
            lambda x, j: x.sync_chunk,
        ),
        "momentum-decays": refuse(
            "sync_decay_permille",
            lambda x, j: x.sync_decay_permille > 1000,
            "must be at most 1000 ‰, because the momentum would grow in each step if it kept "
            "{x.sync_decay_permille} ‰ of its value",
            1000,
        ),
        "clip-needs-replicas": idle(
            "gradient_clip",
            "no two ranks reduce gradients, so clipping before the reduction and clipping after it are the same",
            lambda x, j: x.data_parallel_degree * x.context_parallel_degree == 1,
        ),
        "clip-before-reduction-needs-whole-gradients": held(
            "gradient_clip",
            GradientClip.POST,
            "shard level {x.shard_level} reduces the gradients of each layer inside the backward pass, so they cannot "
            "be clipped before that; choose gradient_clip post, or shard level optimizer",
            lambda x, j: any_of(x.shard_level, SHARDED_GRADIENTS),
        ),
        "clip-before-reduction-needs-full-exchange": idle(
            "gradient_clip",
            "the gradient exchange {x.gradient_sync} always clips the gradient of each replica before it compresses "
            "the gradient, so gradient_clip {x.gradient_clip} has no effect",
            lambda x, j: x.gradient_sync != GradientSync.FULL,
        ),
        "gradient-clip-in-software": _torch_alone(
            "gradient_clip",
            "clips gradients only after their reduction; only the software stack torch can clip before it",
        ),
        "balance-needs-lengths": idle(
            "batch_balance",
            "all sequences of the workload have the same length, so balancing the batches has no effect",
            lambda x, j: j.workload.lengths is None,
        ),
        "balance-needs-replicas": idle(
            "batch_balance",
            "one data-parallel rank takes the whole batch, so there is nothing to balance between ranks",
            lambda x, j: x.data_parallel_degree == 1,
        ),
        "dealing-needs-snake": idle(
            "num_dealing_ranks",
            "batch_balance {x.batch_balance} does not redistribute sequences within groups of ranks, so the size of "
            "such a group has no effect",
            lambda x, j: any_of(x.batch_balance, _DEALT) == 0,
        ),
        "dealing-groups-divide-ranks": refuse(
            "num_dealing_ranks",
            lambda x, j: x.data_parallel_degree % (x.num_dealing_ranks + (x.num_dealing_ranks == 0)) != 0,
            "{x.data_parallel_degree} data-parallel ranks do not split into groups of {x.num_dealing_ranks}",
            lambda x, j: nearest_divisor(x.num_dealing_ranks, x.data_parallel_degree),
        ),
        "packing-needs-lengths": idle(
            "sequence_packing",
            "all sequences of the workload have the same length, so there is nothing to pack",
            lambda x, j: j.workload.lengths is None,
        ),
        "unequal-batches-need-one-stage": refuse(
            "batch_balance",
            lambda x, j: (
                ((x.batch_balance != BatchBalance.NONE) | (x.sequence_packing != 0)) & (x.pipeline_parallel_degree > 1)
            ),
            "pipeline stages exchange hidden states of one shape, so every sequence is padded to "
            "{j.workload.seq_len} tokens, and balancing or packing sequences gains nothing",
            BatchBalance.NONE,
        ),
        "packing-needs-whole-sequences": held(
            "sequence_packing",
            False,
            "context ranks split a row at fixed places, but packed sequences end at any place; packing needs "
            "one context rank",
            lambda x, j: x.context_parallel_degree > 1,
        ),
    }
)

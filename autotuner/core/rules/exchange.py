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
    message = f"only {what}, so this option has no effect with {{x.gradient_sync}} exchange"
    return idle(field, message, lambda x, j: any_of(x.gradient_sync, syncs) == 0)


def _torch_alone(field: str, what: str) -> Limit:
    return held(field, OPTIONS[field].default, f"{{j.stack.name}} {what}", lambda x, j: j.stack.name != "torch")


EXCHANGE_RULES: tuple[Rule, ...] = named(
    {
        "lossy-exchange-needs-replicas": idle(
            "gradient_sync",
            "one replica has no other replica to exchange with; its shards always reduce all gradients",
            lambda x, j: x.data_parallel_replicate_degree == 1,
        ),
        "gradient-sync-in-software": _torch_alone("gradient_sync", "sums all gradients in every step"),
        "sync-sparsity-needs-its-exchange": _of_exchange(
            "sync_sparsity", _OF_ELEMENTS, "random and striding exchange send one element of several"
        ),
        "sync-chunk-needs-its-exchange": _of_exchange(
            "sync_chunk", (GradientSync.DEMO,), "demo exchange transforms chunks of the momentum"
        ),
        "sync-top-k-needs-its-exchange": _of_exchange(
            "sync_top_k", (GradientSync.DEMO,), "demo exchange sends the largest components"
        ),
        "sync-period-needs-its-exchange": _of_exchange(
            "sync_period", (GradientSync.DILOCO,), "diloco exchange waits several steps"
        ),
        "sync-sign-needs-its-exchange": _of_exchange(
            "sync_sign", MOMENTUM_SYNCS, "exchanges of a momentum can use its sign"
        ),
        "sync-decay-permille-needs-its-exchange": _of_exchange(
            "sync_decay_permille", MOMENTUM_SYNCS, "exchanges of a momentum have a momentum decay"
        ),
        "payload-precision-needs-its-exchange": _of_exchange(
            "payload_precision", _LOSSY, "lossy exchanges have a payload format"
        ),
        "top-k-within-chunk": refuse(
            "sync_top_k",
            lambda x, j: x.sync_top_k > x.sync_chunk,
            "a chunk of {x.sync_chunk} components does not have {x.sync_top_k} components to send",
            lambda x, j: x.sync_chunk,
        ),
        "momentum-decays": refuse(
            "sync_decay_permille",
            lambda x, j: x.sync_decay_permille > 1000,
            "the momentum would keep {x.sync_decay_permille} ‰ of its value in each step and so grow",
            1000,
        ),
        "clip-needs-replicas": idle(
            "gradient_clip",
            "one rank reduces no gradients, so clipping before and after the reduction is the same",
            lambda x, j: x.data_parallel_degree * x.context_parallel_degree == 1,
        ),
        "clip-before-reduction-needs-whole-gradients": held(
            "gradient_clip",
            GradientClip.POST,
            "shard level {x.shard_level} reduces the gradients of each layer inside the backward pass, "
            "so they cannot be clipped before; choose clip post, or shard level optimizer",
            lambda x, j: any_of(x.shard_level, SHARDED_GRADIENTS),
        ),
        "clip-before-reduction-needs-full-exchange": idle(
            "gradient_clip",
            "{x.gradient_sync} exchange clips the gradient of each replica before it compresses it, so "
            "clip {x.gradient_clip} has no effect",
            lambda x, j: x.gradient_sync != GradientSync.FULL,
        ),
        "gradient-clip-in-software": _torch_alone("gradient_clip", "clips only after the reduction"),
        "balance-needs-lengths": idle(
            "batch_balance",
            "all sequences of the workload have the same length, so balancing the batches has no effect",
            lambda x, j: j.workload.lengths is None,
        ),
        "balance-needs-replicas": idle(
            "batch_balance", "one data-parallel rank takes the whole batch", lambda x, j: x.data_parallel_degree == 1
        ),
        "dealing-needs-snake": idle(
            "num_dealing_ranks",
            "balance {x.batch_balance} does not redistribute sequences within groups of ranks, so the "
            "size of a group has no effect",
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
            "context ranks split a row at fixed places, but packed sequences end at any place",
            lambda x, j: x.context_parallel_degree > 1,
        ),
    }
)

"""Rules of the exchange of gradients between replicas."""

from __future__ import annotations

from autotuner.core.choices import MOMENTUM_SYNCS, BatchBalance, GradientClip, GradientSync, ShardLevel
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.rule import Limit, Rule, any_of, held, idle, named, refuse

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
    message = f"{what}; {{x.gradient_sync}} exchange does not"
    return idle(field, message, lambda x, j: any_of(x.gradient_sync, syncs) == 0)


def _torch_alone(field: str, what: str) -> Limit:
    return held(field, OPTIONS[field].default, f"{{j.stack.name}} {what}", lambda x, j: j.stack.name != "torch")


EXCHANGE_RULES: tuple[Rule, ...] = named(
    {
        "lossy-exchange-needs-replicas": idle(
            "gradient_sync",
            "one replica has nobody to exchange with; shards inside it reduce everything",
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
            "sync_sign", MOMENTUM_SYNCS, "exchanges of a momentum may follow its sign"
        ),
        "sync-decay-permille-needs-its-exchange": _of_exchange(
            "sync_decay_permille", MOMENTUM_SYNCS, "exchanges of a momentum let it decay"
        ),
        "payload-precision-needs-its-exchange": _of_exchange(
            "payload_precision", _LOSSY, "lossy exchanges choose what they send in"
        ),
        "top-k-within-chunk": refuse(
            "sync_top_k",
            lambda x, j: x.sync_top_k > x.sync_chunk,
            "a chunk of {x.sync_chunk} has no {x.sync_top_k} components to send",
            lambda x, j: x.sync_chunk,
        ),
        "momentum-decays": refuse(
            "sync_decay_permille",
            lambda x, j: x.sync_decay_permille > 1000,
            "a momentum keeps {x.sync_decay_permille} ‰ of itself, and would grow",
            999,
        ),
        "clip-needs-replicas": idle(
            "gradient_clip",
            "one replica has one gradient: what is clipped before its reduction is what is clipped behind it",
            lambda x, j: x.data_parallel_degree * x.context_parallel_degree == 1,
        ),
        "clip-before-reduction-needs-whole-gradients": held(
            "gradient_clip",
            GradientClip.POST,
            "shard level {x.shard_level} reduces each layer's gradients inside the backward pass, before anybody sees "
            "them; clip post, or shard the optimizer alone",
            lambda x, j: any_of(x.shard_level, SHARDED_GRADIENTS),
        ),
        "clip-before-reduction-needs-full-exchange": idle(
            "gradient_clip",
            "{x.gradient_sync} exchange clips each replica's gradient before it is compressed; no bucket is reduced "
            "that clip {x.gradient_clip} could come before",
            lambda x, j: x.gradient_sync != GradientSync.FULL,
        ),
        "gradient-clip-in-software": _torch_alone("gradient_clip", "clips behind the reduction"),
        "balance-needs-lengths": idle(
            "batch_balance",
            "all sequences of the workload are as long, so that every way to deal them is the same run",
            lambda x, j: j.workload.lengths is None,
        ),
        "balance-needs-replicas": idle(
            "batch_balance", "one data-parallel rank takes the whole batch", lambda x, j: x.data_parallel_degree == 1
        ),
        "dealing-needs-snake": idle(
            "num_dealing_ranks",
            "balance {x.batch_balance} deals nothing within a group of ranks",
            lambda x, j: any_of(x.batch_balance, _DEALT) == 0,
        ),
        "dealing-groups-divide-ranks": refuse(
            "num_dealing_ranks",
            lambda x, j: x.data_parallel_degree % (x.num_dealing_ranks + (x.num_dealing_ranks == 0)) != 0,
            "{x.data_parallel_degree} data-parallel ranks make no whole groups of {x.num_dealing_ranks}",
            0,
        ),
        "packing-needs-lengths": idle(
            "sequence_packing",
            "all sequences of the workload are as long; there is nothing to pack",
            lambda x, j: j.workload.lengths is None,
        ),
        "unequal-batches-need-one-stage": refuse(
            "batch_balance",
            lambda x, j: (
                ((x.batch_balance != BatchBalance.NONE) | (x.sequence_packing != 0)) & (x.pipeline_parallel_degree > 1)
            ),
            "stages of a pipeline exchange hidden states of one shape, so that every sequence is padded to "
            "{j.workload.seq_len} tokens and nothing is gained by dealing or packing them",
            BatchBalance.NONE,
        ),
        "packing-needs-whole-sequences": held(
            "sequence_packing",
            False,
            "context ranks cut a row at fixed places, and packed sequences end anywhere",
            lambda x, j: x.context_parallel_degree > 1,
        ),
    }
)

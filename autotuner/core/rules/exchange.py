"""Rules of the exchange of gradients between replicas."""

from __future__ import annotations

from autotuner.core.choices import MOMENTUM_SYNCS, BatchBalance, GradientClip, GradientSync, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.rule import Rule, any_of

_OF_ELEMENTS = (GradientSync.RANDOM, GradientSync.STRIDING)
"""What sends single elements of a momentum."""

_LOSSY = (*MOMENTUM_SYNCS, GradientSync.DILOCO)

_DEALT = (BatchBalance.SNAKE, BatchBalance.STRATIFIED_SNAKE)
"""What deals the sequences of a group of ranks among them."""

_BY_LAYER = (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS)
"""Levels whose gradients are reduced layer by layer, inside the backward pass."""


def num_gradients(x: Layout) -> int:
    """Ranks that sum gradients of the same parameter: shards, parts of a sequence, and replicas that exchange all."""
    replicas = 1 + (x.data_parallel_replicate_degree - 1) * (x.gradient_sync == GradientSync.FULL)
    return replicas * x.data_parallel_shard_degree * x.context_parallel_degree


def _means_something(field: str, syncs: tuple[GradientSync, ...], what: str) -> Rule:
    """A detail of some exchanges, which others do not have."""
    default = OPTIONS[field].default
    return Rule(
        f"{field.replace('_', '-')}-needs-its-exchange",
        field,
        lambda x, j: (getattr(x, field) != default) & (any_of(x.gradient_sync, syncs) == 0),
        lambda x, j: f"{what}; {x.gradient_sync} exchange does not",
        lambda x, j: OPTIONS[field].to_plain(default),
        is_idle=True,
    )


def _torch_alone(field: str, what: str) -> Rule:
    default = OPTIONS[field].default
    return Rule(
        f"{field.replace('_', '-')}-in-software",
        field,
        lambda x, j: (getattr(x, field) != default) & (j.stack.name != "torch"),
        lambda x, j: f"{j.stack.name} {what}",
        lambda x, j: OPTIONS[field].to_plain(default),
    )


def _has_lengths(job: Job) -> bool:
    return job.workload.lengths is not None


def _balances(x: Layout) -> bool:
    return (x.batch_balance != BatchBalance.NONE) | (x.sequence_packing != 0)


EXCHANGE_RULES: tuple[Rule, ...] = (
    Rule(
        "lossy-exchange-needs-replicas",
        "gradient_sync",
        lambda x, j: (x.gradient_sync != GradientSync.FULL) & (x.data_parallel_replicate_degree == 1),
        lambda x, j: "one replica has nobody to exchange with; shards inside it reduce everything",
        lambda x, j: GradientSync.FULL.label,
        is_idle=True,
    ),
    _torch_alone("gradient_sync", "sums all gradients in every step"),
    _means_something("sync_sparsity", _OF_ELEMENTS, "random and striding exchange send one element of several"),
    _means_something("sync_chunk", (GradientSync.DEMO,), "demo exchange transforms chunks of the momentum"),
    _means_something("sync_top_k", (GradientSync.DEMO,), "demo exchange sends the largest components"),
    _means_something("sync_period", (GradientSync.DILOCO,), "diloco exchange waits several steps"),
    _means_something("sync_sign", MOMENTUM_SYNCS, "exchanges of a momentum may follow its sign"),
    _means_something("sync_decay_permille", MOMENTUM_SYNCS, "exchanges of a momentum let it decay"),
    _means_something("payload_precision", _LOSSY, "lossy exchanges choose what they send in"),
    Rule(
        "top-k-within-chunk",
        "sync_top_k",
        lambda x, j: x.sync_top_k > x.sync_chunk,
        lambda x, j: f"a chunk of {x.sync_chunk} has no {x.sync_top_k} components to send",
        lambda x, j: x.sync_chunk,
    ),
    Rule(
        "momentum-decays",
        "sync_decay_permille",
        lambda x, j: x.sync_decay_permille > 1000,
        lambda x, j: f"a momentum keeps {x.sync_decay_permille} ‰ of itself, and would grow",
        lambda x, j: 999,
    ),
    Rule(
        "clip-needs-replicas",
        "gradient_clip",
        lambda x, j: (x.gradient_clip != GradientClip.POST) & (x.data_parallel_degree * x.context_parallel_degree == 1),
        lambda x, j: "one replica has one gradient: what is clipped before its reduction is what is clipped behind it",
        lambda x, j: GradientClip.POST.label,
        is_idle=True,
    ),
    Rule(
        "clip-before-reduction-needs-whole-gradients",
        "gradient_clip",
        lambda x, j: (x.gradient_clip != GradientClip.POST) & any_of(x.shard_level, _BY_LAYER),
        lambda x, j: (
            f"shard level {x.shard_level} reduces each layer's gradients inside the backward pass, before anybody sees "
            "them; clip post, or shard the optimizer alone"
        ),
        lambda x, j: GradientClip.POST.label,
    ),
    Rule(
        "clip-before-reduction-needs-full-exchange",
        "gradient_clip",
        lambda x, j: (x.gradient_clip != GradientClip.POST) & (x.gradient_sync != GradientSync.FULL),
        lambda x, j: (
            f"{x.gradient_sync} exchange clips each replica's gradient before it is compressed; no bucket is reduced "
            f"that clip {x.gradient_clip} could come before"
        ),
        lambda x, j: GradientClip.POST.label,
        is_idle=True,
    ),
    _torch_alone("gradient_clip", "clips behind the reduction"),
    Rule(
        "balance-needs-lengths",
        "batch_balance",
        lambda x, j: (x.batch_balance != BatchBalance.NONE) & (not _has_lengths(j)),
        lambda x, j: "all sequences of the workload are as long, so that every way to deal them is the same run",
        lambda x, j: BatchBalance.NONE.label,
        is_idle=True,
    ),
    Rule(
        "balance-needs-replicas",
        "batch_balance",
        lambda x, j: (x.batch_balance != BatchBalance.NONE) & (x.data_parallel_degree == 1),
        lambda x, j: "one data-parallel rank takes the whole batch",
        lambda x, j: BatchBalance.NONE.label,
        is_idle=True,
    ),
    Rule(
        "dealing-needs-snake",
        "num_dealing_ranks",
        lambda x, j: (x.num_dealing_ranks > 0) & (any_of(x.batch_balance, _DEALT) == 0),
        lambda x, j: f"balance {x.batch_balance} deals nothing within a group of ranks",
        lambda x, j: 0,
        is_idle=True,
    ),
    Rule(
        "dealing-groups-divide-ranks",
        "num_dealing_ranks",
        lambda x, j: x.data_parallel_degree % (x.num_dealing_ranks + (x.num_dealing_ranks == 0)) != 0,
        lambda x, j: f"{x.data_parallel_degree} data-parallel ranks make no whole groups of {x.num_dealing_ranks}",
        lambda x, j: 0,
    ),
    Rule(
        "packing-needs-lengths",
        "sequence_packing",
        lambda x, j: (x.sequence_packing != 0) & (not _has_lengths(j)),
        lambda x, j: "all sequences of the workload are as long; there is nothing to pack",
        lambda x, j: False,
        is_idle=True,
    ),
    Rule(
        "unequal-batches-need-one-stage",
        "batch_balance",
        lambda x, j: _balances(x) & (x.pipeline_parallel_degree > 1),
        lambda x, j: (
            "stages of a pipeline exchange hidden states of one shape, so that every sequence is padded to "
            f"{j.workload.seq_len} tokens and nothing is gained by dealing or packing them"
        ),
        lambda x, j: BatchBalance.NONE.label,
    ),
    Rule(
        "packing-needs-whole-sequences",
        "sequence_packing",
        lambda x, j: (x.sequence_packing != 0) & (x.context_parallel_degree > 1),
        lambda x, j: "context ranks cut a row at fixed places, and packed sequences end anywhere",
        lambda x, j: False,
    ),
)

"""The options of a trial as axes: values whose every pair the covering set holds.

A value changes a few fields of the layout together, so that few pairs of values contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import (
    AttentionKernel,
    BatchBalance,
    CollectiveAlgorithm,
    CollectiveHierarchy,
    ContextExchange,
    Fp8Recipe,
    GradientSync,
    OptimizerKernel,
    P2PTransport,
    PipelineSchedule,
    Precision,
    RankOrder,
    RankPlacement,
    Recompute,
    ShardLevel,
)
from autotuner.core.model import TransformerSpec
from autotuner.core.workload import LengthDistribution
from tests.builders import tiny_model

DENSE = tiny_model(name="dense", num_layers=8, num_heads=8, num_kv_heads=4, head_dim=8)
"""Enough layers for two pipeline ranks of two stages, and for every second of a stage's layers to recompute."""

SPARSE = tiny_model(
    name="sparse",
    num_layers=8,
    num_heads=8,
    num_kv_heads=4,
    head_dim=8,
    experts=MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=32),
)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """One value of an axis: what it is called, and what it sets; equal to itself alone."""

    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    model: TransformerSpec | None = None
    lengths: LengthDistribution | None = None

    def __str__(self) -> str:
        return self.label


UNEQUAL = LengthDistribution(lengths=(3, 9, 17, 31), weights=(4.0, 1.0, 1.0, 2.0))
"""Half of all sequences have a tenth of the tokens of the longest."""


def _value(label: str, **changes: Any) -> Value:
    return Value(label, changes)


def _pipeline(label: str, schedule: PipelineSchedule, virtual: int = 1, **changes: Any) -> Value:
    ranks = {"pipeline_parallel_degree": 2, "virtual_stages_per_rank": virtual}
    return _value(label, pipeline_schedule=schedule, **ranks, **changes)


def _shards(label: str, level: ShardLevel, **changes: Any) -> Value:
    return _value(label, data_parallel_shard_degree=2, shard_level=level, **changes)


def _exchange(label: str, sync: GradientSync, **changes: Any) -> Value:
    """All of the momentum is sent, and AdamW takes it for the gradient: the same as that of the whole batch."""
    return _value(label, data_parallel_replicate_degree=2, gradient_sync=sync, **changes)


def _unequal(label: str, **changes: Any) -> Value:
    return Value(label, changes, lengths=UNEQUAL)


def _two_levels(label: str, algorithm: CollectiveAlgorithm) -> Value:
    return _value(label, collective_hierarchy=CollectiveHierarchy.TWO_LEVEL, collective_algorithm=algorithm)


def _context(exchange: ContextExchange) -> Value:
    return _value(f"cp2 {exchange.label}", context_parallel_degree=2, context_exchange=exchange)


_S = PipelineSchedule

AXES: Mapping[str, tuple[Value, ...]] = {
    "pipeline": (
        _value("no pipeline"),
        _pipeline("gpipe", _S.GPIPE),
        _pipeline("1f1b", _S.ONE_F_ONE_B),
        _pipeline("interleaved_1f1b v2", _S.INTERLEAVED_1F1B, 2),
        _pipeline("zero_bubble", _S.ZERO_BUBBLE),
        _pipeline("zero_bubble v2", _S.ZERO_BUBBLE, 2),
        _pipeline("zbv", _S.ZBV, 2),
        _pipeline("dualpipev", _S.DUALPIPEV, 2),
        _pipeline("adaptive", _S.ADAPTIVE),
        _pipeline("adaptive, slack", _S.ADAPTIVE, extra_slack=1),
    ),
    "shards": (
        _value("no shards"),
        _shards("optimizer shards", ShardLevel.OPTIMIZER),
        _shards("gradient shards", ShardLevel.GRADIENTS),
        _shards("parameter shards", ShardLevel.PARAMETERS),
        _shards("parameter shards, reshard", ShardLevel.PARAMETERS, reshard_after_forward=True),
    ),
    "tensor": (
        _value("no tensor ranks"),
        _value("tp2", tensor_parallel_degree=2),
        _value("tp2 sp", tensor_parallel_degree=2, sequence_parallel=True),
        _value("tp2, logits gathered", tensor_parallel_degree=2, loss_parallel=False),
        _value("tp2 sp, logits gathered", tensor_parallel_degree=2, sequence_parallel=True, loss_parallel=False),
    ),
    "context": (
        _value("no context ranks"),
        *map(_context, ContextExchange),
    ),
    "precision": (
        _value("fp32", precision=Precision.FP32),
        _value("bf16", precision=Precision.BF16),
        _value("fp8_emulated", precision=Precision.FP8_EMULATED),
        _value("fp8_emulated rowwise", precision=Precision.FP8_EMULATED, fp8_recipe=Fp8Recipe.ROWWISE),
    ),
    "recompute": (
        _value("no recompute"),
        _value("selective", recompute=Recompute.SELECTIVE),
        _value("full", recompute=Recompute.FULL),
        _value("full, every 2nd", recompute=Recompute.FULL, recompute_every=2),
    ),
    "senders": (
        _value("inline sends"),
        _value("delegates", p2p_transport=P2PTransport.DELEGATED),
        _value("2 delegates", p2p_transport=P2PTransport.DELEGATED, num_delegates=2),
    ),
    "places": (
        _value("stages outermost"),
        _value("replicas outermost", rank_order=RankOrder.REPLICAS_OUTERMOST),
        _value("rotated stages", stage_rotation=1),
    ),
    "collectives": (
        _value("torch's collectives"),
        _value("rings", collective_algorithm=CollectiveAlgorithm.RING),
        _value("trees", collective_algorithm=CollectiveAlgorithm.TREE),
        _value("two levels", collective_hierarchy=CollectiveHierarchy.TWO_LEVEL),
        _two_levels("two levels of rings", CollectiveAlgorithm.RING),
        _two_levels("two levels of trees", CollectiveAlgorithm.TREE),
    ),
    "nodes": (
        _value("block placement"),
        _value("cyclic placement", rank_placement=RankPlacement.CYCLIC),
    ),
    "replicas": (
        _value("one replica"),
        _value("dp2", data_parallel_replicate_degree=2),
        _exchange("dp2 demo", GradientSync.DEMO, sync_chunk=64, sync_top_k=64, sync_sign=False),
        _exchange("dp2 random", GradientSync.RANDOM, sync_sparsity=1, sync_sign=False),
        _exchange("dp2 striding", GradientSync.STRIDING, sync_sparsity=1, sync_sign=False),
        _exchange("dp2 diloco", GradientSync.DILOCO, sync_period=2),
    ),
    "buckets": (
        _value("one bucket"),
        _value("small buckets", gradient_bucket_bytes=2**14),
    ),
    "model": (
        Value("dense", {}, DENSE),
        Value("experts", {}, SPARSE),
        Value("ep2", {"expert_parallel_degree": 2}, SPARSE),
    ),
    "sequences": (
        _value("equal sequences"),
        _unequal("padded"),
        _unequal("packed", sequence_packing=True),
        _unequal("padded, snake", batch_balance=BatchBalance.SNAKE),
        _unequal("packed, stratified snake", batch_balance=BatchBalance.STRATIFIED_SNAKE, sequence_packing=True),
    ),
    "ends": (
        _value("even stages"),
        _value("smaller last stage", last_stage_less_layers=1),
    ),
    "attention": (
        _value("math", attention_kernel=AttentionKernel.MATH),
        _value("flash", attention_kernel=AttentionKernel.FLASH),
    ),
    "reduce": (
        _value("reduce as is"),
        _value("fp32 reduce", fp32_gradient_reduce=True),
    ),
    "norm": (
        _value("fused norm"),
        _value("unfused norm", fused_norm=False),
    ),
    "compiler": (
        _value("eager"),
        _value("compiled", compiled=True),
    ),
    "optimizer": (
        _value("fused AdamW", optimizer_kernel=OptimizerKernel.FUSED),
        _value("foreach AdamW", optimizer_kernel=OptimizerKernel.FOREACH),
    ),
    "micro-batch": (
        _value("mb1", micro_batch_size=1),
        _value("mb2", micro_batch_size=2),
    ),
}
"""The first value of each is the plain one. Larger axes come first: the library covers them soonest."""

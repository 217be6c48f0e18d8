"""Every rule, broken alone, and repaired by the value it offers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.blocks import LatentAttention, LinearAttention, MixtureOfExperts
from autotuner.core.choices import (
    AttentionKernel,
    BatchBalance,
    CollectiveAlgorithm,
    CollectiveHierarchy,
    CollectiveProtocol,
    ContextExchange,
    Fp8Recipe,
    GradientClip,
    GradientSync,
    P2PTransport,
    PayloadPrecision,
    PipelineSchedule,
    Precision,
    RankOrder,
    RankPlacement,
    Recompute,
    ShardLevel,
)
from autotuner.core.codec import from_plain, to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.network import Network
from autotuner.core.rules.legality import RULES, illegal, reasons, require_legal
from autotuner.core.rules.rule import Reason, Rule, fields_read
from autotuner.core.rules.trial import TRIAL_MODEL_RULES, TRIAL_RULES
from autotuner.core.stack import Stack
from autotuner.core.workload import LengthDistribution, Workload
from tests.builders import cpu_cluster, cpu_layout, h100, h100_cluster, tiny_model

LINEAR = LinearAttention(num_key_heads=2, num_value_heads=4, key_head_dim=16, value_head_dim=16)
LATENTS = LatentAttention(query_rank=16, key_value_rank=16, rope_head_dim=8, value_head_dim=16)
EXPERTS = MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=64)


def on_gpus(num_gpus: int, *, seq_len: int = 64, batch: int = 16, **model: Any) -> Job:
    """A tiny model on one node of that many H100s."""
    cluster = h100_cluster(num_nodes=1, accelerators_per_node=num_gpus)
    spec = tiny_model(**model)
    return Job(model=spec, cluster=cluster, workload=Workload(seq_len=seq_len, global_batch_size=batch))


def with_bf16_moments(job: Job) -> Job:
    return replace(job, workload=replace(job.workload, optimizer_state_precision="bf16"))


def on_nodes(num_nodes: int, per_node: int) -> Job:
    cluster = h100_cluster(num_nodes=num_nodes, accelerators_per_node=per_node)
    return Job(model=tiny_model(), cluster=cluster, workload=Workload(seq_len=64, global_batch_size=16))


def on_accelerator(number: int = 1, **changes: Any) -> Job:
    cluster = h100_cluster(num_nodes=1, accelerators_per_node=number, accelerator=h100(**changes))
    return Job(model=tiny_model(), cluster=cluster, workload=Workload(seq_len=64, global_batch_size=16))


def on_cores(number: int, num_nodes: int = 1) -> Job:
    cluster = cpu_cluster(number // num_nodes, num_nodes=num_nodes)
    job = Job(model=tiny_model(), cluster=cluster, workload=Workload(seq_len=64, global_batch_size=16))
    return replace(job, cluster=replace(cluster, accelerator=h100(kind="cpu")))


def over_network(num_nodes: int, per_node: int, **changes: Any) -> Job:
    """H100s on nodes whose network is described."""
    job = on_nodes(num_nodes, per_node)
    return replace(job, cluster=replace(job.cluster, network=Network(name="drawn", **changes)))


def over_link(**changes: Any) -> Job:
    """Two H100s over another link."""
    job = on_gpus(2)
    link = replace(job.cluster.intra_node_link, **changes)
    return replace(job, cluster=replace(job.cluster, intra_node_link=link))


def with_stack(name: str) -> Job:
    """Two H100s under another trainer."""
    return replace(on_gpus(2), stack=Stack(name=name))


def with_slow_link() -> Job:
    """Two H100s, between which messages are late."""
    job = on_gpus(2)
    return replace(job, cluster=replace(job.cluster, link_health=(LinkHealth(ends=(0, 1), delay_s=0.01),)))


def with_dead_link(count: int = 2, ends: tuple[int, int] = (0, 1), **changes: Any) -> Job:
    """H100s of one node, two of which no longer reach each other."""
    job = on_gpus(count, **changes)
    return replace(job, cluster=replace(job.cluster, link_health=(LinkHealth(ends=ends, is_dead=True),)))


def with_lengths(num_gpus: int) -> Job:
    """Sequences of 16 to 64 tokens."""
    job = on_gpus(num_gpus)
    lengths = LengthDistribution(lengths=(16, 64), weights=(1.0, 1.0))
    return replace(job, workload=replace(job.workload, lengths=lengths))


TWO: dict[str, Any] = {"data_parallel_replicate_degree": 2}
DEMO: dict[str, Any] = {"gradient_sync": GradientSync.DEMO, **TWO}
RANDOM: dict[str, Any] = {"gradient_sync": GradientSync.RANDOM, **TWO}
STAGES: dict[str, Any] = {"pipeline_parallel_degree": 2}
ASKING = {
    "collective_algorithm": Layout(collective_algorithm=CollectiveAlgorithm.RING),
    "collective_protocol": Layout(collective_protocol=CollectiveProtocol.SIMPLE),
    "collective_channels": Layout(collective_channels=8),
}


@dataclass(frozen=True)
class Case:
    """A layout that breaks one rule of a job, and besides it only those that must break with it."""

    rule: str
    job: Job
    layout: Layout
    implied: frozenset[str] = frozenset()


INTERLEAVED = PipelineSchedule.INTERLEAVED_1F1B
TWO_LEVEL = CollectiveHierarchy.TWO_LEVEL
RESHARDED_EXPERTS = Layout(
    data_parallel_shard_degree=4,
    expert_parallel_degree=2,
    pipeline_parallel_degree=2,
    shard_level=ShardLevel.PARAMETERS,
    reshard_after_forward=True,
    recompute=Recompute.SELECTIVE,
)
CASES = (
    Case("world-size", on_gpus(4), Layout(tensor_parallel_degree=2)),
    Case("kv-heads-per-tensor-rank", on_gpus(4), Layout(tensor_parallel_degree=4)),
    Case("ffn-per-tensor-rank", on_gpus(2, ffn_size=127), Layout(tensor_parallel_degree=2)),
    Case(
        "expert-ffn-per-tensor-rank",
        on_gpus(2, experts=replace(EXPERTS, expert_ffn_size=63)),
        Layout(tensor_parallel_degree=2),
    ),
    Case("tensor-group-inside-node", on_nodes(2, 1), Layout(tensor_parallel_degree=2)),
    Case("sequence-parallel-needs-tensor-ranks", on_gpus(1), Layout(sequence_parallel=True)),
    Case("sequence-per-tensor-rank", on_gpus(2, seq_len=63), Layout(tensor_parallel_degree=2, sequence_parallel=True)),
    Case("sequence-per-context-rank", on_gpus(2, seq_len=66), Layout(context_parallel_degree=2)),
    Case(
        "experts-per-expert-rank",
        on_gpus(8, experts=EXPERTS),
        Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS, expert_parallel_degree=8),
    ),
    Case(
        "expert-ranks-are-borrowed",
        on_gpus(2, experts=EXPERTS),
        Layout(data_parallel_replicate_degree=2, expert_parallel_degree=2),
    ),
    Case("layers-per-stage", on_gpus(8), Layout(pipeline_parallel_degree=8)),
    Case(
        "equal-virtual-stages",
        on_gpus(2, num_layers=5),
        Layout(pipeline_parallel_degree=2, virtual_stages_per_rank=2, pipeline_schedule=INTERLEAVED),
    ),
    Case("smaller-ends-need-pipeline", on_gpus(1), Layout(first_stage_less_layers=1)),
    Case("smaller-last-stage-needs-pipeline", on_gpus(1), Layout(last_stage_less_layers=1)),
    Case("stages-between-hold-a-layer", on_gpus(6), Layout(pipeline_parallel_degree=6)),
    Case("smaller-ends-have-what-they-give", on_gpus(2), Layout(pipeline_parallel_degree=2, last_stage_less_layers=5)),
    Case("virtual-stages-fit-schedule", on_gpus(2), Layout(pipeline_parallel_degree=2, pipeline_schedule=INTERLEAVED)),
    Case("schedule-needs-pipeline", on_gpus(1), Layout(pipeline_schedule=PipelineSchedule.GPIPE)),
    Case("whole-micro-batches", on_gpus(1), Layout(micro_batch_size=3)),
    Case("micro-batches-fill-pipeline", on_gpus(4, batch=2), Layout(pipeline_parallel_degree=4)),
    Case(
        "micro-batches-in-rounds",
        on_gpus(2, batch=5),
        Layout(pipeline_parallel_degree=2, virtual_stages_per_rank=2, pipeline_schedule=INTERLEAVED),
    ),
    Case("shard-degree-fits-level", on_gpus(2), Layout(data_parallel_shard_degree=2)),
    Case(
        "reshard-needs-sharded-parameters",
        on_gpus(2),
        Layout(data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER, reshard_after_forward=True),
    ),
    Case("attention-kernel-on-hardware", on_accelerator(attention_kernels=(AttentionKernel.MATH,)), Layout()),
    Case("flash-needs-half-precision", on_gpus(1), Layout(precision=Precision.FP32)),
    Case("precision-on-hardware", on_accelerator(fp8_flop_per_s=0.0), Layout(precision=Precision.FP8)),
    Case("fp8-block-shape", on_gpus(2, head_dim=8), Layout(tensor_parallel_degree=2, precision=Precision.FP8)),
    Case("fp8-token-blocks", on_gpus(1, seq_len=24), Layout(precision=Precision.FP8)),
    Case("recipe-needs-fp8", on_gpus(1), Layout(fp8_recipe=Fp8Recipe.ROWWISE)),
    Case(
        "recipe-on-hardware",
        on_accelerator(fp8_recipes=(Fp8Recipe.TENSORWISE,)),
        Layout(precision=Precision.FP8, fp8_recipe=Fp8Recipe.MXFP8),
    ),
    Case("gathered-logits-need-tensor-ranks", on_gpus(1), Layout(loss_parallel=False)),
    Case("async-tensor-parallel-needs", on_gpus(2), Layout(tensor_parallel_degree=2, async_tensor_parallel=True)),
    Case(
        "async-tensor-parallel-on-hardware",
        on_accelerator(2, kind="rocm"),
        Layout(tensor_parallel_degree=2, sequence_parallel=True, compiled=True, async_tensor_parallel=True),
    ),
    Case("context-exchange-needs-context-ranks", on_gpus(1), Layout(context_exchange=ContextExchange.ALL_GATHER)),
    Case(
        "heads-per-context-rank",
        on_gpus(4),
        Layout(context_parallel_degree=4, context_exchange=ContextExchange.ALL_TO_ALL),
    ),
    Case("recompute-interval-needs-recompute", on_gpus(1), Layout(recompute_every=2)),
    Case(
        "recompute-interval-within-stage",
        on_gpus(2),
        Layout(pipeline_parallel_degree=2, recompute=Recompute.FULL, recompute_every=3),
    ),
    Case("buckets-need-replicas", on_gpus(1), Layout(gradient_bucket_bytes=1_000_000)),
    Case("fp32-reduce-needs-half-precision", on_gpus(1), Layout(fp32_gradient_reduce=True)),
    Case("offload-on-hardware", on_accelerator(kind="cpu"), Layout(offload_activations=True)),
    Case("slack-needs-adaptive-schedule", on_gpus(2), Layout(extra_slack=1, **STAGES)),
    Case(
        "slack-below-micro-batches",
        on_gpus(2),
        Layout(pipeline_schedule=PipelineSchedule.ADAPTIVE, extra_slack=16, **STAGES),
    ),
    Case("delegates-need-stages", on_gpus(2), Layout(p2p_transport=P2PTransport.DELEGATED, **TWO)),
    Case("delegates-in-software", with_stack("megatron"), Layout(p2p_transport=P2PTransport.DELEGATED, **STAGES)),
    Case("number-of-delegates-needs-delegates", on_gpus(2), Layout(num_delegates=2, **STAGES)),
    Case(
        "delegates-share-micro-batches",
        on_gpus(2),
        Layout(p2p_transport=P2PTransport.DELEGATED, num_delegates=3, **STAGES),
    ),
    Case("rank-order-needs-both-axes", on_gpus(2), Layout(rank_order=RankOrder.REPLICAS_OUTERMOST, **STAGES)),
    Case("rotation-below-stages", with_slow_link(), Layout(stage_rotation=2, **STAGES)),
    Case("rotation-needs-unequal-links", on_gpus(2), Layout(stage_rotation=1, **STAGES)),
    *(Case(f"{field.replace('_', '-')}-needs-ranks", on_gpus(1), asking) for field, asking in ASKING.items()),
    Case(
        "collective-algorithm-on-hardware",
        on_accelerator(2, kind="cpu"),
        Layout(collective_algorithm=CollectiveAlgorithm.NVLS, **TWO),
    ),
    Case(
        "collective-algorithm-needs-summed-gradients",
        on_accelerator(2, kind="cpu"),
        Layout(collective_algorithm=CollectiveAlgorithm.TREE, **STAGES),
    ),
    Case("collective-protocol-on-hardware", on_cores(2), replace(ASKING["collective_protocol"], **TWO)),
    Case("collective-channels-on-hardware", on_cores(2), replace(ASKING["collective_channels"], **TWO)),
    Case("nvls-needs-switches-that-add", on_gpus(2), Layout(collective_algorithm=CollectiveAlgorithm.NVLS, **TWO)),
    Case(
        "nvls-runs-simple",
        over_link(multicast_efficiency=0.7),
        Layout(collective_algorithm=CollectiveAlgorithm.NVLS, collective_protocol=CollectiveProtocol.LL, **TWO),
    ),
    Case(
        "collnet-needs-network-that-adds",
        over_network(2, 1, num_rails=1),
        Layout(collective_algorithm=CollectiveAlgorithm.COLLNET, **TWO),
    ),
    Case(
        "collnet-runs-simple",
        over_network(2, 1, adds=True),
        Layout(collective_algorithm=CollectiveAlgorithm.COLLNET, collective_protocol=CollectiveProtocol.LL128, **TWO),
    ),
    Case(
        "ll128-needs-nvlink",
        over_link(bandwidth_bytes_per_s=63e9),
        Layout(collective_protocol=CollectiveProtocol.LL128, **TWO),
    ),
    Case("collective-channels-there-are", on_gpus(2), Layout(collective_channels=65, **TWO)),
    Case("two-level-needs-two-levels", on_nodes(2, 2), Layout(collective_hierarchy=TWO_LEVEL, **TWO, **STAGES)),
    Case("rank-placement-needs-nodes", on_gpus(2), Layout(rank_placement=RankPlacement.CYCLIC, **TWO)),
    Case(
        "cyclic-placement-parts-tensor-ranks",
        on_nodes(2, 2),
        Layout(rank_placement=RankPlacement.CYCLIC, tensor_parallel_degree=2, **TWO),
    ),
    Case("pxn-on-hardware", on_cores(2), Layout(pxn=False, **TWO)),
    Case("pxn-needs-rails", on_nodes(2, 1), Layout(pxn=False, **TWO)),
    Case("queue-pairs-on-hardware", on_cores(2), Layout(queue_pairs=2, **TWO)),
    Case("queue-pairs-need-network", on_gpus(2), Layout(queue_pairs=2, **TWO)),
    Case("queue-pairs-there-are", on_nodes(2, 1), Layout(queue_pairs=129, **TWO)),
    Case("lossy-exchange-needs-replicas", on_gpus(1), Layout(gradient_sync=GradientSync.DEMO)),
    Case("gradient-sync-in-software", with_stack("megatron"), Layout(gradient_sync=GradientSync.DEMO, **TWO)),
    Case("sync-sparsity-needs-its-exchange", on_gpus(2), Layout(sync_sparsity=4, **DEMO)),
    Case("sync-chunk-needs-its-exchange", on_gpus(2), Layout(sync_chunk=32, **RANDOM)),
    Case("sync-top-k-needs-its-exchange", on_gpus(2), Layout(sync_top_k=2, **RANDOM)),
    Case("sync-period-needs-its-exchange", on_gpus(2), Layout(sync_period=2, **RANDOM)),
    Case("sync-sign-needs-its-exchange", on_gpus(2), Layout(sync_sign=False, **TWO)),
    Case("sync-decay-permille-needs-its-exchange", on_gpus(2), Layout(sync_decay_permille=990, **TWO)),
    Case("payload-precision-needs-its-exchange", on_gpus(2), Layout(payload_precision=PayloadPrecision.BF16, **TWO)),
    Case("top-k-within-chunk", on_gpus(2), Layout(sync_chunk=32, sync_top_k=33, **DEMO)),
    Case("momentum-decays", on_gpus(2), Layout(sync_decay_permille=1001, **DEMO)),
    Case("clip-needs-replicas", on_gpus(1), Layout(gradient_clip=GradientClip.PRE)),
    Case(
        "clip-before-reduction-needs-whole-gradients",
        on_gpus(2),
        Layout(gradient_clip=GradientClip.PRE, data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS),
    ),
    Case("clip-before-reduction-needs-full-exchange", on_gpus(2), Layout(gradient_clip=GradientClip.BUCKET, **DEMO)),
    Case("gradient-clip-in-software", with_stack("megatron"), Layout(gradient_clip=GradientClip.PRE, **TWO)),
    Case("balance-needs-lengths", on_gpus(2), Layout(batch_balance=BatchBalance.SNAKE, **TWO)),
    Case("balance-needs-replicas", with_lengths(1), Layout(batch_balance=BatchBalance.SNAKE)),
    Case("dealing-needs-snake", with_lengths(2), Layout(num_dealing_ranks=2, **TWO)),
    Case(
        "dealing-groups-divide-ranks",
        with_lengths(2),
        Layout(batch_balance=BatchBalance.SNAKE, num_dealing_ranks=4, **TWO),
    ),
    Case("packing-needs-lengths", on_gpus(2), Layout(sequence_packing=True, **TWO)),
    Case(
        "unequal-batches-need-one-stage",
        with_lengths(4),
        Layout(batch_balance=BatchBalance.GLOBAL_SORT, **TWO, **STAGES),
    ),
    Case(
        "packing-needs-whole-sequences",
        with_lengths(4),
        Layout(sequence_packing=True, context_parallel_degree=2, **TWO),
    ),
    Case("tensor-ranks-avoid-dead-links", with_dead_link(), Layout(tensor_parallel_degree=2)),
    Case("context-ranks-avoid-dead-links", with_dead_link(), Layout(context_parallel_degree=2)),
    Case(
        "shard-ranks-avoid-dead-links",
        with_dead_link(),
        Layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS),
    ),
    Case(
        "expert-ranks-avoid-dead-links",
        with_dead_link(4, (0, 2), experts=EXPERTS),
        Layout(data_parallel_shard_degree=4, expert_parallel_degree=4, shard_level=ShardLevel.PARAMETERS),
    ),
    Case(
        "heads-avoid-dead-links",
        with_dead_link(4, (0, 2), num_kv_heads=4),
        Layout(context_parallel_degree=4, context_exchange=ContextExchange.ALL_TO_ALL),
    ),
    Case("replicas-avoid-dead-links", with_dead_link(), Layout(**TWO)),
    Case("stages-avoid-dead-links", with_dead_link(), Layout(**STAGES)),
)
TRIAL_CASES = (
    Case("trial-compiles-rows-of-one-length", with_lengths(1), Layout(compiled=True)),
    Case(
        "trial-recomputes-selectively-once",
        on_gpus(2),
        Layout(
            pipeline_parallel_degree=2,
            virtual_stages_per_rank=2,
            pipeline_schedule=PipelineSchedule.ZBV,
            recompute=Recompute.SELECTIVE,
        ),
    ),
    Case(
        "trial-gathers-recomputed-experts-once",
        on_gpus(8, experts=EXPERTS),
        RESHARDED_EXPERTS,
    ),
    Case(
        "trial-compiles-whole-backwards",
        on_gpus(2),
        Layout(pipeline_parallel_degree=2, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE, compiled=True),
    ),
    Case(
        "trial-keeps-parameters-between-backwards",
        on_gpus(4),
        Layout(
            data_parallel_shard_degree=2,
            pipeline_parallel_degree=2,
            pipeline_schedule=PipelineSchedule.ZERO_BUBBLE,
            shard_level=ShardLevel.PARAMETERS,
            reshard_after_forward=True,
        ),
    ),
    Case(
        "trial-shards-gradients-of-whole-models",
        on_gpus(4),
        Layout(data_parallel_shard_degree=2, pipeline_parallel_degree=2, shard_level=ShardLevel.GRADIENTS),
    ),
    Case("trial-stages-hold-a-layer", on_gpus(2), Layout(pipeline_parallel_degree=2, last_stage_less_layers=4)),
    Case(
        "trial-shards-over-data-ranks",
        on_gpus(2),
        Layout(context_parallel_degree=2, shard_level=ShardLevel.OPTIMIZER),
    ),
    Case(
        "trial-fills-zero-bubble-rounds",
        on_gpus(2, batch=5),
        Layout(pipeline_parallel_degree=2, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE),
    ),
    Case(
        "trial-runs-attention-kernel",
        on_gpus(1),
        Layout(attention_kernel=AttentionKernel.FLASH_1),
        implied=frozenset({"attention-kernel-on-hardware"}),  # the builders' accelerator lists PyTorch's kernels
    ),
    Case("trial-runs-torch", replace(on_gpus(1), stack=Stack(name="megatron")), Layout()),
    Case(
        "trial-merges-blocks",
        on_gpus(2),
        Layout(context_parallel_degree=2, attention_kernel=AttentionKernel.FLEX),
        implied=frozenset({"attention-kernel-on-hardware"}),  # the builders' accelerator lists none but SDPA's first
    ),
    Case("trial-blocks-have-heads-of-eight", on_gpus(2, head_dim=12), Layout(context_parallel_degree=2)),
    Case(
        "trial-shards-with-expert-ranks",
        on_gpus(2, experts=EXPERTS),
        Layout(data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER, expert_parallel_degree=2),
    ),
    Case(
        "trial-shards-experts-evenly",
        on_gpus(6, experts=EXPERTS, batch=18),
        Layout(data_parallel_shard_degree=6, shard_level=ShardLevel.PARAMETERS, expert_parallel_degree=2),
    ),
    Case(
        "trial-splits-tokens-for-experts",
        on_gpus(2, experts=EXPERTS, seq_len=63),
        Layout(tensor_parallel_degree=2, expert_parallel_degree=2),
    ),
    Case(
        "trial-splits-shared-experts",
        on_gpus(2, experts=replace(EXPERTS, expert_ffn_size=63, num_shared_experts=1)),
        Layout(tensor_parallel_degree=2, expert_parallel_degree=2),
    ),
    Case("trial-rounds-no-experts", on_gpus(1, experts=EXPERTS), Layout(precision=Precision.FP8)),
    Case(
        "trial-scales-fp8",
        on_gpus(1),
        Layout(precision=Precision.FP8, fp8_recipe=Fp8Recipe.DELAYED),
    ),
    Case(
        "trial-multiplies-8-bits-or-more",
        on_accelerator(fp4_flop_per_s=9000e12),
        Layout(precision=Precision.NVFP4),
    ),
    Case(
        "trial-compiles-experts-with-their-layer",
        on_gpus(4, experts=EXPERTS),
        Layout(
            data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS, expert_parallel_degree=2, compiled=True
        ),
    ),
    Case("trial-efficient-attention-has-equal-heads", on_gpus(1), Layout(attention_kernel=AttentionKernel.EFFICIENT)),
    Case(
        "trial-efficient-attention-has-heads-of-eight",
        on_gpus(1, num_kv_heads=4, head_dim=12),
        Layout(attention_kernel=AttentionKernel.EFFICIENT),
    ),
    Case("trial-flash-attention-has-heads-of-256-at-most", on_gpus(1, head_dim=264), Layout()),
    Case(
        "trial-cudnn-attention-has-short-heads-of-eight",
        replace(on_accelerator(attention_kernels=tuple(AttentionKernel)), model=tiny_model(head_dim=12)),
        Layout(attention_kernel=AttentionKernel.CUDNN),
    ),
    Case(
        "trial-flex-attention-has-long-heads",
        replace(on_accelerator(attention_kernels=tuple(AttentionKernel)), model=tiny_model(head_dim=8)),
        Layout(attention_kernel=AttentionKernel.FLEX),
    ),
    Case("trial-keeps-fp32-moments", with_bf16_moments(on_gpus(1)), Layout()),
    Case(
        "trial-climbs-trees-with-whole-gradients",
        on_cores(2),
        Layout(
            data_parallel_shard_degree=2,
            shard_level=ShardLevel.PARAMETERS,
            collective_algorithm=CollectiveAlgorithm.TREE,
        ),
    ),
    Case(
        "trial-exchanges-on-one-level",
        on_nodes(2, 4),
        Layout(
            data_parallel_shard_degree=4,
            shard_level=ShardLevel.PARAMETERS,
            collective_hierarchy=TWO_LEVEL,
            rank_placement=RankPlacement.CYCLIC,
            **DEMO,
        ),
    ),
    Case("trial-experts-are-plain", on_gpus(1, experts=replace(EXPERTS, capacity_factor=1.0)), Layout()),
    Case("trial-attends-without-latents", on_gpus(1, num_kv_heads=4, latent_attention=LATENTS), Layout()),
    Case("trial-attends-without-windows", on_gpus(1, attention_window=8, num_windowed_layers=2), Layout()),
    Case("trial-rotates-pairs", on_gpus(1, head_dim=15), Layout()),
    Case("trial-attends-in-every-layer", on_gpus(1, linear_attention=LINEAR, num_linear_layers=3), Layout()),
    Case("trial-norms-each-block-once", on_gpus(1, num_norms_per_layer=4), Layout()),
    Case("trial-norms-heads-alike", on_gpus(1, qk_norm=True, qk_norm_of_all_heads=True), Layout()),
    Case("trial-attends-to-tokens-alone", on_gpus(1, attention_sinks=True), Layout()),
    Case("trial-gates-no-attention", on_gpus(1, attention_output_gate=True), Layout()),
    Case("trial-embeds-without-norm", on_gpus(1, embedding_norm=True), Layout()),
    Case("trial-projects-without-bias", on_gpus(1, output_bias=True), Layout()),
)
BY_NAME = {rule.name: rule for rule in (*RULES, *TRIAL_RULES)}
cases = pytest.mark.parametrize("case", [*CASES, *TRIAL_CASES], ids=lambda case: case.rule)


def test_every_rule_has_a_case_here_and_a_name_of_its_own() -> None:
    assert [case.rule for case in CASES] == [rule.name for rule in RULES]
    assert [case.rule for case in TRIAL_CASES] == [rule.name for rule in TRIAL_RULES]
    assert len(BY_NAME) == len(RULES) + len(TRIAL_RULES)


@cases
def test_a_rule_can_be_broken_alone_and_says_so(case: Case) -> None:
    rules = RULES if case in CASES else (*RULES, *TRIAL_RULES)
    found = {reason.rule: reason for reason in reasons(case.layout, case.job, rules)}
    assert set(found) == {case.rule} | case.implied
    assert found[case.rule].message
    found[case.rule].value(case.layout, case.job)  # it names what there is


def test_what_is_summed_over_replicas_alone_means_nothing_where_these_exchange_less() -> None:
    lossy = Layout(**DEMO, precision=Precision.BF16)
    sharding = replace(lossy, data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER)
    for field, value in (("gradient_bucket_bytes", 2**20), ("fp32_gradient_reduce", True)):
        change: dict[str, Any] = {field: value}
        (reason,) = reasons(replace(lossy, **change), on_gpus(2))
        assert reason.field == field
        assert not reasons(replace(sharding, **change), on_gpus(4))


def test_experts_of_lossy_replicas_need_no_fsdp_where_tensor_ranks_hold_them() -> None:
    experts = Layout(**TWO, tensor_parallel_degree=2, expert_parallel_degree=2)
    summed = reasons(experts, on_gpus(4, experts=EXPERTS), TRIAL_RULES)
    assert [reason.rule for reason in summed] == ["trial-shards-with-expert-ranks"]
    assert not reasons(replace(experts, gradient_sync=GradientSync.DEMO), on_gpus(4, experts=EXPERTS), TRIAL_RULES)


@cases
def test_the_nearest_value_repairs_the_rule_it_is_offered_for(case: Case) -> None:
    rule = BY_NAME[case.rule]
    (reason,) = reasons(case.layout, case.job, [rule])
    if case.rule in UNREPAIRED:
        assert reason.nearest is None
    else:
        assert not reasons(*_with(case, reason), [rule])


UNREPAIRED = {
    "world-size",  # which of five degrees to change is the caller's wish
    "sequence-per-context-rank",
    "stages-between-hold-a-layer",  # of both ends, or of fewer stages
    "smaller-ends-have-what-they-give",  # of either end, or of fewer stages
    "trial-stages-hold-a-layer",
    "expert-ranks-are-borrowed",
    "micro-batches-fill-pipeline",  # another degree may have to change
    "micro-batches-in-rounds",
    "trial-fills-zero-bubble-rounds",
    "tensor-ranks-avoid-dead-links",  # another degree has to change, too
    "context-ranks-avoid-dead-links",
    "shard-ranks-avoid-dead-links",
    "expert-ranks-avoid-dead-links",
    "replicas-avoid-dead-links",  # here by fewer of them; beside stages also by another rank order
    *(rule.name for rule in TRIAL_MODEL_RULES),  # it is the model that would have to change, whatever the layout says
}


def _with(case: Case, reason: Reason) -> tuple[Layout, Job]:
    """The layout, or the job, with the offered value, read as a caller's JSON would be."""
    if not reason.is_of_job:
        return from_plain(Layout, {**to_plain(case.layout), reason.field: reason.nearest}), case.job
    part, field = reason.field.split(".")
    document = to_plain(case.job)
    document[part] |= {field: reason.nearest}
    return case.layout, from_plain(Job, document)


def test_tensor_ranks_that_split_every_expert_lend_no_expert_ranks() -> None:
    job = on_gpus(2, experts=EXPERTS)
    layout = Layout(tensor_parallel_degree=2, expert_parallel_degree=2)
    splitting = replace(job, stack=replace(job.stack, splits_experts=True))
    assert not reasons(layout, job, RULES)
    assert [reason.rule for reason in reasons(layout, splitting, RULES)] == ["expert-ranks-are-borrowed"]


def test_what_no_layout_can_mend_is_blamed_on_the_job() -> None:
    blamed = {case.rule: reasons(case.layout, case.job, [BY_NAME[case.rule]])[0] for case in TRIAL_CASES}
    assert {name: reason.path for name, reason in blamed.items() if reason.is_of_job} == {
        "trial-runs-torch": "stack.name",
        "trial-keeps-fp32-moments": "workload.optimizer_state_precision",
        "trial-experts-are-plain": "model.experts",
        "trial-attends-without-latents": "model.latent_attention",
        "trial-attends-without-windows": "model.num_windowed_layers",
        "trial-rotates-pairs": "model.head_dim",
        "trial-attends-in-every-layer": "model.num_linear_layers",
        "trial-norms-each-block-once": "model.num_norms_per_layer",
        "trial-norms-heads-alike": "model.qk_norm_of_all_heads",
        "trial-attends-to-tokens-alone": "model.attention_sinks",
        "trial-gates-no-attention": "model.attention_output_gate",
        "trial-embeds-without-norm": "model.embedding_norm",
        "trial-projects-without-bias": "model.output_bias",
    }


def test_an_illegal_layout_is_refused_with_the_path_of_the_field_its_value_and_the_nearest() -> None:
    with pytest.raises(InvalidInput) as refusal:
        require_legal(Layout(), with_bf16_moments(on_gpus(1)), TRIAL_RULES)
    assert refusal.value.field == "workload.optimizer_state_precision"
    assert (refusal.value.value, refusal.value.nearest) == ("bf16", "fp32")


def test_the_fields_that_a_rule_reads_are_seen_also_by_way_of_derived_ones() -> None:
    read = fields_read(BY_NAME["layers-per-stage"], on_gpus(1))
    assert read == {"pipeline_parallel_degree", "virtual_stages_per_rank"}
    assert fields_read(BY_NAME["trial-runs-torch"], on_gpus(1)) == set()


def test_a_legal_layout_has_no_reasons() -> None:
    layout = Layout(tensor_parallel_degree=2, data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS)
    assert reasons(layout, on_gpus(8)) == ()
    assert not illegal(layout, on_gpus(8), RULES)


def test_expert_ranks_may_be_the_tensor_ranks_without_any_shards() -> None:
    layout = Layout(tensor_parallel_degree=2, expert_parallel_degree=2)
    assert reasons(layout, on_gpus(2, experts=EXPERTS), (*RULES, *TRIAL_RULES)) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"data_parallel_shard_degree": 8, "pipeline_parallel_degree": 1},
        {"pipeline_schedule": PipelineSchedule.GPIPE},
        {"expert_parallel_degree": 4},  # one rank holds each expert, and has none to gather
        {"expert_parallel_degree": 1},  # experts are gathered with their layer
    ],
    ids=str,
)
def test_experts_may_be_recomputed_selectively_where_every_forward_pass_gathers_alike(changes: dict[str, Any]) -> None:
    layout = replace(RESHARDED_EXPERTS, **changes)
    job = on_gpus(8, experts=replace(EXPERTS, num_experts=8))
    assert reasons(layout, job, (*RULES, *TRIAL_RULES)) == ()


@pytest.mark.parametrize("expert_parallel_degree", [1, 4])
def test_a_layer_is_compiled_where_its_experts_are_gathered_with_it_or_not_at_all(expert_parallel_degree: int) -> None:
    layout = Layout(
        data_parallel_shard_degree=4,
        shard_level=ShardLevel.PARAMETERS,
        expert_parallel_degree=expert_parallel_degree,
        compiled=True,
    )
    assert reasons(layout, on_gpus(4, experts=EXPERTS), (*RULES, *TRIAL_RULES)) == ()


@pytest.mark.parametrize(
    "layout",
    [
        Layout(data_parallel_replicate_degree=2, gradient_bucket_bytes=2**20),
        Layout(context_parallel_degree=2, gradient_bucket_bytes=2**20),
        Layout(data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER, gradient_bucket_bytes=2**20),
        Layout(context_parallel_degree=2, fp32_gradient_reduce=True),
    ],
    ids=str,
)
def test_whoever_reduces_whole_gradients_chooses_their_buckets_and_format(layout: Layout) -> None:
    assert reasons(layout, on_gpus(2), (*RULES, *TRIAL_RULES)) == ()


def test_shards_of_gradients_fill_no_buckets() -> None:
    layout = Layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS, gradient_bucket_bytes=2**20)
    (reason,) = reasons(layout, on_gpus(2))
    assert "layer by layer" in reason.message


def test_flash_runs_in_fp32_on_a_cpu() -> None:
    job = Job(model=tiny_model(), cluster=cpu_cluster(1), workload=Workload(seq_len=64, global_batch_size=8))
    assert reasons(cpu_layout(attention_kernel=AttentionKernel.FLASH), job) == ()


def test_gpipe_may_leave_its_pipeline_unfilled() -> None:
    layout = Layout(pipeline_parallel_degree=4, pipeline_schedule=PipelineSchedule.GPIPE)
    assert reasons(layout, on_gpus(4, batch=2)) == ()


def test_a_layout_may_break_several_rules_and_hears_of_all() -> None:
    names = [reason.rule for reason in reasons(Layout(tensor_parallel_degree=3, sequence_parallel=True), on_gpus(4))]
    assert {"world-size", "kv-heads-per-tensor-rank", "tensor-group-inside-node", "sequence-per-tensor-rank"} <= set(
        names
    )


def test_a_caller_may_bring_rules_of_their_own() -> None:
    rule = Rule(
        "no-tensor-ranks", "tensor_parallel_degree", lambda x, j: x.tensor_parallel_degree > 1, lambda x, j: "no"
    )
    job = on_gpus(2)
    (reason,) = reasons(Layout(tensor_parallel_degree=2), job, [rule])
    assert (reason.rule, reason.message, reason.nearest) == ("no-tensor-ranks", "no", None)
    assert reasons(replace(Layout(), micro_batch_size=1), job, [rule]) == ()


def test_a_sequence_longer_than_the_learned_positions_is_no_job() -> None:
    with pytest.raises(InvalidInput, match="learned positions") as refusal:
        on_gpus(1, seq_len=64, num_learned_positions=32)
    assert (refusal.value.field, refusal.value.nearest) == ("workload.seq_len", 32)


def test_blocks_of_mxfp8_are_twice_as_long_as_those_of_other_formats() -> None:
    rows = Layout(precision=Precision.FP8, fp8_recipe=Fp8Recipe.TENSORWISE)
    blocks = Layout(precision=Precision.FP8, fp8_recipe=Fp8Recipe.MXFP8)
    job = replace(on_accelerator(fp8_recipes=tuple(Fp8Recipe)), model=tiny_model(ffn_size=144))
    assert reasons(rows, job) == ()
    (reason,) = reasons(blocks, job)
    assert reason.rule == "fp8-block-shape"
    assert "mxfp8 multiplies blocks of 32" in reason.message


@pytest.mark.parametrize(
    ("accelerator", "recipe", "runs"),
    [
        ("l40s", Fp8Recipe.DELAYED, True),
        ("l40s", Fp8Recipe.BLOCKWISE, False),
        ("h100", Fp8Recipe.BLOCKWISE, True),
        ("h100", Fp8Recipe.MXFP8, False),
        ("b200", Fp8Recipe.MXFP8, True),
    ],
)
def test_devices_have_the_recipes_of_their_generation(accelerator: str, recipe: Fp8Recipe, runs: bool) -> None:
    job = replace(on_gpus(1), cluster=load_cluster(accelerator))
    layout = Layout(precision=Precision.FP8, fp8_recipe=recipe)
    assert ("recipe-on-hardware" not in {reason.rule for reason in reasons(layout, job)}) == runs


def test_nvfp4_runs_on_blackwell_alone() -> None:
    layout = Layout(precision=Precision.NVFP4)
    hopper, blackwell = (replace(on_gpus(1), cluster=load_cluster(name)) for name in ("h100", "b200"))
    assert [reason.rule for reason in reasons(layout, hopper)] == ["precision-on-hardware"]
    assert reasons(layout, blackwell) == ()


@pytest.mark.parametrize(
    "layout",
    [
        Layout(data_parallel_replicate_degree=4),
        Layout(data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS),
        Layout(data_parallel_replicate_degree=2, data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS),
        Layout(data_parallel_replicate_degree=2, context_parallel_degree=2),
        Layout(data_parallel_replicate_degree=4, rank_placement=RankPlacement.CYCLIC),
    ],
    ids=str,
)
def test_two_levels_are_chosen_where_data_parallel_ranks_share_nodes_and_reach_others(layout: Layout) -> None:
    two_level = replace(layout, collective_hierarchy=TWO_LEVEL)
    hybrid = layout.data_parallel_shard_degree == 2
    allowed = not reasons(two_level, on_nodes(2, 2))
    assert allowed != hybrid  # shards share a node and replicas none: neither group has two levels


@pytest.mark.parametrize("algorithm", [CollectiveAlgorithm.RING, CollectiveAlgorithm.TREE])
def test_rings_trees_and_two_levels_run_on_cores_too(algorithm: CollectiveAlgorithm) -> None:
    layout = Layout(data_parallel_replicate_degree=4, collective_algorithm=algorithm, collective_hierarchy=TWO_LEVEL)
    assert reasons(layout, on_cores(4, 2)) == ()


def test_a_relay_to_the_right_rail_may_be_left_out_where_there_are_rails() -> None:
    assert (
        reasons(Layout(pxn=False, queue_pairs=4, data_parallel_replicate_degree=4), over_network(2, 2, num_rails=2))
        == ()
    )

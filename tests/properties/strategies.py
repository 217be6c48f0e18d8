"""Hypothesis strategies for values of the core."""

from __future__ import annotations

from hypothesis import strategies as st

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
    OptimizerKernel,
    P2PTransport,
    PayloadPrecision,
    PipelineSchedule,
    Precision,
    RankOrder,
    RankPlacement,
    Recompute,
    ShardLevel,
)
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from tests.builders import h100, h100_cluster

degrees = st.sampled_from([1, 2, 3, 4, 6, 8])

layouts = st.builds(
    Layout,
    data_parallel_replicate_degree=degrees,
    data_parallel_shard_degree=degrees,
    tensor_parallel_degree=degrees,
    context_parallel_degree=degrees,
    expert_parallel_degree=degrees,
    pipeline_parallel_degree=degrees,
    virtual_stages_per_rank=st.integers(1, 4),
    micro_batch_size=degrees,
    pipeline_schedule=st.sampled_from(PipelineSchedule),
    sequence_parallel=st.booleans(),
    shard_level=st.sampled_from(ShardLevel),
    reshard_after_forward=st.booleans(),
    recompute=st.sampled_from(Recompute),
    attention_kernel=st.sampled_from(AttentionKernel),
    precision=st.sampled_from(Precision),
    fused_norm=st.booleans(),
    first_stage_less_layers=st.integers(0, 2),
    last_stage_less_layers=st.integers(0, 2),
    loss_parallel=st.booleans(),
    async_tensor_parallel=st.booleans(),
    context_exchange=st.sampled_from(ContextExchange),
    recompute_every=st.integers(1, 3),
    gradient_bucket_bytes=st.sampled_from([1, 2**20, DEFAULT_BUCKET_BYTES, 2**33]),
    fp32_gradient_reduce=st.booleans(),
    fp8_recipe=st.sampled_from(Fp8Recipe),
    compiled=st.booleans(),
    optimizer_kernel=st.sampled_from(OptimizerKernel),
    offload_activations=st.booleans(),
    collective_algorithm=st.sampled_from(CollectiveAlgorithm),
    collective_protocol=st.sampled_from(CollectiveProtocol),
    collective_channels=st.sampled_from([0, 0, 4, 65]),
    extra_slack=st.sampled_from([0, 0, 1, 5]),
    p2p_transport=st.sampled_from(P2PTransport),
    num_delegates=st.sampled_from([1, 1, 2, 3]),
    rank_order=st.sampled_from(RankOrder),
    stage_rotation=st.sampled_from([0, 0, 1, 7]),
    gradient_sync=st.sampled_from(GradientSync),
    sync_sparsity=st.sampled_from([16, 16, 1, 4]),
    sync_chunk=st.sampled_from([64, 64, 2, 512]),
    sync_top_k=st.sampled_from([4, 4, 1, 64]),
    sync_period=st.sampled_from([16, 16, 1, 3]),
    sync_sign=st.booleans(),
    sync_decay_permille=st.sampled_from([999, 999, 0, 1001]),
    payload_precision=st.sampled_from(PayloadPrecision),
    gradient_clip=st.sampled_from(GradientClip),
    batch_balance=st.sampled_from(BatchBalance),
    num_dealing_ranks=st.sampled_from([0, 0, 2, 8]),
    sequence_packing=st.booleans(),
    collective_hierarchy=st.sampled_from(CollectiveHierarchy),
    rank_placement=st.sampled_from(RankPlacement),
    pxn=st.booleans(),
    queue_pairs=st.sampled_from([1, 1, 4, 129]),
)

experts = st.builds(
    MixtureOfExperts,
    num_experts=st.sampled_from([2, 4, 8]),
    experts_per_token=st.integers(1, 2),
    expert_ffn_size=st.sampled_from([32, 96]),
    num_shared_experts=st.integers(0, 2),
    shared_expert_ffn_size=st.sampled_from([0, 48]),
    shared_expert_gate=st.booleans(),
    num_dense_layers=st.integers(0, 2),
    sparse_layer_interval=st.integers(1, 2),
    router_bias=st.booleans(),
    expert_bias=st.booleans(),
)

latents = st.builds(
    LatentAttention,
    query_rank=st.sampled_from([None, 24]),
    key_value_rank=st.just(16),
    rope_head_dim=st.just(8),
    value_head_dim=st.sampled_from([16, 32]),
)


linears = st.builds(
    LinearAttention,
    num_key_heads=st.just(2),
    num_value_heads=st.sampled_from([2, 4]),
    key_head_dim=st.just(16),
    value_head_dim=st.sampled_from([8, 16]),
    gate_rank=st.sampled_from([0, 8]),
)


@st.composite
def models(draw: st.DrawFn) -> TransformerSpec:
    """Small models of every kind."""
    num_heads = draw(st.sampled_from([4, 6, 8]))
    latent, linear, num_layers = draw(st.none() | latents), draw(st.none() | linears), draw(st.integers(2, 12))
    num_norms, qk_norm = draw(st.sampled_from([1, 2, 4])), draw(st.booleans())
    return TransformerSpec(
        name="drawn",
        num_layers=num_layers,
        hidden_size=draw(st.sampled_from([64, 96])),
        num_heads=num_heads,
        num_kv_heads=num_heads if latent else num_heads // 2,
        head_dim=draw(st.sampled_from([8, 16])),
        ffn_size=draw(st.sampled_from([96, 128])),
        vocab_size=draw(st.sampled_from([101, 256])),
        gated_mlp=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        norm=draw(st.sampled_from(("rmsnorm", "layernorm", "layernorm_without_bias", "layernorm_without_weights"))),
        num_norms_per_layer=num_norms,
        parallel_blocks=num_norms == 1 or (num_norms == 2 and draw(st.booleans())),
        embedding_norm=draw(st.booleans()),
        attention_output_gate=draw(st.booleans()),
        attention_sinks=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        attention_bias=draw(st.sampled_from(("none", "qkv", "all"))),
        mlp_bias=draw(st.booleans()),
        num_learned_positions=draw(st.sampled_from([0, 128])),
        qk_norm=qk_norm,
        qk_norm_of_all_heads=qk_norm and draw(st.booleans()),
        experts=draw(st.none() | experts),
        latent_attention=latent,
        linear_attention=linear,
        num_linear_layers=draw(st.integers(0, num_layers)) if linear else 0,
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Nodes of H100s, with or without formats and kernels."""
    kernels = tuple(draw(st.sets(st.sampled_from(AttentionKernel), min_size=1)))
    recipes = draw(st.sampled_from([h100().fp8_recipes, tuple(Fp8Recipe)]))
    peaks = {"fp8_flop_per_s": draw(st.sampled_from([0.0, 1978.9e12]))}
    accelerator = h100(**peaks, attention_kernels=kernels, fp8_recipes=recipes)
    per_node = draw(st.sampled_from([1, 2, 4, 8]))
    return h100_cluster(
        draw(st.integers(1, 3)),
        accelerators_per_node=per_node,
        accelerator=accelerator,
        oversubscription=draw(st.sampled_from([1.0, 2.5])),
    )


workloads = st.builds(
    Workload,
    seq_len=st.sampled_from([48, 64, 100]),
    global_batch_size=st.sampled_from([1, 6, 16, 24]),
    optimizer_state_precision=st.sampled_from(("fp32", "bf16")),
)

stacks = st.builds(
    Stack,
    sums_gradients_in_fp32=st.booleans(),
    balances_stages=st.booleans(),
    keeps_receive_buffers=st.booleans(),
    blocks_sends=st.booleans(),
    gathers_logits=st.booleans(),
    selective_recompute=st.sampled_from([(policy,) for policy in RecomputePolicy]),
    gathers_again=st.booleans(),
    fuses_gate=st.booleans(),
    allocates_gradients=st.booleans(),
    keeps_logits=st.booleans(),
    fills_buckets=st.booleans(),
    widens_context_gradients=st.booleans(),
    fp8_implementation=st.sampled_from(("torchao", "transformer_engine")),
    gathers_fp8_activations=st.booleans(),
    gathers_fp8_parameters=st.booleans(),
    overlaps_data_parallel=st.sampled_from([0.0, 0.3, 1.0]),
    kernel_launch_s=st.sampled_from([0.0, 5e-6, 1e-3]),
    tensor_wait_s=st.sampled_from([0.0, 3e-4]),
    send_wait_s=st.sampled_from([0.0, 1e-3]),
    scores_alive=st.sampled_from([0.0, 2.0]),
)

jobs = st.builds(Job, model=models(), cluster=clusters(), workload=workloads, stack=stacks)

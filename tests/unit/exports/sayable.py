"""Jobs with models, and layouts, that a format can say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from autotuner.core.blocks import LatentAttention, MixtureOfExperts
from autotuner.core.choices import AttentionKernel, Fp8Recipe, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.rules.legality import RULES, reasons
from autotuner.exports.shared.target import Target
from tests.builders import big_job, h100, h100_cluster
from tests.properties.strategies import layouts

EVERY_FORMAT = h100(attention_kernels=tuple(AttentionKernel), fp8_recipes=tuple(Fp8Recipe), fp4_flop_per_s=4e15)
JOB = replace(big_job(), cluster=h100_cluster(8, accelerator=EVERY_FORMAT))

# ---------------------------------------------------------------- layouts that a format can say
_OF_THE_CLUSTER = {"world-size", "tensor-group-inside-node"}
_SPLITS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"data_parallel_shard_degree": 1, "shard_level": ShardLevel.NONE, "context_parallel_degree": 1},
        {"data_parallel_replicate_degree": 1, "shard_level": ShardLevel.OPTIMIZER, "pipeline_parallel_degree": 1},
        {"data_parallel_replicate_degree": 1, "shard_level": ShardLevel.OPTIMIZER, "pipeline_parallel_degree": 2},
        {"data_parallel_replicate_degree": 1, "shard_level": ShardLevel.GRADIENTS, "pipeline_parallel_degree": 1},
        {"data_parallel_replicate_degree": 1, "shard_level": ShardLevel.PARAMETERS, "pipeline_parallel_degree": 1},
        {"shard_level": ShardLevel.PARAMETERS, "pipeline_parallel_degree": 1, "tensor_parallel_degree": 1},
        {},
    ]
)
"""Ways to split that mending alone seldom comes to."""

_COLLECTIVES = ("collective_algorithm", "collective_protocol", "collective_channels", "pxn", "queue_pairs")
"""Variables of the environment say them, not the configuration; ``test_common_rules`` reads those back."""


@st.composite
def sayable(draw: st.DrawFn, target: Target, job: Job) -> Layout:
    """A layout that keeps a target's rules and those of any layout, whatever the number of ranks."""
    layout = replace(in_its_words(target, draw(layouts)), **draw(_SPLITS))
    rules = tuple(rule for rule in (*RULES, *target.rules) if rule.name not in _OF_THE_CLUSTER)
    random: Random = draw(st.randoms(use_true_random=False))
    for _ in range(30):  # rounds, each of which mends one rule by its nearest value
        broken = reasons(layout, job, rules)
        if not broken:
            return layout
        reason = random.choice(broken)
        if reason.is_of_job:
            break
        near = OPTIONS[reason.field].default if reason.nearest is None else reason.nearest
        layout = replace(layout, **{reason.field: OPTIONS[reason.field].from_plain(near)})  # type: ignore[arg-type]
    return reject()


def in_its_words(target: Target, layout: Layout) -> Layout:
    """The layout without what a target leaves to code or to the environment."""
    return with_defaults(layout, (*target.decided_elsewhere, *_COLLECTIVES))


def with_defaults(layout: Layout, fields: Iterable[str]) -> Layout:
    """The layout with other fields at their defaults."""
    return replace(layout, **{name: OPTIONS[name].default for name in fields})  # type: ignore[arg-type]


# ---------------------------------------------------------------- models that Megatron's arguments can say
experts = st.builds(
    MixtureOfExperts,
    num_experts=st.just(8),
    experts_per_token=st.integers(1, 3),
    expert_ffn_size=st.sampled_from([256, 512]),
    num_shared_experts=st.integers(0, 2),
    num_dense_layers=st.integers(0, 3),
    router_bias=st.booleans(),
)

latents = st.builds(
    LatentAttention,
    query_rank=st.sampled_from([None, 384]),
    key_value_rank=st.just(128),
    rope_head_dim=st.just(32),
    value_head_dim=st.just(64),
)


@st.composite
def models(draw: st.DrawFn) -> TransformerSpec:
    """Models whose widths split over eight tensor ranks, and layers in many ways."""
    sparse, latent = draw(st.none() | experts), draw(st.none() | latents)
    biased = draw(st.booleans()) and sparse is None
    return TransformerSpec(
        name="drawn",
        num_layers=draw(st.sampled_from([8, 14, 15, 16, 24, 30])),
        hidden_size=1024,
        num_heads=16,
        num_kv_heads=16 if latent else draw(st.sampled_from([8, 16])),
        head_dim=draw(st.sampled_from([64, 128])),
        ffn_size=draw(st.sampled_from([2048, 4096])),
        vocab_size=draw(st.sampled_from([32_000, 50_257])),
        gated_mlp=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        norm=draw(st.sampled_from(("rmsnorm", "layernorm"))),
        attention_bias="all" if biased else draw(st.sampled_from(("none", "qkv"))),
        mlp_bias=biased,
        num_learned_positions=draw(st.sampled_from([0, 8192])),
        qk_norm=draw(st.booleans()) and latent is None,
        experts=sparse,
        latent_attention=latent,
    )

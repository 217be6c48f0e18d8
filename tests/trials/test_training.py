"""Layouts of every kind, other architectures and number formats, each beside a single process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import (
    AttentionKernel,
    BatchBalance,
    CollectiveAlgorithm,
    CollectiveHierarchy,
    ContextExchange,
    PipelineSchedule,
    Precision,
    RankPlacement,
    Recompute,
    ShardLevel,
)
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings
from autotuner.core.workload import LengthDistribution
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import TOLERANCES, Trainer, assert_alike, for_each
from tests.trials.fork_server import ForkServer
from tests.trials.specs import (
    CONTEXT,
    GPT_2,
    HEAD_NORMS,
    ODD_VOCABULARY,
    ONE_STEP,
    PIPELINE,
    SEQUENCE,
    TENSOR,
    WORKLOAD,
    ddp,
    fsdp,
    hsdp,
    trial_spec,
    zero,
)

FULL = {"recompute": Recompute.FULL}
SELECTIVE = {"recompute": Recompute.SELECTIVE}
GPIPE = {**PIPELINE, "pipeline_schedule": PipelineSchedule.GPIPE}
INTERLEAVED = {**PIPELINE, "pipeline_schedule": PipelineSchedule.INTERLEAVED_1F1B, "virtual_stages_per_rank": 2}
FLASH = {"attention_kernel": AttentionKernel.FLASH}
RESHARD = {"reshard_after_forward": True}
BF16 = {"precision": Precision.BF16}
IN_FP32 = {**BF16, "fp32_gradient_reduce": True}
SMALL_BUCKETS = {"gradient_bucket_bytes": 2**14}
GRADIENTS = {"shard_level": ShardLevel.GRADIENTS}
RING = {"context_exchange": ContextExchange.RING}
ALL_TO_ALL = {"context_exchange": ContextExchange.ALL_TO_ALL}
ALL_GATHER = {"context_exchange": ContextExchange.ALL_GATHER}
TWO_LEVEL = {"collective_hierarchy": CollectiveHierarchy.TWO_LEVEL}
DEALT = {"rank_placement": RankPlacement.CYCLIC}
RINGS = {"collective_algorithm": CollectiveAlgorithm.RING}
TREES = {"collective_algorithm": CollectiveAlgorithm.TREE}
PACKED = {"sequence_packing": True}
SNAKE = {"batch_balance": BatchBalance.SNAKE}
STRATIFIED = {"batch_balance": BatchBalance.STRATIFIED}
BOTH = {"batch_balance": BatchBalance.STRATIFIED_SNAKE}
SORTED = {"batch_balance": BatchBalance.GLOBAL_SORT}

TINY = tiny_model()
SHALLOW, SHALLOW_GPT_2, SHALLOW_HEAD_NORMS, SHALLOW_ODD_VOCABULARY = (
    replace(model, name=f"shallow-{model.name}", num_layers=2) for model in (TINY, GPT_2, HEAD_NORMS, ODD_VOCABULARY)
)
FIVE_LAYERS = tiny_model(name="five-layers", num_layers=5)
MULTI_HEAD = tiny_model(name="multi-head", num_kv_heads=4)
SPARSE = tiny_model(name="sparse", experts=MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=32))
LARGE = tiny_model(num_layers=10, hidden_size=256, ffn_size=1024)
"""Two buckets of gradients in fp32."""
PADDED = tiny_model(name="padded", num_layers=3, ffn_size=127, mlp_bias=True)
"""No multiple of four parameters, for its six odd biases."""

ALWAYS = (
    (SHALLOW, cpu_layout(micro_batch_size=1)),
    (SHALLOW, cpu_layout(**SEQUENCE, **FULL, **FLASH, micro_batch_size=8)),
    (SHALLOW, cpu_layout(**PIPELINE, **FULL, micro_batch_size=1)),
    (SHALLOW, ddp(2, micro_batch_size=2)),
    (SHALLOW, fsdp(2, **FULL, **RESHARD, micro_batch_size=4)),
    (SHALLOW, hsdp(2, 2, micro_batch_size=1)),
    (SHALLOW, fsdp(2, **PIPELINE, micro_batch_size=2)),
    (SHALLOW, fsdp(2, **TENSOR, **BF16, micro_batch_size=4)),
    (FIVE_LAYERS, cpu_layout(pipeline_parallel_degree=3, micro_batch_size=2)),
    (SHALLOW_ODD_VOCABULARY, cpu_layout(**TENSOR, micro_batch_size=8)),
    (SHALLOW_HEAD_NORMS, ddp(2, **SEQUENCE, micro_batch_size=4)),
    (SHALLOW_GPT_2, fsdp(2, **TENSOR, micro_batch_size=4)),
    (SHALLOW, ddp(2, **SMALL_BUCKETS, micro_batch_size=2)),
    (SHALLOW, zero(2, **GRADIENTS, micro_batch_size=1, data_parallel_replicate_degree=2)),
    (PADDED, zero(4, micro_batch_size=1)),
    (SHALLOW, ddp(4, **TWO_LEVEL, **TREES, gradient_bucket_bytes=2**14, micro_batch_size=2)),
    (SHALLOW, hsdp(2, 2, **RINGS, **DEALT, micro_batch_size=2)),
)
MORE = (
    (FIVE_LAYERS, cpu_layout(**PIPELINE, micro_batch_size=4)),
    (HEAD_NORMS, cpu_layout(**TENSOR, micro_batch_size=8)),
    (HEAD_NORMS, fsdp(2, **SEQUENCE, micro_batch_size=4)),
    (ODD_VOCABULARY, fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=2)),
    (GPT_2, cpu_layout(**SEQUENCE, micro_batch_size=8)),
    (GPT_2, ddp(2, micro_batch_size=4)),
    (TINY, cpu_layout(context_parallel_degree=4, **FLASH, micro_batch_size=4)),
    (TINY, cpu_layout(context_parallel_degree=4, **ALL_GATHER, **FLASH, micro_batch_size=4)),
    (MULTI_HEAD, cpu_layout(context_parallel_degree=4, **ALL_TO_ALL, **FLASH, micro_batch_size=4)),
    (HEAD_NORMS, cpu_layout(**CONTEXT, micro_batch_size=4)),
    (GPT_2, cpu_layout(**CONTEXT, micro_batch_size=4)),
    (MULTI_HEAD, cpu_layout(**CONTEXT, **SEQUENCE, **ALL_TO_ALL, micro_batch_size=4)),
    # collectives that know their nodes: on two of these, both levels are of several ranks
    (TINY, ddp(4, **TWO_LEVEL, **DEALT, **INTERLEAVED, micro_batch_size=1)),
    (TINY, ddp(4, **TWO_LEVEL, **DEALT, **IN_FP32, micro_batch_size=2)),
    (TINY, ddp(4, **TWO_LEVEL, **DEALT, **PIPELINE, micro_batch_size=1)),
    (TINY, fsdp(4, **TWO_LEVEL, micro_batch_size=1)),
    (TINY, fsdp(4, **TWO_LEVEL, **DEALT, reshard_after_forward=True, precision=Precision.BF16, micro_batch_size=2)),
    (TINY, zero(4, **TWO_LEVEL, **RINGS, micro_batch_size=2)),
    (TINY, zero(4, **TWO_LEVEL, shard_level=ShardLevel.GRADIENTS, micro_batch_size=1)),
    (TINY, hsdp(4, 2, **TWO_LEVEL, **TREES, micro_batch_size=1)),
    (TINY, hsdp(2, 4, **TWO_LEVEL, **DEALT, micro_batch_size=1)),
)
"""What ``tests/oracle`` does not train, which has every pair of options: other models, more ranks of a kind."""


@for_each(ALWAYS, oracle=MORE)
def test_ranks_train_together_as_a_single_process_does(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)


def test_the_single_process_learns(trainer: Trainer) -> None:
    losses = trainer.alone(cpu_layout(), SHALLOW).losses
    assert len(losses) == 5
    assert losses[-1] < 0.99 * losses[0]  # otherwise equal losses would say nothing about the updates


@pytest.mark.parametrize("name", [OptimizerName.LAMB, OptimizerName.MADGRAD])
def test_replicas_train_as_one_process_does_with_any_optimizer(name: OptimizerName, trainer: Trainer) -> None:
    optimizer = OptimizerSettings(name=name, learning_rate=3e-2, warmup_steps=2)
    alone, together = (
        trainer.train(trial_spec(layout, model=SHALLOW, optimizer=optimizer))
        for layout in (cpu_layout(micro_batch_size=8), ddp(2, micro_batch_size=2))
    )
    assert_alike(together, alone, TOLERANCES[Precision.FP32])
    assert alone.losses[-1] < alone.losses[0]  # otherwise equal losses would say nothing about the updates


@pytest.mark.oracle  # four trainings
def test_each_level_of_sharding_lowers_the_peak(fork_server: ForkServer, tmp_path: Path) -> None:
    """On four ranks: two gain nothing by sharding gradients, for FSDP keeps its half of the parameters beside all."""
    levels = (ShardLevel.OPTIMIZER, ShardLevel.GRADIENTS, ShardLevel.PARAMETERS)
    layouts = (ddp(4), *(zero(4, shard_level=level) for level in levels))
    peaks = [peak(fork_server, layout, tmp_path / layout.shard_level.label) for layout in layouts]
    assert peaks == sorted(peaks, reverse=True)
    moments_spared = 8 * LARGE.num_parameters * 3 // 4  # two of fp32, of which each rank keeps a quarter
    assert peaks[0] - peaks[1] > moments_spared


def peak(fork_server: ForkServer, layout: Layout, folder: Path) -> int:
    return max(fork_server.run(trial_spec(layout, model=LARGE, settings=ONE_STEP), folder).measurement.peak_bytes)


# ---------------------------------------------------------------- batches of unequal sequences, however they are dealt
UNEQUAL = replace(WORKLOAD, lengths=LengthDistribution(lengths=(3, 9, 17, 31), weights=(4.0, 1.0, 1.0, 2.0)))
"""Half of all sequences have a tenth of the tokens of the longest: a mean of means would be another loss."""

UNEQUAL_ALWAYS = (
    (SHALLOW, ddp(2, **SNAKE, micro_batch_size=2)),
    (SHALLOW, fsdp(2, **TENSOR, **PACKED, **BOTH, micro_batch_size=2)),
)
UNEQUAL_MORE = (
    (TINY, ddp(2, **SORTED, **PACKED, **FULL, micro_batch_size=4)),
    (TINY, zero(2, **STRATIFIED, **PACKED, **SELECTIVE, micro_batch_size=2)),
    (TINY, hsdp(2, 2, **BOTH, num_dealing_ranks=2, micro_batch_size=2)),
    (TINY, fsdp(2, **SEQUENCE, **PACKED, **SORTED, **FULL, micro_batch_size=2)),
    (GPT_2, fsdp(2, **TENSOR, **PACKED, **BOTH, micro_batch_size=4)),
    (GPT_2, ddp(2, **SEQUENCE, **SORTED, micro_batch_size=2)),
    (SPARSE, fsdp(2, **PACKED, **SNAKE, expert_parallel_degree=2, micro_batch_size=2)),
    (SPARSE, fsdp(2, **TENSOR, **SNAKE, expert_parallel_degree=2, micro_batch_size=2)),
)


@for_each(UNEQUAL_ALWAYS, oracle=UNEQUAL_MORE)
def test_unequal_sequences_train_as_in_a_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model, workload=UNEQUAL)

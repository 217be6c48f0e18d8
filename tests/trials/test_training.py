"""Layouts of every degree, other architectures and bf16, each beside a single process."""

from __future__ import annotations

import pytest

from autotuner.core.choices import AttentionKernel, PipelineSchedule, Precision, Recompute
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import TOLERANCES, Trainer, assert_alike, for_each
from tests.trials.specs import (
    GPT_2,
    HEAD_NORMS,
    ODD_VOCABULARY,
    PIPELINE,
    SEQUENCE,
    TENSOR,
    ddp,
    fsdp,
    hsdp,
    trial_spec,
)

FULL = {"recompute": Recompute.FULL}
GPIPE = {**PIPELINE, "pipeline_schedule": PipelineSchedule.GPIPE}
FLASH = {"attention_kernel": AttentionKernel.FLASH}
RESHARD = {"reshard_after_forward": True}
BF16 = {"precision": Precision.BF16}

TINY = tiny_model()
FIVE_LAYERS = tiny_model(name="five-layers", num_layers=5)

LAYOUTS = (
    (TINY, cpu_layout(micro_batch_size=1)),
    (TINY, cpu_layout(**SEQUENCE, **FULL, **FLASH, micro_batch_size=8)),
    (TINY, cpu_layout(**PIPELINE, **FULL, micro_batch_size=1)),
    (TINY, ddp(2, micro_batch_size=2)),
    (TINY, fsdp(2, **FULL, **RESHARD, micro_batch_size=4)),
    (TINY, hsdp(2, 2, micro_batch_size=1)),
    (TINY, fsdp(2, **PIPELINE, micro_batch_size=2)),
    (TINY, fsdp(2, **TENSOR, **BF16, micro_batch_size=4)),
    (FIVE_LAYERS, cpu_layout(pipeline_parallel_degree=3, micro_batch_size=2)),
    (ODD_VOCABULARY, cpu_layout(**TENSOR, micro_batch_size=8)),
    (HEAD_NORMS, ddp(2, **SEQUENCE, micro_batch_size=4)),
    (GPT_2, fsdp(2, **TENSOR, micro_batch_size=4)),
)

MORE = (
    (TINY, cpu_layout(**FULL, micro_batch_size=8)),
    (TINY, cpu_layout(**FLASH, micro_batch_size=4)),
    (TINY, cpu_layout(**TENSOR, micro_batch_size=4)),
    (TINY, cpu_layout(**SEQUENCE, micro_batch_size=4)),
    (TINY, cpu_layout(**PIPELINE, micro_batch_size=2)),
    (TINY, cpu_layout(**GPIPE, micro_batch_size=4)),
    (TINY, ddp(2, **FULL, micro_batch_size=4)),
    (TINY, fsdp(2, micro_batch_size=2)),
    (TINY, cpu_layout(**TENSOR, **PIPELINE, micro_batch_size=4)),
    (TINY, cpu_layout(**SEQUENCE, **GPIPE, micro_batch_size=4)),
    (TINY, fsdp(2, **TENSOR, micro_batch_size=4)),
    (TINY, fsdp(2, **SEQUENCE, **FULL, **RESHARD, micro_batch_size=4)),
    (TINY, ddp(2, **TENSOR, micro_batch_size=2)),
    (TINY, ddp(2, **SEQUENCE, **FULL, micro_batch_size=4)),
    (TINY, fsdp(2, **GPIPE, **FULL, micro_batch_size=1)),
    (TINY, ddp(2, **PIPELINE, micro_batch_size=2)),
    (TINY, ddp(2, **GPIPE, micro_batch_size=1)),
    (TINY, hsdp(2, 2, **PIPELINE, micro_batch_size=1)),
    (TINY, hsdp(2, 2, **TENSOR, micro_batch_size=2)),
    (TINY, ddp(2, **TENSOR, **PIPELINE, micro_batch_size=2)),
    (TINY, fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=2)),
    (TINY, cpu_layout(**BF16, micro_batch_size=1)),
    (TINY, cpu_layout(**SEQUENCE, **FULL, **BF16, micro_batch_size=8)),
    (TINY, cpu_layout(**PIPELINE, **FLASH, **BF16, micro_batch_size=2)),
    (TINY, ddp(2, **BF16, micro_batch_size=2)),
    (TINY, fsdp(2, **BF16, micro_batch_size=2)),
    (TINY, ddp(2, **TENSOR, **PIPELINE, **BF16, micro_batch_size=2)),
    (FIVE_LAYERS, cpu_layout(**PIPELINE, micro_batch_size=4)),
    (HEAD_NORMS, cpu_layout(**TENSOR, micro_batch_size=8)),
    (HEAD_NORMS, fsdp(2, **SEQUENCE, micro_batch_size=4)),
    (ODD_VOCABULARY, fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=2)),
    (GPT_2, cpu_layout(**SEQUENCE, micro_batch_size=8)),
    (GPT_2, ddp(2, micro_batch_size=4)),
)


@for_each(LAYOUTS, oracle=MORE)
def test_ranks_train_together_as_a_single_process_does(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)


def test_the_single_process_learns(trainer: Trainer) -> None:
    losses = trainer.alone(cpu_layout(), TINY).losses
    assert len(losses) == 5
    assert losses[-1] < 0.99 * losses[0]  # otherwise equal losses would say nothing about the updates


@pytest.mark.parametrize("name", [OptimizerName.LAMB, OptimizerName.MADGRAD])
def test_replicas_train_as_one_process_does_with_any_optimizer(name: OptimizerName, trainer: Trainer) -> None:
    optimizer = OptimizerSettings(name=name, learning_rate=3e-2, warmup_steps=2)
    alone, together = (
        trainer.train(trial_spec(layout, optimizer=optimizer))
        for layout in (cpu_layout(micro_batch_size=8), ddp(2, micro_batch_size=2))
    )
    assert_alike(together, alone, TOLERANCES[Precision.FP32])
    assert alone.losses[-1] < alone.losses[0]  # otherwise equal losses would say nothing about the updates

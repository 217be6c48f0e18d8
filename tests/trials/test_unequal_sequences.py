"""Batches of unequal sequences, however they are dealt and laid out, beside a single process that sees them at once."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import AttentionKernel, BatchBalance, ContextExchange, Precision, Recompute
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.workload import LengthDistribution
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import CONTEXT, GPT_2, PIPELINE, SEQUENCE, TENSOR, WORKLOAD, ddp, fsdp, hsdp, zero

UNEQUAL = replace(WORKLOAD, lengths=LengthDistribution(lengths=(3, 9, 17, 31), weights=(4.0, 1.0, 1.0, 2.0)))
"""Half of all sequences have a tenth of the tokens of the longest: a mean of means would be another loss."""

PACKED = {"sequence_packing": True}
SNAKE = {"batch_balance": BatchBalance.SNAKE}
STRATIFIED = {"batch_balance": BatchBalance.STRATIFIED}
BOTH = {"batch_balance": BatchBalance.STRATIFIED_SNAKE}
SORTED = {"batch_balance": BatchBalance.GLOBAL_SORT}
FULL = {"recompute": Recompute.FULL}
SELECTIVE = {"recompute": Recompute.SELECTIVE}
FLASH = {"attention_kernel": AttentionKernel.FLASH}

TINY = tiny_model()
SPARSE = tiny_model(name="sparse", experts=MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=32))

LAYOUTS = (
    (TINY, ddp(2, **SNAKE, micro_batch_size=2)),
    (TINY, fsdp(2, **TENSOR, **PACKED, **BOTH, micro_batch_size=2)),
)
MORE = (
    (TINY, cpu_layout(**PACKED, micro_batch_size=8)),
    (TINY, cpu_layout(micro_batch_size=1)),
    (TINY, ddp(4, micro_batch_size=1)),
    (TINY, ddp(2, **SORTED, **PACKED, **FULL, micro_batch_size=4)),
    (TINY, zero(2, **STRATIFIED, **PACKED, **SELECTIVE, micro_batch_size=2)),
    (TINY, hsdp(2, 2, **BOTH, num_dealing_ranks=2, micro_batch_size=2)),
    (TINY, fsdp(2, **SEQUENCE, **PACKED, **SORTED, **FULL, micro_batch_size=2)),
    (TINY, ddp(2, **SEQUENCE, **SNAKE, **SELECTIVE, micro_batch_size=2)),
    (TINY, cpu_layout(**SEQUENCE, **PACKED, **FLASH, micro_batch_size=4)),
    (TINY, cpu_layout(**CONTEXT, context_exchange=ContextExchange.RING, micro_batch_size=2)),
    (TINY, cpu_layout(**CONTEXT, context_exchange=ContextExchange.ALL_TO_ALL, **FLASH, micro_batch_size=2)),
    (TINY, ddp(2, **PIPELINE, micro_batch_size=2)),
    (TINY, ddp(2, **PACKED, **SNAKE, precision=Precision.BF16, micro_batch_size=2)),
    (GPT_2, fsdp(2, **TENSOR, **PACKED, **BOTH, micro_batch_size=4)),
    (GPT_2, ddp(2, **SEQUENCE, **SORTED, micro_batch_size=2)),
    (SPARSE, fsdp(2, **PACKED, **SNAKE, expert_parallel_degree=2, micro_batch_size=2)),
    (SPARSE, fsdp(2, **TENSOR, **SNAKE, expert_parallel_degree=2, micro_batch_size=2)),
)


@for_each(LAYOUTS, oracle=MORE)
def test_unequal_sequences_train_as_in_a_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model, workload=UNEQUAL)

"""Context parallelism against the single process, alone and beside every other kind of parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.choices import AttentionKernel, ContextExchange, Precision, Recompute
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import CONTEXT, GPT_2, HEAD_NORMS, PIPELINE, SEQUENCE, ZBV, ddp, fsdp, hsdp

ALL_TO_ALL = {"context_exchange": ContextExchange.ALL_TO_ALL}
ALL_GATHER = {"context_exchange": ContextExchange.ALL_GATHER}
FLASH = {"attention_kernel": AttentionKernel.FLASH}
FULL = {"recompute": Recompute.FULL}
MULTI_HEAD = tiny_model(name="multi-head", num_kv_heads=4)


def context(**changes: Any) -> dict[str, Any]:
    return {**CONTEXT, "micro_batch_size": 4, **changes}


LAYOUTS = (
    (tiny_model(), cpu_layout(**context())),
    (tiny_model(), cpu_layout(**context(**FLASH, **FULL))),
    (tiny_model(), cpu_layout(**context(context_parallel_degree=4, **FLASH))),
    (tiny_model(), cpu_layout(**context(**ALL_GATHER))),
    (tiny_model(), cpu_layout(**context(context_parallel_degree=4, **ALL_GATHER, **FLASH))),
    (tiny_model(), cpu_layout(**context(**ALL_TO_ALL))),
    (MULTI_HEAD, cpu_layout(**context(context_parallel_degree=4, **ALL_TO_ALL, **FLASH))),
    (HEAD_NORMS, cpu_layout(**context())),
    (GPT_2, cpu_layout(**context())),
    (tiny_model(), cpu_layout(**context(**SEQUENCE))),
    (tiny_model(), cpu_layout(**context(tensor_parallel_degree=2, **ALL_GATHER))),
    (MULTI_HEAD, cpu_layout(**context(**SEQUENCE, **ALL_TO_ALL))),
    (tiny_model(), ddp(2, **context())),
    (tiny_model(), fsdp(2, **context())),
    (tiny_model(), fsdp(2, **context(**SEQUENCE, **ALL_GATHER))),
    (tiny_model(), hsdp(2, 2, **context(micro_batch_size=2, **ALL_TO_ALL))),
    (tiny_model(), cpu_layout(**context(**PIPELINE))),
    (tiny_model(), fsdp(2, **context(micro_batch_size=2, **PIPELINE, **ALL_GATHER))),
    (tiny_model(), cpu_layout(**context(micro_batch_size=2, **ZBV))),
    (tiny_model(), cpu_layout(**context(micro_batch_size=2, **ZBV, **ALL_TO_ALL, **FULL))),
    (tiny_model(), cpu_layout(**context(**SEQUENCE, **PIPELINE))),
)


@for_each((), oracle=LAYOUTS)
def test_ranks_that_split_the_sequence_train_as_a_single_process_does(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)


@pytest.mark.oracle
@pytest.mark.parametrize("exchange", ContextExchange)
def test_in_bf16_they_train_alike_within_its_rounding(exchange: ContextExchange, trainer: Trainer) -> None:
    layout = cpu_layout(**context(context_exchange=exchange, precision=Precision.BF16, **FLASH))
    trainer.assert_alike(layout, tiny_model())

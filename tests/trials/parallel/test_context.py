"""Context parallelism against the single process, alone and beside every other kind of parallelism."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotuner.domain.choice import AttentionKernel, ContextExchange, PipelineSchedule, Precision, Recompute
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.conftest import Reference
from tests.trials.specs import fsdp, hsdp
from tests.trials.test_oracle import (
    BF16_GRADIENT_TOLERANCE,
    BF16_LOSS_TOLERANCE,
    GPT_2,
    GRADIENT_TOLERANCE,
    HEAD_NORMS,
    LOSS_TOLERANCE,
    assert_gradients_agree,
    gradients,
    trial_losses,
)
from tests.trials.zygote import Zygote

References = Callable[[TransformerSpec, Precision], Reference]

ALL_TO_ALL = {"context_exchange": ContextExchange.ALL_TO_ALL}
ALL_GATHER = {"context_exchange": ContextExchange.ALL_GATHER}
FLASH = {"attention_kernel": AttentionKernel.FLASH}
SPLIT_TENSORS = {"tensor_parallel_degree": 2, "sequence_parallel": True}
PIPELINE = {"pipeline_parallel_degree": 2}
ZBV = {**PIPELINE, "virtual_stages_per_rank": 2, "pipeline_schedule": PipelineSchedule.ZBV}
FULL = {"recompute": Recompute.FULL}
MULTI_HEAD = tiny_model(name="multi-head", num_kv_heads=4)


def context(**changes: Any) -> dict[str, Any]:
    return {"context_parallel_degree": 2, "micro_batch_size": 4, **changes}


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
    (tiny_model(), cpu_layout(**context(**SPLIT_TENSORS))),
    (tiny_model(), cpu_layout(**context(tensor_parallel_degree=2, **ALL_GATHER))),
    (MULTI_HEAD, cpu_layout(**context(**SPLIT_TENSORS, **ALL_TO_ALL))),
    (tiny_model(), cpu_layout(**context(data_parallel_replicate_degree=2))),
    (tiny_model(), fsdp(2, **context())),
    (tiny_model(), fsdp(2, **context(**SPLIT_TENSORS, **ALL_GATHER))),
    (tiny_model(), hsdp(2, 2, **context(micro_batch_size=2, **ALL_TO_ALL))),
    (tiny_model(), cpu_layout(**context(**PIPELINE))),
    (tiny_model(), fsdp(2, **context(micro_batch_size=2, **PIPELINE, **ALL_GATHER))),
    (tiny_model(), cpu_layout(**context(micro_batch_size=2, **ZBV))),
    (tiny_model(), cpu_layout(**context(micro_batch_size=2, **ZBV, **ALL_TO_ALL, **FULL))),
    (tiny_model(), cpu_layout(**context(**SPLIT_TENSORS, **PIPELINE))),
)


@pytest.mark.oracle
@pytest.mark.parametrize(("model", "layout"), LAYOUTS, ids=lambda value: getattr(value, "name", str(value)))
def test_ranks_that_split_the_sequence_train_as_a_single_process_does(
    layout: Layout, model: TransformerSpec, zygote: Zygote, reference: References, tmp_path: Path
) -> None:
    expected = reference(model, Precision.FP32)
    assert trial_losses(zygote, layout, model, tmp_path / "trial") == pytest.approx(expected.losses, rel=LOSS_TOLERANCE)
    assert_gradients_agree(gradients(zygote, layout, model, tmp_path / "gradients"), expected, GRADIENT_TOLERANCE)


@pytest.mark.parametrize("exchange", ContextExchange)
def test_in_bf16_they_train_alike_within_its_rounding(
    exchange: ContextExchange, zygote: Zygote, reference: References, tmp_path: Path
) -> None:
    layout = cpu_layout(**context(context_exchange=exchange, precision=Precision.BF16, **FLASH))
    expected, model = reference(tiny_model(), Precision.BF16), tiny_model()
    losses = trial_losses(zygote, layout, model, tmp_path / "trial")
    assert losses == pytest.approx(expected.losses, rel=BF16_LOSS_TOLERANCE)
    found = gradients(zygote, layout, model, tmp_path / "gradients")
    assert_gradients_agree(found, expected, BF16_GRADIENT_TOLERANCE)

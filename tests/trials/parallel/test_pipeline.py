"""Every pipeline schedule against the single process: alone, with uneven ends, and beside other parallelism."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotuner.domain.choice import PipelineSchedule, Precision
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.conftest import Reference
from tests.trials.specs import fsdp, hsdp, zero
from tests.trials.test_oracle import (
    GRADIENT_TOLERANCE,
    LOSS_TOLERANCE,
    assert_gradients_agree,
    gradients,
    trial_losses,
)
from tests.trials.zygote import Zygote

References = Callable[[TransformerSpec, Precision], Reference]

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZBV, DUALPIPEV = PipelineSchedule
SIX_LAYERS = tiny_model(name="six-layers", num_layers=6)
TIED = tiny_model(name="tied", tied_embeddings=True)


def pipeline(schedule: PipelineSchedule, virtual: int = 1, **changes: Any) -> dict[str, Any]:
    ranks = {"pipeline_parallel_degree": 2, "pipeline_schedule": schedule, "virtual_stages_per_rank": virtual}
    return {**ranks, "micro_batch_size": 2, **changes}


def replicas(**changes: Any) -> Layout:
    return cpu_layout(data_parallel_replicate_degree=2, **changes)


SEQUENCE = {"tensor_parallel_degree": 2, "sequence_parallel": True}

SCHEDULES = (
    cpu_layout(**pipeline(INTERLEAVED, 2)),
    cpu_layout(**pipeline(ZERO_BUBBLE)),
    cpu_layout(**pipeline(ZERO_BUBBLE, micro_batch_size=1, pipeline_parallel_degree=4)),
    cpu_layout(**pipeline(ZERO_BUBBLE, 2)),
    cpu_layout(**pipeline(ZBV, 2)),
    cpu_layout(**pipeline(ZBV, 2, micro_batch_size=4)),  # fewer micro-batches than the V is long
    cpu_layout(**pipeline(DUALPIPEV, 2)),
)

UNEVEN = (
    cpu_layout(**pipeline(ONE_F_ONE_B, first_stage_less_layers=1, last_stage_less_layers=1)),
    cpu_layout(**pipeline(INTERLEAVED, 2, first_stage_less_layers=1, last_stage_less_layers=1)),
    cpu_layout(**pipeline(ZBV, 2, first_stage_less_layers=1, last_stage_less_layers=1)),
)

BESIDE_DATA_PARALLELISM = (
    replicas(**pipeline(INTERLEAVED, 2)),
    replicas(**pipeline(ZERO_BUBBLE)),
    replicas(**pipeline(ZBV, 2)),
    replicas(**pipeline(DUALPIPEV, 2, micro_batch_size=1)),
    fsdp(2, **pipeline(INTERLEAVED, 2)),
    fsdp(2, **pipeline(ZERO_BUBBLE)),
    fsdp(2, **pipeline(ZBV, 2)),
    fsdp(2, **pipeline(DUALPIPEV, 2, micro_batch_size=1)),
    hsdp(2, 2, **pipeline(ZBV, 2, micro_batch_size=1)),
    zero(2, **pipeline(GPIPE)),
    zero(2, **pipeline(INTERLEAVED, 2)),
    zero(2, **pipeline(ZBV, 2)),
    fsdp(2, **pipeline(ONE_F_ONE_B, reshard_after_forward=True)),
    fsdp(2, **pipeline(INTERLEAVED, 2, reshard_after_forward=True)),
    replicas(**SEQUENCE, **pipeline(ZBV, 2)),
    fsdp(2, **SEQUENCE, **pipeline(INTERLEAVED, 2)),
    zero(2, **SEQUENCE, **pipeline(ZBV, 2)),
)

TIED_TABLES = (
    cpu_layout(**pipeline(ONE_F_ONE_B, pipeline_parallel_degree=3)),
    cpu_layout(**pipeline(ZBV, 2)),
    replicas(**pipeline(ONE_F_ONE_B)),
    replicas(tensor_parallel_degree=2, micro_batch_size=4),
    fsdp(2, **SEQUENCE, **pipeline(INTERLEAVED, 2)),
    zero(2, **pipeline(ZBV, 2)),
)

CASES = (
    *((tiny_model(), layout) for layout in SCHEDULES),
    *((SIX_LAYERS, layout) for layout in UNEVEN),
    *((tiny_model(), layout) for layout in BESIDE_DATA_PARALLELISM),
    *((TIED, layout) for layout in TIED_TABLES),
)


@pytest.mark.oracle
@pytest.mark.parametrize(("model", "layout"), CASES, ids=lambda value: getattr(value, "name", str(value)))
def test_a_schedule_trains_as_a_single_process_does(
    layout: Layout, model: TransformerSpec, zygote: Zygote, reference: References, tmp_path: Path
) -> None:
    expected = reference(model, Precision.FP32)
    assert trial_losses(zygote, layout, model, tmp_path / "trial") == pytest.approx(expected.losses, rel=LOSS_TOLERANCE)
    assert_gradients_agree(gradients(zygote, layout, model, tmp_path / "gradients"), expected, GRADIENT_TOLERANCE)

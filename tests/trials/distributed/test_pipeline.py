"""Every pipeline schedule against the single process: alone, with uneven ends, and beside other parallelism."""

from __future__ import annotations

from typing import Any

from autotuner.core.choices import P2PTransport, PipelineSchedule, RankOrder
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import SEQUENCE, TENSOR, ddp, fsdp, hsdp, zero

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZBV, DUALPIPEV, ADAPTIVE = PipelineSchedule
DELEGATED: dict[str, Any] = {"p2p_transport": P2PTransport.DELEGATED}
SIX_LAYERS = tiny_model(name="six-layers", num_layers=6)
TIED = tiny_model(name="tied", tied_embeddings=True)


def pipeline(schedule: PipelineSchedule, virtual: int = 1, **changes: Any) -> dict[str, Any]:
    ranks = {"pipeline_parallel_degree": 2, "pipeline_schedule": schedule, "virtual_stages_per_rank": virtual}
    return {**ranks, "micro_batch_size": 2, **changes}


SCHEDULES = (
    cpu_layout(**pipeline(INTERLEAVED, 2)),
    cpu_layout(**pipeline(ZERO_BUBBLE)),
    cpu_layout(**pipeline(ZERO_BUBBLE, micro_batch_size=1, pipeline_parallel_degree=4)),
    cpu_layout(**pipeline(ZERO_BUBBLE, 2)),
    cpu_layout(**pipeline(ZBV, 2, micro_batch_size=4)),  # fewer micro-batches than the V is long
    cpu_layout(**pipeline(DUALPIPEV, 2)),
)

UNEVEN = (
    cpu_layout(**pipeline(ONE_F_ONE_B, first_stage_less_layers=1, last_stage_less_layers=1)),
    cpu_layout(**pipeline(INTERLEAVED, 2, first_stage_less_layers=1, last_stage_less_layers=1)),
    cpu_layout(**pipeline(ZBV, 2, first_stage_less_layers=1, last_stage_less_layers=1)),
)

BESIDE_DATA_PARALLELISM = (
    ddp(2, **pipeline(INTERLEAVED, 2)),
    ddp(2, **pipeline(ZERO_BUBBLE)),
    ddp(2, **pipeline(ZBV, 2)),
    ddp(2, **pipeline(DUALPIPEV, 2, micro_batch_size=1)),
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
    ddp(2, **SEQUENCE, **pipeline(ZBV, 2)),
    fsdp(2, **SEQUENCE, **pipeline(INTERLEAVED, 2)),
    zero(2, **SEQUENCE, **pipeline(ZBV, 2)),
)

TIED_TABLES = (
    cpu_layout(**pipeline(ONE_F_ONE_B, pipeline_parallel_degree=3)),
    cpu_layout(**pipeline(ZBV, 2)),
    ddp(2, **pipeline(ONE_F_ONE_B)),
    ddp(2, **TENSOR, micro_batch_size=4),
    fsdp(2, **SEQUENCE, **pipeline(INTERLEAVED, 2)),
)

DELEGATES = (
    cpu_layout(**pipeline(ONE_F_ONE_B, **DELEGATED)),
    cpu_layout(**pipeline(INTERLEAVED, 2, **DELEGATED)),
    cpu_layout(**pipeline(ZBV, 2, **DELEGATED)),
    cpu_layout(**pipeline(DUALPIPEV, 2, **DELEGATED)),
    fsdp(2, **SEQUENCE, **pipeline(ADAPTIVE, **DELEGATED, num_delegates=2)),
)

PLACES = (
    cpu_layout(**pipeline(ONE_F_ONE_B, pipeline_parallel_degree=4, micro_batch_size=1, stage_rotation=3)),
    cpu_layout(**pipeline(ZBV, 2, stage_rotation=1)),
    ddp(2, **pipeline(ADAPTIVE, rank_order=RankOrder.REPLICAS_OUTERMOST, stage_rotation=1)),
    zero(2, **pipeline(GPIPE, stage_rotation=1, data_parallel_replicate_degree=2)),
)

ALWAYS = (
    (TIED, ddp(2, **pipeline(ADAPTIVE, **DELEGATED, rank_order=RankOrder.REPLICAS_OUTERMOST, stage_rotation=1))),
    (tiny_model(), cpu_layout(**pipeline(ZBV, 2))),
    (TIED, zero(2, **pipeline(ZBV, 2))),
)
MORE = (
    *((tiny_model(), layout) for layout in SCHEDULES),
    *((SIX_LAYERS, layout) for layout in UNEVEN),
    *((tiny_model(), layout) for layout in BESIDE_DATA_PARALLELISM),
    *((TIED, layout) for layout in (*TIED_TABLES, *PLACES)),
    *((tiny_model(), layout) for layout in DELEGATES),
)


@for_each(ALWAYS, oracle=MORE)
def test_a_schedule_trains_as_a_single_process_does(model: TransformerSpec, layout: Layout, trainer: Trainer) -> None:
    trainer.assert_alike(layout, model)

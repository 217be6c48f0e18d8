"""Four and eight data-parallel ranks on two nodes, each beside a single process: both levels are of several ranks."""

from __future__ import annotations

from autotuner.core.choices import (
    CollectiveAlgorithm,
    CollectiveHierarchy,
    PipelineSchedule,
    Precision,
    RankPlacement,
    ShardLevel,
)
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from tests.builders import tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import PIPELINE, ddp, fsdp, hsdp, zero

TINY = tiny_model()
TWO_LEVEL = {"collective_hierarchy": CollectiveHierarchy.TWO_LEVEL}
DEALT = {"rank_placement": RankPlacement.CYCLIC}
RINGS = {"collective_algorithm": CollectiveAlgorithm.RING}
TREES = {"collective_algorithm": CollectiveAlgorithm.TREE}
INTERLEAVED = {
    **PIPELINE,
    "pipeline_schedule": PipelineSchedule.INTERLEAVED_1F1B,
    "virtual_stages_per_rank": 2,
}

LAYOUTS = (
    (TINY, ddp(4, **TWO_LEVEL, **TREES, gradient_bucket_bytes=2**14, micro_batch_size=2)),
    (TINY, hsdp(2, 2, **RINGS, **DEALT, micro_batch_size=2)),
)
MORE = (
    (TINY, ddp(4, **TWO_LEVEL, **DEALT, **INTERLEAVED, micro_batch_size=1)),
    (TINY, ddp(4, **TWO_LEVEL, **DEALT, precision=Precision.BF16, fp32_gradient_reduce=True, micro_batch_size=2)),
    (TINY, ddp(4, **TWO_LEVEL, **DEALT, **PIPELINE, micro_batch_size=1)),
    (TINY, fsdp(4, **TWO_LEVEL, micro_batch_size=1)),
    (TINY, fsdp(4, **TWO_LEVEL, **DEALT, reshard_after_forward=True, precision=Precision.BF16, micro_batch_size=2)),
    (TINY, zero(4, **TWO_LEVEL, **RINGS, micro_batch_size=2)),
    (TINY, zero(4, **TWO_LEVEL, shard_level=ShardLevel.GRADIENTS, micro_batch_size=1)),
    (TINY, hsdp(4, 2, **TWO_LEVEL, **TREES, micro_batch_size=1)),
    (TINY, hsdp(2, 4, **TWO_LEVEL, **DEALT, micro_batch_size=1)),
)


@for_each(LAYOUTS, oracle=MORE)
def test_collectives_that_know_their_nodes_train_as_a_single_process_does(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)

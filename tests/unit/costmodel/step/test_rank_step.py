"""Tests of ``autotuner.costmodel.step.rank_step``."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest

from autotuner.core.choices import ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.prediction import StepTime
from autotuner.costmodel.layer.model_work import PartWorks
from autotuner.costmodel.memory.peak import rank_memories
from autotuner.costmodel.stages import fullest_ranks
from autotuner.costmodel.step.rank_step import STEP_FIELDS, RankStep, StepTimeColumns
from autotuner.costmodel.table import columns_of
from tests.builders import big_job


def test_columns_have_the_parts_of_one_step_in_the_same_order() -> None:
    assert [f.name for f in fields(StepTimeColumns)] == [f.name for f in fields(StepTime)]


def test_the_step_is_the_sum_of_every_part() -> None:
    parts = {f.name: np.array([2.0**place, 3.0**place]) for place, f in enumerate(fields(StepTimeColumns))}
    assert StepTimeColumns(**parts).total_s.tolist() == [2.0**13 - 1, (3.0**13 - 1) / 2]


def test_a_total_does_not_depend_on_how_many_rows_there_are_nor_on_whether_it_is_one() -> None:
    source = np.random.default_rng(0)
    parts = {f.name: source.random(1000) for f in fields(StepTimeColumns)}
    together = StepTimeColumns(**parts).total_s
    alone = StepTimeColumns(**{name: values[:1] for name, values in parts.items()}).total_s
    one = StepTime(**{name: float(values[0]) for name, values in parts.items()})
    assert together[0] == alone[0] == one.total_s


SHARED = ("data_parallel_replicate_degree", "data_parallel_shard_degree", "shard_level", "reshard_after_forward")
"""How data-parallel ranks share the model."""

UPDATED = (
    "gradient_bucket_bytes",
    "optimizer_kernel",
    "gradient_sync",
    "sync_sparsity",
    "sync_chunk",
    "sync_top_k",
    "sync_period",
    "sync_sign",
    "sync_decay_permille",
    "payload_precision",
    "gradient_clip",
    "collective_hierarchy",
)
"""How gradients are reduced and what steps with them."""

LAYOUT = Layout(tensor_parallel_degree=4, pipeline_parallel_degree=4, data_parallel_replicate_degree=4)
SHARDED = [
    replace(
        LAYOUT,
        data_parallel_replicate_degree=replicate,
        data_parallel_shard_degree=4 // replicate,
        shard_level=level,
        reshard_after_forward=reshard,
    )
    for replicate, level, reshard in product((1, 2, 4), ShardLevel, (False, True))
]


def blocking_job() -> Job:
    """A stack that uses every choice it has."""
    stack = replace(big_job().stack, tensor_wait_s=1e-4, send_wait_s=1e-4, blocks_sends=True, gathers_logits=True)
    return replace(big_job(), stack=stack)


def test_a_step_is_told_apart_by_every_field_but_those_that_say_how_the_model_is_shared() -> None:
    assert {*STEP_FIELDS, *SHARED, *UPDATED} == {*OPTIONS, "data_parallel_degree", "pipeline_stride"}


@pytest.mark.parametrize("job", [big_job(), blocking_job()])
def test_however_the_model_is_shared_a_rank_computes_and_saves_the_same(job: Job) -> None:
    x = LayoutColumns.from_layouts(SHARDED)
    ranks = fullest_ranks(x, job)
    for table in (RankStep.of(x, job, ranks, PartWorks.of(x, job)), *rank_memories(x, job, ranks)):
        assert all((column == column[0]).all() for column in columns_of(table))

"""Laws that hold for every legal layout of every job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autotuner.core.choices import (
    AttentionKernel,
    ContextExchange,
    Fp8Recipe,
    OptimizerKernel,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, OPTIONS, Layout
from autotuner.core.prediction import Memory, StepTime
from autotuner.core.space import SearchSpace
from autotuner.core.workload import Workload
from autotuner.costmodel.memory.peak import memory
from autotuner.costmodel.memory.weights import owned_elements, weights
from autotuner.costmodel.predict import PredictionColumns, predict
from autotuner.costmodel.shared.stages import slowest_candidates
from autotuner.costmodel.shared.table import row
from autotuner.search.space.legal import legal_layouts
from tests.properties.strategies import jobs

WIDE = SearchSpace(
    context_parallel_degree=None,
    pipeline_schedule=tuple(PipelineSchedule),
    shard_level=tuple(ShardLevel),
    attention_kernel=tuple(AttentionKernel),
    precision=tuple(Precision),
    fused_norm=(False, True),
)

FURTHER: Mapping[str, tuple[Any, ...]] = {
    "first_stage_less_layers": (0, 1),
    "last_stage_less_layers": (0, 1, 2),
    "loss_parallel": (True, False),
    "async_tensor_parallel": (False, True),
    "context_exchange": tuple(ContextExchange),
    "recompute_every": (1, 2),
    "gradient_bucket_bytes": (DEFAULT_BUCKET_BYTES, 2**10),
    "fp32_gradient_reduce": (False, True),
    "fp8_recipe": tuple(Fp8Recipe),
    "compiled": (False, True),
    "optimizer_kernel": tuple(OptimizerKernel),
    "offload_activations": (False, True),
}
"""Fields of which a space names one value."""


CHOSEN = ("pipeline_schedule", "shard_level", "recompute", "attention_kernel", "precision")
"""Fields of which a space has one drawn value beside an ordinary one: all of all would be a space of a million."""


def some_rows(job: Job, data: st.DataObject, *further: str, **only: tuple[Any, ...]) -> LayoutColumns:
    """Up to 50 legal layouts of the job, which also differ in a few further fields, in some of them as told."""
    names = further or tuple(data.draw(st.lists(st.sampled_from(sorted(FURTHER)), max_size=3, unique=True)))
    drawn: dict[str, Any] = {name: FURTHER[name] for name in names}
    ordinary = replace(Layout(), attention_kernel=job.cluster.accelerator.attention_kernels[0])
    for name in CHOSEN:  # a drawn value may suit no layout of the job
        drawn[name] = tuple({data.draw(st.sampled_from(getattr(WIDE, name))), getattr(ordinary, name)})
    layouts = legal_layouts(job, WIDE.with_axes(**(drawn | only)))
    assume(len(layouts) > 0)
    picks = st.lists(st.integers(0, len(layouts) - 1), min_size=1, max_size=50, unique=True)
    return layouts.take(np.array(data.draw(picks)))


@given(jobs, st.data())
def test_parts_are_finite_not_negative_and_sum_to_their_totals(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data)
    predictions = predict(rows, job)
    for index in range(len(rows)):
        one = row(predictions, index)
        seconds = [getattr(one.step_time, f.name) for f in fields(StepTime)]
        sizes = [getattr(one.memory, f.name) for f in fields(Memory) if f.name != "worst_rank"]
        assert all(np.isfinite(value) and value >= 0 for value in (*seconds, *sizes))
        assert predictions.step_time.total_s[index] == one.step_time.total_s
        assert predictions.memory.total_bytes[index] == one.memory.total_bytes
        assert one.step_time.matrix_s > 0
        assert 0 < one.mfu <= one.hfu
        assert one.precision_utilization is not None
        assert 0 < one.precision_utilization <= 1


@given(jobs, st.data())
def test_a_row_does_not_depend_on_its_neighbours(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data)
    alone = predict(rows.take(slice(0, 1)), job)
    assert row(alone, 0) == row(predict(rows, job), 0)


@given(jobs, st.data())
def test_combinations_of_a_table_and_their_rows_give_the_table(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data)
    names = data.draw(st.lists(st.sampled_from(tuple(OPTIONS)), min_size=1, unique=True))
    few, which = rows.distinct(*names)
    assert len(few) <= len(rows)
    assert all(np.array_equal(getattr(few, name)[which], getattr(rows, name)) for name in names)


@given(jobs, st.data())
def test_a_norm_that_is_not_fused_never_saves_time_or_memory(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data)
    fused, plain = (predict(rows.only(*OPTIONS, fused_norm=np.full(len(rows), f)), job) for f in (True, False))
    # of pipeline ranks whose passes tie, the one whose parts are told may change, and with it what follows the passes
    piped = rows.pipeline_parallel_degree > 1
    # 1e-12: rounding of sums of other parts
    assert np.all((fused.step_time.total_s <= plain.step_time.total_s * (1 + 1e-12)) | piped)
    assert np.all(fused.memory.total_bytes <= plain.memory.total_bytes * (1 + 1e-12))


@given(jobs, st.data())
def test_the_worst_stage_is_a_stage_and_nobody_is_worse(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data)
    worst = memory(rows, job).worst_rank
    assert np.all((worst >= 0) & (worst < rows.pipeline_parallel_degree))


@given(jobs, st.data())
def test_recomputing_everything_never_keeps_more_and_never_takes_less(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data)
    rows = rows.only(*OPTIONS, offload_activations=np.zeros(len(rows), dtype=bool))  # what is kept is sent
    plain = rows.only(*OPTIONS, recompute=np.full(len(rows), Recompute.NONE, dtype=np.int8))
    again = rows.only(*OPTIONS, recompute=np.full(len(rows), Recompute.FULL, dtype=np.int8))
    plain, again = (r.only(*OPTIONS, recompute_every=np.ones_like(rows.recompute_every)) for r in (plain, again))
    lone_layer = job.model.num_layers // rows.pipeline_parallel_degree < 2
    less, more = predict(again, job), predict(plain, job)
    assert np.all(less.step_time.total_s >= more.step_time.total_s)
    # a rank with a single layer rebuilds all it would have kept, and keeps its input besides
    # 1e-12, rounding: where the optimizer's step is the peak of both, the same total is the sum of other parts
    assert np.all((less.memory.total_bytes <= more.memory.total_bytes * (1 + 1e-12)) | lone_layer)


@given(jobs, st.data())
def test_all_ranks_together_own_every_parameter_once(job: Job, data: st.DataObject) -> None:
    """With parameters sharded, over one pipeline rank: shares times ranks is the model, final norm aside."""
    job = replace(job, stack=replace(job.stack, shards_whole_experts=False))  # else some ranks own fewer
    rows = some_rows(job, data, pipeline_parallel_degree=(1,), shard_level=(ShardLevel.PARAMETERS,))
    (first, *_) = slowest_candidates(rows, job)
    owned = owned_elements(rows, job, weights(rows, job, first)) * rows.world_size / rows.data_parallel_replicate_degree
    final_norm = job.model.hidden_size * {"layernorm": 2, "layernorm_without_weights": 0}.get(job.model.norm, 1)
    # quotients and products of the same numbers, rounded
    assert owned == pytest.approx(np.full(len(rows), job.model.num_parameters - final_norm), rel=1e-9)


@given(jobs, st.data())
def test_twice_the_batch_never_takes_less_time(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data)
    workload = job.workload
    twice = Workload(seq_len=workload.seq_len, global_batch_size=2 * workload.global_batch_size)
    assert np.all(predict(rows, replace(job, workload=twice)).step_time.total_s >= predict(rows, job).step_time.total_s)


def both(rows: LayoutColumns, job: Job, name: str, less: Any, more: Any) -> tuple[PredictionColumns, PredictionColumns]:
    """Predictions of the same rows with one value of a field and with another."""
    column = getattr(rows, name)
    before, after = (predict(rows.only(*OPTIONS, **{name: np.full_like(column, value)}), job) for value in (less, more))
    return before, after


@given(jobs, st.data())
def test_the_compiler_never_lengthens_what_moves_memory_or_waits_for_launches(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data, "compiled")
    eager, compiled = both(rows, job, "compiled", False, True)
    # of pipeline ranks whose passes tie, the one whose parts are told may change
    lone = rows.pipeline_parallel_degree == 1
    assert np.all((compiled.step_time.pointwise_s <= eager.step_time.pointwise_s * (1 + 1e-12)) | ~lone)  # rounding
    assert np.all(compiled.memory.total_bytes <= eager.memory.total_bytes * (1 + 1e-12))


@given(jobs, st.data())
def test_offloading_trades_memory_for_the_link_to_the_host(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data, "offload_activations")
    here, away = both(rows, job, "offload_activations", False, True)
    assert np.all(here.step_time.offload_s == 0.0)
    # rounding of sums of other parts
    assert np.all(away.step_time.total_s >= here.step_time.total_s * (1 - 1e-12))
    assert np.all(away.memory.total_bytes <= here.memory.total_bytes * (1 + 1e-12))


@given(jobs, st.data())
def test_gathered_logits_and_wider_sums_and_more_passes_never_save_time_or_memory(
    job: Job, data: st.DataObject
) -> None:
    rows = some_rows(job, data)
    dearer = (("loss_parallel", True, False), ("optimizer_kernel", 0, 1), ("fp32_gradient_reduce", False, True))
    for name, cheap, dear in dearer:
        less, more = both(rows, job, name, cheap, dear)
        # of pipeline ranks, the one whose passes are slowest is told, with the sums of its own gradients: it may change
        lone = rows.pipeline_parallel_degree == 1
        assert np.all((more.step_time.total_s >= less.step_time.total_s * (1 - 1e-12)) | ~lone), name  # rounding
        if name == "fp32_gradient_reduce":  # the optimizer need not widen what is fp32 already: its step needs less
            assert np.all(more.memory.gradients_bytes >= less.memory.gradients_bytes)
        else:
            assert np.all(more.memory.total_bytes >= less.memory.total_bytes * (1 - 1e-12)), name


@given(jobs, st.data())
def test_layers_that_do_not_recompute_take_no_more_time_and_keep_no_less(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data, "recompute_every")
    every, some = both(rows, job, "recompute_every", 1, 2)
    lone = rows.pipeline_parallel_degree == 1  # stages that recompute unequal shares wait for one another
    assert np.all((some.step_time.total_s <= every.step_time.total_s * (1 + 1e-12)) | ~lone)  # rounding
    assert np.all(some.hfu * some.step_time.total_s <= every.hfu * every.step_time.total_s * (1 + 1e-12))


@given(jobs, st.data())
def test_async_tensor_parallelism_never_exposes_more(job: Job, data: st.DataObject) -> None:
    rows = some_rows(job, data, "async_tensor_parallel", "compiled")
    between, under = both(rows, job, "async_tensor_parallel", False, True)
    lone = rows.pipeline_parallel_degree == 1
    exposed, rest = between.step_time.tensor_communication_s, under.step_time.tensor_communication_s
    assert np.all((rest <= exposed * (1 + 1e-12)) | ~lone)  # rounding

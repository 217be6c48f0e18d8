"""The best layouts by prediction alone."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Prediction
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.trial import TRIAL_RULES
from autotuner.core.space import SearchSpace
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import CHUNK, predict, predict_one
from autotuner.search.ranking import best_predicted
from autotuner.search.space import legal_layouts
from tests.builders import big_job, llama_70b, tiny_job, tiny_space

BUCKETS = tuple(2**power for power in range(20, 30))


def eight_gpus() -> Job:
    return replace(
        big_job(num_nodes=1), model=llama_70b(num_layers=20), workload=Workload(seq_len=8192, global_batch_size=64)
    )


def with_memory(job: Job, memory_bytes: int) -> Job:
    cluster = job.cluster
    return replace(job, cluster=replace(cluster, accelerator=replace(cluster.accelerator, memory_bytes=memory_bytes)))


def expected(one: Prediction) -> float:
    """What a run reaches on average: nothing, if it does not fit."""
    assert one.fit_probability is not None
    return one.mfu * one.fit_probability


def test_rows_fit_and_fall_in_expected_mfu() -> None:
    table = best_predicted(big_job(), limit=20)
    assert len(table.rows) == 20
    assert all(row.prediction.fits for row in table.rows)
    values = [expected(row.prediction) for row in table.rows]
    assert values == sorted(values, reverse=True)


def test_the_first_row_surely_fits_where_it_is_as_fast_as_one_that_may_not() -> None:
    """Parameters that are given away after each forward pass cost this job little, and leave room for others."""
    job = eight_gpus()
    tight = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS, recompute=Recompute.FULL)
    memory_bytes = int(1.03 * predict_one(tight, job).memory.total_bytes)
    job = with_memory(job, memory_bytes)
    before, after = predict_one(tight, job), predict_one(replace(tight, reshard_after_forward=True), job)
    assert 0.98 * before.mfu < after.mfu < before.mfu
    assert expected(before) < 0.7 * before.mfu < 0.95 * after.mfu < expected(after)
    space = SearchSpace(
        tensor_parallel_degree=(1,),
        pipeline_parallel_degree=(1,),
        data_parallel_shard_degree=(8,),
        shard_level=(ShardLevel.PARAMETERS,),
        recompute=(Recompute.FULL,),
        micro_batch_size=(1,),
    )
    first, second = best_predicted(job, space).rows
    assert (first.layout.reshard_after_forward, second.layout.reshard_after_forward) == (True, False)


def test_the_best_layout_that_keeps_the_mathematics_stands_beside_rows_that_all_change_them() -> None:
    space = SearchSpace(precision=(Precision.BF16, Precision.FP8), compiled=(True,))
    table = best_predicted(big_job(), space, limit=3)
    assert {row.layout.precision for row in table.rows} == {Precision.FP8}
    (best,) = best_predicted(big_job(), space.with_axes(precision=(Precision.BF16,)), limit=1).rows
    assert table.unchanged == best
    assert best_predicted(big_job(), limit=3).unchanged is None


def test_where_nothing_fits_the_layout_with_the_smallest_peak_is_the_nearest() -> None:
    job = with_memory(big_job(), 1_000_000_000)
    table = best_predicted(job)
    assert (table.num_fitting, table.rows, table.unchanged) == (0, (), None)
    assert table.nearest is not None
    assert table.nearest.prediction.memory.total_bytes == predict(legal_layouts(job), job).memory.total_bytes.min()
    assert best_predicted(big_job()).nearest is None


def test_a_row_carries_its_own_prediction() -> None:
    first, *_ = best_predicted(big_job(), limit=1).rows
    assert first.prediction == predict_one(first.layout, big_job())


def test_the_first_row_is_the_best_of_the_whole_space() -> None:
    job = big_job()
    predictions = predict(legal_layouts(job), job)
    (first,) = best_predicted(job, limit=1).rows
    assert expected(first.prediction) == (predictions.mfu * predictions.fit_probability)[predictions.fits].max()


def test_counts_say_how_many_are_legal_and_how_many_fit() -> None:
    job = big_job()
    predictions = predict(legal_layouts(job), job)
    table = best_predicted(job)
    assert (table.num_legal, table.num_fitting) == (len(predictions), int(predictions.fits.sum()))
    assert 0 < table.num_fitting < table.num_legal


def test_the_same_question_gets_the_same_answer() -> None:
    assert best_predicted(tiny_job(2), tiny_space()) == best_predicted(tiny_job(2), tiny_space())


def test_what_does_not_fit_is_counted_and_not_shown() -> None:
    job = tiny_job(2, model=llama_70b())
    table = best_predicted(job, tiny_space())
    assert table.num_legal > 0
    assert (table.num_fitting, table.rows) == (0, ())


def test_an_empty_space_is_an_empty_table() -> None:
    table = best_predicted(tiny_job(2), SearchSpace(tensor_parallel_degree=(3,)))
    assert (table.num_legal, table.num_fitting, table.rows) == (0, 0, ())


def test_a_sweeps_rules_leave_what_a_trial_can_run() -> None:
    space = SearchSpace(pipeline_schedule=(PipelineSchedule.ZERO_BUBBLE,), compiled=(False, True))
    tried = best_predicted(big_job(), space, rules=(*RULES, *TRIAL_RULES))
    assert 0 < tried.num_legal < best_predicted(big_job(), space).num_legal


def test_the_best_of_several_chunks_are_those_of_the_whole_table() -> None:
    """Also where several have the same expected MFU: then the smaller peak counts, then the space's order."""
    job, space = big_job(), SearchSpace(pipeline_schedule=tuple(PipelineSchedule), gradient_bucket_bytes=BUCKETS)
    layouts = legal_layouts(job, space)
    assert len(layouts) > CHUNK
    whole = predict(layouts, job)
    rows = [row for row in range(len(layouts)) if whole.fits[row]]
    value = whole.mfu * whole.fit_probability
    rows.sort(key=lambda row: (-value[row], whole.memory.total_bytes[row], row))
    table = best_predicted(job, space, limit=25)
    assert (table.num_legal, table.num_fitting) == (len(layouts), len(rows))
    assert [row.layout for row in table.rows] == [layouts.row(row) for row in rows[:25]]

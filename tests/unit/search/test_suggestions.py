from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.space import SearchSpace
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.search.ranking import PredictedLayout, best_predicted
from autotuner.search.suggestions import Shortfall, Unsearched, current_beside, shortfall, unsearched
from tests.builders import big_job, h100_cluster, llama_70b, tiny_job, tiny_space

# ---------------------------------------------------------------- What runs today beside the best
TODAY = Layout.parse("dp2 tp8 pp4 mb1 sp")


def row(layout: Layout, job: Job) -> PredictedLayout:
    return PredictedLayout(layout=layout, prediction=predict_one(layout, job))


def test_the_gain_is_the_rate_of_the_better_layout_over_that_of_today() -> None:
    job = big_job()
    best = row(replace(TODAY, compiled=True), job)
    current = current_beside(TODAY, job, best=best, unchanged=None)
    assert current.predicted is not None
    assert current.predicted.prediction == predict_one(TODAY, job)
    assert current.best is not None
    ratio = best.prediction.tokens_per_s / predict_one(TODAY, job).tokens_per_s
    assert current.best.gain == pytest.approx(ratio - 1)
    assert (current.best.change, current.unchanged) == ("compiled off → on", None)


def test_without_a_row_there_is_nothing_to_gain() -> None:
    current = current_beside(TODAY, big_job(), best=None, unchanged=None)
    assert (current.best, current.unchanged) == (None, None)
    assert current.predicted is not None


def test_what_breaks_a_rule_has_its_reasons_and_no_prediction() -> None:
    job, impossible = big_job(), Layout.parse("tp3 mb1")
    current = current_beside(impossible, job, best=row(TODAY, job), unchanged=None)
    assert current.reasons == reasons(impossible, job) != ()
    assert (current.predicted, current.best) == (None, None)


# ---------------------------------------------------------------- shortfall
def found(job: Job, space: SearchSpace) -> Shortfall:
    nearest = best_predicted(job, space).nearest
    assert nearest is not None
    return shortfall(nearest, job, space)


def on_one_node(**changes: int) -> Job:
    workload = Workload(seq_len=8192, global_batch_size=64)
    return Job(model=llama_70b(**changes), cluster=h100_cluster(num_nodes=1), workload=workload)


def just_too_large(job: Job, space: SearchSpace, share: float) -> Job:
    """The job on accelerators with that share of the memory that the smallest layout of the space needs."""
    tiny_memory = with_memory(job, 1)
    nearest = best_predicted(tiny_memory, space).nearest
    assert nearest is not None
    return with_memory(job, int(share * nearest.prediction.memory.total_bytes))


def with_memory(job: Job, memory_bytes: int) -> Job:
    accelerator = replace(job.cluster.accelerator, memory_bytes=memory_bytes)
    return replace(job, cluster=replace(job.cluster, accelerator=accelerator))


def test_what_the_nearest_layout_lacks_is_its_peak_less_the_memory() -> None:
    job = on_one_node()
    lacks = found(job, SearchSpace())
    peak_bytes = lacks.nearest.prediction.memory.total_bytes
    assert lacks.missing_bytes == peak_bytes - job.cluster.accelerator.memory_bytes > 0


def test_full_recomputation_is_a_remedy_where_it_was_not_searched() -> None:
    space = SearchSpace(recompute=(Recompute.NONE,))
    lacks = found(just_too_large(on_one_node(num_layers=16), space, 0.98), space)
    by_change = {remedy.change: remedy for remedy in lacks.remedies}
    assert by_change["full recomputation"].candidate.layout.recompute == Recompute.FULL
    assert all(remedy.missing_bytes == 0 and remedy.candidate.prediction.fits for remedy in lacks.remedies)
    rates = [remedy.candidate.prediction.tokens_per_s for remedy in lacks.remedies]
    assert rates == sorted(rates, reverse=True)


def test_smaller_moments_of_the_optimizer_are_a_remedy() -> None:
    lacks = found(just_too_large(on_one_node(), SearchSpace(), 0.98), SearchSpace())
    assert "AdamW's moments in bf16" in {remedy.change for remedy in lacks.remedies}


def test_where_no_change_is_enough_all_together_say_what_is_still_missing() -> None:
    job = on_one_node()
    (together,) = found(with_memory(job, 20_000_000_000), SearchSpace()).remedies
    assert together.change == "any split of the ranks, activations offloaded to the host, AdamW's moments in bf16"
    peak_bytes = together.candidate.prediction.memory.total_bytes
    assert together.missing_bytes == peak_bytes - 20_000_000_000 > 0


def test_the_smallest_cluster_of_the_same_accelerators_is_named_with_its_best_layout() -> None:
    larger = found(on_one_node(), SearchSpace()).larger
    assert larger is not None
    assert (larger.accelerators_per_node, larger.num_nodes > 1) == (8, True)
    assert larger.best.layout.world_size == larger.num_nodes * 8
    assert larger.best.prediction.fits


def test_a_node_is_filled_before_there_are_more() -> None:
    job = Job(
        model=llama_70b(num_layers=8),
        cluster=h100_cluster(num_nodes=1, accelerators_per_node=1),
        workload=Workload(seq_len=8192, global_batch_size=64),
    )
    larger = found(job, SearchSpace()).larger
    assert larger is not None
    assert (larger.num_nodes, larger.accelerators_per_node in (2, 4, 8)) == (1, True)


def test_no_cluster_is_named_where_none_is_enough() -> None:
    job = with_memory(tiny_job(), 1000)
    assert found(job, tiny_space()).larger is None


# ---------------------------------------------------------------- unsearched
def best(job: Job, space: SearchSpace) -> PredictedLayout:
    return best_predicted(job, space, limit=1).rows[0]


def unsearched_found(job: Job, space: SearchSpace) -> tuple[Unsearched, ...]:
    return unsearched(best(job, space), job, space)


def test_an_option_outside_the_space_is_named_with_what_it_saves() -> None:
    job, space = big_job(), SearchSpace(pipeline_parallel_degree=(8,))
    first = best(job, space)
    for one in unsearched_found(job, space):
        assert not reasons(one.layout, job)
        assert one.prediction == predict_one(one.layout, job)
        assert one.saved_share == 1 - one.prediction.step_time.total_s / first.prediction.step_time.total_s > 0
    assert "compiled off → on" in {one.change for one in unsearched_found(job, space)}


def test_what_saves_most_comes_first() -> None:
    shares = [one.saved_share for one in unsearched_found(big_job(), SearchSpace(pipeline_parallel_degree=(8,)))]
    assert len(shares) > 1
    assert shares == sorted(shares, reverse=True)


def test_values_that_the_space_holds_are_not_named() -> None:
    space = SearchSpace(pipeline_parallel_degree=(8,))
    searched = unsearched_found(big_job(), space.with_axes(compiled=(False, True)))
    assert any("compiled" in one.change for one in unsearched_found(big_job(), space))
    assert searched
    assert not any("compiled" in one.change for one in searched)


def test_what_the_software_does_not_have_is_not_named() -> None:
    job, space = big_job(), SearchSpace(pipeline_parallel_degree=(8,))
    schedules = (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED_1F1B)
    plain = replace(job, stack=replace(job.stack, compiles=False, pipeline_schedules=schedules))
    for one in unsearched_found(plain, space):
        assert not one.layout.compiled
        assert one.layout.pipeline_schedule in schedules

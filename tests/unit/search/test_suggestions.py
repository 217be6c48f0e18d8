from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.field_change import FieldChange
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.space import SearchSpace
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.search.predicted_ranking import PredictedLayout, best_predicted
from autotuner.search.space.moves import Alternative
from autotuner.search.suggestions import RemedyKind, Shortfall, current_beside, shortfall, unsearched
from tests.builders import big_job, h100_cluster, llama_70b, present, tiny_job, tiny_space

# ---------------------------------------------------------------- What runs today beside the best
TODAY = Layout.parse("dp2 tp8 pp4 mb1 sp")


def row(layout: Layout, job: Job) -> PredictedLayout:
    return PredictedLayout(layout=layout, prediction=predict_one(layout, job))


def test_the_layout_in_use_is_compared_with_the_best_if_both_can_run() -> None:
    job = big_job()
    best = row(replace(TODAY, compiled=True), job)
    current = current_beside(TODAY, job, best=best, unchanged=None)
    assert present(current.candidate).prediction == predict_one(TODAY, job)
    assert current.best is not None
    ratio = best.prediction.tokens_per_s / predict_one(TODAY, job).tokens_per_s
    assert current.best.gain == pytest.approx(ratio - 1)
    assert ([one.field for one in current.best.changes], current.unchanged) == (["compiled"], None)
    current = current_beside(TODAY, big_job(), best=None, unchanged=None)
    assert (current.best, current.unchanged) == (None, None)
    assert current.candidate is not None
    job, impossible = big_job(), Layout.parse("tp3 mb1")
    current = current_beside(impossible, job, best=row(TODAY, job), unchanged=None)
    assert current.reasons == reasons(impossible, job) != ()
    assert (current.candidate, current.best) == (None, None)


# ---------------------------------------------------------------- shortfall
def found(job: Job, space: SearchSpace) -> Shortfall:
    nearest = present(best_predicted(job, space).nearest)
    return shortfall(nearest, job, space)


def on_one_node(**changes: int) -> Job:
    workload = Workload(seq_len=8192, global_batch_size=64)
    return Job(model=llama_70b(**changes), cluster=h100_cluster(num_nodes=1), workload=workload)


def just_too_large(job: Job, space: SearchSpace, share: float) -> Job:
    """The job on accelerators with that share of the memory that the smallest layout of the space needs."""
    tiny_memory = with_memory(job, 1)
    nearest = present(best_predicted(tiny_memory, space).nearest)
    return with_memory(job, int(share * nearest.prediction.memory.total_bytes))


def with_memory(job: Job, memory_bytes: int) -> Job:
    accelerator = replace(job.cluster.accelerator, memory_bytes=memory_bytes)
    return replace(job, cluster=replace(job.cluster, accelerator=accelerator))


def test_the_missing_memory_is_stated_with_the_smallest_sufficient_cluster() -> None:
    job = on_one_node()
    lacks = found(job, SearchSpace())
    peak_bytes = lacks.nearest.prediction.memory.total_bytes
    assert lacks.missing_bytes == peak_bytes - job.cluster.accelerator.memory_bytes > 0
    larger = present(lacks.larger)
    assert (larger.accelerators_per_node, larger.num_nodes > 1) == (8, True)
    assert larger.best.layout.world_size == larger.num_nodes * 8
    assert larger.best.prediction.fits
    job = Job(
        model=llama_70b(num_layers=8),
        cluster=h100_cluster(num_nodes=1, accelerators_per_node=1),
        workload=Workload(seq_len=8192, global_batch_size=64),
    )
    larger = present(found(job, SearchSpace()).larger)
    assert (larger.num_nodes, larger.accelerators_per_node in (2, 4, 8)) == (1, True)
    job = with_memory(tiny_job(), 1000)
    assert found(job, tiny_space()).larger is None


def test_remedies_are_options_that_were_not_searched_or_all_together() -> None:
    space = SearchSpace(recompute=(Recompute.NONE,))
    lacks = found(just_too_large(on_one_node(num_layers=16), space, 0.98), space)
    by_kind = {remedy.kinds: remedy for remedy in lacks.remedies}
    assert by_kind[(RemedyKind.FULL_RECOMPUTATION,)].candidate.layout.recompute == Recompute.FULL
    assert all(remedy.missing_bytes == 0 and remedy.candidate.prediction.fits for remedy in lacks.remedies)
    rates = [remedy.candidate.prediction.tokens_per_s for remedy in lacks.remedies]
    assert rates == sorted(rates, reverse=True)
    lacks = found(just_too_large(on_one_node(), SearchSpace(), 0.98), SearchSpace())
    assert (RemedyKind.BF16_MOMENTS,) in {remedy.kinds for remedy in lacks.remedies}
    job = on_one_node()
    (together,) = found(with_memory(job, 20_000_000_000), SearchSpace()).remedies
    assert together.kinds == (RemedyKind.ANY_SPLIT, RemedyKind.OFFLOADED_ACTIVATIONS, RemedyKind.BF16_MOMENTS)
    peak_bytes = together.candidate.prediction.memory.total_bytes
    assert together.missing_bytes == peak_bytes - 20_000_000_000 > 0


# ---------------------------------------------------------------- unsearched
def best(job: Job, space: SearchSpace) -> PredictedLayout:
    return best_predicted(job, space, limit=1).rows[0]


def unsearched_found(job: Job, space: SearchSpace) -> tuple[Alternative, ...]:
    return unsearched(best(job, space), job, space)


def test_unsearched_options_are_named_by_what_they_save_unless_the_space_or_software_decides() -> None:
    job, space = big_job(), SearchSpace(pipeline_parallel_degree=(8,))
    first, options = best(job, space), unsearched_found(job, space)
    for one in options:
        assert not reasons(one.layout, job)
        assert one.prediction == predict_one(one.layout, job)
        saved_share = 1 - one.prediction.step_time.total_s / first.prediction.step_time.total_s
        assert one.saved_share == pytest.approx(saved_share)
        assert saved_share > 0
    compiled = FieldChange(field="compiled", before=False, after=True)
    assert (compiled,) in {one.changes for one in options}
    shares = [one.saved_share for one in options]
    assert len(shares) > 1
    assert shares == sorted(shares, reverse=True)
    searched = unsearched_found(job, space.with_axes(compiled=(False, True)))
    assert searched
    assert not any(compiled in one.changes for one in searched)
    schedules = (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED_1F1B)
    plain = replace(job, stack=replace(job.stack, compiles=False, pipeline_schedules=schedules))
    for one in unsearched_found(plain, space):
        assert not one.layout.compiled
        assert one.layout.pipeline_schedule in schedules

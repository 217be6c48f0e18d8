"""What is missing where nothing fits, and what would help."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import Recompute
from autotuner.core.job import Job
from autotuner.core.space import SearchSpace
from autotuner.core.workload import Workload
from autotuner.search.advice.shortfall import Shortfall, shortfall
from autotuner.search.ranking import best_predicted
from tests.builders import h100_cluster, llama_70b, tiny_job, tiny_space


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

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.job import Job
from autotuner.core.link import Link
from autotuner.core.workload import Workload
from autotuner.costmodel.uncertainty import PARTS
from autotuner.search.sampler.kinship import MEMORY_REACH, TIME_REACH, Reach, is_same_hardware, kinship
from autotuner.search.sampler.memory_prior import MEMORY_FACTORS
from autotuner.search.sampler.time_prior import COMMON, TIME_FACTORS
from tests.builders import h100, h100_cluster, llama_70b


def job(num_nodes: int = 32, seq_len: int = 4096, **of_cluster: object) -> Job:
    return Job(
        model=llama_70b(),
        cluster=replace(h100_cluster(num_nodes), **of_cluster),  # type: ignore[arg-type]  # the test's business
        workload=Workload(seq_len=seq_len, global_batch_size=256),
    )


def shared(one: Job, other: Job, factor: str) -> float:
    found = kinship([one, other], TIME_FACTORS, TIME_REACH)
    return float(found.factors[TIME_FACTORS.index(factor), 0, 1])


def test_a_job_shares_everything_with_itself() -> None:
    found = kinship([job()], TIME_FACTORS, TIME_REACH)
    assert found.factors.shape == (len(TIME_FACTORS), 1, 1)
    assert (found.factors == 1).all()
    assert (found.residual == 1).all()


@pytest.mark.parametrize("other", [job(2), job(2, 8192), job(63)])
def test_a_layout_of_another_job_shares_only_part_of_its_residual(other: Job) -> None:
    found = kinship([job(32), other], TIME_FACTORS, TIME_REACH)
    assert 0.5 < found.residual[0, 1] < 0.9


@pytest.mark.parametrize("factor", [*PARTS, COMMON])
def test_a_small_job_on_the_same_hardware_shares_most_of_each_factor(factor: str) -> None:
    assert shared(job(32), job(2), factor) > 0.5


def test_other_links_share_less_of_what_they_carry_and_all_of_the_rest() -> None:
    slow = Link(name="slow", bandwidth_bytes_per_s=1e9, latency_s=1e-5)
    other = job(inter_node_link=slow)
    assert shared(job(), other, "data_communication_s") < shared(job(), job(2), "data_communication_s")
    assert shared(job(), other, "matrix_s") == shared(job(), job(2), "matrix_s")
    assert not is_same_hardware(job(), other)


def test_another_accelerator_shares_less_of_what_it_computes() -> None:
    other = job(accelerator=h100(name="h200"))
    for factor in ("matrix_s", COMMON):
        assert shared(job(), other, factor) < shared(job(), job(2), factor)
    assert shared(job(), other, "data_communication_s") == shared(job(), job(2), "data_communication_s")


def test_fewer_accelerators_of_a_kind_are_the_same_hardware() -> None:
    assert is_same_hardware(job(32), job(1))


@pytest.mark.parametrize(("factors", "reach"), [(TIME_FACTORS, TIME_REACH), (MEMORY_FACTORS, MEMORY_REACH)])
def test_kinship_is_a_covariance(factors: tuple[str, ...], reach: Reach) -> None:
    slow = Link(name="slow", bandwidth_bytes_per_s=1e9, latency_s=1e-5)
    jobs = [job(32), job(2), job(2, 8192), job(1), job(8, accelerator=h100(name="h200")), job(4, inter_node_link=slow)]
    found = kinship(jobs, factors, reach)
    for correlation in (*found.factors, found.residual):
        assert correlation == pytest.approx(correlation.T)
        assert np.linalg.eigvalsh(correlation).min() > -1e-9  # rounding


@pytest.mark.parametrize("factor", ["matrix_s", "data_communication_s", COMMON])
def test_another_trainer_shares_less_of_everything(factor: str) -> None:
    trainers = (None, "theirs")
    found = kinship([job(32), job(2)], TIME_FACTORS, TIME_REACH, trainers)
    assert found.factors[TIME_FACTORS.index(factor), 0, 1] < shared(job(32), job(2), factor)


def test_one_job_that_two_trainers_ran_is_two() -> None:
    found = kinship([job(), job()], TIME_FACTORS, TIME_REACH, [None, "theirs"])
    assert found.residual[0, 1] < 0.5

"""The key of a job: equal for sweeps that ask about the same, however they ask."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.jobs.cluster import Cluster
from autotuner.core.jobs.stack import Stack
from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.challenge import Challenge
from autotuner.core.runs.job_key import job_key
from autotuner.core.runs.sweep import Budget
from autotuner.core.runs.trainer import ExportFormat, Trainer
from tests.builders import cpu_cluster, sweep_request, tiny_job, tiny_model


def measured_cluster(rate: float) -> Cluster:
    """A machine whose cores were just measured."""
    cluster = cpu_cluster()
    core = replace(cluster.accelerator, fp32_flop_per_s=rate, bf16_flop_per_s=2 * rate, peak_is_measured=True)
    return replace(cluster, accelerator=core)


def test_space_budget_seed_name_and_challenge_have_no_part_in_it() -> None:
    challenge = Challenge(incumbent=Layout())
    asked = sweep_request(budget=Budget(num_trials=99), seed=5, name="nightly", challenge=challenge, uses_history=False)
    assert job_key(asked) == job_key(sweep_request())


def test_another_model_cluster_or_smaller_cluster_is_another_job() -> None:
    requests = (
        sweep_request(),
        sweep_request(job=tiny_job(model=tiny_model(num_layers=6))),
        sweep_request(job=tiny_job(4)),
        sweep_request(job=tiny_job(4), trial_cluster=cpu_cluster(2)),
    )
    assert len({job_key(request) for request in requests}) == 4


def test_another_trainer_or_stack_is_another_job() -> None:
    trainer = Trainer(name="ours", format=ExportFormat.MEGATRON_LM)
    requests = (
        sweep_request(),
        sweep_request(trainer=trainer),
        sweep_request(job=tiny_job(stack=Stack(name="other"))),
    )
    assert len({job_key(request) for request in requests}) == 3


def test_the_name_of_a_model_and_what_predictions_know_of_a_stack_have_no_part_in_it() -> None:
    renamed = sweep_request(job=tiny_job(model=tiny_model(name="ours"), stack=Stack(matrix_slowdown=1.5)))
    assert job_key(renamed) == job_key(sweep_request())


def test_rates_that_were_measured_to_answer_have_no_part_in_it() -> None:
    first, second = (sweep_request(job=tiny_job(cluster=measured_cluster(rate))) for rate in (100e9, 101e9))
    assert job_key(first) == job_key(second)
    few = (replace(measured_cluster(rate), name="few", accelerators_per_node=1) for rate in (100e9, 101e9))
    smaller = [sweep_request(job=first.job, trial_cluster=cluster) for cluster in few]
    assert len({job_key(request) for request in smaller}) == 1

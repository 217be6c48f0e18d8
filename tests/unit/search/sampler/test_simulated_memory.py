"""A simulated sweep whose layouts hardly fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState, create_trial

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.job import Job
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict
from autotuner.launch.simulation import SCENARIOS, Luck, truth_of
from autotuner.search.sampler.observations import OUT_OF_MEMORY, PEAK_BYTES, STEP_TIME_S, params_of
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from autotuner.search.sampler.propose import EVEN_CHANCE, Proposal
from autotuner.search.space.legal import legal_layouts

JOB = Job(
    model=load_model("llama-3-70b"),
    cluster=load_cluster("h100:64"),
    workload=Workload(seq_len=8192, global_batch_size=512),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A trial of the simulated sweep."""

    proposal: Proposal
    ran_out: bool


def simulated(job: Job, num_trials: int, seed: int) -> Iterator[Tried]:
    """The trials of a sweep, one after the other."""
    layouts = legal_layouts(job)
    predictions = predict(layouts, job)
    sampler = LayoutSampler(layouts, predictions, job=job, seed=seed)
    trials: list[FrozenTrial] = []
    limit_bytes = job.cluster.accelerator.memory_bytes
    while len(trials) < num_trials and (proposal := sampler.propose(trials)) is not None:
        layout = layouts.row(proposal.row)
        spec = TrialSpec(
            trial_id=f"simulated-{len(trials)}",
            model=job.model,
            workload=job.workload,
            layout=layout,
            device="cuda",
            seed=seed,
            memory_bytes=limit_bytes,
            cluster=job.cluster,
            stack=job.stack,
        )
        truth = truth_of(spec, job.cluster, SCENARIOS["plain"], Luck(spec, seed))
        ran_out = truth.peak_bytes > limit_bytes
        told_bytes = truth.peak_bytes - truth.prediction.memory.allowance_bytes
        told = {OUT_OF_MEMORY: True} if ran_out else {STEP_TIME_S: truth.step_time_s, PEAK_BYTES: told_bytes}
        trials.append(
            create_trial(
                state=TrialState.FAIL if ran_out else TrialState.COMPLETE,
                value=None if ran_out else 1.0,  # counts for nothing beside the step time
                params=params_of(layout),
                distributions=sampler.distributions,
                user_attrs=told,
            )
        )
        yield Tried(proposal=proposal, ran_out=ran_out)


def test_at_most_a_tenth_of_twenty_trials_are_long_shots_without_a_reason() -> None:
    tried = list(simulated(JOB, 20, seed=0))
    long_shots = [one.proposal for one in tried if one.proposal.fit_probability < EVEN_CHANCE]
    reasons = [shot.long_shot for shot in long_shots]
    assert len(tried) == 20
    assert len([reason for reason in reasons if reason is None or reason.expected_gain < 0.01]) <= 2
    assert sum(one.ran_out for one in tried) <= 4  # 7 where long shots of little gain come before what will fit

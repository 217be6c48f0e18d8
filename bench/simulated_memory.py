"""How many trials of a simulated sweep run out of memory: what the sampler proposes, and how sure it was of each.

``python -m bench.simulated_memory [--trials N] [--seed N] [--model M] [--cluster C] [--seq-len N] [--global-batch N]``
asks the sampler for one layout after the other, and answers as the simulated engine would. It has no stop for want of
gain, since what a search does once nothing is left to gain is what loses trials to memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState, create_trial

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.job import Job
from autotuner.core.space import SearchSpace
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict
from autotuner.launch.simulation import SCENARIOS, Luck, truth_of
from autotuner.search.sampler.observations import OUT_OF_MEMORY, PEAK_BYTES, STEP_TIME_S, params_of
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from autotuner.search.sampler.propose import EVEN_CHANCE, Proposal
from autotuner.search.space.legal import legal_layouts
from autotuner.service.observing import silence_optuna


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A trial of the simulated sweep."""

    proposal: Proposal
    ran_out: bool
    was_predicted_to_fit: bool
    """Before any trial."""


def simulated(job: Job, num_trials: int, seed: int, space: SearchSpace | None = None) -> Iterator[Tried]:
    """The trials of a sweep, one after the other."""
    layouts = legal_layouts(job, space)
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
        fits = bool(predictions.fits[proposal.row])
        yield Tried(proposal=proposal, ran_out=ran_out, was_predicted_to_fit=fits)


def line(tried: list[Tried]) -> str:
    """The counts of some trials."""
    lost = [one for one in tried if one.ran_out]
    long_shots = [one for one in tried if one.proposal.fit_probability < EVEN_CHANCE]
    return (
        f"{len(tried):4} trials: {len(lost)} ran out of memory ({len(lost) / len(tried):.1%}), "
        f"{sum(not one.was_predicted_to_fit for one in lost)} of them predicted so; "
        f"{len(long_shots)} had less than an even chance to fit"
    )


def main() -> None:
    """Print the counts after 20 trials, after every hundred, and at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="llama-3-70b")
    parser.add_argument("--cluster", default="h100:512")
    parser.add_argument("--seq-len", type=int, default=4096)
    parser.add_argument("--global-batch", type=int, default=2048)
    asked = parser.parse_args()
    silence_optuna()
    job = Job(
        model=load_model(asked.model),
        cluster=load_cluster(asked.cluster),
        workload=Workload(seq_len=asked.seq_len, global_batch_size=asked.global_batch),
    )
    fits = predict(legal_layouts(job), job).fits
    sys.stdout.write(f"{asked.model} on {asked.cluster}: {fits.sum()} of {fits.size} layouts are predicted to fit\n")
    tried: list[Tried] = []
    for one in simulated(job, asked.trials, asked.seed):
        tried.append(one)
        if len(tried) == 20 or len(tried) % 100 == 0:
            sys.stdout.write(line(tried) + "\n")
            sys.stdout.flush()
    if tried and len(tried) % 100:
        sys.stdout.write(line(tried) + "\n")


if __name__ == "__main__":
    main()

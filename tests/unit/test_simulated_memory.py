"""What bench/simulated_memory.py says of a simulated sweep whose layouts hardly fit."""

from __future__ import annotations

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.job import Job
from autotuner.core.workload import Workload
from autotuner.search.sampler.propose import EVEN_CHANCE
from bench.simulated_memory import line, simulated

JOB = Job(
    model=load_model("llama-3-70b"),
    cluster=load_cluster("h100:64"),
    workload=Workload(seq_len=8192, global_batch_size=512),
)


def test_at_most_a_tenth_of_twenty_trials_are_long_shots_without_a_reason() -> None:
    tried = list(simulated(JOB, 20, seed=0))
    long_shots = [one.proposal for one in tried if one.proposal.fit_probability < EVEN_CHANCE]
    reasons = [shot.long_shot for shot in long_shots]
    assert len(tried) == 20
    assert len([reason for reason in reasons if reason is None or reason.expected_gain < 0.01]) <= 2
    assert sum(one.ran_out for one in tried) <= 4  # 7 where long shots of little gain come before what will fit
    assert line(tried).startswith("  20 trials: ")

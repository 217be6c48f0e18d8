"""A search that knows trials of earlier sweeps."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotuner.core.job import Job
from autotuner.core.trial import PastTrial
from autotuner.costmodel.predict import predict, predict_one
from autotuner.search.sampler.observations import STEP_TIME_S, params_of
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from tests.builders import present
from tests.unit.search.tables import JOB, LAYOUTS

PREDICTIONS = predict(LAYOUTS, JOB)
PREDICTED_S = PREDICTIONS.step_time.total_s
DEEPER = replace(JOB, model=replace(JOB.model, name="deeper", num_layers=2 * JOB.model.num_layers))
WORST, BEST = int(np.argmax(PREDICTED_S)), int(np.argmin(PREDICTED_S))


def sampler(past: Sequence[PastTrial]) -> LayoutSampler:
    return LayoutSampler(LAYOUTS, PREDICTIONS, job=JOB, limit_bytes=1e13, past=past)


def ran(row: int, slower: float | None, job: Job = JOB) -> PastTrial:
    """A row's layout that took longer than predicted by this factor, or ran out of memory."""
    layout = LAYOUTS.row(row)
    seconds = None if slower is None else slower * predict_one(layout, job).step_time.total_s
    return PastTrial(job=job, layout=layout, step_time_s=seconds, sweep_id="earlier", finished_at=0.0)


def proposed(proposer: LayoutSampler, trials: Sequence[FrozenTrial] = ()) -> int:
    proposal = present(proposer.propose(trials))
    return proposal.row


def test_layouts_are_tried_by_what_they_took_for_this_job_and_for_other_models() -> None:
    usual = [ran(row, 1.0) for row in range(0, len(LAYOUTS), 2) if row != WORST]
    fast = 0.9 * PREDICTED_S[BEST] / PREDICTED_S[WORST]
    assert proposed(sampler(usual)) != WORST
    assert proposed(sampler([*usual, ran(WORST, fast)])) == WORST
    first = proposed(sampler([]))
    assert proposed(sampler([ran(first, 2.0, DEEPER)])) != first
    good = [ran(row, 1.0, DEEPER) for row in range(0, len(LAYOUTS), 3)]
    first = proposed(sampler(good))
    assert proposed(sampler([*good, ran(WORST, 30.0, DEEPER)])) == first


def test_layouts_that_ran_out_of_memory_before_are_less_likely_to_fit() -> None:
    first = proposed(sampler([]))
    alone = LAYOUTS.take(np.array([first]))
    limit = 1.05 * float(PREDICTIONS.memory.total_bytes[first])
    few = replace(JOB.cluster.accelerator, memory_bytes=int(limit))
    out = replace(ran(first, None), job=replace(JOB, cluster=replace(JOB.cluster, accelerator=few)))
    likely = [LayoutSampler(alone, predict(alone, out.job), job=out.job, past=past).propose([]) for past in ([], [out])]
    assert present(likely[0]).fit_probability > 0.6
    assert likely[1] is None or likely[1].fit_probability < 0.5


def test_the_best_of_earlier_sweeps_is_not_the_value_to_beat() -> None:
    fast = sampler([ran(row, 0.5) for row in range(0, len(LAYOUTS), 3)])
    proposal = present(fast.propose([]))
    assert proposal.expected_gain == float("inf")  # nothing was measured in this sweep


def test_what_is_known_already_leaves_less_to_gain() -> None:
    known = sampler([ran(row, 1.0) for row in range(0, len(LAYOUTS), 3)])
    row = proposed(known)
    trial = create_trial(
        state=TrialState.COMPLETE,
        value=1.0,
        params=params_of(LAYOUTS.row(row)),
        distributions=known.distributions,
        user_attrs={STEP_TIME_S: float(PREDICTED_S[row])},
    )
    gains = [proposal.expected_gain for proposal in (s.propose([trial]) for s in (known, sampler([]))) if proposal]
    assert gains[0] < gains[1]


def test_a_sampler_that_knows_earlier_trials_can_be_pickled() -> None:
    known = sampler([ran(BEST, 1.5)])
    assert proposed(pickle.loads(pickle.dumps(known))) == proposed(known)

"""A search at full size whose trials run small jobs."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotuner.core.choices import PipelineSchedule, Recompute, ShardLevel
from autotuner.core.columns import Floats
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import RULES
from autotuner.core.space import SearchSpace
from autotuner.core.trial import PastTrial
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict, predict_one
from autotuner.search.sampler.observations import FULL_SIZE, OUT_OF_MEMORY, STEP_TIME_S, params_of
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from autotuner.search.sampler.proxies import proxy_trials
from autotuner.search.sampler.transfer import StandIn
from autotuner.search.space.legal import legal_layouts
from tests.builders import big_job, h100_cluster, present

FEW = h100_cluster(2)
JOB = replace(big_job(16), workload=Workload(seq_len=4096, global_batch_size=128))
SPACE = SearchSpace(
    tensor_parallel_degree=(1, 2, 4, 8),
    pipeline_parallel_degree=(1, 2, 4, 8),
    micro_batch_size=(1, 2, 4),
    pipeline_schedule=(PipelineSchedule.ONE_F_ONE_B,),
    virtual_stages_per_rank=(1,),
    shard_level=(ShardLevel.OPTIMIZER,),
    recompute=(Recompute.NONE, Recompute.FULL),
)
SMALL = proxy_trials(JOB, legal_layouts(JOB, SPACE), FEW, RULES)
LAYOUTS = SMALL.layouts
PREDICTIONS = predict(LAYOUTS, JOB)
PREDICTED_S = PREDICTIONS.step_time.total_s


def scale_down(layout: Layout) -> StandIn:
    trial = SMALL.trial_of(layout)
    return StandIn(job=trial.job(JOB, FEW), layout=trial.layout)


def sampler(*, limit_bytes: float = 1e13) -> LayoutSampler:
    return LayoutSampler(LAYOUTS, PREDICTIONS, job=JOB, limit_bytes=limit_bytes, scale_down=scale_down)


def small_s(row: int, slower_tensor: float = 1.0) -> float:
    """What the proxy trial of a row takes where tensor communication takes longer than predicted."""
    stand_in = scale_down(LAYOUTS.row(row))
    step_time = predict_one(stand_in.layout, stand_in.job).step_time
    return step_time.total_s + (slower_tensor - 1) * step_time.tensor_communication_s


def true_s(slower_tensor: float) -> Floats:
    """The same of the rows themselves."""
    seconds: Floats = PREDICTED_S + (slower_tensor - 1) * PREDICTIONS.step_time.tensor_communication_s
    return seconds


def trial(
    proposer: LayoutSampler, row: int, told: dict[str, float | bool], state: TrialState = TrialState.COMPLETE
) -> FrozenTrial:
    return create_trial(
        state=state,
        value=1.0 if state == TrialState.COMPLETE else None,  # counts for nothing beside the step time
        params=params_of(LAYOUTS.row(row)),
        distributions=proposer.distributions,
        user_attrs=dict(told),
    )


def proposed(proposer: LayoutSampler, trials: Sequence[FrozenTrial]) -> int:
    proposal = present(proposer.propose(trials))
    return proposal.row


def searched(proposer: LayoutSampler, num_trials: int, slower_tensor: float) -> list[int]:
    trials: list[FrozenTrial] = []
    rows = []
    for _ in range(num_trials):
        rows.append(proposed(proposer, trials))
        trials.append(trial(proposer, rows[-1], {STEP_TIME_S: small_s(rows[-1], slower_tensor)}))
    return rows


def test_proxy_trials_lead_to_the_best_layout_at_full_size_and_none_is_asked_for_twice() -> None:
    truth = true_s(slower_tensor=6.0)
    assert truth[np.argmin(PREDICTED_S)] > 1.1 * truth.min()  # what is predicted to be best is not
    rows = searched(sampler(), 8, slower_tensor=6.0)
    assert truth[rows].min() < 1.02 * truth.min()
    rows = searched(sampler(), 8, slower_tensor=1.0)
    assert len({*rows}) == len(rows)


def test_proxy_trials_that_were_as_predicted_leave_less_to_gain_and_at_once_differ() -> None:
    proposer, order = sampler(), np.argsort(PREDICTED_S)[:4].tolist()
    trials = [trial(proposer, row, {STEP_TIME_S: small_s(row)}) for row in order]
    gains = [proposer.propose(trials[:count]) for count in (1, 2, 4)]
    values = [gain.expected_gain for gain in gains if gain]
    assert values == sorted(values, reverse=True)
    assert 0 < values[-1] < 0.2
    proposer = sampler()
    done = trial(proposer, 0, {STEP_TIME_S: small_s(0)})
    first = proposed(proposer, [done])
    assert proposed(proposer, [done, trial(proposer, first, {}, TrialState.RUNNING)]) != first


def test_the_value_of_a_proxy_trial_is_not_that_of_its_layout_and_full_ones_count_more() -> None:
    proposer = sampler()
    untold = trial(proposer, 0, {})
    proposal = present(proposer.propose([untold]))
    assert proposal.expected_gain == np.inf
    assert proposal.row != 0
    proposer, best = sampler(), int(np.argmin(PREDICTED_S))
    small = trial(proposer, best, {STEP_TIME_S: small_s(best)})
    full = trial(proposer, best, {STEP_TIME_S: float(PREDICTED_S[best]), FULL_SIZE: True})
    after_small, after_full = proposer.propose([small]), proposer.propose([full])
    assert after_small is not None
    assert after_full is not None
    assert after_full.expected_gain < after_small.expected_gain  # the best is known, and so is its residual


def test_a_proxy_trial_that_ran_out_of_memory_lowers_the_chance_of_the_layouts_like_it() -> None:
    needed = np.sort(PREDICTIONS.memory.total_bytes)
    proposer = sampler(limit_bytes=float(needed[len(needed) // 2]))
    before = present(proposer.propose([]))
    after = present(proposer.propose([trial(proposer, before.row, {OUT_OF_MEMORY: True}, TrialState.FAIL)]))
    assert PREDICTIONS.memory.total_bytes[after.row] < PREDICTIONS.memory.total_bytes[before.row]


def test_a_sampler_that_scales_down_can_be_saved() -> None:
    proposer = sampler()
    trials = [trial(proposer, 3, {STEP_TIME_S: small_s(3)})]
    again = pickle.loads(pickle.dumps(proposer))  # our own bytes
    assert proposed(again, trials) == proposed(proposer, trials)


@pytest.mark.parametrize("row", [0, 5])
def test_a_negative_step_time_of_a_proxy_trial_is_refused(row: int) -> None:
    proposer = sampler()
    with pytest.raises(ValueError, match="step_time_s"):
        proposer.propose([trial(proposer, row, {STEP_TIME_S: -1.0})])


def test_proxy_trials_and_those_of_earlier_sweeps_are_evidence_together() -> None:
    small = scale_down(LAYOUTS.row(3))
    seconds = 1.5 * predict_one(small.layout, small.job).step_time.total_s
    earlier = PastTrial(job=small.job, layout=small.layout, step_time_s=seconds, sweep_id="earlier", finished_at=0.0)
    informed = LayoutSampler(LAYOUTS, PREDICTIONS, job=JOB, limit_bytes=1e13, scale_down=scale_down, past=[earlier])
    row = proposed(informed, [])
    trials = [trial(informed, row, {STEP_TIME_S: small_s(row)})]
    assert proposed(informed, trials) != row
    assert proposed(informed, [*trials, trial(informed, 5, {STEP_TIME_S: small_s(5)})]) not in (row, 5)

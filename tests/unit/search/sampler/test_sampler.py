from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotuner.core.choices import AttentionKernel, ShardLevel
from autotuner.core.codec import from_plain
from autotuner.core.columns import LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.objective import Metric
from autotuner.core.prediction import FullSizeEstimate
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict, predict_one
from autotuner.costmodel.resource_cost import predicted_resource_costs
from autotuner.search.sampler.full_size import FullSize, ProxyResult
from autotuner.search.sampler.gaussian_model import Estimate
from autotuner.search.sampler.observations import (
    OUT_OF_MEMORY,
    PEAK_BYTES,
    STEP_TIME_S,
    Evidence,
    EvidenceReader,
    params_of,
)
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from autotuner.search.sampler.pareto import log_expected_volume_gain, non_dominated
from autotuner.search.sampler.priors import MemoryTrial
from autotuner.search.sampler.propose import FrontFactors, Proposal, log_expected_entry, propose
from autotuner.search.sampler.transfer import ProxyRun
from tests.builders import h100_cluster, llama_70b, present
from tests.unit.search.sampler.test_propose import NOTHING, NUM_ROWS, after, beliefs
from tests.unit.search.tables import BIG_JOB, BIG_LAYOUTS, JOB, LAYOUTS, predictions, sampler

# ---------------------------------------------------------------- full size
TARGET = Job(model=llama_70b(), cluster=h100_cluster(32), workload=Workload(seq_len=4096, global_batch_size=256))
SMALL = Job(
    model=replace(llama_70b(), num_layers=20),
    cluster=h100_cluster(2),
    workload=Workload(seq_len=4096, global_batch_size=64),
)


def layout(*, replicas: int, pipeline: int, tensor: int = 4) -> Layout:
    return Layout(
        data_parallel_shard_degree=replicas,
        pipeline_parallel_degree=pipeline,
        tensor_parallel_degree=tensor,
        sequence_parallel=True,
        shard_level=ShardLevel.OPTIMIZER,
        attention_kernel=AttentionKernel.FLASH,
    )


LARGE_LAYOUT, SMALL_LAYOUT = layout(replicas=8, pipeline=8), layout(replicas=2, pipeline=2)
STAND_IN = ProxyRun(job=SMALL, layout=SMALL_LAYOUT)


def full_size(layout: Layout, job: Job, trials: Sequence[ProxyResult]) -> FullSizeEstimate:
    return FullSize(job).estimates([layout], trials)[0]


def proxy_trial(slower: float, *, fits: bool | None = True) -> ProxyResult:
    step_time_s = slower * predict_one(SMALL_LAYOUT, SMALL).step_time.total_s
    return ProxyResult(layout=LARGE_LAYOUT, run=STAND_IN, step_time_s=step_time_s, fits=fits)


def test_without_proxy_trials_estimates_are_predictions_and_those_of_many_are_those_of_each() -> None:
    predicted, estimate = predict_one(LARGE_LAYOUT, TARGET), full_size(LARGE_LAYOUT, TARGET, [])
    assert estimate.step_time_s == pytest.approx(predicted.step_time.total_s)
    assert estimate.relative_error == pytest.approx(predicted.relative_error)
    assert estimate.fit_probability == pytest.approx(predicted.fit_probability)
    assert estimate.peak_bytes == pytest.approx(predicted.memory.total_bytes)
    assert not estimate.measured_parts
    layouts, trials = [LARGE_LAYOUT, layout(replicas=16, pipeline=4)], [proxy_trial(1.2), proxy_trial(1.1)]
    together = FullSize(TARGET).estimates(layouts, trials)
    for one, estimate in zip(layouts, together, strict=True):
        assert full_size(one, TARGET, trials).step_time_s == pytest.approx(estimate.step_time_s)


def test_a_proxy_trial_narrows_the_full_size_and_one_of_the_very_layout_is_an_observation() -> None:
    before, after = full_size(LARGE_LAYOUT, TARGET, []), full_size(LARGE_LAYOUT, TARGET, [proxy_trial(1.2)])
    assert before.step_time_s < after.step_time_s < 1.2 * before.step_time_s
    assert after.relative_error < before.relative_error
    measured_s = 1.3 * predict_one(LARGE_LAYOUT, TARGET).step_time.total_s
    itself = ProxyRun(job=TARGET, layout=LARGE_LAYOUT)
    trial = ProxyResult(layout=LARGE_LAYOUT, run=itself, step_time_s=measured_s)
    estimate = full_size(LARGE_LAYOUT, TARGET, [trial])
    assert estimate.step_time_s == pytest.approx(measured_s, rel=0.01)  # it is known to 1 %, and pulled by the model
    assert estimate.relative_error < 0.015


def test_parts_of_the_step_are_measured_by_a_proxy_trial_of_this_layout_alone() -> None:
    trial = replace(proxy_trial(1.0), measured_parts=("matrix_s", "attention_s", "expert_communication_s"))
    estimate = full_size(LARGE_LAYOUT, TARGET, [trial])
    assert estimate.measured_parts == ("matrix_s", "attention_s")  # it has no experts
    assert {"data_communication_s", "bubble_s"} <= {*estimate.modelled_parts}
    assert not {*estimate.measured_parts} & {*estimate.modelled_parts}
    assert 0.5 < estimate.measured_share < 1.0
    other, trial = layout(replicas=8, pipeline=4, tensor=8), replace(proxy_trial(1.2), measured_parts=("matrix_s",))
    estimate = full_size(other, TARGET, [trial])
    assert estimate.measured_share == 0.0
    assert estimate.step_time_s > predict_one(other, TARGET).step_time.total_s


def test_a_proxy_trial_moves_the_memory_of_the_full_size() -> None:
    trial = ProxyResult(layout=LARGE_LAYOUT, run=STAND_IN, fits=False)
    before, after = full_size(LARGE_LAYOUT, TARGET, []), full_size(LARGE_LAYOUT, TARGET, [trial])
    assert after.peak_bytes > before.peak_bytes
    assert after.fit_probability < before.fit_probability
    assert math.isclose(after.step_time_s, before.step_time_s)
    small = predict_one(SMALL_LAYOUT, SMALL).memory
    peak_bytes = 0.8 * (small.total_bytes - small.allowance_bytes)
    trial = ProxyResult(layout=LARGE_LAYOUT, run=STAND_IN, fits=True, peak_bytes=peak_bytes)
    before, after = full_size(LARGE_LAYOUT, TARGET, []), full_size(LARGE_LAYOUT, TARGET, [trial])
    assert 0.8 * before.peak_bytes < after.peak_bytes < before.peak_bytes


# ---------------------------------------------------------------- layout sampler
ROW_OF = {LAYOUTS.row(row): row for row in range(len(LAYOUTS))}
SLOW_S = np.linspace(1.0, 2.0, len(LAYOUTS))


def study_of(proposer: LayoutSampler) -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=proposer)


def layout_of(trial: optuna.Trial) -> Layout:
    return from_plain(Layout, {name: trial.params[name] for name in OPTIONS})


def run(
    study: optuna.Study, proposer: LayoutSampler, num_trials: int, step_s: Callable[[Layout], float | None]
) -> list[Layout]:
    """Trials that take so long, or run out of memory where there is no time."""
    tried = []
    for _ in range(num_trials):
        trial = study.ask(proposer.distributions)
        tried.append(layout_of(trial))
        seconds = step_s(tried[-1])
        if seconds is None:
            trial.set_user_attr(OUT_OF_MEMORY, True)
            study.tell(trial, state=TrialState.FAIL)
        else:
            trial.set_user_attr(STEP_TIME_S, seconds)
            study.tell(trial, 1.0 / seconds)
    return tried


def as_predicted(layout: Layout) -> float:
    return float(SLOW_S[ROW_OF[layout]])


def test_the_first_proposal_is_the_best_predicted_layout_that_probably_fits() -> None:
    proposer = sampler()
    assert layout_of(study_of(proposer).ask(proposer.distributions)) == LAYOUTS.row(0)
    peaks = np.full(len(LAYOUTS), 1e8)
    peaks[0] = 2.2e9  # a tenth above the limit
    proposer = sampler(peak_bytes=peaks)
    assert layout_of(study_of(proposer).ask(proposer.distributions)) == LAYOUTS.row(1)


@pytest.mark.parametrize(("head_start", "first"), [(1.05, 0), (1.005, 1)])
def test_a_layout_at_the_edge_of_memory_is_tried_first_where_it_is_clearly_fast(head_start: float, first: int) -> None:
    peaks, seconds = np.full(len(LAYOUTS), 1e8), SLOW_S.copy()
    peaks[0] = 1.99e9  # just below the limit: a little better than an even chance
    seconds[0] = seconds[1] / head_start
    proposer = sampler(step_time_s=seconds, peak_bytes=peaks)
    assert layout_of(study_of(proposer).ask(proposer.distributions)) == LAYOUTS.row(first)


def test_every_proposal_is_legal_and_new_until_every_row_was_tried() -> None:
    proposer = sampler()
    tried = run(study_of(proposer), proposer, 20, lambda layout: 1.0)
    assert len(set(tried)) == 20
    assert not any(reasons(layout, JOB, (*RULES, *TRIAL_RULES)) for layout in tried)
    proposer = sampler()
    study = study_of(proposer)
    run(study, proposer, len(LAYOUTS), lambda layout: 1.0)
    assert proposer.propose(study.get_trials()) is None
    assert proposer.remaining_gain(study) == 0.0
    with pytest.raises(ValueError, match="no layout left"):
        study.ask(proposer.distributions)


def test_the_seed_decides_between_equally_good_layouts_and_gives_the_same_proposals_again() -> None:
    traces = [run(study_of(p), p, 10, lambda x: 1.0 + x.micro_batch_size) for p in (sampler(), sampler())]
    assert traces[0] == traces[1]
    equal = np.ones(len(LAYOUTS))
    first = {run(study_of(p), p, 1, as_predicted)[0] for p in (sampler(step_time_s=equal, seed=s) for s in range(10))}
    assert len(first) > 1


def test_rows_that_are_ruled_out_leave_the_seed_of_ties_as_it_was() -> None:
    proposer = sampler(step_time_s=np.ones(len(LAYOUTS)), seed=3)
    proposer.rule_out(np.arange(5))
    proposal = present(proposer.propose([]))
    assert proposal.row == np.random.default_rng([3, 0]).choice(np.arange(5, len(LAYOUTS)))


def test_layouts_that_ran_out_of_memory_or_were_slow_are_avoided_from_then_on() -> None:
    peaks = np.linspace(1.9e9, 0.1e9, len(LAYOUTS))
    proposer = sampler(peak_bytes=peaks)
    study = study_of(proposer)
    died, following = run(study, proposer, 2, lambda layout: None)
    assert peaks[ROW_OF[following]] < peaks[ROW_OF[died]]
    proposer = sampler()
    study = study_of(proposer)
    slow = LAYOUTS.row(0).tensor_parallel_degree
    tried = run(study, proposer, 8, lambda x: 3.0 if x.tensor_parallel_degree == slow else as_predicted(x))
    assert sum(layout.tensor_parallel_degree == slow for layout in tried[4:]) < 2


def test_proposals_asked_for_before_optuna_stores_them_differ() -> None:
    proposer = sampler()
    study = study_of(proposer)
    assert len({layout_of(study.ask(proposer.distributions)) for _ in range(6)}) == 6
    first, second = (study.ask() for _ in range(2))
    assert first.relative_params != second.relative_params


def test_threads_that_ask_at_the_same_moment_are_given_different_layouts() -> None:
    proposer = sampler()
    study = study_of(proposer)
    ready = Barrier(8)

    def ask(trial: optuna.Trial) -> Layout:
        ready.wait()
        return proposer.suggest(trial)

    with ThreadPoolExecutor(8) as pool:
        asked = list(pool.map(ask, [study.ask() for _ in range(8)]))
    assert len(set(asked)) == 8


def test_a_sampler_can_be_saved_and_goes_on_where_it_was() -> None:
    proposer = sampler()
    study = study_of(proposer)
    run(study, proposer, 3, as_predicted)
    restored: LayoutSampler = pickle.loads(pickle.dumps(proposer))
    assert restored.propose(study.get_trials()) == proposer.propose(study.get_trials())


def test_a_proposal_is_worked_out_once_for_the_same_trials_and_enqueued_ones_count() -> None:
    proposer = sampler()
    study = study_of(proposer)
    run(study, proposer, 2, as_predicted)
    proposal = proposer.propose(study.get_trials())
    assert proposal is proposer.propose(study.get_trials())
    run(study, proposer, 1, as_predicted)
    assert proposal is not proposer.propose(study.get_trials())
    proposer = sampler()
    study = study_of(proposer)
    study.enqueue_trial(params_of(LAYOUTS.row(0)))
    proposal = present(proposer.propose(study.get_trials()))
    assert proposal.row != 0


def test_the_remaining_gain_is_everything_at_first_and_falls() -> None:
    proposer = sampler()
    assert proposer.remaining_gain(study_of(proposer)) == float("inf")
    study = study_of(proposer)
    gains = []
    for _ in range(3):
        run(study, proposer, 6, as_predicted)
        gains.append(proposer.remaining_gain(study))
    assert gains[0] > gains[1] > gains[2] > 0


def test_an_optimization_ends_when_less_is_left_to_gain_than_asked_for_or_all_was_tried() -> None:
    proposer = sampler(min_gain=0.01)
    study = study_of(proposer)

    def objective(trial: optuna.Trial) -> float:
        trial.set_user_attr(STEP_TIME_S, as_predicted(proposer.suggest(trial)))
        return 0.5

    study.optimize(objective, n_trials=len(LAYOUTS), callbacks=[proposer.stop_when_done])
    assert 1 <= len(study.trials) < len(LAYOUTS)
    assert proposer.remaining_gain(study) < 0.01
    proposer = sampler(min_gain=0.0)
    study = study_of(proposer)
    study.optimize(
        lambda trial: 0.4 / proposer.suggest(trial).micro_batch_size,
        n_trials=2 * len(LAYOUTS),
        callbacks=[proposer.stop_when_done],
    )
    assert len(study.trials) == len(LAYOUTS)


def test_a_sampler_refuses_illegal_predictions_and_directions() -> None:
    proposer = sampler()
    with pytest.raises(InvalidInput, match="maximize"):
        optuna.create_study(direction="minimize", sampler=proposer).ask(proposer.distributions)
    with pytest.raises(InvalidInput, match="one prediction for each layout"):
        LayoutSampler(LAYOUTS.take(slice(1, None)), predictions(), job=JOB)
    with pytest.raises(InvalidInput, match="min_gain"):
        LayoutSampler(LAYOUTS, predictions(), job=JOB, min_gain=-0.1)
    with pytest.raises(InvalidInput, match="cost_exponent"):
        LayoutSampler(LAYOUTS, predictions(), job=JOB, cost_exponent=-0.1)


# ---------------------------------------------------------------- observations
ROWS = [Layout(micro_batch_size=size) for size in (1, 2, 4, 4)]  # the last two are the same


def spaces_of(params: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    return {name: CategoricalDistribution([choice]) for name, choice in params.items()}


def read(*trials: FrozenTrial) -> Evidence:
    """MFU x step time is 1 s, 2 s, ... by row; every peak has 10 bytes that cannot be measured."""
    layouts, seconds = LayoutColumns.from_layouts(ROWS), np.arange(1.0, len(ROWS) + 1)
    return EvidenceReader(layouts, value_per_step=seconds, allowance_bytes=np.full(len(ROWS), 10.0)).read(trials)


def trial(
    row: int,
    state: TrialState = TrialState.COMPLETE,
    *,
    value: float | None = None,
    told: dict[str, Any] | None = None,
    reported: dict[int, float] | None = None,
) -> FrozenTrial:
    params = params_of(ROWS[row])
    return create_trial(
        state=state,
        value=value,
        params=params,
        distributions=spaces_of(params),
        user_attrs=told,
        intermediate_values=reported,
    )


def test_a_finished_trial_tells_its_step_time_that_it_fits_its_peak_and_its_mfu() -> None:
    evidence = read(trial(1, value=7.0, told={STEP_TIME_S: 4.0}))
    assert evidence.step_time_s == {1: 4.0}
    assert evidence.memory == {1: MemoryTrial(fits=True)}
    assert evidence.best_value == 0.5
    assert read(trial(1, value=0.25)).step_time_s == {1: 8.0}
    evidence = read(trial(0, value=0.5, told={PEAK_BYTES: 90}))
    assert evidence.memory == {0: MemoryTrial(fits=True, peak_bytes=100.0)}
    assert read(trial(0, value=0.2), trial(1, value=0.4), trial(2, value=0.3)).best_value == pytest.approx(0.4)


@pytest.mark.parametrize("value", [0.0, -0.1, math.inf])
def test_a_value_that_is_no_mfu_needs_a_step_time_beside_it(value: float) -> None:
    with pytest.raises(InvalidInput, match=STEP_TIME_S):
        read(trial(0, value=value))


@pytest.mark.parametrize("name", [STEP_TIME_S, PEAK_BYTES])
@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
def test_times_and_sizes_must_be_positive_numbers(name: str, number: float) -> None:
    with pytest.raises(InvalidInput, match=name):
        read(trial(0, value=0.5, told={name: number}))


def test_failed_and_pruned_trials_count_as_tried_and_pruned_ones_tell_their_step_time() -> None:
    evidence = read(trial(0, TrialState.PRUNED, told={STEP_TIME_S: 4.0}))
    assert (evidence.step_time_s, evidence.best_value) == ({0: 4.0}, None)
    assert evidence.memory == {0: MemoryTrial(fits=True)}
    assert read(trial(1, TrialState.PRUNED, reported={0: 0.2, 1: 0.5, 2: 0.5})).step_time_s == {1: 4.0}
    evidence = read(trial(0, TrialState.FAIL))
    assert evidence == Evidence(tried=frozenset({0}), pending=(), step_time_s={}, memory={}, best_value=None)
    assert read(trial(3, value=0.5)).tried == {2, 3}
    params = params_of(Layout(micro_batch_size=16))
    assert not read(create_trial(value=0.5, params=params, distributions=spaces_of(params))).tried
    assert not read(create_trial(value=0.5)).tried


@pytest.mark.parametrize("state", [TrialState.FAIL, TrialState.PRUNED])
def test_a_trial_that_ran_out_of_memory_tells_just_that(state: TrialState) -> None:
    evidence = read(trial(0, state, told={OUT_OF_MEMORY: True}))
    assert (evidence.memory, evidence.step_time_s) == ({0: MemoryTrial(fits=False)}, {})


@pytest.mark.parametrize("state", [TrialState.RUNNING, TrialState.WAITING])
def test_a_trial_that_has_not_ended_is_pending(state: TrialState) -> None:
    evidence = read(trial(1, state))
    assert evidence.pending == (1,)
    assert evidence.tried == {1}


# ---------------------------------------------------------------- front factors
SIMPLICITY = np.linspace(0.1, 1.0, NUM_ROWS)
FACTORS = FrontFactors(
    log_value_per_step=np.log(np.stack([np.full(NUM_ROWS, 0.4), SIMPLICITY], axis=1)), is_rate=np.array([True, False])
)
"""The rows that ``beliefs`` expects to be slower are simpler: all of them are expected on the front."""


def proposed(evidence: Evidence, factors: FrontFactors = FACTORS) -> Proposal:
    belief = replace(beliefs(), front=factors)
    return present(propose(belief, evidence, cost_exponent=0.0, tie_breaker=np.random.default_rng(0)))


def ended(step_time_s: dict[int, float], pending: tuple[int, ...] = ()) -> Evidence:
    return replace(after(step_time_s, pending), completed=frozenset(step_time_s))


def test_the_front_is_tried_from_the_best_on_and_gains_less_the_more_is_known() -> None:
    assert proposed(NOTHING).row == 0
    proposal = proposed(ended({0: 1.0}))
    assert 0.3 < SIMPLICITY[proposal.row] < 0.9  # where the product of both logarithms is largest, not at an end
    assert proposal.expected_gain > 1  # the fastest is the least simple: it dominates hardly anything
    ends = {0: 1.0, NUM_ROWS - 1: 2.0}
    assert 0 < proposed(ended({**ends, NUM_ROWS // 2: 1.5})).expected_gain < proposed(ended(ends)).expected_gain
    first = proposed(ended({0: 1.0}))
    second = proposed(ended({0: 1.0}, pending=(first.row,)))
    assert second.row != first.row
    assert second.expected_gain < first.expected_gain


def test_a_row_that_is_worse_than_all_in_what_is_no_rate_is_still_proposed_in_the_end() -> None:
    all_but_one = dict.fromkeys(range(1, NUM_ROWS), 1.0)
    evidence = Evidence(
        tried=frozenset(all_but_one),
        pending=(),
        step_time_s=all_but_one,
        memory={row: MemoryTrial(fits=True) for row in all_but_one},
        best_value=0.4,
        completed=frozenset(all_but_one),
    )
    proposal = proposed(evidence)
    assert proposal.row == 0
    assert proposal.expected_gain < 0.1


def test_values_per_step_of_rows_are_the_logarithms_of_their_values() -> None:
    layouts = BIG_LAYOUTS.take(np.arange(50))
    predictions = predict(layouts, BIG_JOB)
    resource_costs = predicted_resource_costs(layouts, BIG_JOB, predictions)
    metrics = (Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)
    factors = FrontFactors.of(metrics, BIG_JOB, resource_costs, 50)
    values = np.exp(factors.values(np.arange(50), np.log(predictions.step_time.total_s)))
    assert values[:, 0] == pytest.approx(predictions.mfu)
    energy_j = predictions.step_time.total_s * present(resource_costs.power).total_w
    assert values[:, 1] == pytest.approx(BIG_JOB.workload.tokens_per_step / energy_j)
    assert values[:, 2] == pytest.approx(1 / (1 + resource_costs.complexity))


def test_the_cheap_order_of_large_tables_keeps_what_is_worth_most() -> None:
    generator = np.random.default_rng(0)
    factors = FrontFactors(log_value_per_step=generator.normal(size=(20_000, 3)), is_rate=np.array([True, True, False]))
    times = Estimate(mean=generator.normal(size=20_000), variance=np.full(20_000, 0.04))
    likely = factors.values(np.arange(20_000), times.mean)
    known = np.flatnonzero(non_dominated(likely))[::3].tolist()
    frontier = factors.frontier({row: float(times.mean[row]) for row in known}, np.arange(20_000), times.mean)
    outcomes = factors.outcomes(slice(None), times, 1.0)
    best = np.argsort(-log_expected_volume_gain(outcomes, frontier))[:50]
    kept = np.argsort(-log_expected_entry(outcomes, frontier))[:4096]
    assert set(best.tolist()) <= set(kept.tolist())


def test_rows_that_no_speed_could_help_come_last() -> None:
    factors = FrontFactors(log_value_per_step=np.log([[1.0, 0.5], [1.0, 0.1]]), is_rate=np.array([True, False]))
    times = Estimate(mean=np.zeros(2), variance=np.full(2, 0.01))
    frontier = replace(factors.frontier({0: 0.0}, np.arange(2), times.mean), reference=np.log([0.5, 0.2]))
    assert log_expected_entry(factors.outcomes(slice(None), times, 1.0), frontier)[1] == -math.inf

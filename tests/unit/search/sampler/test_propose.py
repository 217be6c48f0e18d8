"""Proposals, and a simulated sweep whose layouts hardly fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.objective import WORTHWHILE_GAIN
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict
from autotuner.launch.simulation import SCENARIOS, Luck, truth_of
from autotuner.report.sweep_trials import long_shot_in_words, memory_in_words
from autotuner.search.sampler.gaussian_model import Prior
from autotuner.search.sampler.observations import OUT_OF_MEMORY, PEAK_BYTES, STEP_TIME_S, Evidence, params_of
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from autotuner.search.sampler.priors import MemoryTrial
from autotuner.search.sampler.propose import EVEN_CHANCE, Beliefs, LongShot, MemoryBelief, Proposal, propose
from autotuner.search.space.legal import legal_layouts
from tests.builders import present
from tests.unit.search.tables import LAYOUTS

# ---------------------------------------------------------------- propose
NOTHING = Evidence(tried=frozenset(), pending=(), step_time_s={}, memory={}, best_value=None)
NUM_ROWS = len(LAYOUTS)


def quantity(values: np.ndarray, *, layouts: LayoutColumns = LAYOUTS, deviation: float = 0.05) -> Prior:
    return Prior(
        layouts=layouts,
        log_predicted=np.log(values),
        shares=np.ones((len(values), 1)),
        deviations=np.array([0.05]),
        residual=deviation,
        residual_correlation=0.5,
    )


def beliefs(*, step_time_s: np.ndarray | None = None, peak_bytes: np.ndarray | None = None) -> Beliefs:
    seconds = np.linspace(1.0, 2.0, NUM_ROWS) if step_time_s is None else step_time_s
    return Beliefs(
        times=quantity(seconds),
        peaks=quantity(np.full(NUM_ROWS, 1e8) if peak_bytes is None else peak_bytes),
        limit_bytes=1e9,
        value_per_step=np.full(NUM_ROWS, 0.4),
    )


def proposed(belief: Beliefs, evidence: Evidence = NOTHING, *, cost_exponent: float = 0.0) -> Proposal:
    return present(propose(belief, evidence, cost_exponent=cost_exponent, tie_breaker=np.random.default_rng(0)))


def after(step_time_s: dict[int, float], pending: tuple[int, ...] = ()) -> Evidence:
    return Evidence(
        tried=frozenset({*step_time_s, *pending}),
        pending=pending,
        step_time_s=step_time_s,
        memory={row: MemoryTrial(fits=True) for row in step_time_s},
        best_value=0.4 / min(step_time_s.values()) if step_time_s else None,
    )


def test_before_the_first_measurement_the_fastest_that_will_probably_fit_or_the_likeliest_is_tried() -> None:
    seconds, peaks = np.full(NUM_ROWS, 2.0), np.full(NUM_ROWS, 1e8)
    seconds[:3], peaks[:3] = (1.0, 1.4, 1.5), (1.1e9, 0.99e9, 1e8)  # probably not, probably, surely
    proposal = proposed(beliefs(step_time_s=seconds, peak_bytes=peaks))
    assert (proposal.row, proposal.expected_gain) == (1, math.inf)
    assert 0.5 < proposal.fit_probability < 0.6
    peaks = np.full(NUM_ROWS, 1.2e9)
    peaks[7] = 1.05e9
    assert proposed(beliefs(peak_bytes=peaks)).row == 7


def test_after_the_first_measurement_speed_is_weighed_with_the_chance_to_fit() -> None:
    seconds, peaks = np.full(NUM_ROWS, 10.0), np.full(NUM_ROWS, 1e8)
    seconds[:3], peaks[:3] = (1.0, 1.5, 2.0), (1.05e9, 1e8, 1e8)  # one chance in four to gain twice as much
    belief = beliefs(step_time_s=seconds, peak_bytes=peaks)
    assert proposed(belief, after({2: 2.0})).row == 1
    belief.times.log_predicted[0] = math.log(0.2)
    assert proposed(belief, after({2: 2.0})).row == 0


def test_the_expected_gain_is_that_of_a_normal_log_time_below_the_best() -> None:
    seconds = np.full(NUM_ROWS, 10.0)
    seconds[:2] = 1.0, 1.02
    belief = beliefs(step_time_s=seconds)
    evidence = after({0: 1.0})
    first, second = (belief.times.points(np.array([row])) for row in (0, 1))
    left = second.variance - belief.times.covariance(second, first)[0] ** 2 / (first.variance + 0.01**2)
    deviation = math.sqrt(left[0])
    samples = np.random.default_rng(0).normal(-math.log(1.02), deviation, 200_000)
    gain = math.expm1(np.maximum(samples, 0).mean())
    assert proposed(belief, evidence).row == 1
    assert proposed(belief, evidence).expected_gain == pytest.approx(gain, rel=0.02)  # 200,000 samples


def test_a_layout_that_cannot_fit_is_not_proposed_even_if_it_is_fast() -> None:
    seconds, peaks = np.full(NUM_ROWS, 1.0), np.full(NUM_ROWS, 1e8)
    seconds[5], peaks[5] = 0.01, 2e9
    assert proposed(beliefs(step_time_s=seconds, peak_bytes=peaks)).row != 5
    none = beliefs(peak_bytes=np.full(NUM_ROWS, 2e9))
    assert propose(none, NOTHING, cost_exponent=0.0, tie_breaker=np.random.default_rng(0)) is None


def test_pending_trials_send_the_next_elsewhere_and_raise_no_bar_if_they_run_out() -> None:
    belief = replace(beliefs(step_time_s=np.ones(NUM_ROWS)), times=quantity(np.ones(NUM_ROWS), deviation=0.2))
    points = belief.times.points(np.arange(NUM_ROWS))
    alike = belief.times.covariance(points.take(np.array([0])), points)[0]
    row = proposed(belief, after({NUM_ROWS - 1: 1.0}, pending=(0,))).row
    assert row != 0
    assert alike[row] < np.median(alike)
    assert proposed(beliefs(), after({}, pending=(0,))).expected_gain == math.inf
    seconds, peaks = np.full(NUM_ROWS, 1.0), np.full(NUM_ROWS, 1e8)
    seconds[0], peaks[0] = 0.1, 1.1e9
    belief = beliefs(step_time_s=seconds, peak_bytes=peaks)
    alone, beside = proposed(belief, after({1: 1.0})), proposed(belief, after({1: 1.0}, pending=(0,)))
    assert alone.row == 0
    assert beside.expected_gain > 0.01


def test_mfu_counts_and_not_the_step_and_where_cost_counts_the_cheaper_of_equals() -> None:
    value_per_step = np.full(NUM_ROWS, 0.4)
    value_per_step[0] = 0.2  # a format of twice the peak: row 0 is the fastest, and uses less of what it could
    assert proposed(replace(beliefs(), value_per_step=value_per_step)).row == 1
    seconds = np.full(NUM_ROWS, 10.0)
    seconds[:2] = 1.0, 2.0
    belief = replace(beliefs(step_time_s=seconds), value_per_step=0.4 * seconds)  # the slow one has half the peak
    belief.value_per_step[2:] = 0.04
    assert {proposed(belief, cost_exponent=1.0).row for _ in range(5)} == {0}


def test_the_best_row_of_a_large_table_is_found_at_any_place() -> None:
    many = LAYOUTS.take(np.arange(40_000) % NUM_ROWS)
    seconds = np.random.default_rng(0).uniform(1.0, 2.0, len(many))
    seconds[31_234] = 0.8
    belief = Beliefs(
        times=quantity(seconds, layouts=many),
        peaks=quantity(np.full(len(many), 1e8), layouts=many),
        limit_bytes=1e9,
        value_per_step=np.full(len(many), 0.4),
    )
    assert proposed(belief, after({5: 1.5, 6: 1.4})).row == 31_234


def long_shot_beside(seconds: float, likely_s: float) -> Proposal:
    """The proposal where row 0 has less than an even chance to fit, and row 1 will fit; the others were tried."""
    times, peaks = np.full(NUM_ROWS, 2.0), np.full(NUM_ROWS, 1e8)
    times[:2], peaks[0] = (seconds, likely_s), 1.05e9
    belief = replace(beliefs(peak_bytes=peaks), times=quantity(times, deviation=0.02))
    return proposed(belief, after(dict.fromkeys(range(2, NUM_ROWS), 2.0)))


def test_a_long_shot_is_tried_for_a_worthwhile_gain_or_last_of_all_and_says_so() -> None:
    proposal = long_shot_beside(seconds=1.99, likely_s=2.6)
    assert (proposal.row, proposal.long_shot) == (1, None)
    proposal = long_shot_beside(seconds=1.0, likely_s=1.9)
    assert proposal.row == 0
    assert proposal.long_shot is not None
    assert proposal.long_shot.fit_probability == proposal.fit_probability < EVEN_CHANCE
    assert proposal.long_shot.expected_gain > max(WORTHWHILE_GAIN, present(proposal.long_shot.likely_gain))
    times, peaks = np.full(NUM_ROWS, 2.0), np.full(NUM_ROWS, 1e8)
    times[0], peaks[0] = 1.99, 1.05e9
    belief = beliefs(step_time_s=times, peak_bytes=peaks)
    last = proposed(belief, after(dict.fromkeys(range(1, NUM_ROWS), 2.0)))
    assert (last.row, last.long_shot and last.long_shot.likely_gain) == (0, None)
    assert last.long_shot is not None


@pytest.mark.parametrize(("num_lost", "row"), [(0, 0), (1, 1)])
def test_once_more_than_a_twentieth_of_trials_ran_out_of_memory_surer_layouts_go_first(num_lost: int, row: int) -> None:
    times, peaks = np.full(NUM_ROWS, 2.0), np.full(NUM_ROWS, 1e8)
    times[:2], peaks[0], peaks[2] = (2.0, 2.6), 0.96e9, 1.2e9
    evidence = after({3: 2.0, 4: 2.0})
    lost = {2: MemoryTrial(fits=False)} if num_lost else {}
    known = replace(evidence, tried=frozenset(range(2, NUM_ROWS)), memory={**evidence.memory, **lost})
    belief = replace(beliefs(peak_bytes=peaks), times=quantity(times, deviation=0.02))
    proposal = proposed(belief, known)
    assert (proposal.row, proposal.long_shot) == (row, None)


# ---------------------------------------------------------------- what a search says about memory
def test_long_shots_and_beliefs_are_said_with_their_figures() -> None:
    shot = LongShot(fit_probability=0.312, expected_gain=0.0314, likely_gain=0.0121)
    assert long_shot_in_words(shot, "best MFU") == (
        "only 31 % likely to fit in memory; it is tried because it is nevertheless expected to raise the best MFU by "
        "3.1 %; a layout that is more likely to fit than not by 1.2 % at most"
    )
    shot = LongShot(fit_probability=0.312, expected_gain=math.inf, likely_gain=None)
    assert long_shot_in_words(shot, "best MFU") == (
        "only 31 % likely to fit in memory; it is tried because no untried layout is more likely to fit than not"
    )
    belief = MemoryBelief(factor=1.0623, low=0.951, high=1.174, num_untried=16_700, num_likely=7312)
    assert memory_in_words(belief) == (
        "memory peaks are now estimated as 1.06 x the predicted ones, 8 of 10 layouts between 0.95 and 1.17 x; "
        "7,312 of 16,700 untried layouts are more likely to fit than not"
    )


# ---------------------------------------------------------------- simulated memory
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

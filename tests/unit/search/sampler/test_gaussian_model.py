from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import ContextExchange, Recompute
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Calibration, Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.core.link import Link
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.uncertainty import MEMORY_DEVIATION, PARTS
from autotuner.search.sampler.gaussian_model import (
    COMMON,
    MEMORY_TRANSFER,
    TIME_TRANSFER,
    Prior,
    TaskSimilarity,
    Transfer,
    condition,
    has_same_hardware,
    layout_similarity,
    student_noise,
)
from autotuner.search.sampler.normal import log_expected_gain, log_probability
from autotuner.search.sampler.priors import MEMORY_FACTORS, TIME_FACTORS, MemoryTrial, learn_peaks, memory_prior
from autotuner.search.sampler.transfer import ProxyPoints
from tests.builders import h100, h100_cluster, llama_70b
from tests.unit.search.sampler.test_sampler import LARGE_LAYOUT, SMALL, SMALL_LAYOUT, STAND_IN, TARGET
from tests.unit.search.tables import LAYOUTS, predictions


# ---------------------------------------------------------------- acquisition
def gain(mean: float, deviation: float) -> float:
    return float(np.exp(log_expected_gain(np.array([mean]), np.array([deviation])))[0])


def test_beyond_the_table_gains_and_probabilities_go_on() -> None:
    assert gain(0.3, 0.0) == pytest.approx(0.3)
    means = -np.linspace(1.0, 60.0, 500)
    assert (np.diff(log_expected_gain(means, np.ones(500))) < 0).all()
    below, above = np.array([-12.0 - 1e-9, -12.0 + 1e-9]), np.array([8.0 - 1e-9, 8.0 + 1e-9])
    # the left tail leaves out terms of 3 / u^2
    assert np.diff(log_expected_gain(below, np.ones(2)))[0] == pytest.approx(0.0, abs=3 / 144)
    assert np.diff(log_expected_gain(above, np.ones(2)))[0] == pytest.approx(0.0, abs=1e-6)
    assert np.isfinite(log_probability(np.array([-1e3]), np.array([0.1])))[0]


@pytest.mark.parametrize("u", [-3.0, -1.0, 0.0, 0.5, 2.0])
def test_the_gain_is_the_expected_positive_part_of_a_normal_variable(u: float) -> None:
    points = np.linspace(-10, 10, 400_001)
    density = np.exp(-((points - u) ** 2) / 2) / math.sqrt(2 * math.pi)
    expected = float((np.maximum(points, 0) * density).sum() * (points[1] - points[0]))
    assert gain(0.1 * u, 0.1) == pytest.approx(0.1 * expected, rel=1e-5)  # the table's step squared


@pytest.mark.parametrize("u", [-2.0, -0.5, 0.0, 1.0, 3.0])
def test_probabilities_are_normal_within_one_percent(u: float) -> None:
    probability = math.exp(log_probability(np.array([0.1 * u]), np.array([0.1]))[0])
    assert probability == pytest.approx(math.erfc(-u / math.sqrt(2)) / 2, abs=0.0096)  # the logistic curve's worst


# ---------------------------------------------------------------- task similarity
def job(num_nodes: int = 32, seq_len: int = 4096, **of_cluster: object) -> Job:
    return Job(
        model=llama_70b(),
        cluster=replace(h100_cluster(num_nodes), **of_cluster),  # type: ignore[arg-type]  # the test's business
        workload=Workload(seq_len=seq_len, global_batch_size=256),
    )


def shared(one: Job, other: Job, factor: str) -> float:
    found = TaskSimilarity.between([one, other], TIME_FACTORS, TIME_TRANSFER)
    return float(found.factors[TIME_FACTORS.index(factor), 0, 1])


def test_a_job_shares_everything_with_itself_unless_two_trainers_ran_it() -> None:
    found = TaskSimilarity.between([job()], TIME_FACTORS, TIME_TRANSFER)
    assert found.factors.shape == (len(TIME_FACTORS), 1, 1)
    assert (found.factors == 1).all()
    assert (found.residual == 1).all()
    assert has_same_hardware(job(32), job(1))
    found = TaskSimilarity.between([job(), job()], TIME_FACTORS, TIME_TRANSFER, [None, "theirs"])
    assert found.residual[0, 1] < 0.5


@pytest.mark.parametrize("other", [job(2), job(2, 8192), job(63)])
def test_a_layout_of_another_job_shares_only_part_of_its_residual(other: Job) -> None:
    found = TaskSimilarity.between([job(32), other], TIME_FACTORS, TIME_TRANSFER)
    assert 0.5 < found.residual[0, 1] < 0.9


@pytest.mark.parametrize("factor", [*PARTS, COMMON])
def test_a_small_job_on_the_same_hardware_shares_most_of_each_factor(factor: str) -> None:
    assert shared(job(32), job(2), factor) > 0.5


def test_other_hardware_shares_less_of_what_it_carries_out_and_all_of_the_rest() -> None:
    slow = Link(name="slow", bandwidth_bytes_per_s=1e9, latency_s=1e-5)
    other = job(inter_node_link=slow)
    assert shared(job(), other, "data_communication_s") < shared(job(), job(2), "data_communication_s")
    assert shared(job(), other, "matrix_s") == shared(job(), job(2), "matrix_s")
    assert not has_same_hardware(job(), other)
    other = job(accelerator=h100(name="h200"))
    for factor in ("matrix_s", COMMON):
        assert shared(job(), other, factor) < shared(job(), job(2), factor)
    assert shared(job(), other, "data_communication_s") == shared(job(), job(2), "data_communication_s")


@pytest.mark.parametrize(("factors", "transfer"), [(TIME_FACTORS, TIME_TRANSFER), (MEMORY_FACTORS, MEMORY_TRANSFER)])
def test_the_similarity_of_tasks_is_a_covariance(factors: tuple[str, ...], transfer: Transfer) -> None:
    slow = Link(name="slow", bandwidth_bytes_per_s=1e9, latency_s=1e-5)
    jobs = [job(32), job(2), job(2, 8192), job(1), job(8, accelerator=h100(name="h200")), job(4, inter_node_link=slow)]
    found = TaskSimilarity.between(jobs, factors, transfer)
    for correlation in (*found.factors, found.residual):
        assert correlation == pytest.approx(correlation.T)
        assert np.linalg.eigvalsh(correlation).min() > -1e-9  # rounding


@pytest.mark.parametrize("factor", ["matrix_s", "data_communication_s", COMMON])
def test_another_trainer_shares_less_of_everything(factor: str) -> None:
    trainers = (None, "theirs")
    found = TaskSimilarity.between([job(32), job(2)], TIME_FACTORS, TIME_TRANSFER, trainers)
    assert found.factors[TIME_FACTORS.index(factor), 0, 1] < shared(job(32), job(2), factor)


# ---------------------------------------------------------------- layout kernel
def columns(*layouts: Layout) -> LayoutColumns:
    return LayoutColumns.from_layouts(layouts)


def test_layouts_are_wholly_alike_only_to_themselves_and_similarity_is_a_covariance() -> None:
    alike = layout_similarity(LAYOUTS, LAYOUTS)
    assert ((alike == 1.0) == np.eye(len(LAYOUTS), dtype=bool)).all()
    smallest = np.linalg.eigvalsh(layout_similarity(LAYOUTS, LAYOUTS)).min()
    assert smallest > -1e-12  # none is negative but for rounding
    assert layout_similarity(LAYOUTS, columns()).shape == (len(LAYOUTS), 0)
    (alike,) = layout_similarity(
        columns(Layout()), columns(Layout(recompute=Recompute.SELECTIVE), Layout(recompute=Recompute.FULL))
    )
    assert alike[0] == alike[1]


@pytest.mark.parametrize(
    ("near", "far"),
    [
        (Layout(micro_batch_size=2), Layout(micro_batch_size=8)),
        (Layout(fused_norm=False), Layout(fused_norm=False, recompute=Recompute.FULL)),
        (Layout(tensor_parallel_degree=2), Layout(tensor_parallel_degree=2, sequence_parallel=True)),
        (Layout(last_stage_less_layers=1), Layout(last_stage_less_layers=3)),
        (
            Layout(gradient_bucket_bytes=2 * DEFAULT_BUCKET_BYTES),
            Layout(gradient_bucket_bytes=DEFAULT_BUCKET_BYTES // 4),
        ),
        (Layout(compiled=True), Layout(compiled=True, context_exchange=ContextExchange.ALL_GATHER)),
    ],
)
def test_every_doubling_and_every_changed_choice_makes_layouts_less_alike(near: Layout, far: Layout) -> None:
    (alike,) = layout_similarity(columns(Layout()), columns(near, far))
    assert 0 < alike[1] < alike[0] < 1


# ---------------------------------------------------------------- memory prior
LIMIT = 1e9
PEAKS = np.linspace(0.5e9, 1.5e9, len(LAYOUTS))
PRIOR = memory_prior(LAYOUTS, predictions(peak_bytes=PEAKS).memory)
EDGE = int(np.argmin(np.abs(PEAKS - LIMIT)))
FITS, RAN_OUT = MemoryTrial(fits=True), MemoryTrial(fits=False)


def fit_probability(trials: dict[int, MemoryTrial]) -> np.ndarray:
    estimate = learn_peaks(PRIOR, LIMIT, trials).at(np.arange(len(LAYOUTS)))
    return np.exp(log_probability(math.log(LIMIT) - estimate.mean, np.sqrt(estimate.variance)))


def test_chances_to_fit_follow_peaks_fall_with_failures_and_rise_with_successes_at_the_edge() -> None:
    chance = fit_probability({})
    assert chance[0] > 0.99
    assert chance[-1] < 0.01
    assert chance[EDGE] == pytest.approx(0.5, abs=0.1)  # no row lies exactly at the limit
    deviations = np.sqrt(PRIOR.points(np.arange(len(LAYOUTS))).variance)
    assert np.median(deviations) == pytest.approx(MEMORY_DEVIATION, rel=0.35)  # layouts differ in what they hold
    near = slice(EDGE - 10, EDGE + 10)
    first, second = fit_probability({EDGE: RAN_OUT}), fit_probability({EDGE: RAN_OUT, EDGE - 3: RAN_OUT})
    assert (first[near] < fit_probability({})[near]).all()
    assert (second[near] < first[near]).all()
    assert fit_probability({0: RAN_OUT})[EDGE] < 0.1  # it was even
    assert (fit_probability({EDGE: FITS})[near] > fit_probability({})[near]).all()
    assert fit_probability({0: FITS}) == pytest.approx(fit_probability({}), abs=1e-3)  # a chance of 1e-8 was excluded


def test_a_peak_is_known_once_measured_and_prior_errors_surprise_by_one_each() -> None:
    trials = {EDGE: RAN_OUT, EDGE - 8: FITS, EDGE + 6: FITS, EDGE - 2: RAN_OUT}
    forwards, backwards = fit_probability(trials), fit_probability(dict(reversed(trials.items())))
    assert forwards == pytest.approx(backwards, abs=0.05)  # one pass of filtering is not exact
    estimate = learn_peaks(PRIOR, LIMIT, {EDGE: MemoryTrial(fits=True, peak_bytes=0.8e9)}).at(np.array([EDGE]))
    assert math.exp(estimate.mean[0]) == pytest.approx(0.8e9, rel=0.03)  # known to 2 %, pulled towards 1e9
    belief, generator = prior(), np.random.default_rng(0)
    errors = generator.multivariate_normal(
        np.zeros(len(ROWS)), belief.covariance(belief.points(ROWS), belief.points(ROWS))
    )
    posterior = condition(belief, ROWS, belief.log_predicted + errors, np.full(len(ROWS), 1e-12))
    # a chi-square variable: its deviation is sqrt(2 / rows) of its mean, allowed three times
    assert posterior.surprise / len(ROWS) == pytest.approx(1.0, abs=3 * np.sqrt(2 / len(ROWS)))


def test_one_observation_moves_the_belief_to_the_moments_of_the_cut_off_normal() -> None:
    row = np.array([EDGE])
    mean, deviation = PRIOR.log_predicted[EDGE], math.sqrt(PRIOR.points(row).variance[0])
    grid = np.linspace(mean - 8 * deviation, mean + 8 * deviation, 20_001)
    above = np.array([math.erfc((math.log(LIMIT) - g) / 0.02 / math.sqrt(2)) for g in grid])
    weights = np.exp(-(((grid - mean) / deviation) ** 2) / 2) * above
    expected_mean = np.average(grid, weights=weights)
    estimate = learn_peaks(PRIOR, LIMIT, {EDGE: RAN_OUT}).at(row)
    assert estimate.mean[0] == pytest.approx(expected_mean, abs=1e-6)
    assert estimate.variance[0] == pytest.approx(np.average((grid - expected_mean) ** 2, weights=weights), rel=1e-4)


# ---------------------------------------------------------------- posterior
ROWS = np.arange(len(LAYOUTS))


def prior(**changes: object) -> Prior:
    """Two factors: the first moves the first half of the rows, the second the rest."""
    first = np.arange(len(ROWS)) < len(ROWS) / 2
    base = Prior(
        layouts=LAYOUTS,
        log_predicted=np.linspace(0.0, 1.0, len(ROWS)),
        shares=np.stack([first, ~first], axis=1).astype(np.float64),
        deviations=np.array([0.5, 0.5]),
        residual=0.1,
        residual_correlation=0.5,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # the fields are the caller's business


def observed(belief: Prior, rows: list[int], errors: list[float], noise: float = 1e-4) -> tuple[np.ndarray, np.ndarray]:
    index = np.array(rows, dtype=np.int64)
    values = belief.log_predicted[index] + np.array(errors)
    estimate = condition(belief, index, values, np.full(index.size, noise**2)).at(ROWS)
    return estimate.mean - belief.log_predicted, estimate.variance


def test_a_row_is_known_by_its_observations_up_to_their_noise() -> None:
    corrections, variance = observed(prior(), [], [])
    assert not corrections.any()
    assert variance == pytest.approx(np.full(len(ROWS), 0.5**2 + 0.1**2))
    corrections, variance = observed(prior(), [3], [0.7])
    assert corrections[3] == pytest.approx(0.7, abs=1e-3)  # the prior pulls by noise^2 / variance
    assert variance[3] == pytest.approx(1e-8, rel=0.01)
    corrections, _ = observed(prior(), [5, 5], [0.2, 0.4], noise=0.01)
    assert corrections[5] == pytest.approx(0.3, abs=1e-3)  # the prior pulls by noise^2 / variance


def test_an_observed_row_informs_rows_with_equal_parts_and_similar_rows() -> None:
    corrections, _ = observed(prior(residual_correlation=0.0), [0], [0.4])
    half = len(ROWS) // 2
    assert (corrections[1:half] > 0.3).all()  # 0.5^2 of a variance of 0.5^2 + 0.1^2 is the part's: 0.385
    assert corrections[half:] == pytest.approx(0.0)
    corrections, _ = observed(prior(deviations=np.zeros(2)), [0], [0.1])
    whole, factors = (
        belief.covariance(belief.points(ROWS[:1]), belief.points(ROWS))[0] for belief in (prior(), prior(residual=0.0))
    )
    order = np.argsort(-(whole - factors))
    assert (np.diff(corrections[order]) <= 1e-12).all()  # equal but for rounding where equally alike
    assert corrections[order[1]] > 2 * corrections[order[-1]] > 0


def test_conditioning_is_that_of_the_joint_normal_distribution_and_nearly_so_at_all_rows() -> None:
    belief, rows, errors = prior(), [2, 11, 30], np.array([0.3, -0.2, 0.1])
    joint = belief.covariance(belief.points(ROWS), belief.points(ROWS))
    gain = joint[:, rows] @ np.linalg.inv(joint[np.ix_(rows, rows)] + 1e-8 * np.eye(3))
    corrections, variance = observed(belief, rows, errors.tolist())
    assert corrections == pytest.approx(gain @ errors)
    assert variance == pytest.approx(np.diag(joint - gain @ joint[rows]), abs=1e-12)  # of 0.26, after cancellation
    belief = prior(residual_correlation=0.0)
    known = np.array([0, 7])
    posterior = condition(belief, known, belief.log_predicted[known] + 0.2, np.full(2, 1e-4))
    rough, exact, others = posterior.at_all_rows(), posterior.at(ROWS), np.setdiff1d(ROWS, known)
    assert rough.mean[others] == pytest.approx(exact.mean[others])
    assert rough.variance[others] == pytest.approx(exact.variance[others])


# ---------------------------------------------------------------- stand ins
def test_a_proxy_trial_has_its_own_job_its_peak_and_the_speed_of_its_cluster() -> None:
    points = ProxyPoints(TARGET).times([(LARGE_LAYOUT, STAND_IN)]).points
    assert points.log_predicted[0] == pytest.approx(math.log(predict_one(SMALL_LAYOUT, SMALL).step_time.total_s))
    assert points.layouts.row(0) == LARGE_LAYOUT
    assert points.tasks.tolist() == [1]
    itself = replace(STAND_IN, job=TARGET, layout=LARGE_LAYOUT)
    points = ProxyPoints(TARGET).times([(LARGE_LAYOUT, one) for one in (STAND_IN, itself, STAND_IN)]).points
    assert points.tasks.tolist() == [1, 0, 1]
    known = replace(TARGET, calibration=Calibration(factor=1.3, deviation=0.02, num_runs=9))
    slower = ProxyPoints(known).times([(LARGE_LAYOUT, STAND_IN)]).points.log_predicted
    usual = ProxyPoints(TARGET).times([(LARGE_LAYOUT, STAND_IN)]).points.log_predicted
    assert slower - usual == pytest.approx(math.log(1.3))
    elsewhere = replace(STAND_IN, job=replace(SMALL, cluster=replace(SMALL.cluster, accelerator=h100(name="h200"))))
    logs = [ProxyPoints(job).times([(LARGE_LAYOUT, elsewhere)]).points.log_predicted for job in (known, TARGET)]
    assert np.array_equal(logs[0], logs[1])
    memory = predict_one(SMALL_LAYOUT, SMALL).memory
    proxies = ProxyPoints(TARGET)
    assert proxies.allowance_bytes(STAND_IN) == pytest.approx(memory.allowance_bytes)
    points = proxies.peaks([(LARGE_LAYOUT, STAND_IN)], [MemoryTrial(fits=True)]).points.points
    assert math.exp(points.log_predicted[0]) == pytest.approx(memory.total_bytes)


# ---------------------------------------------------------------- robust
OWN = np.full(9, 0.03**2)
ROBUST_COMMON = np.full((9, 9), 0.15**2)


def believed_mean(errors: list[float]) -> float:
    """What all runs have in common, after these errors."""
    noise = student_noise(ROBUST_COMMON, np.array(errors), OWN)
    return float(ROBUST_COMMON[0] @ np.linalg.solve(ROBUST_COMMON + np.diag(noise), np.array(errors)))


def test_a_run_that_went_wrong_hardly_counts_unless_it_was_faster_where_faults_slow_down() -> None:
    noise = student_noise(ROBUST_COMMON, np.array([0.1] * 8 + [1.5]), OWN)
    assert noise[-1] > 100 * noise[0]
    assert abs(believed_mean([0.1] * 5 + [1.5] * 4) - 0.1) < 0.03
    noise = student_noise(ROBUST_COMMON, np.array([0.07, 0.1, 0.13] * 3), OWN)
    assert (noise > OWN / 2).all()
    assert (noise < 2 * OWN).all()
    errors = np.array([0.1] * 7 + [-1.0, 1.5])
    noise = student_noise(ROBUST_COMMON, errors, OWN, only_above=True)
    assert noise[-2] < 2 * OWN[0]
    assert noise[-1] > 100 * OWN[0]

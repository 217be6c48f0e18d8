"""Measuring: computes a measurement from the reports of a trial's ranks.

Some layouts average the replicas' parameters only every few steps. A median of step times would ignore these steps, so
their additional time is first divided among all steps. A ``period`` is the number of steps from one average to the next
(``payload.steps_per_exchange``); it is 1 if all steps are alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from autotuner.core.choices import AttentionKernel, Recompute
from autotuner.core.cluster import Cluster
from autotuner.core.link import links_in_brief
from autotuner.core.measurement import Measurement, PhaseTimes, RobustMeasurement, StepReport
from autotuner.core.model import TransformerSpec
from autotuner.core.stages import stage_layers, steps_per_exchange
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.value import value


def model_flop(spec: TrialSpec) -> int:
    """Return the model FLOP of one step of a trial, forward and backward, without recomputation."""
    return spec.model.model_flop_per_step(spec.workload)


def recomputed_flop(spec: TrialSpec) -> int:
    """Return the FLOP of one step that ranks compute again because of recomputation (arXiv 2205.05198, section 5).

    Full recomputation repeats the layer's forward pass except for its last product. The result of this product is not
    saved, and torch stops the second forward pass when all saved tensors exist again (``set_checkpoint_early_stop``).
    Selective recomputation keeps the results of matrix products and of fused attention (``recompute``). So it repeats
    work that counts as FLOP only with the unfused ``math`` attention kernel: the scores and their weighted sum.
    """
    per_token = sum(
        _recomputed_flop_per_token(spec, layer)
        for stage in range(spec.layout.num_stages)
        for layer in stage_layers(spec.layout, spec.model.num_layers, stage)[:: spec.layout.recompute_every]
    )
    return per_token * spec.workload.tokens_per_step


def _recomputed_flop_per_token(spec: TrialSpec, layer: int) -> int:
    model, layout = spec.model, spec.layout
    core = model.attention_flop_per_token(spec.workload.keys_per_token) // model.num_layers
    match layout.recompute:
        case Recompute.NONE:
            return 0
        case Recompute.SELECTIVE:
            return core if layout.attention_kernel == AttentionKernel.MATH else 0
        case Recompute.FULL:
            return core + 2 * (model.attention_matrix_parameters + _feed_forward_elements_again(model, layer))


def _feed_forward_elements_again(model: TransformerSpec, layer: int) -> int:
    """Return the number of feed-forward matrix elements that a token is multiplied with again in recomputation.

    A dense block ends with a product, whose result recomputation does not need. A mixture of experts then weighs and
    sums the outputs of its experts, and needs them.
    """
    if model.experts is None or not model.experts.is_sparse(layer):
        return model.mlp_matrix_parameters - model.hidden_size * model.ffn_size
    routed = model.experts.experts_per_token * model.expert_matrix_parameters
    return routed + model.shared_expert_matrix_parameters + model.router_matrix_parameters


def averages_in(step: int, period: int) -> bool:
    """Return True if replicas average their parameters at the end of this step.

    Args:
        step: Number of the step, counted from 0.
        period: Number of steps from one average to the next.
    """
    return (step + 1) % period == 0


def shows_average(steps: Sequence[int], period: int) -> bool:
    """Return True if replicas average their parameters in at least one of these steps.

    The times of the steps then include the cost of an average.

    Args:
        steps: Numbers of the steps, counted from 0.
        period: Number of steps from one average of the replicas' parameters to the next.
    """
    return any(averages_in(step, period) for step in steps)


def levelled(steps: Sequence[int], values: Sequence[float], period: int) -> list[float]:
    """Return one value for each step without an average, plus an equal share of the cost of an average.

    In some layouts the replicas average their parameters after every ``period``-th step. The cost of one average is
    divided by the number of steps in a period. If all steps or no steps have an average, all values are returned
    unchanged.

    Args:
        steps: Numbers of the steps, counted from 0.
        values: One value per step, such as its time.
        period: Number of steps from one average to the next.
    """
    plain, averaging = _parted(steps, values, period)
    if not (plain and averaging):
        return list(values)
    share = (statistics.median(averaging) - statistics.median(plain)) / period
    return [value + share for value in plain]


def mean_over_period(steps: Sequence[int], values: Sequence[float], period: int) -> float:
    """Return the mean of a value over a whole period of steps, whose last step averages the replicas' parameters.

    Steps with and without an average are weighted by how often they occur in a period.

    Args:
        steps: Numbers of the steps, counted from 0.
        values: One value per step, such as its time.
        period: Number of steps from one average to the next.
    """
    plain, averaging = _parted(steps, values, period)
    if not (plain and averaging):
        return statistics.fmean(values)
    return ((period - 1) * statistics.fmean(plain) + statistics.fmean(averaging)) / period


def _parted(steps: Sequence[int], values: Sequence[float], period: int) -> tuple[list[float], list[float]]:
    """Return the values of the steps without an average of parameters, and those of the steps with one."""
    plain: list[float] = []
    averaging: list[float] = []
    for step, own in zip(steps, values, strict=True):
        (averaging if averages_in(step, period) else plain).append(own)
    return plain, averaging


_WIDEST_WINDOW = 3
"""Largest number of steps in one of two compared windows of steps. With three steps each, two windows can differ at the
5 % level: one order in C(6, 3) = 20 puts all steps of one window first."""

_CONFIDENCE = 0.95


class Pace:
    """A state machine that takes step times, and decides which steps count and when enough steps were measured.

    It reads no clock: the caller adds the time of each step. Ranks that add the same times make the same decisions, so
    that they need not exchange decisions. If replicas average their parameters after every ``period``-th step, at least
    one such step is measured, even if fewer steps are requested.
    """

    def __init__(self, settings: TrialSettings, *, period: int = 1) -> None:
        self._settings = settings
        self._period = period
        self._warmup_s: list[float] = []
        self._measured_s: list[float] = []

    @property
    def num_warmup_steps(self) -> int:
        """The number of warm-up steps so far; it stays the same once timing has started."""
        return len(self._warmup_s)

    @property
    def is_warm(self) -> bool:
        """True if the warm-up is over, so that the next step is measured."""
        settings, num_steps = self._settings, len(self._warmup_s)
        if self._measured_s:
            return True
        if num_steps < settings.warmup_steps:
            return False
        if num_steps >= settings.max_warmup_steps or sum(self._warmup_s[1:]) >= settings.measuring_budget_s:
            return True
        return is_stationary(self._warmup_s, resolution=settings.target_interval)

    @property
    def is_done(self) -> bool:
        """True if enough steps were measured for the required accuracy, or the limit of steps or time is reached."""
        settings, num_steps = self._settings, len(self._measured_s)
        steps = range(len(self._warmup_s), len(self._warmup_s) + num_steps)
        if num_steps < settings.measured_steps or not shows_average(steps, self._period):
            return False
        if num_steps >= settings.max_measured_steps or sum(self._measured_s) >= settings.measuring_budget_s:
            return True
        times_s = levelled(steps, self._measured_s, self._period)
        half_s = half_interval_s(times_s)
        return half_s is not None and half_s <= settings.target_interval * statistics.median(times_s)

    def add(self, step_time_s: float) -> None:
        """Record the seconds of one more step. The step is measured if the warm-up was over before it."""
        (self._measured_s if self.is_warm else self._warmup_s).append(step_time_s)


def is_stationary(step_times_s: Sequence[float], *, resolution: float) -> bool:
    """Return True if the last steps take as long as the steps just before them, so that the warm-up is over.

    The function compares two windows: the last three steps, and the three steps before them. Windows are shorter if
    there are fewer steps. The windows agree if their medians differ by less than ``resolution``, or if their ranges
    overlap. Ranges that do not overlap are the extreme case of the rank-sum statistic of Mann and Whitney (Annals of
    Mathematical Statistics 18, 1947, table I: 1 chance in 20 for three against three, on either side). So the function
    finds any trend that is larger than the noise of three steps, whether times fall or rise. It assumes nothing about
    the noise, and one disturbed step does not change the median of three. Windows of a single step have no range: on a
    quiet device two equal steps suffice.

    The first step never counts, because it compiles, allocates memory and exchanges shapes.

    Args:
        step_times_s: Seconds of each step so far.
        resolution: Largest relative difference of the medians at which windows agree.
    """
    times_s = step_times_s[1:]
    width = min(_WIDEST_WINDOW, len(times_s) // 2)
    if width == 0:
        return False
    earlier, later = times_s[-2 * width : -width], times_s[-width:]
    before_s, after_s = statistics.median(earlier), statistics.median(later)
    if abs(before_s - after_s) <= resolution * max(before_s, after_s):
        return True
    return width > 1 and min(earlier) <= max(later) and min(later) <= max(earlier)


def half_interval_s(times_s: Sequence[float]) -> float | None:
    """Return half the width of the 95 % interval of the median, in seconds; None for fewer than six times.

    The interval goes from the k-th smallest to the k-th largest time. The probability that the true median lies outside
    follows from the binomial distribution of n fair coins. The formula only assumes that steps are independent. With
    fewer than six times, even the interval from the smallest to the largest time is too narrow.

    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd edition (1999), section 3.2.
    """
    ordered, num_outside = sorted(times_s), _num_outside(len(times_s))
    if num_outside is None:
        return None
    return (ordered[-1 - num_outside] - ordered[num_outside]) / 2


def _num_outside(num_steps: int) -> int | None:
    """Return the number of sorted steps outside the median's interval at each end; None if there are too few steps."""
    chance, num_outside = 0.0, None
    for heads in range(num_steps // 2):
        chance += math.comb(num_steps, heads) / 2**num_steps
        if 2 * chance > 1 - _CONFIDENCE:
            break
        num_outside = heads
    return num_outside


LINKS = "links"
"""Name of the environment fact that lists degraded links of the cluster. The fact is left out if all links are
nominal."""

FOREIGN_CPU_SHARE = "foreign_cpu_share"
"""Name of the environment fact that holds the share of CPU time used by other processes on the machine."""


@value
class Peak:
    """The denominator of MFU: the peak FLOP per second of all ranks together, with the source of the number."""

    flop_per_s: float
    source: str
    precision_flop_per_s: float | None = None
    """Dense peak in the precision of the layout; None if it is not known."""


@value
class TrialObservations:
    """Observations of a trial besides its steps, such as the peak memory of each rank.

    The fields have the same meaning as those of ``Measurement``.
    """

    peak_bytes: tuple[int, ...]
    """Peak bytes of each rank that reported a peak."""
    reserved_bytes: tuple[int, ...] = ()
    phases: PhaseTimes | None = None
    """Mean seconds of each phase; None if the steps were not divided."""
    foreign_cpu_share: float
    compile_s: float = 0.0
    power_w: float | None = None
    sync_payload_bytes: float | None = None
    overlapped_share: float | None = None


def step_rates(spec: TrialSpec, peak: Peak, step_time_s: float, *, tokens: int | None = None) -> tuple[float, float]:
    """Return the tokens per second and the MFU of a step.

    Args:
        spec: The trial.
        peak: Peak of all ranks, by which MFU is computed.
        step_time_s: Time on the slowest rank.
        tokens: Tokens of the whole job in this step; None: the workload's tokens per step.
    """
    share = 1.0 if tokens is None else tokens / spec.workload.tokens_per_step
    tokens_per_s = share * spec.workload.tokens_per_step / step_time_s
    return tokens_per_s, share * model_flop(spec) / (step_time_s * peak.flop_per_s)


def measurement_of(
    spec: TrialSpec, peak: Peak, steps: Sequence[StepReport], seen: TrialObservations, *, environment: Mapping[str, str]
) -> Measurement:
    """Return the measurement of a trial from the reports of its steps; the measurement has no breakdown yet.

    Args:
        spec: The trial.
        peak: Peak of all ranks, by which MFU is computed.
        steps: Reports of all timed steps, including the warm-up and the steps under a fault trace (injected link
            faults).
        seen: Further observations of the ranks.
        environment: Facts about hardware and software that are recorded with the measurement.
    """
    measured = [report for report in steps if report.is_measured]
    numbers, all_times_s = [report.step for report in measured], [report.step_time_s for report in measured]
    times_s = levelled(numbers, all_times_s, steps_per_exchange(spec.layout))
    median_s = statistics.median(times_s)
    available_flop = median_s * peak.flop_per_s
    return Measurement(
        step_time_s=median_s,
        step_time_spread_s=quartile_distance(times_s),
        step_time_interval_s=half_interval_s(times_s),
        num_steps=len(measured),
        num_warmup_steps=sum(report.is_warmup for report in steps),
        tokens_per_s=spec.workload.tokens_per_step / median_s,
        model_flop_per_s=model_flop(spec) / median_s,
        mfu=model_flop(spec) / available_flop,
        hfu=(model_flop(spec) + recomputed_flop(spec)) / available_flop,
        peak_flop_per_s=peak.flop_per_s,
        peak_source=peak.source,
        precision_flop_per_s=peak.precision_flop_per_s,
        peak_bytes=seen.peak_bytes,
        reserved_bytes=seen.reserved_bytes,
        phases=seen.phases,
        losses=tuple(report.loss for report in steps),
        foreign_cpu_share=seen.foreign_cpu_share,
        environment={**environment, **_links(spec.cluster), FOREIGN_CPU_SHARE: f"{seen.foreign_cpu_share:.2f}"},
        compile_s=seen.compile_s,
        power_w=seen.power_w,
        sync_payload_bytes=seen.sync_payload_bytes,
        overlapped_share=seen.overlapped_share,
        robust=_robust(spec, peak, [report.step_time_s for report in steps if report.is_under_trace]),
    )


def _links(cluster: Cluster | None) -> dict[str, str]:
    said = links_in_brief(cluster.link_health, between_nodes=cluster.num_nodes > 1) if cluster else ""
    return {LINKS: said} if said else {}


def _robust(spec: TrialSpec, peak: Peak, step_times_s: Sequence[float]) -> RobustMeasurement | None:
    if spec.fault_trace is None:
        return None
    return RobustMeasurement.of(
        spec.fault_trace,
        step_times_s,
        model_flop=model_flop(spec),
        peak_flop_per_s=peak.flop_per_s,
        tokens=spec.workload.tokens_per_step,
    )


def quartile_distance(values: Sequence[float]) -> float:
    """Return the distance between the lower and the upper quartile of the values; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first

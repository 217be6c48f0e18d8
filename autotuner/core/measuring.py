"""Measuring: a measurement made of what the ranks of a trial report.

A median of steps would pass over the average, so that its part is added to each step before anything is said of them.
A ``period`` is ``payload.steps_per_exchange`` of a layout; 1 where all steps are alike.
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
    """What the mathematics needs, forward and backward."""
    return spec.model.model_flop_per_step(spec.workload)


def recomputed_flop(spec: TrialSpec) -> int:
    """What ranks compute a second time, in the layers that recompute (arXiv 2205.05198, section 5).

    Full: the layer forward once more, without its last product, whose result nobody saved: torch stops the second
    forward pass when everything that was saved is there again (``set_checkpoint_early_stop``). Selective:
    the products of matrices and the fused attention cores are kept (``recompute``), so with the math kernel it is the
    scores and what they weigh, and else nothing that FLOP count.
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
    """Elements of the feed-forward matrices that a token meets in a second forward pass.

    A dense block ends with a product; a mixture of experts goes on to weigh and sum what its experts say.
    """
    if model.experts is None or not model.experts.is_sparse(layer):
        return model.mlp_matrix_parameters - model.hidden_size * model.ffn_size
    routed = model.experts.experts_per_token * model.expert_matrix_parameters
    return routed + model.shared_expert_matrix_parameters + model.router_matrix_parameters


def averages_in(step: int, period: int) -> bool:
    """Whether the step, counted from 0, ends with an average."""
    return (step + 1) % period == 0


def shows_average(steps: Sequence[int], period: int) -> bool:
    """Whether what these steps took tells what an average takes."""
    return any(averages_in(step, period) for step in steps)


def levelled(steps: Sequence[int], values: Sequence[float], period: int) -> list[float]:
    """The values of the steps without an average, each with its part of what one adds.

    Args:
        steps: Their numbers, counted from 0.
        values: Of each.
        period: Of the layout.
    """
    plain, averaging = _parted(steps, values, period)
    if not (plain and averaging):
        return list(values)
    share = (statistics.median(averaging) - statistics.median(plain)) / period
    return [value + share for value in plain]


def mean_over_period(steps: Sequence[int], values: Sequence[float], period: int) -> float:
    """The mean of a whole period, whose steps with and without an average were not seen as often as they occur."""
    plain, averaging = _parted(steps, values, period)
    if not (plain and averaging):
        return statistics.fmean(values)
    return ((period - 1) * statistics.fmean(plain) + statistics.fmean(averaging)) / period


def _parted(steps: Sequence[int], values: Sequence[float], period: int) -> tuple[list[float], list[float]]:
    """The values of steps without and with an average."""
    plain: list[float] = []
    averaging: list[float] = []
    for step, own in zip(steps, values, strict=True):
        (averaging if averages_in(step, period) else plain).append(own)
    return plain, averaging


_WIDEST_WINDOW = 3
"""The smallest two windows whose ranks can differ at the 5 % level: one order in C(6, 3) = 20 puts all of one first."""

_CONFIDENCE = 0.95


class Pace:
    """A state machine that sees step times, knows no clock, and says which step counts and when enough do.

    Ranks that are told the same times decide alike, so none has to tell the others. Where replicas average their
    parameters behind every ``period``-th step, one of these counts before it is done, however few steps are asked for.
    """

    def __init__(self, settings: TrialSettings, *, period: int = 1) -> None:
        self._settings = settings
        self._period = period
        self._warmup_s: list[float] = []
        self._measured_s: list[float] = []

    @property
    def num_warmup_steps(self) -> int:
        """Steps before timing started, or so far."""
        return len(self._warmup_s)

    @property
    def is_warm(self) -> bool:
        """Timing has started: the next step counts."""
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
        """Enough steps were measured."""
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
        """One more step ran; it counts if the pace was warm before it."""
        (self._measured_s if self.is_warm else self._warmup_s).append(step_time_s)


def is_stationary(step_times_s: Sequence[float], *, resolution: float) -> bool:
    """Whether the latest steps take as long as those just before them.

    Two windows that follow each other are compared, of three steps or of as many as there are. They agree where
    their medians differ by less than ``resolution``, as a share, or where their ranges overlap. Ranges that lie
    apart are the extreme of the rank-sum statistic of Mann and Whitney (Annals of Mathematical Statistics 18, 1947,
    table I: 1 chance in 20 for three against three, on either side), so any trend that outgrows the noise of three
    steps is seen, a fall as well as a rise. Nothing is assumed of the noise, and one disturbed step moves no median
    of three. Windows of a single step have no range: on a quiet device two equal steps suffice.

    The first step never counts: it compiles, allocates and exchanges shapes.
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
    """Half the 95 % confidence interval of the median; None where even the extremes bound it less surely (below six).

    The interval runs between two order statistics, equally far from both ends: the true median lies outside with the
    probability that so few of n fair coins show heads. It assumes nothing but independent steps.

    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd edition (1999), section 3.2.
    """
    ordered, num_outside = sorted(times_s), _num_outside(len(times_s))
    if num_outside is None:
        return None
    return (ordered[-1 - num_outside] - ordered[num_outside]) / 2


def _num_outside(num_steps: int) -> int | None:
    """Steps that the interval leaves out at each end."""
    chance, num_outside = 0.0, None
    for heads in range(num_steps // 2):
        chance += math.comb(num_steps, heads) / 2**num_steps
        if 2 * chance > 1 - _CONFIDENCE:
            break
        num_outside = heads
    return num_outside


LINKS = "links"
"""Fact of a measurement's environment: what ails the links of its cluster; left out where nothing does."""

FOREIGN_CPU_SHARE = "foreign_cpu_share"
"""Fact of a measurement's environment: neighbours are part of what a trial ran on."""


@value
class Peak:
    """What all ranks together could do: the denominator of MFU, and where it comes from."""

    flop_per_s: float
    source: str
    precision_flop_per_s: float | None = None
    """Their dense peak in the layout's precision; None where it is not known."""


@value
class Seen:
    """What was seen of the ranks beside their steps; fields are those of ``Measurement``."""

    peak_bytes: tuple[int, ...]
    """By rank, of those that told it."""
    reserved_bytes: tuple[int, ...] = ()
    phases: PhaseTimes | None = None
    """None where nobody divided the steps."""
    foreign_cpu_share: float
    compile_s: float = 0.0
    power_w: float | None = None
    sync_payload_bytes: float | None = None
    overlapped_share: float | None = None


def step_report(
    spec: TrialSpec,
    peak: Peak,
    *,
    step: int,
    is_warmup: bool,
    step_time_s: float,
    loss: float,
    tokens: int | None = None,
    is_under_trace: bool = False,
) -> StepReport:
    """One step as the sweep hears of it.

    Args:
        spec: The trial.
        peak: What MFU is a share of.
        step: Counts from 0.
        is_warmup: It does not count.
        step_time_s: On the slowest rank.
        loss: No number where nobody knows it.
        tokens: Of the whole job in this step; None: the workload's.
        is_under_trace: It counts for robust figures alone.
    """
    share = 1.0 if tokens is None else tokens / spec.workload.tokens_per_step
    return StepReport(
        step=step,
        is_warmup=is_warmup,
        step_time_s=step_time_s,
        loss=loss,
        tokens_per_s=share * spec.workload.tokens_per_step / step_time_s,
        mfu=share * model_flop(spec) / (step_time_s * peak.flop_per_s),
        is_under_trace=is_under_trace,
    )


def measurement_of(
    spec: TrialSpec, peak: Peak, steps: Sequence[StepReport], seen: Seen, *, environment: Mapping[str, str]
) -> Measurement:
    """The trial's answer, without a breakdown, from every step that was timed, warm-up included."""
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
    """From the first quartile to the third; 0 of a single value."""
    if len(values) < 2:
        return 0.0
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first

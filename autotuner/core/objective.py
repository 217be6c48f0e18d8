"""Objective: the metrics that a sweep ranks layouts by, and the limits that the layouts must keep."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.measurement import Measurement, ResourceCost, RobustMeasurement
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.units import format_rate
from autotuner.core.value import Caption, Flag, Positive, Rare, Typed, require_one_of, value

if TYPE_CHECKING:
    from autotuner.core.trial import Trial

Figures = Measurement | TrialEstimate | RobustMeasurement
"""Step time, MFU and token rate of a layout, measured or estimated, with their errors."""

_S_PER_HOUR = 3600.0


class Rates(Protocol):
    """The speed of a layout, measured or predicted: MFU and tokens per second."""

    @property
    def mfu(self) -> float:
        """The model FLOP utilization, 0..1."""

    @property
    def tokens_per_s(self) -> float:
        """The tokens per second of the whole job."""


class Metric(StrEnum):
    """A metric by which layouts are compared; higher is better.

    All except the last two (simplicity and robustness) are rates: a value per step divided by the step time.
    """

    MFU = "mfu"
    TOKENS_PER_S = "tokens_per_s"
    TOKENS_PER_JOULE = "tokens_per_joule"
    TOKENS_PER_DOLLAR = "tokens_per_dollar"
    TOKENS_PER_KG_CO2 = "tokens_per_kg_co2"
    SIMPLICITY = "simplicity"
    ROBUSTNESS = "robustness"

    @property
    def is_rate(self) -> bool:
        """True if the metric is a rate: a value per step divided by the step time.

        The metric of an objective must be a rate. Other metrics count only next to a rate, in a profile (a weighted
        product of metrics) or in a Pareto front.
        """
        return self not in (Metric.SIMPLICITY, Metric.ROBUSTNESS)

    @property
    def reads_resource_cost(self) -> bool:
        """True if the metric needs more than the speed of a layout, such as its power or price."""
        return self not in (Metric.MFU, Metric.TOKENS_PER_S)

    @property
    def noun(self) -> str:
        """The noun for the metric in a sentence, such as ``token rate``."""
        return _NOUNS[self]

    def of(self, rates: Rates, resource_cost: ResourceCost | None) -> float:
        """Return the value of the metric for one layout.

        Args:
            rates: Speed of the layout.
            resource_cost: Cost of the layout other than time (power, price, emissions, complexity); None: the metric
                must not need it.
        """
        match self:
            case Metric.MFU:
                return rates.mfu
            case Metric.TOKENS_PER_S:
                return rates.tokens_per_s
        assert resource_cost is not None  # a request whose cluster lacks the value was refused before
        return rates.tokens_per_s * self.per_token(resource_cost) if self.is_rate else self.share(resource_cost)

    def per_token(self, resource_cost: ResourceCost) -> float:
        """Return the factor that turns tokens per second into this metric: 1 divided by the cost per second.

        Args:
            resource_cost: Cost of the layout other than time: power, price per hour, emissions per hour.

        Returns:
            Tokens per joule, per dollar or per kg of CO2 at a rate of one token per second; 1.0 for other metrics.
        """
        match self:
            case Metric.TOKENS_PER_JOULE:
                assert resource_cost.power is not None
                return 1 / resource_cost.power.total_w
            case Metric.TOKENS_PER_DOLLAR:
                return _S_PER_HOUR / resource_cost.price_per_hour
            case Metric.TOKENS_PER_KG_CO2:
                return _S_PER_HOUR / resource_cost.co2_kg_per_hour
        return 1.0

    def share(self, resource_cost: ResourceCost) -> float:
        """Return the value, from 0 to 1, of simplicity or robustness. Simplicity is 1 / (1 + complexity).

        Args:
            resource_cost: Cost of the layout, with its complexity and robustness.
        """
        if self is Metric.ROBUSTNESS:
            assert resource_cost.robustness is not None
            return resource_cost.robustness
        return 1 / (1 + resource_cost.complexity)

    def in_words(self, value: float) -> str:
        """Return a value of the metric as text: ``41.0 % MFU``, ``104 ktoken/s``, ``0.62 token/J``.

        Example:
            >>> Metric.MFU.in_words(0.41), Metric.TOKENS_PER_S.in_words(104_000.0)
            ('41.0 % MFU', '104 ktoken/s')
        """
        has_unit = self.is_rate and self is not Metric.MFU
        return self.figure(value) if has_unit else f"{self.figure(value)} {self.noun}"

    def figure(self, value: float) -> str:
        """Return a value of the metric as text without the noun: ``41.0 %``, ``104 ktoken/s``, ``0.50``."""
        match self:
            case Metric.MFU | Metric.ROBUSTNESS:
                return f"{100 * value:.1f} %"
            case Metric.TOKENS_PER_S:
                return format_rate(value, "token/s")
            case Metric.TOKENS_PER_JOULE:
                return f"{value:.3g} token/J"
            case Metric.TOKENS_PER_DOLLAR:
                return format_rate(value, "token/$")
            case Metric.TOKENS_PER_KG_CO2:
                return format_rate(value, "token/kg CO2")
            case Metric.SIMPLICITY:
                return f"{value:.2f}"


_NOUNS = {
    Metric.MFU: "MFU",
    Metric.TOKENS_PER_S: "token rate",
    Metric.TOKENS_PER_JOULE: "tokens per joule",
    Metric.TOKENS_PER_DOLLAR: "tokens per dollar",
    Metric.TOKENS_PER_KG_CO2: "tokens per kg of CO2",
    Metric.SIMPLICITY: "simplicity",
    Metric.ROBUSTNESS: "robustness",
}


def known_metrics(cluster: Cluster, *, has_trace: bool = False) -> tuple[Metric, ...]:
    """Return every metric that can be computed for layouts from the cluster's prices, power and emissions.

    Args:
        cluster: Cluster with the prices, power and emissions.
        has_trace: Whether layouts run under a fault trace (injected link faults), so that their robustness is known.
    """
    return tuple(metric for metric in Metric if not _lacks(metric, cluster, has_trace=has_trace))


def require_known(objective: Objective, cluster: Cluster, *, has_trace: bool = False) -> None:
    """Check that the cluster has all values (prices, power, emissions) that the objective's metrics need.

    Args:
        objective: Objective of a sweep.
        cluster: Cluster with the prices, power and emissions.
        has_trace: Whether layouts run under a fault trace (injected link faults), so that their robustness is known.

    Raises:
        InvalidInput: A value is missing. The error names it, and suggests a metric that the cluster allows.
    """
    for metric in objective.metrics:
        if lacking := _lacks(metric, cluster, has_trace=has_trace):
            raise InvalidInput(_place(objective, metric), metric.value, lacking, _nearest(metric, cluster))


def _lacks(metric: Metric, cluster: Cluster, *, has_trace: bool) -> str:
    """Return the name of a cluster's field that a metric needs but that is not set; empty if none is missing."""
    tariff, power_w = cluster.tariff, cluster.accelerator.power_w
    needs_power = "needs cluster.accelerator.power_w above 0, which is the most watts that an accelerator draws"
    match metric:
        case Metric.TOKENS_PER_JOULE if not power_w:
            return needs_power
        case Metric.TOKENS_PER_KG_CO2 if not power_w:
            return needs_power
        case Metric.TOKENS_PER_KG_CO2 if not tariff.co2_kg_per_kwh:
            return "needs cluster.tariff.co2_kg_per_kwh above 0, which is the CO2 that the electricity causes"
        case Metric.TOKENS_PER_DOLLAR if not (_hourly(cluster) or (tariff.energy_price_per_kwh and power_w)):
            return "needs cluster.price_per_accelerator_hour above 0, or cluster.tariff.energy_price_per_kwh"
        case Metric.ROBUSTNESS if not has_trace:
            return "needs a fault_trace for the simulation of faults"
    return ""


def _hourly(cluster: Cluster) -> float:
    tariff = cluster.tariff
    return tariff.spot_price_per_accelerator_hour if tariff.is_spot else cluster.price_per_accelerator_hour


def _nearest(metric: Metric, cluster: Cluster) -> str:
    """Return a supported metric of the same kind: energy for emissions, simplicity for robustness, else speed."""
    if metric is Metric.ROBUSTNESS:
        return Metric.SIMPLICITY.value
    reads_energy = metric in (Metric.TOKENS_PER_KG_CO2, Metric.TOKENS_PER_DOLLAR)
    return (Metric.TOKENS_PER_JOULE if reads_energy and cluster.accelerator.power_w else Metric.TOKENS_PER_S).value


def _place(objective: Objective, metric: Metric) -> str:
    """Return the field of a request that names the metric."""
    if any(metric is one.metric for one in objective.profile):
        return "objective.profile"
    return "objective.front" if metric in objective.front else "objective.metric"


WORTHWHILE_GAIN = 0.01
"""Relative gain over the best trial that counts as an improvement. Smaller gains are noise on most machines."""


@value
class Weight:
    """The weight of one metric in a profile (a weighted product of metrics).

    The exponent of the metric in the product is its weight, divided by the sum of the weights of all metrics that are
    rates.
    """

    metric: Metric
    weight: Positive


def read_profile(text: str, field: str) -> tuple[Weight, ...]:
    """Return the metrics and weights of a profile (a weighted product of metrics) from a text.

    A metric without a weight gets the weight 1.

    Args:
        text: ``METRIC=WEIGHT,...``.
        field: Name of the field that holds the text, for error messages.

    Raises:
        InvalidInput: A metric is unknown, or a weight is not a number above 0.
    """
    return tuple(_weight(part.strip(), field) for part in text.split(",") if part.strip())


def read_metrics(text: str, field: str) -> tuple[Metric, ...]:
    """Return the metrics of a Pareto front from a text.

    Args:
        text: ``METRIC,...``.
        field: Name of the field that holds the text, for error messages.

    Raises:
        InvalidInput: A metric is unknown.
    """
    return tuple(_metric(part.strip(), field) for part in text.split(",") if part.strip())


def profile_text(profile: Iterable[Weight]) -> str:
    """Return a profile (a weighted product of metrics) as a text that ``read_profile`` reads."""
    return ",".join(f"{one.metric.value}={one.weight:g}" for one in profile)


def metrics_text(metrics: Iterable[Metric]) -> str:
    """Return metrics as a text that ``read_metrics`` reads."""
    return ",".join(metric.value for metric in metrics)


def _weight(part: str, field: str) -> Weight:
    name, _, weight = part.partition("=")
    metric = _metric(name.strip(), field)
    try:
        return Weight(metric=metric, weight=float(weight or 1))
    except ValueError:
        rule = "must be the name of a metric, =, and a weight above 0, for example mfu=2"
        raise InvalidInput(field, part, rule, f"{metric.value}=1") from None


def _metric(name: str, field: str) -> Metric:
    require_one_of(field, name, Metric)
    return Metric(name)


def _typed_profile(field: str, text: str) -> Any:
    return to_plain(read_profile(text, field))


def _typed_front(field: str, text: str) -> Any:
    return to_plain(read_metrics(text, field))


@value
class Objective:
    """The objective of a sweep: one metric, or a weighted product of several metrics (a profile), to maximise.

    Example:
        >>> Objective(metric=Metric.TOKENS_PER_DOLLAR).is_speed
        False
        >>> Objective(profile=read_profile("mfu=2,tokens_per_dollar=1", "profile")).noun
        'profile value'
    """

    metric: Annotated[Metric, Flag("objective"), Caption("Maximise")] = Metric.MFU
    """Metric to maximise, if there is no profile of several metrics. mfu and tokens_per_s give the same ranking."""
    under_faults: Annotated[bool, Caption("Rank under faults"), Rare()] = False
    """Rank by the values under the sweep's fault trace. A sweep with a fault trace sets this, and shows values without
    faults too."""
    profile: Annotated[
        tuple[Weight, ...],
        Typed(_typed_profile, profile_text, "mfu=2,tokens_per_dollar=1"),
        Caption("Weighted metrics"),
        Rare(),
    ] = ()
    """Metrics that are maximised together, each with a weight. The value of a layout is the product of its metrics,
    each to the power of its weight divided by the sum of the weights of all rates. Twice the speed at the same cost is
    then twice the value. Empty: only ``metric`` is maximised."""
    front: Annotated[
        tuple[Metric, ...],
        Typed(_typed_front, metrics_text, "mfu,tokens_per_dollar"),
        Caption("Pareto front of"),
        Rare(),
    ] = ()
    """Metrics of a Pareto front. The sweep looks for every layout that no other layout beats in all of these metrics,
    and ranks by ``metric`` or ``profile`` meanwhile. Empty: the sweep looks for the best layout only."""

    def __post_init__(self) -> None:
        if not self.metric.is_rate:
            rule = (
                "must be a rate, such as mfu or tokens_per_joule, because this metric says nothing of speed; to use "
                "it too, name it together with a rate in objective.profile (weighted metrics) or objective.front "
                "(Pareto front)"
            )
            raise InvalidInput("objective.metric", self.metric.value, rule)
        named = [one.metric for one in self.profile]
        for field, metrics in (("profile", named), ("front", list(self.front))):
            if len(set(metrics)) < len(metrics):
                raise InvalidInput(f"objective.{field}", [one.value for one in metrics], "must name each metric once")
            if metrics and not any(one.is_rate for one in metrics):
                rule = (
                    "must also name a rate, such as mfu or tokens_per_joule, because the other metrics say "
                    "nothing of speed"
                )
                raise InvalidInput(f"objective.{field}", [one.value for one in metrics], rule)
        if len(self.front) == 1:
            rule = "must name two or more metrics; to find the best layout by one metric, set objective.metric"
            raise InvalidInput("objective.front", [self.front[0].value], rule)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics by which trials are compared, including the metrics of the Pareto front. Each occurs once."""
        ranked = tuple(one.metric for one in self.profile) or (self.metric,)
        return tuple(dict.fromkeys((*ranked, *self.front)))

    @property
    def reads_resource_cost(self) -> bool:
        """True if some metric needs more than the speed of layouts, such as their power or price."""
        return any(metric.reads_resource_cost for metric in self.metrics)

    def value_per_step(self, job: Job, resource_cost: ResourceCost | None = None) -> float:
        """Return the number that, divided by a layout's step time, gives the layout's value of the objective.

        If the resource cost has columns, the result is a column.

        Args:
            job: The job that the steps belong to.
            resource_cost: Cost of the layout other than time; None if no metric needs it.
        """
        if not self.profile:
            return _value_per_step(self.metric, job, resource_cost)
        return _product((_value_per_step(one, job, resource_cost), share) for one, share in self._shares())

    def counted(self, reached: Measurement | TrialEstimate) -> Figures:
        """Return the results of a trial that the objective counts: of steps under a fault trace, or of nominal steps.

        Nominal steps run without injected faults. Steps under the trace count if the objective is about faults and the
        trial has measured such steps.

        Args:
            reached: Measurement or estimate of the trial.
        """
        if self.under_faults and isinstance(reached, Measurement) and reached.robust is not None:
            return reached.robust
        return reached

    def value(self, reached: Measurement | TrialEstimate) -> float:
        """Return the objective's value for a trial, from its measurement or estimate."""
        return self.value_of(self.counted(reached), reached.resource_cost)

    def healthy_value(self, reached: Measurement | TrialEstimate) -> float:
        """Return the objective's value for a trial, computed from its nominal steps (without injected faults)."""
        return self.value_of(reached, reached.resource_cost)

    def value_of(self, rates: Rates, resource_cost: ResourceCost | None) -> float:
        """Return the objective's value for one layout.

        Args:
            rates: Speed of the layout.
            resource_cost: Cost of the layout other than time; None if no metric needs it.
        """
        if not self.profile:
            return self.metric.of(rates, resource_cost)
        return _product((one.of(rates, resource_cost), share) for one, share in self._shares())

    @property
    def is_speed(self) -> bool:
        """True if the fastest layout is always the best one, because the objective reads only the speed of layouts.

        For one job, MFU and token rate rank layouts in the same order.
        """
        return not self.profile and not self.metric.reads_resource_cost

    def _shares(self) -> list[tuple[Metric, float]]:
        """Return each metric of the profile with its exponent in the product."""
        of_rates = sum(one.weight for one in self.profile if one.metric.is_rate)
        return [(one.metric, one.weight / of_rates) for one in self.profile]

    def predicted_step_s(self, prediction: Prediction) -> float:
        """Return the predicted step time that the objective counts: under the fault trace, or without faults.

        The objective's field ``under_faults`` decides; without a fault trace, the step time is the one without faults.
        """
        robust_s = prediction.robust_step_s if self.under_faults else None
        return prediction.step_time.total_s if robust_s is None else robust_s

    def ranked(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials that have a rank, the best first. Trials with equal values are ordered by number."""
        return self._best_first(trial for trial in trials if trial.is_ranked)

    def leading(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials that have a rank or only lack a passed convergence gate, the best first.

        A convergence gate is a short training that shows whether a layout trains as well as a reference.
        """
        return self._best_first(trial for trial in trials if trial.is_ranked or trial.awaits_gate)

    def _best_first(self, trials: Iterable[Trial]) -> list[Trial]:
        reached = [(trial, trial.reached) for trial in trials if trial.reached]
        return [trial for trial, found in sorted(reached, key=lambda pair: (-self.value(pair[1]), pair[0].number))]

    @property
    def noun(self) -> str:
        """The noun for the objective's value in a sentence, such as ``MFU`` or ``profile value``."""
        noun = "profile value" if self.profile else self.metric.noun
        return f"robust {noun}" if self.under_faults else noun

    def figure(self, value: float) -> str:
        """Return a value of the objective as text without the noun. The value of a profile has no unit."""
        return f"{value:.4g}" if self.profile else self.metric.figure(value)

    def in_words(self, value: float) -> str:
        """Return a value of the objective as text: ``41.0 % MFU``, ``38.2 % robust MFU``, ``104 ktoken/s``."""
        if self.profile or self.metric is Metric.MFU:
            return f"{self.figure(value)} {self.noun}"
        return self.metric.in_words(value) + (" under faults" if self.under_faults else "")


def _product(powers: Iterable[tuple[float, float]]) -> float:
    """Return the product of several values, each raised to its exponent. Columns of values give a column."""
    product: float = reduce(operator.mul, (value**share for value, share in powers))
    return product


def _value_per_step(metric: Metric, job: Job, resource_cost: ResourceCost | None) -> float:
    """Return the amount of a metric that one step earns, such as tokens.

    A metric that is not a rate returns its value.
    """
    tokens = float(job.workload.tokens_per_step)
    match metric:
        case Metric.MFU:
            model_flop = job.model.model_flop_per_step(job.workload)
            return model_flop / (job.cluster.accelerator.reference_flop_per_s * job.cluster.world_size)
        case Metric.TOKENS_PER_S:
            return tokens
    assert resource_cost is not None
    return tokens * metric.per_token(resource_cost) if metric.is_rate else metric.share(resource_cost)

"""Objective: the metrics that a sweep ranks layouts by, and the limits that they keep."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.measurement import Footprint, Measurement, RobustMeasurement
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.units import format_rate
from autotuner.core.value import Caption, Flag, Positive, Rare, Typed, value

if TYPE_CHECKING:
    from autotuner.core.trial import Trial

Figures = Measurement | TrialEstimate | RobustMeasurement
"""Step time, MFU and token rate, with how well they are known."""

_S_PER_HOUR = 3600.0


class Rates(Protocol):
    """How fast a layout is, reached or predicted."""

    @property
    def mfu(self) -> float:
        """Model FLOP utilization."""

    @property
    def tokens_per_s(self) -> float:
        """Of the whole job."""


class Metric(StrEnum):
    """Something that more of is better; all but the last two are a worth per step over the step time."""

    MFU = "mfu"
    TOKENS_PER_S = "tokens_per_s"
    TOKENS_PER_JOULE = "tokens_per_joule"
    TOKENS_PER_DOLLAR = "tokens_per_dollar"
    TOKENS_PER_KG_CO2 = "tokens_per_kg_co2"
    SIMPLICITY = "simplicity"
    ROBUSTNESS = "robustness"

    @property
    def is_rate(self) -> bool:
        """Whether it is a worth per step over the step time, so that it can rank trials by itself."""
        return self not in (Metric.SIMPLICITY, Metric.ROBUSTNESS)

    @property
    def reads_footprint(self) -> bool:
        """Whether steps alone do not tell it."""
        return self not in (Metric.MFU, Metric.TOKENS_PER_S)

    @property
    def noun(self) -> str:
        """What it is called in a sentence."""
        return _NOUNS[self]

    def of(self, rates: Rates, footprint: Footprint | None) -> float:
        """What a layout that is so fast, and takes so much beside time, is worth by it."""
        match self:
            case Metric.MFU:
                return rates.mfu
            case Metric.TOKENS_PER_S:
                return rates.tokens_per_s
        assert footprint is not None  # a request whose cluster cannot tell it is refused
        return rates.tokens_per_s * self.per_token(footprint) if self.is_rate else self.share(footprint)

    def per_token(self, footprint: Footprint) -> float:
        """What one token per second is worth by a rate, of a job that takes so much beside time."""
        match self:
            case Metric.TOKENS_PER_JOULE:
                assert footprint.power is not None
                return 1 / footprint.power.total_w
            case Metric.TOKENS_PER_DOLLAR:
                return _S_PER_HOUR / footprint.price_per_hour
            case Metric.TOKENS_PER_KG_CO2:
                return _S_PER_HOUR / footprint.co2_kg_per_hour
        return 1.0

    def share(self, footprint: Footprint) -> float:
        """What is no rate, 0..1: simplicity is 1 over 1 and the complexity."""
        if self is Metric.ROBUSTNESS:
            assert footprint.robustness is not None
            return footprint.robustness
        return 1 / (1 + footprint.complexity)

    def in_words(self, value: float) -> str:
        """The value as people read it: ``41.0 % MFU``, ``104 ktoken/s``, ``0.62 token/J``."""
        has_unit = self.is_rate and self is not Metric.MFU
        return self.figure(value) if has_unit else f"{self.figure(value)} {self.noun}"

    def figure(self, value: float) -> str:
        """The same where the noun stands beside it: ``41.0 %``, ``104 ktoken/s``, ``0.50``."""
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


def metrics_told(cluster: Cluster, *, has_trace: bool = False) -> tuple[Metric, ...]:
    """Every metric that layouts on a cluster can be compared by.

    Args:
        cluster: Whose prices, power and emissions count.
        has_trace: Layouts run under a fault trace, so that their robustness is known.
    """
    return tuple(metric for metric in Metric if not _lacks(metric, cluster, has_trace=has_trace))


def require_told(objective: Objective, cluster: Cluster, *, has_trace: bool = False) -> None:
    """Return if all that an objective reads is known of a cluster.

    Raises:
        InvalidInput: Something is not; with what would have to be said, and the nearest metric that can be told.
    """
    for metric in objective.metrics:
        if lacking := _lacks(metric, cluster, has_trace=has_trace):
            raise InvalidInput(_place(objective, metric), metric.value, lacking, _nearest(metric, cluster))


def _lacks(metric: Metric, cluster: Cluster, *, has_trace: bool) -> str:
    """What is not known of a cluster without which a metric has no value; empty where nothing is missing."""
    tariff, power_w = cluster.tariff, cluster.accelerator.power_w
    needs_power = "needs cluster.accelerator.power_w above 0: what an accelerator draws at most, in watts"
    match metric:
        case Metric.TOKENS_PER_JOULE if not power_w:
            return needs_power
        case Metric.TOKENS_PER_KG_CO2 if not power_w:
            return needs_power
        case Metric.TOKENS_PER_KG_CO2 if not tariff.co2_kg_per_kwh:
            return "needs cluster.tariff.co2_kg_per_kwh above 0: what the energy's mix emits"
        case Metric.TOKENS_PER_DOLLAR if not (_hourly(cluster) or (tariff.energy_price_per_kwh and power_w)):
            return "needs cluster.price_per_accelerator_hour above 0, or cluster.tariff.energy_price_per_kwh"
        case Metric.ROBUSTNESS if not has_trace:
            return "needs a fault_trace that layouts run under"
    return ""


def _hourly(cluster: Cluster) -> float:
    tariff = cluster.tariff
    return tariff.spot_price_per_accelerator_hour if tariff.is_spot else cluster.price_per_accelerator_hour


def _nearest(metric: Metric, cluster: Cluster) -> str:
    """A metric of the same kind that is known: energy for emissions, simplicity for robustness, else speed."""
    if metric is Metric.ROBUSTNESS:
        return Metric.SIMPLICITY.value
    reads_energy = metric in (Metric.TOKENS_PER_KG_CO2, Metric.TOKENS_PER_DOLLAR)
    return (Metric.TOKENS_PER_JOULE if reads_energy and cluster.accelerator.power_w else Metric.TOKENS_PER_S).value


def _place(objective: Objective, metric: Metric) -> str:
    """Field of a request that names the metric."""
    if any(metric is one.metric for one in objective.profile):
        return "objective.profile"
    return "objective.front" if metric in objective.front else "objective.metric"


WORTHWHILE_GAIN = 0.01
"""A trial beats the best when it is better by 1 %: less than that is noise on most machines."""


@value
class Weight:
    """How much one metric counts in a profile: its exponent, beside the others'."""

    metric: Metric
    weight: Positive


def read_profile(text: str, field: str) -> tuple[Weight, ...]:
    """Metrics with their weights; one without a weight counts 1.

    Args:
        text: ``METRIC=WEIGHT,...``.
        field: What the text is called in errors.

    Raises:
        InvalidInput: A metric that there is not, or a weight that is no number above 0.
    """
    return tuple(_weight(part.strip(), field) for part in text.split(",") if part.strip())


def read_metrics(text: str, field: str) -> tuple[Metric, ...]:
    """Metrics of a front: ``METRIC,...``.

    Raises:
        InvalidInput: A metric that there is not.
    """
    return tuple(_metric(part.strip(), field) for part in text.split(",") if part.strip())


def profile_text(profile: Iterable[Weight]) -> str:
    """As ``read_profile`` reads it."""
    return ",".join(f"{one.metric.value}={one.weight:g}" for one in profile)


def metrics_text(metrics: Iterable[Metric]) -> str:
    """As ``read_metrics`` reads it."""
    return ",".join(metric.value for metric in metrics)


def _weight(part: str, field: str) -> Weight:
    name, _, weight = part.partition("=")
    metric = _metric(name.strip(), field)
    try:
        return Weight(metric=metric, weight=float(weight or 1))
    except ValueError:
        rule = "must be a number above 0 after the metric's name"
        raise InvalidInput(field, part, rule, f"{metric.value}=1") from None


def _metric(name: str, field: str) -> Metric:
    try:
        return Metric(name)
    except ValueError:
        known = [metric.value for metric in Metric]
        near = get_close_matches(name.lower(), known, 1, cutoff=0.0)
        raise InvalidInput(field, name, f"must be one of {', '.join(known)}", near[0]) from None


def _typed_profile(field: str, text: str) -> Any:
    return to_plain(read_profile(text, field))


def _typed_front(field: str, text: str) -> Any:
    return to_plain(read_metrics(text, field))


@value
class Objective:
    """What a sweep maximises: how values come from step times, which trials count, and what people read."""

    metric: Annotated[Metric, Flag("objective"), Caption("Maximise")] = Metric.MFU
    """What is maximised, where there is no profile. mfu and tokens_per_s give the same ranking."""
    under_faults: Annotated[bool, Rare()] = False
    """Whether what counts is what a layout reaches under the fault trace of its sweep; so it is wherever there is one.
    Healthy steps stand beside."""
    profile: Annotated[
        tuple[Weight, ...],
        Typed(_typed_profile, profile_text, "mfu=2,tokens_per_dollar=1"),
        Caption("Weighed against each other"),
        Rare(),
    ] = ()
    """Metrics that count together, each with a weight. What counts is the product of their values, each to the power of
    its weight over the weights of all rates, so that twice the speed at the same footprint is twice the value. Empty:
    the metric."""
    front: Annotated[
        tuple[Metric, ...],
        Typed(_typed_front, metrics_text, "mfu,tokens_per_dollar"),
        Caption("Without a trade between"),
        Rare(),
    ] = ()
    """Metrics that no trade is made between. The sweep looks for every layout that no other beats in all of them, and
    ranks by the metric or the profile meanwhile. Empty: it looks for the best alone."""

    def __post_init__(self) -> None:
        if not self.metric.is_rate:
            rule = f"{self.metric.noun} says nothing of speed: it counts in a profile or a front, beside a rate"
            raise InvalidInput("objective.metric", self.metric.value, rule, Metric.MFU.value)
        named = [one.metric for one in self.profile]
        for field, metrics in (("profile", named), ("front", list(self.front))):
            if len(set(metrics)) < len(metrics):
                raise InvalidInput(f"objective.{field}", [one.value for one in metrics], "must name each metric once")
            if metrics and not any(one.is_rate for one in metrics):
                rule = "needs a rate, such as mfu, beside what says nothing of speed"
                raise InvalidInput(f"objective.{field}", [one.value for one in metrics], rule, Metric.MFU.value)
        if len(self.front) == 1:
            rule = "must name two metrics or more: the best by one is what the objective's metric asks for"
            raise InvalidInput("objective.front", [self.front[0].value], rule)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Everything that trials are compared by, each once."""
        ranked = tuple(one.metric for one in self.profile) or (self.metric,)
        return tuple(dict.fromkeys((*ranked, *self.front)))

    @property
    def reads_footprint(self) -> bool:
        """Whether steps alone do not tell it."""
        return any(metric.reads_footprint for metric in self.metrics)

    def worth_per_step(self, job: Job, footprint: Footprint | None = None) -> float:
        """What one step is worth: divided by a step time in seconds it is the value of a layout.

        Of columns of footprints it is a column.

        Args:
            job: Whose steps they are.
            footprint: What the layout takes beside time; None where nothing reads it.
        """
        if not self.profile:
            return _worth(self.metric, job, footprint)
        return _product((_worth(one, job, footprint), share) for one, share in self._shares())

    def counted(self, reached: Measurement | TrialEstimate) -> Figures:
        """Those figures of what a trial reached that it is compared by."""
        if self.under_faults and isinstance(reached, Measurement) and reached.robust is not None:
            return reached.robust
        return reached

    def value(self, reached: Measurement | TrialEstimate) -> float:
        """What a trial is worth that reached so much."""
        return self.value_of(self.counted(reached), reached.footprint)

    def healthy_value(self, reached: Measurement | TrialEstimate) -> float:
        """What its healthy steps are worth."""
        return self.value_of(reached, reached.footprint)

    def value_of(self, rates: Rates, footprint: Footprint | None) -> float:
        """What a layout is worth that is so fast, reached or predicted, and takes so much beside time."""
        if not self.profile:
            return self.metric.of(rates, footprint)
        return _product((one.of(rates, footprint), share) for one, share in self._shares())

    @property
    def is_speed(self) -> bool:
        """Whether the fastest is the best: MFU and token rate of a job rank its layouts alike."""
        return not self.profile and not self.metric.reads_footprint

    def _shares(self) -> list[tuple[Metric, float]]:
        """Each metric of the profile with its exponent."""
        of_rates = sum(one.weight for one in self.profile if one.metric.is_rate)
        return [(one.metric, one.weight / of_rates) for one in self.profile]

    def predicted_step_s(self, prediction: Prediction) -> float:
        """The predicted step time that counts."""
        robust_s = prediction.robust_step_s if self.under_faults else None
        return prediction.step_time.total_s if robust_s is None else robust_s

    def ranked(self, trials: Iterable[Trial]) -> list[Trial]:
        """The trials that have a rank, the best first; equal ones by number."""
        return self._best_first(trial for trial in trials if trial.is_ranked)

    def leading(self, trials: Iterable[Trial]) -> list[Trial]:
        """The same with those that would have a rank if their loss gate passed."""
        return self._best_first(trial for trial in trials if trial.is_ranked or trial.awaits_gate)

    def _best_first(self, trials: Iterable[Trial]) -> list[Trial]:
        reached = [(trial, trial.reached) for trial in trials if trial.reached]
        return [trial for trial, found in sorted(reached, key=lambda pair: (-self.value(pair[1]), pair[0].number))]

    @property
    def noun(self) -> str:
        """What the value is called in a sentence."""
        noun = "profile value" if self.profile else self.metric.noun
        return f"robust {noun}" if self.under_faults else noun

    def figure(self, value: float) -> str:
        """The value where the noun stands beside it; that of a profile has no unit."""
        return f"{value:.4g}" if self.profile else self.metric.figure(value)

    def in_words(self, value: float) -> str:
        """The value as people read it: ``41.0 % MFU``, ``38.2 % robust MFU``, ``104 ktoken/s``."""
        if self.profile or self.metric is Metric.MFU:
            return f"{self.figure(value)} {self.noun}"
        return self.metric.in_words(value) + (" under faults" if self.under_faults else "")


def _product(powers: Iterable[tuple[float, float]]) -> float:
    """Each value to the power of its share, multiplied; columns of values make a column."""
    product: float = reduce(operator.mul, (value**share for value, share in powers))
    return product


def _worth(metric: Metric, job: Job, footprint: Footprint | None) -> float:
    """What a step is worth by a metric; what is no rate says so of every step."""
    tokens = float(job.workload.tokens_per_step)
    match metric:
        case Metric.MFU:
            model_flop = job.model.model_flop_per_step(job.workload)
            return model_flop / (job.cluster.accelerator.reference_flop_per_s * job.cluster.world_size)
        case Metric.TOKENS_PER_S:
            return tokens
    assert footprint is not None
    return tokens * metric.per_token(footprint) if metric.is_rate else metric.share(footprint)

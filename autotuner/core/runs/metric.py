"""Metric: one thing that layouts are compared by, and that more of is better."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from autotuner.core.runs.estimate import TrialEstimate
from autotuner.core.runs.footprint import Footprint
from autotuner.core.runs.measurement import Measurement
from autotuner.core.runs.robust import RobustMeasurement
from autotuner.units import format_rate

__all__ = ["Figures", "Metric", "Rates"]

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

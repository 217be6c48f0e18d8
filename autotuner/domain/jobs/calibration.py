"""Calibration: what is known of one cluster's speed beside that of a typical one."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.domain import check

__all__ = ["Calibration"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What measured runs on this very cluster say of all its step times.

    A cluster is slower or faster than others of its kind as a whole: clocks, cooling, versions, what else uses its
    network. The factor is common to all layouts, so that it changes no order.

    Attributes:
        factor: Step times here over those predicted for a typical cluster.
        deviation: Standard deviation of the factor's logarithm that is left after those runs.
        num_runs: Measured runs that told it.
    """

    factor: float
    deviation: float
    num_runs: int

    def __post_init__(self) -> None:
        check.positive(self, "factor", "num_runs")
        check.non_negative(self, "deviation")

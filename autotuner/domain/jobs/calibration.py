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
        num_trials: Those of them that are stored trials of earlier sweeps.
        num_sweeps: How many sweeps these belong to.
    """

    factor: float
    deviation: float
    num_runs: int
    num_trials: int = 0
    num_sweeps: int = 0

    def __post_init__(self) -> None:
        check.positive(self, "factor", "num_runs")
        check.non_negative(self, "deviation", "num_trials", "num_sweeps")

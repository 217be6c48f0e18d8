"""Calibration: what is known of the speed of one cluster and its software beside what is predicted."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core import check
from autotuner.errors import InvalidInput

__all__ = ["BF16_ON_CORES", "BF16_PARTS", "Calibration", "PartFactor"]

BF16_ON_CORES = "bf16_on_cores"
"""Part name of the factor for layouts on cores that multiply in bf16 rather than in the reference precision, fp32. It
multiplies the factors of ``BF16_PARTS``: some cores compute bf16 in units of their own, others emulate it."""

BF16_PARTS = ("matrix_s", "attention_s", "recompute_s", "bubble_s")
"""Fields of ``StepTime`` that take longer where products do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFactor:
    """How much longer one part of a step takes here than predicted.

    Attributes:
        part: A field of ``StepTime``, or ``BF16_ON_CORES``.
        factor: Its time here over that predicted, beside the factor of the whole step.
        deviation: Standard deviation of the factor's logarithm that is left.
    """

    part: str
    factor: float
    deviation: float

    def __post_init__(self) -> None:
        check.positive(self, "factor")
        check.non_negative(self, "deviation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What measured runs say of all step times on a cluster.

    A cluster is slower or faster than others of its kind as a whole: clocks, cooling, versions, what else uses its
    network. The factor is common to all layouts, so that it changes no order. Where stored trials tell more, each part
    of a step has a factor beside it: 1 for what takes as much longer as the runs did as a whole.

    Attributes:
        factor: Step times here over those predicted for a typical cluster.
        deviation: Standard deviation of the factor's logarithm that is left after those runs.
        num_runs: Measured runs that told it.
        num_trials: Those of them that are stored trials of earlier sweeps.
        num_sweeps: How many sweeps these belong to.
        parts: What each part of a step takes beside that; empty: only the whole is known.
        correlations: Of the logarithms of the factors with each other, those of the parts in their order and then that
            of the whole: runs that tell the sum of two parts well may leave each of them open. A square.
        interval_scale: What intervals are multiplied by, in logarithms, so that they hold as many of the runs as they
            claim, each predicted from the runs of other jobs alone.
    """

    factor: float
    deviation: float
    num_runs: int
    num_trials: int = 0
    num_sweeps: int = 0
    parts: tuple[PartFactor, ...] = ()
    correlations: tuple[tuple[float, ...], ...] = ()
    interval_scale: float = 1.0

    def __post_init__(self) -> None:
        check.positive(self, "factor", "num_runs", "interval_scale")
        check.non_negative(self, "deviation", "num_trials", "num_sweeps")
        size = len(self.parts) + 1 if self.parts else 0
        if [len(row) for row in self.correlations] != [size] * size:
            shape = [len(row) for row in self.correlations]
            rule = f"must be {size} rows of {size} numbers: of each part, and of the whole"
            raise InvalidInput("correlations", shape, rule)

    def of(self, part: str) -> float:
        """What a part of a step takes here over what is predicted of it, by its own factor and by that of the whole."""
        return self.factor * self._beside(part)

    @property
    def bf16_on_cores(self) -> float:
        """Return the factor of ``BF16_PARTS`` in bf16 on cores, beside their factors in fp32."""
        return self._beside(BF16_ON_CORES)

    def _beside(self, part: str) -> float:
        return next((one.factor for one in self.parts if one.part == part), 1.0)

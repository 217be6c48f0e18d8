"""What the cost model answers; nothing in here was measured."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.domain.layout import Layout
from autotuner.domain.prediction import Memory, StepTime

__all__ = ["Predicted", "PredictedLayout", "PredictionTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What the cost model answers for one layout. Nothing here was measured.

    Attributes:
        step_time_s: Sum of the parts of ``step_time``.
        peak_bytes: Sum of the parts of ``memory``: one rank, worst stage.
        tokens_per_s: Whole job.
        mfu: Model FLOP over what the dense peak could do, 0..1.
        hfu: The same with recomputed FLOP counted.
        fits: The peak is within the accelerator's memory.
        fit_probability: How likely the measured peak is to be within it, 0..1.
        relative_error: Half-width e of the 80 % interval: the measured step time lies between step_time_s / (1 + e) and
            step_time_s * (1 + e) in 80 of 100 cases, and throughput, MFU and HFU as far from theirs; null in records
            older than this field.
        validated: The error was measured on published runs on this kind of device, not assumed.
    """

    step_time_s: float
    peak_bytes: float
    tokens_per_s: float
    mfu: float
    hfu: float
    fits: bool
    fit_probability: float | None
    relative_error: float | None
    validated: bool
    step_time: StepTime
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedLayout:
    """A layout with its prediction.

    Attributes:
        rank: From 1, by predicted MFU among the layouts predicted to fit.
        label: The layout in short: ``tp2 pp4 1f1b mb1``.
    """

    rank: int
    label: str
    layout: Layout
    predicted: Predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """The layouts predicted to be best.

    Attributes:
        num_legal: Layouts of the space that break no rule; null when one layout was asked for.
        num_fitting: Those predicted to fit in memory; null when one layout was asked for.
    """

    items: tuple[PredictedLayout, ...]
    num_legal: int | None
    num_fitting: int | None

"""What the cost model answers; nothing in here was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from api.documents import extended
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.choice import Precision
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.prediction import Prediction

__all__ = ["Predicted", "PredictedLayout", "PredictionTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted(Prediction):
    """What the cost model answers for one layout, totals beside their parts. Nothing here was measured.

    Attributes:
        step_time_s: Sum of the parts of ``step_time``.
        peak_bytes: Sum of the parts of ``memory``: one rank, worst stage.
        fit_probability: How likely the measured peak is to be within the memory, 0..1.
        relative_error: Half-width e of the 80 % interval: the measured step time lies between step_time_s / (1 + e) and
            step_time_s * (1 + e) in 80 of 100 cases, and throughput, MFU and HFU as far from theirs; null in records
            older than this field.
    """

    step_time_s: float
    peak_bytes: float

    @classmethod
    def of(cls, prediction: Prediction) -> Self:
        """The prediction with its totals."""
        return extended(
            cls, prediction, step_time_s=prediction.step_time.total_s, peak_bytes=prediction.memory.total_bytes
        )


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

    @classmethod
    def of(cls, rank: int, layout: Layout, prediction: Prediction) -> Self:
        """A row of a table."""
        return cls(rank=rank, label=str(layout), layout=layout, predicted=Predicted.of(prediction))


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """The layouts predicted to be best.

    Attributes:
        reference_precision: Format of the reference peak.
        reference_flop_per_s: Dense peak of one accelerator that every MFU of the table is a share of.
        num_legal: Layouts of the space that break no rule; null when one layout was asked for.
        num_fitting: Those predicted to fit in memory; null when one layout was asked for.
        caveats: What a reader should know: what of it was never compared with a measured run, whose constants were
            borrowed, what the measured runs that were sent say; sentences without full stops.
    """

    items: tuple[PredictedLayout, ...]
    reference_precision: Precision
    reference_flop_per_s: float
    num_legal: int | None
    num_fitting: int | None
    caveats: tuple[str, ...]

    @classmethod
    def of(
        cls,
        job: Job,
        items: tuple[PredictedLayout, ...],
        *,
        caveats: tuple[str, ...],
        num_legal: int | None = None,
        num_fitting: int | None = None,
    ) -> Self:
        """The rows with what they are a share of."""
        accelerator = job.cluster.accelerator
        return cls(
            items=items,
            reference_precision=accelerator.reference_precision,
            reference_flop_per_s=accelerator.reference_flop_per_s,
            num_legal=num_legal,
            num_fitting=num_fitting,
            caveats=caveats,
        )

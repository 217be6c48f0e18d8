"""What the cost model answers; nothing in here was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from autotuner.core.caveat import Caveat
from autotuner.core.choices import Precision
from autotuner.core.job import Job
from autotuner.core.model import ModelSize
from autotuner.search.preview import PredictedBest, PredictedOne
from autotuner.search.ranking import PredictedLayout
from autotuner.search.suggestions import Current, Shortfall, Unsearched


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """The layouts predicted to be best."""

    model_size: ModelSize
    """How large the model is that they are layouts of."""
    items: tuple[PredictedLayout, ...]
    reference_precision: Precision
    """Format of the reference peak."""
    reference_flop_per_s: float
    """Dense peak of one accelerator that every MFU of the table is a share of."""
    num_legal: int | None
    """Layouts of the space that break no rule; null when one layout was asked for."""
    num_fitting: int | None
    """Those predicted to fit in memory; null when one layout was asked for."""
    caveats: tuple[Caveat, ...]
    """What a reader should know: what of it was never compared with a measured run, whose constants were borrowed, what
    the measured runs that were sent say."""
    unchanged: PredictedLayout | None = None
    """The best layout that keeps the mathematics, where every row changes them."""
    not_searched: tuple[Unsearched, ...] = ()
    """Layouts one step outside the space that are expected to beat its best, the fastest first."""
    shortfall: Shortfall | None = None
    """What is missing and what would help, where no layout fits."""
    current: Current | None = None
    """What runs today, where the request says it."""

    @classmethod
    def answering(cls, job: Job, found: PredictedBest) -> Self:
        """The best of a space, and what is to be said beside them."""
        table = found.table
        return replace(
            cls._of(job, tuple(replace(row, rank=rank) for rank, row in enumerate(table.rows, 1)), found),
            num_legal=table.num_legal,
            num_fitting=table.num_fitting,
            unchanged=table.unchanged,
            not_searched=found.advice.not_searched,
            shortfall=found.advice.shortfall,
        )

    @classmethod
    def of_one(cls, job: Job, found: PredictedOne) -> Self:
        """One layout."""
        return cls._of(job, (replace(found.row, rank=1),), found)

    @classmethod
    def _of(cls, job: Job, items: tuple[PredictedLayout, ...], found: PredictedBest | PredictedOne) -> Self:
        """The rows with what they are a share of."""
        accelerator = job.cluster.accelerator
        return cls(
            model_size=ModelSize.of(job.model),
            items=items,
            reference_precision=accelerator.reference_precision,
            reference_flop_per_s=accelerator.reference_flop_per_s,
            num_legal=None,
            num_fitting=None,
            caveats=found.caveats,
            current=found.current,
        )

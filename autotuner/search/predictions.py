"""What the cost model answers; nothing in here was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from autotuner.core.caveat import Caveat
from autotuner.core.choices import Precision
from autotuner.core.field_change import FieldChange
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Footprint
from autotuner.core.model import ModelSize
from autotuner.core.prediction import Prediction
from autotuner.core.rules.rule import Reason
from autotuner.search import ranking, suggestions
from autotuner.search.preview import PredictedBest, PredictedOne


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedLayout:
    """A layout with its prediction."""

    rank: int | None
    """From 1, by the predicted value, which is MFU unless something else was asked for, x probability to fit, among the
    layouts predicted to fit; null outside a ranking."""
    label: str
    """The layout in short: ``tp2 pp4 1f1b mb1``."""
    changes_mathematics: bool
    """It trains another function than most layouts do (fp8), so that its speed is not all that counts."""
    layout: Layout
    predicted: Prediction
    footprint: Footprint | None = None
    """What it takes beside time, as modelled; null where nobody asked."""

    @classmethod
    def of(cls, row: ranking.PredictedLayout, rank: int | None = None) -> Self:
        """A row of a table."""
        return cls(
            rank=rank,
            label=str(row.layout),
            changes_mathematics=not row.layout.is_equivalent,
            layout=row.layout,
            predicted=row.prediction,
            footprint=row.footprint,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSearched:
    """A layout outside the space, one step from the best one inside."""

    changes: tuple[FieldChange, ...]
    """From the best one to it."""
    saved_share: float
    """Share of the best one's step that it is predicted to save."""
    candidate: PredictedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Changes that may make a layout fit."""

    kinds: tuple[suggestions.RemedyKind, ...]
    """Of the space or the workload."""
    missing_bytes: float
    """What the candidate lacks with it; 0 where it fits."""
    candidate: PredictedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerCluster:
    """The smallest cluster of the same accelerators on which a layout of the space fits."""

    num_accelerators: int
    num_nodes: int
    best: PredictedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Why nothing fits, and what would."""

    missing_bytes: float
    """What the fullest rank of the nearest layout lacks."""
    nearest: PredictedLayout
    """The layout of the space with the smallest peak."""
    remedies: tuple[Remedy, ...]
    """Changes that make a layout fit, the fastest first; where none does, all of them at once."""
    larger: LargerCluster | None
    """Null where not even 128 times the nodes are enough."""

    @classmethod
    def of(cls, shortfall: suggestions.Shortfall) -> Self:
        """What the search found."""
        larger = None
        if (found := shortfall.larger) is not None:
            num_accelerators, best = found.num_nodes * found.accelerators_per_node, PredictedLayout.of(found.best)
            larger = LargerCluster(num_accelerators=num_accelerators, num_nodes=found.num_nodes, best=best)
        return cls(
            missing_bytes=shortfall.missing_bytes,
            nearest=PredictedLayout.of(shortfall.nearest),
            remedies=tuple(
                Remedy(kinds=one.kinds, missing_bytes=one.missing_bytes, candidate=PredictedLayout.of(one.candidate))
                for one in shortfall.remedies
            ),
            larger=larger,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The layout that runs today, beside a table of predictions."""

    label: str
    """The layout in short."""
    layout: Layout
    candidate: PredictedLayout | None
    """It with its prediction; null where it breaks a rule."""
    reasons: tuple[Reason, ...]
    """Every rule that it breaks; empty for a legal one."""
    best: suggestions.Gain | None
    """What the first of ``items`` would give; null without a prediction or a row."""
    unchanged: suggestions.Gain | None
    """What the best layout that keeps the mathematics would give, where every row changes them."""

    @classmethod
    def of(cls, current: suggestions.Current) -> Self:
        """What the search found."""
        return cls(
            label=str(current.layout),
            layout=current.layout,
            candidate=None if current.predicted is None else PredictedLayout.of(current.predicted),
            reasons=current.reasons,
            best=current.best,
            unchanged=current.unchanged,
        )


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
    not_searched: tuple[NotSearched, ...] = ()
    """Layouts one step outside the space that are expected to beat its best, the fastest first."""
    shortfall: Shortfall | None = None
    """What is missing and what would help, where no layout fits."""
    current: Current | None = None
    """What runs today, where the request says it."""

    @classmethod
    def answering(cls, job: Job, found: PredictedBest) -> Self:
        """The best of a space, and what is to be said beside them."""
        table, advice = found.table, found.advice
        rows = tuple(PredictedLayout.of(row, rank) for rank, row in enumerate(table.rows, 1))
        return replace(
            cls._of(job, rows, found),
            num_legal=table.num_legal,
            num_fitting=table.num_fitting,
            unchanged=None if table.unchanged is None else PredictedLayout.of(table.unchanged),
            not_searched=tuple(
                NotSearched(
                    changes=one.changes,
                    saved_share=one.saved_share,
                    candidate=PredictedLayout.of(ranking.PredictedLayout(layout=one.layout, prediction=one.prediction)),
                )
                for one in advice.not_searched
            ),
            shortfall=None if advice.shortfall is None else Shortfall.of(advice.shortfall),
        )

    @classmethod
    def of_one(cls, job: Job, found: PredictedOne) -> Self:
        """One layout."""
        return cls._of(job, (PredictedLayout.of(found.row, 1),), found)

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
            current=None if found.current is None else Current.of(found.current),
        )

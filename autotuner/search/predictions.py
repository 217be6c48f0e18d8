"""What the cost model answers; nothing in here was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from autotuner.core.choices import Precision
from autotuner.core.documents import extended
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Footprint
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import Prediction
from autotuner.core.rules.rule import Reason
from autotuner.search import ranking, suggestions
from autotuner.search.answers import PredictedBest, PredictedOne


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """How large a model is: what tells at a glance that its description was read as it was meant.

    Attributes:
        num_parameters: Every trainable element, once.
        num_active_parameters: Those of them that one token meets: of the routed experts only those it is sent to.
    """

    name: str
    num_parameters: int
    num_active_parameters: int

    @classmethod
    def of(cls, model: TransformerSpec) -> Self:
        """The size of a model."""
        return cls(
            name=model.name,
            num_parameters=model.num_parameters,
            num_active_parameters=model.num_active_parameters,
        )


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
        rank: From 1, by the predicted value, which is MFU unless something else was asked for, x probability to fit,
            among the layouts predicted to fit; null outside a ranking.
        label: The layout in short: ``tp2 pp4 1f1b mb1``.
        changes_mathematics: It trains another function than most layouts do (fp8), so that its speed is not all that
            counts.
        footprint: What it takes beside time, as modelled; null where nobody asked.
    """

    rank: int | None
    label: str
    changes_mathematics: bool
    layout: Layout
    predicted: Predicted
    footprint: Footprint | None = None

    @classmethod
    def of(cls, rank: int | None, layout: Layout, prediction: Prediction, footprint: Footprint | None = None) -> Self:
        """A row of a table."""
        return cls(
            rank=rank,
            label=str(layout),
            changes_mathematics=not layout.is_equivalent,
            layout=layout,
            predicted=Predicted.of(prediction),
            footprint=footprint,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSearched:
    """A layout outside the space, one step from the best one inside.

    Attributes:
        change: What differs from the best one.
        saved_share: Share of the best one's step that it is predicted to save.
    """

    change: str
    saved_share: float
    candidate: PredictedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that may make a layout fit.

    Attributes:
        change: Of the space or the workload, in words.
        missing_bytes: What the candidate lacks with it; 0 where it fits.
    """

    change: str
    missing_bytes: float
    candidate: PredictedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerCluster:
    """The smallest cluster of the same accelerators on which a layout of the space fits."""

    num_accelerators: int
    num_nodes: int
    best: PredictedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Why nothing fits, and what would.

    Attributes:
        missing_bytes: What the fullest rank of the nearest layout lacks.
        nearest: The layout of the space with the smallest peak.
        remedies: Changes that make a layout fit, the fastest first; where none does, all of them at once.
        larger: Null where not even 128 times the nodes are enough.
    """

    missing_bytes: float
    nearest: PredictedLayout
    remedies: tuple[Remedy, ...]
    larger: LargerCluster | None

    @classmethod
    def of(cls, shortfall: suggestions.Shortfall) -> Self:
        """What the search found."""
        larger = shortfall.larger
        return cls(
            missing_bytes=shortfall.missing_bytes,
            nearest=_unranked(shortfall.nearest),
            remedies=tuple(
                Remedy(change=one.change, missing_bytes=one.missing_bytes, candidate=_unranked(one.candidate))
                for one in shortfall.remedies
            ),
            larger=None
            if larger is None
            else LargerCluster(
                num_accelerators=larger.num_nodes * larger.accelerators_per_node,
                num_nodes=larger.num_nodes,
                best=_unranked(larger.best),
            ),
        )


def _unranked(row: ranking.PredictedLayout) -> PredictedLayout:
    return PredictedLayout.of(None, row.layout, row.prediction, row.footprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The layout that runs today, beside a table of predictions.

    Attributes:
        label: The layout in short.
        candidate: It with its prediction; null where it breaks a rule.
        reasons: Every rule that it breaks; empty for a legal one.
        best: What the first of ``items`` would give; null without a prediction or a row.
        unchanged: What the best layout that keeps the mathematics would give, where every row changes them.
    """

    label: str
    layout: Layout
    candidate: PredictedLayout | None
    reasons: tuple[Reason, ...]
    best: suggestions.Gain | None
    unchanged: suggestions.Gain | None

    @classmethod
    def of(cls, current: suggestions.Current) -> Self:
        """What the search found."""
        return cls(
            label=str(current.layout),
            layout=current.layout,
            candidate=None if current.predicted is None else _unranked(current.predicted),
            reasons=current.reasons,
            best=current.best,
            unchanged=current.unchanged,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """The layouts predicted to be best.

    Attributes:
        model_size: How large the model is that they are layouts of.
        reference_precision: Format of the reference peak.
        reference_flop_per_s: Dense peak of one accelerator that every MFU of the table is a share of.
        num_legal: Layouts of the space that break no rule; null when one layout was asked for.
        num_fitting: Those predicted to fit in memory; null when one layout was asked for.
        caveats: What a reader should know: what of it was never compared with a measured run, whose constants were
            borrowed, what the measured runs that were sent say; sentences without full stops.
        unchanged: The best layout that keeps the mathematics, where every row changes them.
        not_searched: Layouts one step outside the space that are expected to beat its best, the fastest first.
        shortfall: What is missing and what would help, where no layout fits.
        current: What runs today, where the request says it.
    """

    model_size: ModelSize
    items: tuple[PredictedLayout, ...]
    reference_precision: Precision
    reference_flop_per_s: float
    num_legal: int | None
    num_fitting: int | None
    caveats: tuple[str, ...]
    unchanged: PredictedLayout | None = None
    not_searched: tuple[NotSearched, ...] = ()
    shortfall: Shortfall | None = None
    current: Current | None = None

    @classmethod
    def answering(cls, job: Job, found: PredictedBest) -> Self:
        """The best of a space, and what is to be said beside them."""
        table, advice = found.table, found.advice
        rows = tuple(
            PredictedLayout.of(rank, row.layout, row.prediction, row.footprint)
            for rank, row in enumerate(table.rows, 1)
        )
        whole = cls.of(job, rows, found.current, found.caveats)
        return replace(
            whole,
            num_legal=table.num_legal,
            num_fitting=table.num_fitting,
            unchanged=None if table.unchanged is None else _unranked(table.unchanged),
            not_searched=tuple(
                NotSearched(
                    change=one.change,
                    saved_share=one.saved_share,
                    candidate=PredictedLayout.of(None, one.layout, one.prediction),
                )
                for one in advice.not_searched
            ),
            shortfall=None if advice.shortfall is None else Shortfall.of(advice.shortfall),
        )

    @classmethod
    def of_one(cls, job: Job, found: PredictedOne) -> Self:
        """One layout."""
        row = PredictedLayout.of(1, found.row.layout, found.row.prediction, found.row.footprint)
        return cls.of(job, (row,), found.current, found.caveats)

    @classmethod
    def of(
        cls,
        job: Job,
        items: tuple[PredictedLayout, ...],
        current: suggestions.Current | None,
        caveats: tuple[str, ...],
    ) -> Self:
        """The rows with what they are a share of."""
        accelerator = job.cluster.accelerator
        return cls(
            model_size=ModelSize.of(job.model),
            items=items,
            reference_precision=accelerator.reference_precision,
            reference_flop_per_s=accelerator.reference_flop_per_s,
            num_legal=None,
            num_fitting=None,
            caveats=caveats,
            current=None if current is None else Current.of(current),
        )

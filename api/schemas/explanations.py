"""Why a layout is predicted as it is, and what measured layouts say about one choice at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np

from autotuner.core.columns import LayoutColumns
from autotuner.core.documents import extended
from autotuner.core.layout import Layout
from autotuner.core.model import ModelSize, TransformerSpec
from autotuner.core.prediction import Memory
from autotuner.core.trial import Trial
from autotuner.search.explain.communication import CrossedLink, NcclWays, Route
from autotuner.search.explain.explanation import Change, Explanation, MemoryPart, Refusal, TimePart, explain
from autotuner.search.explain.step_parts import StepParts
from autotuner.search.predictions import Predicted
from autotuner.search.results.pairs import Insight, insights
from autotuner.search.space.moves import BatchWay
from autotuner.service.build import App


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChange:
    """A legal layout one step away."""

    change: str
    """What differs: ``tensor 4 → 2, replicate 8 → 16``."""
    label: str
    """The layout after the change, in short."""
    layout: Layout
    predicted: Predicted
    saved_share: float
    """Predicted step time saved, as a share of the present step; below 0 where it grows."""
    excess_bytes: float
    """How far the predicted peak lies above the limit; 0 where it fits."""
    sentence: str
    """What the change does to time and memory."""

    @classmethod
    def of(cls, change: Change) -> Self:
        """The change with its layout in short."""
        return extended(cls, change, label=str(change.layout), predicted=Predicted.of(change.prediction))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutExplanation:
    """One layout: where its time and memory go, and what its neighbours promise. Nothing here was measured."""

    model_size: ModelSize
    """How large the model is that it is a layout of."""
    label: str
    """The layout in short."""
    layout: Layout
    predicted: Predicted
    time: tuple[TimePart, ...]
    """Parts that take time, longest first."""
    step: StepParts
    """The same time in the words that measured steps are told in, in the order of a step."""
    memory: tuple[MemoryPart, ...]
    """Parts that take memory, largest first."""
    stages: tuple[Memory, ...]
    """Memory of each pipeline rank, in their order; ``memory`` is that of the fullest."""
    limit_bytes: float
    """What a rank may allocate."""
    margin_bytes: float
    """The limit less the predicted peak; below 0 where it does not fit."""
    helpful: tuple[LayoutChange, ...]
    """Changes that fit, lengthen the step by 1 % at most and raise MFU x probability to fit by 1 % or more, the most
    first; where the layout itself does not fit, those that do."""
    too_large: tuple[LayoutChange, ...]
    """Changes that would save as much and do not fit, the nearest to fitting first."""
    illegal: tuple[Refusal, ...]
    """Changes that break a rule."""
    caveats: tuple[str, ...]
    """What a reader should know, as of a table of predictions."""
    links: tuple[CrossedLink, ...] = ()
    """Links of the cluster that are not healthy, and the axes whose groups reach over each."""
    batches: tuple[BatchWay, ...] = ()
    """Ways to deal and pack sequences that differ in length, with all else as here; none where all are as long."""
    routes: tuple[Route, ...] = ()
    """On a described network, for the groups of each axis: the links that they pass, and which one limits."""
    nccl: tuple[NcclWays, ...] = ()
    """Which algorithm and protocol NCCL would take by itself among the ranks of each axis, by size; none on cores."""

    @classmethod
    def of(cls, explanation: Explanation, model: TransformerSpec) -> Self:
        """The explanation with totals beside parts and layouts in short."""
        return extended(
            cls,
            explanation,
            model_size=ModelSize.of(model),
            label=str(explanation.layout),
            predicted=Predicted.of(explanation.prediction),
            helpful=tuple(LayoutChange.of(change) for change in explanation.helpful),
            too_large=tuple(LayoutChange.of(change) for change in explanation.too_large),
        )

    @classmethod
    def of_trial(cls, app: App, trial: Trial) -> Self:
        """What today's cost model says of a trial's layout, within the memory that the trial had.

        Earlier trials calibrate it as they did the sweep.

        Raises:
            InvalidInput: A rule that is younger than the trial forbids its layout.
        """
        job = app.informed(app.store.get_sweep(trial.sweep_id)).request.trial_job
        return cls.of(explain(trial.layout, job), job.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRules:
    """What the measured trials of a sweep say about one choice at a time."""

    num_measured: int
    """Trials with a measured step time."""
    items: tuple[Insight, ...]
    """One statement per choice and change; those without pairs say so."""

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> Self:
        """What the measured ones among the trials say; not small ones, nor repeats."""
        whole = [trial for trial in trials if trial.scaled is None and trial.repeats is None]
        measured = tuple((trial.layout, trial.measurement.step_time_s) for trial in whole if trial.measurement)
        return cls(num_measured=len(measured), items=_insights(measured))


@lru_cache(maxsize=32)
def _insights(measured: tuple[tuple[Layout, float], ...]) -> tuple[Insight, ...]:
    """What measured step times say; kept, because a page asks again each time that anything happens to its sweep."""
    layouts = LayoutColumns.from_layouts(layout for layout, _ in measured)
    return insights([(layouts, np.array([seconds for _, seconds in measured], dtype=np.float64))])

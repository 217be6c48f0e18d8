"""What came of a sweep: the answer, what mattered, what failed, how right predictions were."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.sweep import Prospects
from autotuner.search.explain.layers import LayerReport
from autotuner.search.results.accuracy import Accuracy
from autotuner.search.results.answer import Answer
from autotuner.search.results.choices import Choices
from autotuner.search.results.failures import FailureGroup
from autotuner.search.results.grid import Grid

SweepAccuracy = Accuracy
"""As the search tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAnswer:
    """What to train with, by a sweep.

    Attributes:
        answer: Null before a trial has a rank.
        prospects: What its search expects of going on; null before its first trial was chosen.
    """

    answer: Answer | None
    prospects: Prospects | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepChoices:
    """What mattered in a sweep.

    Attributes:
        choices: How much each choice explains, and what it did in otherwise equal pairs.
        grid: The best of every pair of values of two choices: of those that were asked for, else of those that matter.
    """

    choices: Choices
    grid: Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFailures:
    """Trials of a sweep that died, grouped by cause, the largest group first."""

    items: tuple[FailureGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLayers:
    """What each layer of communication gives to a sweep's job.

    Attributes:
        predicted: Strategies of the sweep's own space, and more values of other layers than most spaces name.
        measured: Among its trials that have a rank; null before there is one that leaves later layers alone.
    """

    predicted: LayerReport
    measured: LayerReport | None

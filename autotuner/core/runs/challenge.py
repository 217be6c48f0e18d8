"""Challenge: a sweep that measures the layout in use first, looks for a better one, and compares before it says so."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.comparison import Comparison, RunGroup, SequentialTest
from autotuner.errors import InvalidInput

__all__ = ["Challenge", "ChallengeFindings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What a sweep measures again and again beside its search.

    It first measures the incumbent until the test has compared it with the baseline, then searches, and at last
    measures the best that it found and the incumbent by turns until the test tells them apart.

    Attributes:
        incumbent: The layout in use; None: the best that the sweep finds takes its place beside the baseline.
        baseline: What the incumbent reached before; empty: nothing is known, and a few runs become its baseline.
        test: How strictly runs are compared.
        searches: Whether other layouts are tried at all.
    """

    incumbent: Layout | None = None
    baseline: tuple[RunGroup, ...] = ()
    test: SequentialTest = field(default_factory=SequentialTest)
    searches: bool = True

    def __post_init__(self) -> None:
        if self.incumbent is None and not self.searches:
            raise InvalidInput("searches", False, "must be true where no incumbent is named", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeFindings:
    """What the trials of a challenge say, all phases together.

    Attributes:
        measured: The layout that was compared with the baseline: the incumbent, or the best; None: none ran.
        runs: What it reached this time; None: it was never measured.
        against_baseline: It, as candidate, beside the baseline; None without a baseline or a run.
        challenger: The best other layout, where it was compared with the incumbent.
        challenger_runs: What that reached.
        gain: The challenger as candidate beside the incumbent's runs of the same sitting: above 0 it is faster.
        is_better: The test says that the incumbent is slower than the challenger.
        death: Why the incumbent could not be measured, as a sentence; empty where it was.
    """

    measured: Layout | None = None
    runs: RunGroup | None = None
    against_baseline: Comparison | None = None
    challenger: Layout | None = None
    challenger_runs: RunGroup | None = None
    gain: Comparison | None = None
    is_better: bool = False
    death: str = ""

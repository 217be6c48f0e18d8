"""Replay: a measured sheet as the trials of a sweep whose outcomes are known beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from autotuner.backtest.table import Sheet
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS
from autotuner.core.trial import PastTrial
from autotuner.costmodel.predict import PredictionColumns, predict

_NEAR_BEST = 1.02
"""A search has arrived at a layout whose step takes at most 2 % longer than the best one's."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Replay:
    """The distinct layouts of a sheet, what is predicted of each and what came of it.

    A layout that was run several times has the median step time of those runs that ended.

    Attributes:
        codes: The layouts as integers: shape (layouts, layout fields).
        step_time_s: NaN where every run of the layout ran out of memory.
        known: Layouts whose outcome a search is told beforehand; they are neither proposed nor judged.
        past: Trials of other sheets that our sampler is told beforehand.
        layout_of_row: For each row of the sheet, its layout here.
    """

    job: Job
    layouts: LayoutColumns
    codes: Integers
    predictions: PredictionColumns
    step_time_s: Floats
    known: Integers
    layout_of_row: Integers
    past: tuple[PastTrial, ...] = ()

    @classmethod
    def of(cls, sheet: Sheet) -> Replay:
        """The sheet, with nothing known of it."""
        every = np.stack([np.asarray(getattr(sheet.layouts, name), dtype=np.int64) for name in OPTIONS], axis=1)
        codes, first, layout_of_row = np.unique(every, axis=0, return_index=True, return_inverse=True)
        layouts = sheet.layouts.take(first)
        by_layout = sheet.step_time_s[np.argsort(layout_of_row, kind="stable")]
        runs = np.split(by_layout, np.cumsum(np.bincount(layout_of_row))[:-1])
        return cls(
            job=sheet.job,
            layouts=layouts,
            codes=codes,
            predictions=predict(layouts, sheet.job),
            step_time_s=np.array([_median(step_time_s) for step_time_s in runs]),
            known=np.array([], dtype=np.int64),
            layout_of_row=layout_of_row,
        )

    def knowing(self, num_layouts: int, seed: int) -> Replay:
        """The replay of this sheet after so many of its layouts, drawn by the seed, were tried."""
        drawn = np.random.default_rng(seed).permutation(len(self))
        return replace(self, known=drawn[:num_layouts])

    def __len__(self) -> int:
        return len(self.layouts)

    @property
    def open(self) -> Integers:
        """Layouts that may be proposed."""
        return np.setdiff1d(np.arange(len(self)), self.known)

    @property
    def judged_rows(self) -> Booleans:
        """Rows of the sheet whose layout is not known."""
        return ~np.isin(self.layout_of_row, self.known)

    @property
    def best(self) -> int:
        """The fastest layout that may be proposed; at least one must have run."""
        return int(self.open[np.nanargmin(self.step_time_s[self.open])])

    def ran_out(self, layout: int) -> bool:
        """Whether a trial of the layout ends for lack of memory."""
        return bool(np.isnan(self.step_time_s[layout]))

    def is_near_best(self, layout: int) -> bool:
        """Whether a search that tried this layout has arrived."""
        return bool(self.step_time_s[layout] <= _NEAR_BEST * self.step_time_s[self.best])

    def walk(self, proposals: Iterable[int]) -> list[int]:
        """The proposals up to and with the first at which the search has arrived; all of them if it never does."""
        tried = []
        for layout in proposals:
            tried.append(layout)
            if self.is_near_best(layout):
                break
        return tried


def _median(step_time_s: Floats) -> float:
    ended = step_time_s[~np.isnan(step_time_s)]
    return float(np.median(ended)) if ended.size else np.nan

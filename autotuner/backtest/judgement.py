"""Judgement: what a sheet of measured runs says about the predictions and about the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.backtest.calibration import calibrated
from autotuner.backtest.figures import spearman
from autotuner.backtest.proposers import PROPOSERS
from autotuner.backtest.replay import Replay
from autotuner.backtest.shown import MIN_MEASURED, replays
from autotuner.backtest.table import Sheet
from autotuner.core.columns import Booleans, Floats, Integers

GIVEN = "given to the calibration"
"""Why a row is left out that the model was shown."""

_NONE = np.empty(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Judged runs, one element each.

    Attributes:
        measured_s: NaN where the run ran out of memory.
        relative_error: Half-width e of the 80 % interval, ``predicted_s / (1 + e)`` .. ``predicted_s * (1 + e)``.
        fits: Predicted to fit in memory.
    """

    measured_s: Floats
    predicted_s: Floats
    relative_error: Floats
    fits: Booleans

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All rows of all parts, none of none."""
        none = cls(measured_s=_NONE, predicted_s=_NONE, relative_error=_NONE, fits=_NONE.astype(bool))
        names = cls.__dataclass_fields__
        return cls(**{name: np.concatenate([getattr(part, name) for part in (none, *parts)]) for name in names})

    def __len__(self) -> int:
        return len(self.measured_s)

    @property
    def ran(self) -> Booleans:
        """Runs that ended with a step time."""
        return ~np.isnan(self.measured_s)

    @property
    def absolute_errors(self) -> Floats:
        """How far, of every run that ended, predicted / measured is from 1."""
        ran = self.ran
        errors: Floats = np.abs(self.predicted_s[ran] / self.measured_s[ran] - 1)
        return errors

    @property
    def covered(self) -> Booleans:
        """Whether, of every run that ended, the step time lies in the 80 % interval."""
        ran = self.ran
        ratio, reach = self.measured_s[ran] / self.predicted_s[ran], 1 + self.relative_error[ran]
        inside: Booleans = (ratio >= 1 / reach) & (ratio <= reach)
        return inside


@dataclass(frozen=True, eq=False, kw_only=True)
class Search:
    """What one draw of a sheet says about the order of its layouts; arrays hold one element per seed.

    Attributes:
        spearman: Rank correlation of predicted and measured step times.
        regret: Share of the best MFU that is lost by keeping the first proposal of our sampler that runs: its first,
            unless that runs out of memory. 1 if none ran.
        best_refused: The best layout is predicted not to fit.
        trials: By proposer: trials, also those that ran out of memory, up to and with the first within 2 % of the
            sheet's best step time; the number of layouts for a search that gives up before.
        num_run: By proposer: trials that the search ran, all of them counted that it ran before it gave up.
        num_lost: Those of them that ran out of memory.
    """

    spearman: float | None
    regret: Floats
    best_refused: bool
    trials: Mapping[str, Integers]
    num_run: Mapping[str, Integers]
    num_lost: Mapping[str, Integers]


@dataclass(frozen=True, eq=False, kw_only=True)
class Judgement:
    """What one sheet says.

    Attributes:
        num_rows: Runs judged; with a calibration, in one draw.
        left_out: Rows not judged: reason to count.
        rows: Judged runs; with a calibration, those of every draw.
        searches: One per draw that leaves 8 measured rows or more.
    """

    name: str
    num_rows: int
    left_out: Mapping[str, int]
    rows: Rows
    searches: tuple[Search, ...]


def judge(sheet: Sheet, *, num_seeds: int, num_given: int, others: Sequence[Sheet] = ()) -> Judgement:
    """Predict and search the sheet, after ``num_given`` measured runs on its cluster were shown to the model.

    With a calibration, the runs shown are drawn anew five times and the seeds are shared out among the draws.

    Args:
        sheet: What is judged.
        num_seeds: Searches by each proposer.
        num_given: Runs shown: layouts of this sheet if it is large enough, or else runs of ``others``.
        others: Sheets of the same source and kind of cluster.
    """
    draws = replays(sheet, others, num_given)
    judged = [_judge(sheet, draw, range(first, num_seeds, len(draws))) for first, draw in enumerate(draws)]
    num_rows = round(sum(len(rows) for rows, _ in judged) / len(draws))
    given = {GIVEN: len(sheet) - num_rows} if num_rows < len(sheet) else {}
    return Judgement(
        name=sheet.name,
        num_rows=num_rows,
        left_out={**sheet.left_out, **given},
        rows=Rows.joined([rows for rows, _ in judged]),
        searches=tuple(search for _, search in judged if search is not None),
    )


def _judge(sheet: Sheet, replay: Replay, seeds: range) -> tuple[Rows, Search | None]:
    believed, judged = calibrated(replay), replay.judged_rows
    layouts = replay.layout_of_row[judged]
    rows = Rows(
        measured_s=sheet.step_time_s[judged],
        predicted_s=believed.step_time_s[layouts],
        relative_error=believed.relative_error[layouts],
        fits=believed.fits[layouts],
    )
    if rows.ran.sum() < MIN_MEASURED:
        return rows, None
    walks = {name: [replay.walk(propose(replay, seed)) for seed in seeds] for name, propose in PROPOSERS.items()}
    return rows, Search(
        spearman=spearman(rows.predicted_s[rows.ran], rows.measured_s[rows.ran]),
        regret=np.array([_regret(replay, walk) for walk in walks["ours"]]),
        best_refused=not believed.fits[replay.best],
        trials={name: np.array([_num_trials(replay, walk) for walk in found]) for name, found in walks.items()},
        num_run={name: np.array([len(walk) for walk in found]) for name, found in walks.items()},
        num_lost={name: np.array([sum(map(replay.ran_out, walk)) for walk in found]) for name, found in walks.items()},
    )


def _num_trials(replay: Replay, walk: Sequence[int]) -> int:
    return len(walk) if walk and replay.is_near_best(walk[-1]) else replay.open.size


def _regret(replay: Replay, walk: Sequence[int]) -> float:
    kept = next((layout for layout in walk if not replay.ran_out(layout)), None)
    return 1.0 if kept is None else 1.0 - float(replay.step_time_s[replay.best] / replay.step_time_s[kept])

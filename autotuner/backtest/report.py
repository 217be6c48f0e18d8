"""Report: how far the predictions of measured runs were off, and how many trials a search would have needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from autotuner.backtest.figures import mean, quantile, share
from autotuner.backtest.judgement import Judgement, Rows, Search, judge
from autotuner.backtest.proposers import PROPOSERS
from autotuner.backtest.shown import same_cluster
from autotuner.backtest.table import Sheet, Table
from autotuner.core.columns import Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCount:
    """Trials of a search, over sheets and seeds."""

    median: float | None
    p90: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Figures of one sheet, or of all; shares and relative errors are fractions, None has no meaning here.

    Attributes:
        rows_used: Runs judged, measured or out of memory.
        rows_left_out: Runs not judged: reason to count.
        median_abs_error: Median of |predicted / measured - 1| over the measured runs; of all: over all sheets' runs.
        p90_abs_error: 90th percentile of the same.
        mean_abs_error: Mean of the same.
        spearman: Rank correlation of predicted and measured step times; of all: median over sheets.
        oom_balanced_accuracy: Mean of two shares: runs out of memory predicted not to fit, measured runs predicted to.
        oom_let_through: Share of the runs out of memory that were predicted to fit.
        feasible_refused: Share of the measured runs that were predicted not to fit.
        regret: Share of the best measured MFU lost by keeping the first proposal of our sampler that runs, which is
            its first unless that one runs out of memory; mean over seeds; of all: median over sheets.
        trials_to_2pct: Trials, those out of memory too, until one is within 2 % of the sheet's best step time, by
            proposer (``ours``, ``tpe``, ``random``); of all: over all sheets and seeds, equally many per sheet.
        interval_coverage: Share of the measured runs that lie in the 80 % interval of their prediction.
        best_refused: 1 where the best layout is predicted not to fit, else 0; of all: share of sheets.
        lost_to_memory: Share of the trials of these searches that ran out of memory, by proposer; of all: of all
            trials.
    """

    name: str
    rows_used: int
    rows_left_out: Mapping[str, int]
    median_abs_error: float | None
    p90_abs_error: float | None
    mean_abs_error: float | None
    spearman: float | None
    oom_balanced_accuracy: float | None
    oom_let_through: float | None
    feasible_refused: float | None
    regret: float | None
    trials_to_2pct: Mapping[str, TrialCount]
    interval_coverage: float | None
    best_refused: float | None
    lost_to_memory: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Figures of every sheet and of all together.

    Attributes:
        left_out_examples: A row that was left out, in words: by reason.
    """

    all: Score
    sheets: tuple[Score, ...]
    left_out_examples: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The figures for JSON: fractions, and null for a figure that has no meaning."""
        return asdict(self)


def backtest(table: Table, *, num_seeds: int = 20, num_given: int = 0) -> Report:
    """Predict and search every sheet of the table.

    Args:
        table: Measured runs.
        num_seeds: Searches per sheet and proposer.
        num_given: Measured runs on each sheet's cluster that the model learns from first: layouts of the sheet, which
            are not judged, or for a small sheet runs of others.
    """
    judgements = [
        judge(sheet, num_seeds=num_seeds, num_given=num_given, others=_others(sheet, table)) for sheet in table.sheets
    ]
    sheets = tuple(_sheet_score(judgement) for judgement in judgements)
    return Report(all=_total(judgements, sheets, table.left_out), sheets=sheets, left_out_examples=dict(table.examples))


def _others(sheet: Sheet, table: Table) -> list[Sheet]:
    return [other for other in table.sheets if other is not sheet and same_cluster(sheet, other)]


def _sheet_score(judgement: Judgement) -> Score:
    searches = judgement.searches
    return Score(
        name=judgement.name,
        rows_used=judgement.num_rows,
        rows_left_out=judgement.left_out,
        **_row_figures(judgement.rows),
        spearman=mean(_known(search.spearman for search in searches)),
        regret=mean(_joined([search.regret for search in searches])),
        trials_to_2pct=_trials(searches),
        best_refused=mean(_known(float(search.best_refused) for search in searches)),
        lost_to_memory=_lost(searches),
    )


def _total(judgements: Sequence[Judgement], sheets: Sequence[Score], left_out: Mapping[str, int]) -> Score:
    searches = [search for judgement in judgements for search in judgement.searches]
    lost = sum((Counter(score.rows_left_out) for score in sheets), Counter(left_out))
    return Score(
        name="all",
        rows_used=sum(score.rows_used for score in sheets),
        rows_left_out=dict(lost.most_common()),
        **_row_figures(Rows.joined([judgement.rows for judgement in judgements])),
        spearman=quantile(_known(score.spearman for score in sheets), 0.5),
        regret=quantile(_known(score.regret for score in sheets), 0.5),
        trials_to_2pct=_trials(searches),
        best_refused=mean(_known(score.best_refused for score in sheets)),
        lost_to_memory=_lost(searches),
    )


def _row_figures(rows: Rows) -> dict[str, float | None]:
    errors, ran = rows.absolute_errors, rows.ran
    let_through, refused = share(rows.fits[~ran]), share(~rows.fits[ran])
    balanced = None if let_through is None or refused is None else 1 - (let_through + refused) / 2
    return {
        "median_abs_error": quantile(errors, 0.5),
        "p90_abs_error": quantile(errors, 0.9),
        "mean_abs_error": mean(errors),
        "oom_balanced_accuracy": balanced,
        "oom_let_through": let_through,
        "feasible_refused": refused,
        "interval_coverage": share(rows.covered),
    }


def _trials(searches: Sequence[Search]) -> dict[str, TrialCount]:
    counts = {name: _joined([search.trials[name] for search in searches]) for name in PROPOSERS}
    return {name: TrialCount(median=quantile(c, 0.5), p90=quantile(c, 0.9)) for name, c in counts.items()}


def _lost(searches: Sequence[Search]) -> dict[str, float | None]:
    lost = {name: _joined([search.num_lost[name] for search in searches]).sum() for name in PROPOSERS}
    run = {name: _joined([search.num_run[name] for search in searches]).sum() for name in PROPOSERS}
    return {name: float(lost[name] / run[name]) if run[name] else None for name in PROPOSERS}


def _known(figures: Iterable[float | None]) -> Floats:
    return np.array([figure for figure in figures if figure is not None])


def _joined(parts: Sequence[Floats | Integers]) -> Floats:
    return np.concatenate([np.empty(0), *parts])

"""The report of a backtest: errors, calibration, rank correlation and replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from autotuner.backtests.measured_table import Sheet, Table
from autotuner.backtests.replay import PROPOSERS, Replay
from autotuner.core.columns import Booleans, Floats, Integers
from autotuner.costmodel.calibration import MeasuredRuns, calibrated
from autotuner.costmodel.uncertainty import Z80, time_error
from autotuner.search.sampler.priors import (
    MemoryTrial,
    learn_peaks,
    learn_times,
    memory_prior,
    scale_inflation,
    time_prior,
)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of all values that are not None; None if there are no such values.

    For truth values, the mean is the share that is True.
    """
    known = _known(values)
    return float(known.mean()) if known.size else None


def quantile(values: Iterable[float | None], fraction: float) -> float | None:
    """Return a quantile of all values that are not None, interpolated; None if there are no such values.

    Args:
        values: The values.
        fraction: Fraction of the values that lie at or below the quantile, 0..1.
    """
    known = _known(values)
    return float(np.quantile(known, fraction)) if known.size else None


def _known(values: Iterable[float | None]) -> Floats:
    return np.array([value for value in values if value is not None], dtype=np.float64)


def spearman(left: Floats, right: Floats) -> float | None:
    """Return Spearman's rank correlation of two arrays, -1..1. Equal values share their mean rank.

    The result is None if either array has fewer than two different values.
    """
    if min(np.unique(left).size, np.unique(right).size) < 2:
        return None
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibrated:
    """The predictions for all layouts of a replay (a simulated search), corrected by the known runs."""

    step_time_s: Floats
    relative_error: Floats
    """Half-width e of the 80 % interval of each step time t. The interval is t / (1 + e) .. t (1 + e)."""
    fits: Booleans
    """True for rows that are predicted to fit in memory with a probability above one half."""


def corrected(replay: Replay) -> Calibrated:
    """Return the predictions for all layouts of a replay (a simulated search), corrected by its known results.

    The sampler of a sweep corrects its predictions in the same way.
    """
    predictions, known, every = replay.predictions, replay.known.tolist(), np.arange(len(replay))
    if not known:
        total_s = predictions.step_time.total_s
        return Calibrated(step_time_s=total_s, relative_error=predictions.relative_error, fits=predictions.fits)
    timed = {layout: float(replay.step_time_s[layout]) for layout in known if not replay.ran_out(layout)}
    times = learn_times(time_prior(replay.layouts, predictions, time_error(replay.job)), timed)
    limit_bytes = float(replay.job.cluster.accelerator.memory_bytes)
    fits = {layout: MemoryTrial(fits=not replay.ran_out(layout)) for layout in known}
    peaks = learn_peaks(memory_prior(replay.layouts, predictions.memory), limit_bytes, fits)
    estimate = times.at(every)
    return Calibrated(
        step_time_s=np.exp(estimate.mean),
        relative_error=np.exp(Z80 * scale_inflation(times) * np.sqrt(estimate.variance)) - 1,
        fits=peaks.at(every).mean <= np.log(limit_bytes),
    )


GIVEN = "given to the calibration"
"""Reason why a row is not judged: the calibration used it."""

_NONE = np.empty(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Measured runs of one or more jobs and their predictions, as arrays with one element per run."""

    measured_s: Floats
    """Measured step times; NaN if the run ran out of memory."""
    predicted_s: Floats
    relative_error: Floats
    """Half-width e of the 80 % interval, which is ``predicted_s / (1 + e)`` .. ``predicted_s * (1 + e)``."""
    fits: Booleans
    """True for rows that are predicted to fit in memory."""

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Return one object with the runs of all given objects; it is empty if no object is given."""
        none = cls(measured_s=_NONE, predicted_s=_NONE, relative_error=_NONE, fits=_NONE.astype(bool))
        names = cls.__dataclass_fields__
        return cls(**{name: np.concatenate([getattr(part, name) for part in (none, *parts)]) for name in names})

    def __len__(self) -> int:
        return len(self.measured_s)

    @property
    def ran(self) -> Booleans:
        """A mask over the runs: True if the run ended with a step time, False if it ran out of memory."""
        return ~np.isnan(self.measured_s)

    @property
    def absolute_errors(self) -> Floats:
        """The relative error |predicted / measured - 1| of every run that ended with a step time."""
        errors: Floats = np.abs(self.predicted_s[self.ran] / self.measured_s[self.ran] - 1)
        return errors

    @property
    def covered(self) -> Booleans:
        """A mask over the runs that ended with a step time: True if this time lies in the predicted 80 % interval."""
        ratio = self.measured_s[self.ran] / self.predicted_s[self.ran]
        reach = 1 + self.relative_error[self.ran]
        inside: Booleans = (ratio >= 1 / reach) & (ratio <= reach)
        return inside


@dataclass(frozen=True, eq=False, kw_only=True)
class Search:
    """The results of simulated searches over one sheet (the measured runs of one job): trials needed, and MFU lost.

    Arrays have one element per seed of the searches.
    """

    spearman: float | None
    """Rank correlation of predicted and measured step times."""
    regret: Floats
    """Share of the best MFU that is lost if the search stops at the first proposed layout that does not run out of
    memory; 1 if every layout runs out of memory."""
    best_refused: bool
    """True if the best layout is predicted not to fit in memory."""
    trials: Mapping[str, Integers]
    """Number of trials, including those out of memory, until the first one within 2 % of the sheet's best step time, by
    proposer. If the search ends before, it is the number of layouts."""
    num_run: Mapping[str, Integers]
    """Number of trials that the search ran until it found such a layout or ended, by proposer."""
    num_lost: Mapping[str, Integers]
    """Number of the trials in ``num_run`` that ran out of memory, by proposer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Judgement:
    """The comparison of predictions with measurements for one sheet (the measured runs of one job)."""

    name: str
    num_rows: int
    """Number of runs that were judged; with a calibration, in one draw."""
    left_out: Mapping[str, int]
    """Number of rows that were not judged, by reason."""
    rows: Rows
    """Judged runs; with a calibration, the runs of every draw."""
    searches: tuple[Search, ...]
    """Searches, one for each draw that leaves 8 or more measured rows."""


def judge(sheet: Sheet, *, num_seeds: int, num_given: int, others: Sequence[Sheet] = ()) -> Judgement:
    """Compare predictions and simulated searches with the measured runs of one job (a sheet).

    The model first learns from ``num_given`` runs. If this number is not 0, the comparison is repeated for five random
    choices of these runs, and each choice gets a part of the seeds.

    Args:
        sheet: The measured runs of one job.
        num_seeds: Number of simulated searches by each sampler.
        num_given: Number of measured runs on the same cluster from which the model learns first. They are runs of this
            sheet if it is large enough, or else runs of ``others``.
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
    believed, judged = corrected(replay), replay.judged_rows
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
        trials=_of_walks(walks, lambda walk: len(walk) if walk and replay.is_near_best(walk[-1]) else replay.open.size),
        num_run=_of_walks(walks, len),
        num_lost=_of_walks(walks, lambda walk: sum(map(replay.ran_out, walk))),
    )


def _of_walks(walks: Mapping[str, list[list[int]]], number: Callable[[list[int]], int]) -> dict[str, Integers]:
    return {name: np.array(list(map(number, found))) for name, found in walks.items()}


def _regret(replay: Replay, walk: Sequence[int]) -> float:
    kept = next((layout for layout in walk if not replay.ran_out(layout)), None)
    return 1.0 if kept is None else 1.0 - float(replay.step_time_s[replay.best] / replay.step_time_s[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCount:
    """The number of trials that simulated searches need to find a layout near the best: median and 90th percentile.

    Both are over jobs and seeds.
    """

    median: float | None
    p90: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The accuracy figures of one sheet (the measured runs of one job), or of all sheets together.

    Shares and errors are fractions. A figure that cannot be computed is None.
    """

    name: str
    rows_used: int
    """Number of judged runs, measured or out of memory."""
    rows_left_out: Mapping[str, int]
    """Number of runs that were not judged, by reason."""
    median_abs_error: float | None
    """Median of |predicted / measured - 1| over the measured runs. In the total: over all sheets' runs."""
    p90_abs_error: float | None
    """90th percentile of |predicted / measured - 1|."""
    mean_abs_error: float | None
    """Mean of |predicted / measured - 1|."""
    spearman: float | None
    """Rank correlation of predicted and measured step times. In the total: the median over sheets."""
    oom_balanced_accuracy: float | None
    """Mean of two shares: out-of-memory runs that were predicted not to fit, and measured runs that were predicted to
    fit."""
    oom_let_through: float | None
    """Share of the out-of-memory runs that were predicted to fit."""
    feasible_refused: float | None
    """Share of the measured runs that were predicted not to fit."""
    regret: float | None
    """Share of the best measured MFU that is lost if a search stops at the first proposed layout that does not run out
    of memory. It is the mean over seeds; in the total, the median over sheets."""
    trials_to_2pct: Mapping[str, TrialCount]
    """Number of trials, including those out of memory, until one is within 2 % of the sheet's best step time, by
    proposer (``ours``, ``tpe``, ``random``). In the total: over all sheets and seeds, with equally many per sheet."""
    interval_coverage: float | None
    """Share of the measured runs that are inside the 80 % interval of their prediction."""
    best_refused: float | None
    """1 if the best layout is predicted not to fit, otherwise 0. In the total: the share of sheets."""
    lost_to_memory: Mapping[str, float | None]
    """Share of the trials of these searches that ran out of memory, by proposer. In the total: share of all trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestReport:
    """The accuracy figures of every sheet (the measured runs of one job), and of all sheets together."""

    all: Score
    sheets: tuple[Score, ...]
    left_out_examples: Mapping[str, str] = field(default_factory=dict)
    """One row that was left out for each reason, in words."""

    def to_dict(self) -> dict[str, Any]:
        """Return all accuracy figures as plain values for JSON: shares as fractions, null for missing figures."""
        return asdict(self)


def backtest(
    table: Table,
    *,
    num_seeds: int = 20,
    num_given: int = 0,
    hear: Callable[[int, int], None] = lambda done, known: None,
) -> BacktestReport:
    """Compare predictions and simulated searches with the measured runs in a table, job by job.

    Args:
        table: Measured runs.
        num_seeds: Number of simulated searches for each job and sampler.
        num_given: Number of measured runs on each job's cluster from which the model learns first. They are runs of the
            job itself, which are then left out of the comparison. For a job with few runs, they are runs of other jobs.
        hear: Function that is called before each job, with the number of jobs done and the number of all jobs.
    """
    judgements = list[Judgement]()
    for sheet in table.sheets:
        hear(len(judgements), len(table.sheets))
        others = [
            other for other in table.sheets if other is not sheet and kind_of_cluster(other) == kind_of_cluster(sheet)
        ]
        judgements.append(judge(sheet, num_seeds=num_seeds, num_given=num_given, others=others))
    sheets = tuple(map(_sheet_score, judgements))
    return BacktestReport(
        all=_total(judgements, sheets, table.left_out), sheets=sheets, left_out_examples=dict(table.examples)
    )


def _sheet_score(judgement: Judgement) -> Score:
    searches = judgement.searches
    return _score(
        judgement.name,
        judgement.rows,
        searches,
        rows_used=judgement.num_rows,
        rows_left_out=judgement.left_out,
        spearman=mean(search.spearman for search in searches),
        regret=mean(_joined([search.regret for search in searches])),
        best_refused=mean(float(search.best_refused) for search in searches),
    )


def _total(judgements: Sequence[Judgement], sheets: Sequence[Score], left_out: Mapping[str, int]) -> Score:
    lost = sum((Counter(score.rows_left_out) for score in sheets), Counter(left_out))
    return _score(
        "all",
        Rows.joined([judgement.rows for judgement in judgements]),
        [search for judgement in judgements for search in judgement.searches],
        rows_used=sum(score.rows_used for score in sheets),
        rows_left_out=dict(lost.most_common()),
        spearman=quantile((score.spearman for score in sheets), 0.5),
        regret=quantile((score.regret for score in sheets), 0.5),
        best_refused=mean(score.best_refused for score in sheets),
    )


def _score(name: str, rows: Rows, searches: Sequence[Search], **others: Any) -> Score:
    """Return the score of some rows and searches.

    ``others`` are figures that are computed differently for sheets and for the total.
    """
    errors, ran = rows.absolute_errors, rows.ran
    let_through, refused = mean(rows.fits[~ran]), mean(~rows.fits[ran])
    return Score(
        name=name,
        median_abs_error=quantile(errors, 0.5),
        p90_abs_error=quantile(errors, 0.9),
        mean_abs_error=mean(errors),
        oom_balanced_accuracy=None if let_through is None or refused is None else 1 - (let_through + refused) / 2,
        oom_let_through=let_through,
        feasible_refused=refused,
        trials_to_2pct=_trials(searches),
        interval_coverage=mean(rows.covered),
        lost_to_memory=_lost(searches),
        **others,
    )


def _trials(searches: Sequence[Search]) -> dict[str, TrialCount]:
    counts = {name: _joined([search.trials[name] for search in searches]) for name in PROPOSERS}
    return {name: TrialCount(median=quantile(c, 0.5), p90=quantile(c, 0.9)) for name, c in counts.items()}


def _lost(searches: Sequence[Search]) -> dict[str, float | None]:
    lost = {name: sum(search.num_lost[name].sum() for search in searches) for name in PROPOSERS}
    run = {name: sum(search.num_run[name].sum() for search in searches) for name in PROPOSERS}
    return {name: float(lost[name] / run[name]) if run[name] else None for name in PROPOSERS}


def _joined(parts: Sequence[Floats | Integers]) -> Floats:
    return np.concatenate([np.empty(0), *parts])


MIN_MEASURED = 8
"""Fewest measured rows of a sheet for which the order of layouts is judged."""

NUM_DRAWS = 5
"""Number of random draws of the runs for the calibration."""


def kind_of_cluster(sheet: Sheet) -> tuple[object, ...]:
    """Return a key by which sheets (measured runs of one job each) are grouped: by source and kind of cluster.

    The key consists of the source, the accelerator, the links, the oversubscription and the software.
    """
    cluster = sheet.job.cluster
    links = cluster.intra_node_link, cluster.inter_node_link, cluster.oversubscription
    return sheet.source, cluster.accelerator, *links, sheet.job.stack


def replays(sheet: Sheet, others: Sequence[Sheet], num_shown: int) -> list[Replay]:
    """Return simulated searches over a sheet (the measured runs of one job), each with some results known at the start.

    There are five searches. Each knows ``num_shown`` measured runs, drawn anew. If ``num_shown`` is 0, there is a
    single search, which knows no results. The known runs come from the sheet itself if enough other layouts remain in
    it to be ranked, or if ``others`` has no measured runs. Otherwise the known runs come from ``others``. They then
    teach only the speed of the cluster, and all rows of the sheet remain.

    Args:
        sheet: The measured runs of one job.
        others: Sheets of the same source and kind of cluster.
        num_shown: Number of known runs.
    """
    if not num_shown:
        return [Replay.of(sheet)]
    measured = [other for other in others if not other.out_of_memory.all()]
    replay = Replay.of(sheet)
    if not measured or len(replay) >= num_shown + MIN_MEASURED:
        return [replay.knowing(num_shown, seed) for seed in range(NUM_DRAWS)]
    drawn = (list(_drawn(measured, num_shown, seed)) for seed in range(NUM_DRAWS))
    return [Replay.of(replace(sheet, job=calibrated(sheet.job, runs))) for runs in drawn]


def _drawn(sheets: Sequence[Sheet], count: int, seed: int) -> Iterator[MeasuredRuns]:
    """Return ``count`` random measured runs of all sheets."""
    owner = np.concatenate([np.full(len(sheet), number) for number, sheet in enumerate(sheets)])
    row = np.concatenate([np.arange(len(sheet)) for sheet in sheets])
    measured = np.flatnonzero(~np.concatenate([sheet.out_of_memory for sheet in sheets]))
    chosen = np.random.default_rng(seed).permutation(measured)[:count]
    for number in np.unique(owner[chosen]).tolist():
        sheet, rows = sheets[number], row[chosen[owner[chosen] == number]]
        yield MeasuredRuns(job=sheet.job, layouts=sheet.layouts.take(rows), step_time_s=sheet.step_time_s[rows])

"""Tests what a team's own trials improve: replays published tables as histories, leaving out one sheet at a time.

``python -m research.learning`` treats each source as a team. Every sheet of the source is predicted with constants that
were fitted without the source: once alone, and once after the source's other sheets, of any model and size, were stored
as past trials. A search of the sheet is replayed in both cases. The command prints the errors of step times, how many
runs lie in their intervals, how wide these are, and how many trials a search takes to come within 2 % of the best,
without and with the history; and which part of the difference is noise by a bootstrap over sheets. ``--quick`` uses the
constants of the catalog, which were fitted to all sheets.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np

from autotuner.backtests.measured_table import Sheet
from autotuner.backtests.replay import Replay, ours
from autotuner.backtests.report import MIN_MEASURED
from autotuner.core.columns import Booleans, Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.trial import PastTrial
from autotuner.costmodel.calibration import MeasuredRuns, calibrated
from autotuner.costmodel.predict import predict
from autotuner.costmodel.uncertainty import Z80
from autotuner.search.sampler.learnt_factors import Learnt, Platform
from research.fit_stacks import source_name
from research.small_for_large import tables

NUM_SHOWN = (4, 16, 48)
"""Numbers of trials of a shortened history that are shown."""

PROCESSES = 2

_Z95 = 1.96
_RESAMPLES = 2000


@dataclass(frozen=True, eq=False, kw_only=True)
class Errors:
    """The errors of the predicted step times of some runs, and the standard deviations predicted for these errors."""

    errors: Floats
    """log(predicted / measured)."""
    deviations: Floats
    """Standard deviations behind the intervals."""

    @classmethod
    def of(cls, sheet: Sheet, job: Job) -> Errors:
        """Predict the step times of measured runs, and return the errors and their predicted standard deviations.

        Args:
            sheet: The measured runs of one job. Runs that were out of memory are left out.
            job: The job to predict, with the calibration by past trials that is to be tested.
        """
        ran = np.flatnonzero(~sheet.out_of_memory)
        said = predict(sheet.layouts.take(ran), job)
        return cls(
            errors=np.log(said.step_time.total_s / sheet.step_time_s[ran]),
            deviations=np.log1p(said.relative_error) / Z80,
        )

    @classmethod
    def joined(cls, some: Sequence[Errors]) -> Errors:
        """Return the errors and deviations of several sheets as one object."""
        return cls(
            errors=np.concatenate([one.errors for one in some]),
            deviations=np.concatenate([one.deviations for one in some]),
        )

    @property
    def absolute_errors(self) -> Floats:
        """Return the relative error |predicted / measured step time - 1| of each run."""
        errors: Floats = np.abs(np.expm1(self.errors))
        return errors

    def within(self, deviations: float) -> Booleans:
        """Return, for each run, True if its error is at most this multiple of its predicted standard deviation."""
        inside: Booleans = np.abs(self.errors) <= deviations * self.deviations
        return inside


@dataclass(frozen=True, eq=False, kw_only=True)
class Left:
    """The results for the measured runs of one job (a sheet), predicted with and without other trials of its source."""

    source: str
    errors: Mapping[str, Errors]
    """Predictions by what was known: ``nothing``, ``one factor`` for its platform, a number of trials, or ``all``."""
    num_trials: Mapping[str, int]
    """Number of trials of a search, by what it knew; empty if too few layouts were measured for a search."""


# ---------------------------------------------------------------- a source as a team
def teams(sheets: Iterable[Sheet]) -> dict[str, list[Sheet]]:
    """Return the sheets by source, for sources with at least two sheets. Each source plays the part of a team.

    A sheet has the measured runs of one job. The factor of its cluster is removed, because the team's trials must teach
    it.
    """
    found: dict[str, list[Sheet]] = defaultdict(list)
    for sheet in sheets:
        found[source_name(sheet)].append(replace(sheet, job=replace(sheet.job, calibration=None)))
    return {source: some for source, some in found.items() if len(some) > 1}


def past_trials(sheets: Sequence[Sheet]) -> list[PastTrial]:
    """Return every run of these sheets as a finished trial of the past, in which each sheet was a sweep.

    The sweeps ended in the order of the sheets. The order of the trials within a sweep is random.
    """
    chance = np.random.default_rng(0)
    return [
        _trial(sheet, row, number + chance.random()) for number, sheet in enumerate(sheets) for row in range(len(sheet))
    ]


def _trial(sheet: Sheet, row: int, at: float) -> PastTrial:
    ran_out = bool(sheet.out_of_memory[row])
    return PastTrial(
        job=sheet.job,
        layout=sheet.layouts.row(row),
        step_time_s=None if ran_out else float(sheet.step_time_s[row]),
        sweep_id=sheet.name,
        finished_at=at,
    )


def left_out(source: str, sheet: Sheet, history: Sequence[PastTrial]) -> Left:
    """Predict one sheet and search its best layout, each without past trials and with them, and return the results.

    Args:
        source: Source of the sheet.
        sheet: The measured runs of one job, which ``history`` does not contain.
        history: The past trials: runs of the other sheets of the source.
    """
    learnt = Learnt(history)
    jobs = {"nothing": sheet.job, "one factor": _by_one_factor(sheet.job, history)}
    jobs |= {str(count): Learnt(_drawn(history, count)).calibrated(sheet.job) for count in NUM_SHOWN}
    jobs["all"] = learnt.calibrated(sheet.job)
    return Left(
        source=source,
        errors={known: Errors.of(sheet, job) for known, job in jobs.items()},
        num_trials=_searched(sheet, jobs["all"], learnt) if (~sheet.out_of_memory).sum() >= MIN_MEASURED else {},
    )


def _drawn(history: Sequence[PastTrial], count: int) -> list[PastTrial]:
    timed = [trial for trial in history if trial.step_time_s is not None]
    return [timed[index] for index in np.random.default_rng(0).permutation(len(timed))[:count]]


def _by_one_factor(job: Job, history: Iterable[PastTrial]) -> Job:
    """Return the job with a single factor for all parts of a step: a simpler method, for comparison."""
    runs: dict[Job, list[PastTrial]] = defaultdict(list)
    for trial in history:
        if trial.step_time_s is not None and Platform.of(trial.job) == Platform.of(job):
            runs[trial.job].append(trial)
    return calibrated(job, (_measured(one, some) for one, some in runs.items()))


def _measured(job: Job, trials: Sequence[PastTrial]) -> MeasuredRuns:
    seconds = np.array([trial.step_time_s for trial in trials], dtype=float)
    return MeasuredRuns(job=job, layouts=LayoutColumns.from_layouts(t.layout for t in trials), step_time_s=seconds)


def _searched(sheet: Sheet, job: Job, learnt: Learnt) -> dict[str, int]:
    """Return the number of trials to within 2 % of the best, by what the search knew."""
    without, calibrated_alone = Replay.of(sheet), Replay.of(replace(sheet, job=job))
    informed = replace(calibrated_alone, past=learnt.relevant(job))
    found = {"nothing": without, "calibrated": calibrated_alone, "all": informed}
    return {known: _count(replay) for known, replay in found.items()}


def _count(replay: Replay) -> int:
    walk = replay.walk(ours(replay, 0))
    return len(walk) if walk and replay.is_near_best(walk[-1]) else replay.open.size


# ---------------------------------------------------------------- figures
@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The accuracy of the predicted step times of some runs."""

    num_runs: int
    median: float
    """Median of |predicted / measured - 1|."""
    p90: float
    """The value that 90 % of these do not exceed."""
    covered_80: float
    """Share of the runs in their 80 % intervals."""
    covered_95: float
    """Share of the runs in their 95 % intervals."""
    half_width: float
    """Median half-width of the 80 % intervals."""


def figures(left: Sequence[Left], known: str) -> Figures:
    """Return the accuracy of the predictions for these sheets, of which there must be at least one.

    Args:
        left: The results by sheet.
        known: The past trials that the predictions could use: ``nothing``, ``one factor``, a number of trials, or
            ``all``.
    """
    found = Errors.joined([one.errors[known] for one in left])
    return Figures(
        num_runs=len(found.errors),
        median=float(np.median(found.absolute_errors)),
        p90=float(np.quantile(found.absolute_errors, 0.9)),
        covered_80=float(found.within(Z80).mean()),
        covered_95=float(found.within(_Z95).mean()),
        half_width=float(np.median(np.expm1(Z80 * found.deviations))),
    )


def worse_beyond_noise(
    left: Sequence[Left], figure: Callable[[Sequence[Left], str], float], known: str = "all"
) -> tuple[float, float]:
    """Return the 90 % interval of the change of a figure that past trials cause, by a bootstrap over the sheets.

    If the whole interval is above 0, past trials increase the figure (such as an error), and chance does not explain
    it.

    Args:
        left: The results by sheet.
        figure: Computes the figure for some sheets and for what the predictions could use.
        known: The past trials that the predictions could use; compared with ``nothing``.
    """
    chance = np.random.default_rng(0)
    drawn = (chance.integers(len(left), size=len(left)).tolist() for _ in range(_RESAMPLES))
    samples = ([left[index] for index in indices] for indices in drawn)
    rises = [figure(sample, known) - figure(sample, "nothing") for sample in samples]
    low, high = np.quantile(rises, [0.05, 0.95])
    return float(low), float(high)


def _median_error(left: Sequence[Left], known: str) -> float:
    return float(np.median(np.concatenate([one.errors[known].absolute_errors for one in left])))


def _mean_trials(left: Sequence[Left], known: str) -> float:
    return float(np.mean([one.num_trials[known] for one in left]))


# ---------------------------------------------------------------- tables
def lines(left: Sequence[Left]) -> Iterator[str]:
    """Yield the report as lines of Markdown: the accuracy without and with past trials, and the length of searches.

    The accuracy is shown by source, and by number of past trials.
    """
    by_source: dict[str, list[Left]] = defaultdict(list)
    for one in left:
        by_source[one.source].append(one)
    yield from ("## By source", "", *_source_table(by_source))
    yield from ("", "## By length of the history", "", *_length_table(by_source))
    yield from ("", "## The search", "", *_search_table(by_source))


def _source_table(by_source: Mapping[str, Sequence[Left]]) -> Iterator[str]:
    yield (
        "| source | sheets | runs | median error | change, 90 % | 9 of 10 within | in 80 % interval | in 95 % | "
        "± of 80 % | by one factor |"
    )
    yield "| --- " * 10 + "|"
    for source, some in sorted(by_source.items()):
        before, after, plain = (figures(some, known) for known in ("nothing", "all", "one factor"))
        low, high = worse_beyond_noise(some, _median_error)
        cells = [f"{getattr(before, name):.1%} → {getattr(after, name):.1%}" for name in ("median", "p90")]
        shares = [
            f"{getattr(before, n):.0%} → {getattr(after, n):.0%}" for n in ("covered_80", "covered_95", "half_width")
        ]
        yield (
            f"| {source[:40]} | {len(some)} | {after.num_runs} | {cells[0]} | {low:+.1%} to {high:+.1%} | {cells[1]} | "
            + " | ".join(shares)
            + f" | {plain.median:.1%}, {plain.p90:.1%} |"
        )


def _length_table(by_source: Mapping[str, Sequence[Left]]) -> Iterator[str]:
    """Yield a table of means over the sources, all with the same weight."""
    yield "| known | median error | 9 of 10 within | in 80 % interval | in 95 % | ± of 80 % |"
    yield "| --- " * 6 + "|"
    for known in ("nothing", "one factor", *map(str, NUM_SHOWN), "all"):
        every = [figures(some, known) for some in by_source.values()]
        means = [np.mean([getattr(f, n) for f in every]) for n in ("median", "p90", "covered_80", "covered_95")]
        width = np.median([f.half_width for f in every])
        yield f"| {known} | " + " | ".join(f"{mean:.1%}" for mean in means) + f" | {width:.0%} |"


def _search_table(by_source: Mapping[str, Sequence[Left]]) -> Iterator[str]:
    yield "| source | sheets | trials to within 2 %, mean | change, 90 % | most | calibrated alone |"
    yield "| --- " * 6 + "|"
    searched = {source: [one for one in some if one.num_trials] for source, some in sorted(by_source.items())}
    searched["all"] = [one for some in searched.values() for one in some]
    for source, some in searched.items():
        if some:
            before, plain, after = (_mean_trials(some, known) for known in ("nothing", "calibrated", "all"))
            low, high = worse_beyond_noise(some, _mean_trials)
            most = [max(one.num_trials[known] for one in some) for known in ("nothing", "all")]
            yield (
                f"| {source[:40]} | {len(some)} | {before:.2f} → {after:.2f} | {low:+.2f} to {high:+.2f} | "
                f"{most[0]} → {most[1]} | {plain:.2f} |"
            )


def every_sheet(sheets: Iterable[Sheet]) -> list[Left]:
    """Return the results of every sheet, predicted from past trials of the other sheets of its source.

    A sheet has the measured runs of one job. Sources with a single sheet are left out.
    """
    asked = []
    for source, some in teams(sheets).items():
        trials = past_trials(some)
        for sheet in some:
            asked.append((source, sheet, [trial for trial in trials if trial.sweep_id != sheet.name]))
    with ProcessPoolExecutor(PROCESSES, get_context("fork")) as pool:
        return list(pool.map(left_out, *zip(*asked, strict=True), chunksize=4))


def main() -> None:
    """Print how much a team's past trials improve the predictions and searches of its next sweep."""
    found = tables("catalog" if "--quick" in sys.argv else "source")
    print(*lines(every_sheet(sheet for some in found.values() for sheet in some)), sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()

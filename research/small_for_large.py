"""Tests whether proxy trials help to predict large clusters: replays published tables with one family at several sizes.

``python -m research.small_for_large`` predicts every large run with constants that were fitted without its source: once
alone, and once after proxy trials were given. These are runs of smaller sheets of the same source, accelerator and
software. It prints the errors of full-size step times without and with them, how many runs lie in their intervals, and
how often verdicts on memory are right. ``--model`` leaves out the sheets of one model at a time, so that others inform
about the cluster. ``--quick`` uses the constants of the catalog, which were fitted to everything. ``--learn`` prints
the correlations of ``search/sampler/gaussian_model.py`` that fit the runs best.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from autotuner.backtests.measured_table import Sheet, read_table
from autotuner.backtests.report import MIN_MEASURED
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.prediction import FullSizeEstimate
from autotuner.costmodel.predict import predict, predict_one
from autotuner.search.sampler.full_size import FullSize, ProxyResult, times_in_intervals
from autotuner.search.sampler.gaussian_model import Estimate, TaskSimilarity, Transfer
from autotuner.search.sampler.priors import TIME_FACTORS, learn_times, scale_inflation
from autotuner.search.sampler.transfer import ProxyPoints, ProxyRun
from research.fit_stacks import FITS, PUBLISHED, sheets_of, source_name
from research.held_out import held_out

NUM_SHOWN = (1, 2, 4, 8)
"""Numbers of small runs of a family that are given."""

NUM_DRAWS = 5
"""Number of times that small runs are drawn."""

PROCESSES = 2

_SHRINKING = frozenset(
    {
        "data_parallel_replicate_degree",
        "data_parallel_shard_degree",
        "pipeline_parallel_degree",
        "virtual_stages_per_rank",
        "pipeline_schedule",
        "first_stage_less_layers",
        "last_stage_less_layers",
    }
)
"""Options in which a layout and its scaled-down one may differ."""


@dataclass(frozen=True, eq=False, kw_only=True)
class _Run:
    """A row of a table; ``step_time_s`` is NaN if the run was out of memory."""

    sheet: Sheet
    layout: Layout
    step_time_s: float

    @property
    def num_ranks(self) -> int:
        return self.sheet.job.cluster.world_size

    def trial(self, layout: Layout) -> ProxyResult:
        """Return the run as a proxy trial."""
        ran = not np.isnan(self.step_time_s)
        return ProxyResult(
            layout=layout,
            run=ProxyRun(job=self.sheet.job, layout=self.layout),
            step_time_s=self.step_time_s if ran else None,
            fits=ran,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """Large runs of one job, and the proxy trials (runs on fewer ranks) from which their step times are estimated."""

    source: str
    """Source that published the runs."""
    times_larger: float
    """Number of ranks divided by that of the largest proxy trial."""
    job: Job
    layouts: Sequence[Layout]
    measured_s: Floats
    """Measured step times; NaN if a run was out of memory."""
    trials: Sequence[ProxyResult]

    @cached_property
    def before(self) -> list[FullSizeEstimate]:
        """Return the estimates of the large runs by the cost model alone, without the proxy trials."""
        return _belief(self.job).estimates(self.layouts, [])

    @cached_property
    def after(self) -> list[FullSizeEstimate]:
        """Return the estimates of the large runs by the cost model and the proxy trials (runs on fewer ranks)."""
        return _belief(self.job).estimates(self.layouts, self.trials)

    @cached_property
    def scaled_s(self) -> Floats:
        """Return the step times of the large runs as a simple rule of thumb estimates them, for comparison.

        The rule multiplies each prediction by measured / predicted step time of the first proxy trial (a run on fewer
        ranks).
        """
        first = self.trials[0]
        slower = (first.step_time_s or np.nan) / predict_one(first.run.layout, first.run.job).step_time.total_s
        scaled: Floats = np.array([one.step_time_s for one in self.before]) * slower
        return scaled


@cache
def _belief(job: Job) -> FullSize:
    return FullSize(job)


# ---------------------------------------------------------------- families
def families(sheets: Sequence[Sheet]) -> list[list[Sheet]]:
    """Return the sheets in groups with the same source, accelerator and software; a sheet has the runs of one job.

    Groups are left out if all their sheets have the same number of ranks.
    """
    found: dict[tuple[str, ...], list[Sheet]] = defaultdict(list)
    for sheet in sheets:
        found[source_name(sheet), sheet.job.cluster.accelerator.name, sheet.job.stack.name].append(sheet)
    return [family for family in found.values() if len({sheet.job.cluster.world_size for sheet in family}) > 1]


def _runs(sheets: Iterable[Sheet], *, out_of_memory: bool) -> list[_Run]:
    """Return all rows, or only those with a step time."""
    return [
        _Run(sheet=sheet, layout=sheet.layouts.row(row), step_time_s=float(seconds))
        for sheet in sheets
        for row, seconds in enumerate(sheet.step_time_s)
        if out_of_memory or not np.isnan(seconds)
    ]


def _case(large: Sequence[_Run], trials: Sequence[tuple[Layout, _Run]]) -> Case:
    sheet = large[0].sheet
    return Case(
        source=source_name(sheet),
        times_larger=large[0].num_ranks / max(run.num_ranks for _, run in trials),
        job=sheet.job,
        layouts=[run.layout for run in large],
        measured_s=np.array([run.step_time_s for run in large]),
        trials=[run.trial(layout) for layout, run in trials],
    )


# ---------------------------------------------------------------- the same layout on fewer ranks
def twins(sheets: Sequence[Sheet]) -> Iterator[Case]:
    """Yield every large run, with the smallest run of the same layout as its proxy trial.

    The layouts may differ in replicas, pipeline stages and number of layers. The large run has at least twice as many
    ranks.
    """
    for family in families(sheets):
        alike: dict[tuple[object, ...], list[_Run]] = defaultdict(list)
        for run in _runs(family, out_of_memory=False):
            alike[_kept(run)].append(run)
        for some in alike.values():
            small = min(some, key=lambda run: run.num_ranks)
            yield from (_case([run], [(run.layout, small)]) for run in some if run.num_ranks >= 2 * small.num_ranks)


def _kept(run: _Run) -> tuple[object, ...]:
    """Return the properties in which a run and its scaled-down run must agree."""
    shapes = replace(run.sheet.job.model.with_num_layers(1), name="", approximations=())
    if shapes.experts:
        shapes = replace(shapes, experts=replace(shapes.experts, num_dense_layers=0))
    choices = tuple(getattr(run.layout, name) for name in OPTIONS if name not in _SHRINKING)
    return shapes, run.sheet.job.workload.seq_len, choices


# ---------------------------------------------------------------- a whole family
def taught(sheets: Sequence[Sheet], num_shown: int, *, out_of_memory: bool = False) -> Iterator[Case]:
    """Yield the large runs of every job, with some runs of similar jobs on at most half as many ranks as proxy trials.

    Similar jobs have the same source, accelerator and software. The proxy trials are drawn at random, ``NUM_DRAWS``
    times for each job.

    Args:
        sheets: The measured runs, by job.
        num_shown: Number of proxy trials to draw.
        out_of_memory: True to include runs that were out of memory.
    """
    for family in families(sheets):
        for sheet in family:
            num_ranks = sheet.job.cluster.world_size
            few = (other for other in family if 2 * other.job.cluster.world_size <= num_ranks)
            smaller, large = _runs(few, out_of_memory=out_of_memory), _runs([sheet], out_of_memory=out_of_memory)
            for seed in range(NUM_DRAWS if smaller and large else 0):
                drawn = np.random.default_rng(seed).permutation(len(smaller))[:num_shown]
                yield _case(large, [(_grown(smaller[index], num_ranks), smaller[index]) for index in drawn])


def _grown(run: _Run, num_ranks: int) -> Layout:
    """Return the run's layout with as many replicas as fill the larger job."""
    is_sharded = run.layout.data_parallel_shard_degree > 1
    field = "data_parallel_shard_degree" if is_sharded else "data_parallel_replicate_degree"
    return replace(run.layout, **{field: getattr(run.layout, field) * (num_ranks // run.num_ranks)})


# ---------------------------------------------------------------- figures
@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The accuracy of estimated step times of large runs: each figure without and with proxy trials.

    A proxy trial is a run on fewer ranks.
    """

    num_runs: int
    median: tuple[float, float]
    """Median of |estimate / measured - 1|, without and with proxy trials."""
    p90: tuple[float, float]
    """The value that 90 % of these do not exceed."""
    covered_80: tuple[float, float]
    """Share of the runs in their 80 % intervals."""
    covered_95: tuple[float, float]
    """Share of the runs in their 95 % intervals."""
    half_width: tuple[float, float]
    """Median half-width of the 80 % intervals."""
    median_scaled: float
    """Median error of the rule of thumb."""
    regret: tuple[float, float]
    """Mean loss of speed when the layout with the shortest estimate is chosen, in cases with at least ``MIN_MEASURED``
    runs; NaN without such cases."""


def figures(cases: Sequence[Case]) -> Figures:
    """Return the accuracy of the estimates in these cases, without and with proxy trials (runs on fewer ranks).

    There must be at least one case.
    """
    before, after = [one for case in cases for one in case.before], [one for case in cases for one in case.after]
    measured_s = np.concatenate([case.measured_s for case in cases])
    errors = [np.abs(np.array([one.step_time_s for one in some]) / measured_s - 1) for some in (before, after)]
    scaled = np.abs(np.concatenate([case.scaled_s for case in cases]) / measured_s - 1)
    return Figures(
        num_runs=len(measured_s),
        median=(float(np.median(errors[0])), float(np.median(errors[1]))),
        p90=(float(np.quantile(errors[0], 0.9)), float(np.quantile(errors[1], 0.9))),
        covered_80=(_covered(measured_s, before, 80), _covered(measured_s, after, 80)),
        covered_95=(_covered(measured_s, before, 95), _covered(measured_s, after, 95)),
        half_width=(_half_width(before), _half_width(after)),
        median_scaled=float(np.median(scaled)),
        regret=(_regret(cases, lambda case: case.before), _regret(cases, lambda case: case.after)),
    )


def _regret(cases: Sequence[Case], estimates: Callable[[Case], Sequence[FullSizeEstimate]]) -> float:
    lost = [
        1 - case.measured_s.min() / case.measured_s[np.argmin([one.step_time_s for one in estimates(case)])]
        for case in cases
        if len(case.layouts) >= MIN_MEASURED
    ]
    return float(np.mean(lost)) if lost else np.nan


def _covered(measured_s: Floats, estimates: Sequence[FullSizeEstimate], percent: int) -> float:
    intervals = [one.interval_80_s if percent == 80 else one.interval_95_s for one in estimates]
    return float(np.mean([low <= seconds <= high for seconds, (low, high) in zip(measured_s, intervals, strict=True)]))


def _half_width(estimates: Sequence[FullSizeEstimate]) -> float:
    return float(np.median([one.relative_error for one in estimates]))


def _table(cases: Sequence[Case], by: Callable[[Case], str], *, with_rule: bool) -> Iterator[str]:
    """Yield a Markdown table of the figures by group of runs.

    Its last column is the rule of thumb if a case is a pair of runs, else the regret.
    """
    last = "by the rule of thumb" if with_rule else "regret"
    yield f"| runs | number | median error | 9 of 10 within | in 80 % interval | in 95 % | ± of 80 % | {last} |"
    yield "| --- " * 8 + "|"
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[by(case)].append(case)
    for name, some in [*sorted(groups.items()), ("all", list(cases))]:
        f = figures(some)
        pairs = [(f.median, 1), (f.p90, 1), (f.covered_80, 0), (f.covered_95, 0), (f.half_width, 0)]
        cells = [_pair(values, digits) for values, digits in pairs]
        cells.append(f"{f.median_scaled:.1%}" if with_rule else _pair(f.regret, 1))
        yield f"| {name} | {f.num_runs} | " + " | ".join(cells) + " |"


def _pair(values: tuple[float, float], digits: int) -> str:
    return "" if np.isnan(values[0]) else f"{values[0]:.{digits}%} → {values[1]:.{digits}%}"


def _of_ratio(case: Case) -> str:
    return f"{2 ** int(np.log2(case.times_larger)):3d} times the ranks or more"


# ---------------------------------------------------------------- memory
def _memory_lines(sheets: Sequence[Sheet]) -> Iterator[str]:
    """Yield the verdicts on large runs of the table that says which runs were out of memory."""
    yield "| proxy trials shown | out of memory, let through | measured, refused |"
    yield "| --- | --- | --- |"
    for num_shown in (1, 4, 16):
        cases = list(taught(sheets, num_shown, out_of_memory=True))
        if num_shown == 1:
            yield f"| 0 | {_verdicts(cases, lambda case: case.before)} |"
        yield f"| {num_shown} | {_verdicts(cases, lambda case: case.after)} |"


def _verdicts(cases: Sequence[Case], estimates: Callable[[Case], Sequence[FullSizeEstimate]]) -> str:
    ran_out = np.isnan(np.concatenate([case.measured_s for case in cases]))
    fits = np.array([one.fit_probability >= 0.5 for case in cases for one in estimates(case)])
    return f"{fits[ran_out].mean():.1%} | {(~fits[~ran_out]).mean():.1%}"


# ---------------------------------------------------------------- what jobs share
_FACTORS, _RESIDUALS = (0.7, 0.8, 0.9, 0.95, 1.0), (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Correlations that are tried."""

_FAR = 4.0
"""Number of standard deviations beyond which an error has no more weight: a network fault, which no correlation
explains."""


def learn(cases: Iterable[Case]) -> dict[str, Floats]:
    """Return how well each tried pair of correlations predicts the large runs from their proxy trials, by source.

    A proxy trial is a run on fewer ranks. The correlations say how similar the prediction errors of a proxy trial and a
    large run are: one for the factors of the parts of a step, one for the rest of the error. The values are means of
    the log density of the measured step times, with shape (tried factor correlations, tried residual correlations).
    Higher is better.
    """
    found: dict[str, list[Floats]] = defaultdict(list)
    for case in cases:
        found[case.source].append(_log_densities(case))
    return {source: np.concatenate(some, axis=-1).mean(axis=-1) for source, some in found.items()}


def _log_densities(case: Case) -> Floats:
    """Return the log densities by factor, residual and run."""
    x, every = LayoutColumns.from_layouts(case.layouts), np.arange(len(case.layouts))
    predictions = predict(x, case.job)
    prior = times_in_intervals(x, predictions, case.job)
    points = ProxyPoints(case.job, times=times_in_intervals)
    proxies = [(trial.layout, trial.run) for trial in case.trials]
    related, jobs = points.times(proxies), points.jobs(proxies)
    seconds = [trial.step_time_s or np.nan for trial in case.trials]

    def density(factor: float, residual: float) -> Floats:
        shared = TaskSimilarity.between(jobs, TIME_FACTORS, Transfer(factor=factor, residual=residual, elsewhere=0.5))
        belief = learn_times(prior, {}, related=replace(related, similarity=shared), related_step_time_s=seconds)
        return _log_density(np.log(case.measured_s), belief.at(every), scale_inflation(belief))

    return np.array([[density(factor, residual) for residual in _RESIDUALS] for factor in _FACTORS])


def _log_density(log_s: Floats, estimate: Estimate, inflation: float) -> Floats:
    deviation = inflation * np.sqrt(estimate.variance + 1e-4)  # a measured step time varies by 1 % from run to run
    far = np.minimum(np.abs(log_s - estimate.mean) / deviation, _FAR)
    density: Floats = -(far**2) / 2 - np.log(deviation)
    return density


def _learn_lines(found: dict[str, Floats]) -> Iterator[str]:
    """Yield the likeliest correlations without each source, and the densities of all sources."""
    yield "| left out | factor | residual |"
    yield "| --- | --- | --- |"
    for name in ("none", *sorted(found)):
        factor, residual = _likeliest([density for source, density in found.items() if source != name])
        yield f"| {name} | {factor:g} | {residual:g} |"
    yield ""
    yield "| log density by factor, residual | " + " | ".join(f"{residual:g}" for residual in _RESIDUALS) + " |"
    yield "| --- " * (1 + len(_RESIDUALS)) + "|"
    for factor, row in zip(_FACTORS, np.mean(list(found.values()), axis=0), strict=True):
        yield f"| {factor:g} | " + " | ".join(f"{density:.3f}" for density in row) + " |"


def _likeliest(densities: Sequence[Floats]) -> tuple[float, float]:
    mean = np.mean(densities, axis=0)
    factor, residual = np.unravel_index(int(np.argmax(mean)), mean.shape)
    return _FACTORS[int(factor)], _RESIDUALS[int(residual)]


# ---------------------------------------------------------------- the command
def tables(by: str) -> dict[str, Sequence[Sheet]]:
    """Return the measured runs of every published table, as sheets. A sheet has the runs of one job.

    Args:
        by: Constants with which the sheets are predicted. ``source``: fitted without the source of the sheet.
            ``model``: fitted without the model of the sheet. ``catalog``: fitted to all runs.
    """
    if by == "catalog":
        return {table: sheets_of(table) for one in FITS for table in one.tables}
    found = (held_out(one, "source" if by == "source" else "model", PROCESSES) for one in FITS)
    sheets: dict[str, Sequence[Sheet]] = {table: some for tables in found for table, some in tables.items()}
    return unfamiliar(sheets) if by == "source" else sheets


def unfamiliar(sheets: Mapping[str, Sequence[Sheet]]) -> dict[str, Sequence[Sheet]]:
    """Return the sheets by table, with software marked as unknown if only one source used it on the same accelerator.

    The fit that leaves this source out knows nothing about the software. A sheet has the measured runs of one job.
    """
    sources: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sheet in (sheet for some in sheets.values() for sheet in some):
        sources[_software(sheet)].add(source_name(sheet))
    return {
        table: [sheet if len(sources[_software(sheet)]) > 1 else _of_unknown_software(sheet) for sheet in some]
        for table, some in sheets.items()
    }


def _software(sheet: Sheet) -> tuple[str, str]:
    return sheet.job.stack.name, sheet.job.cluster.accelerator.name


def _of_unknown_software(sheet: Sheet) -> Sheet:
    stack = replace(sheet.job.stack, name=f"{sheet.job.stack.name}, never compared")
    return replace(sheet, job=replace(sheet.job, stack=stack))


def lines(sheets: Sequence[Sheet]) -> Iterator[str]:
    """Yield the report as lines of Markdown: how much small runs improve the estimates of large runs."""
    pairs = list(twins(sheets))
    yield from ("## One proxy trial of the same layout", "", *_table(pairs, _source, with_rule=True))
    yield from ("", *_table(pairs, _of_ratio, with_rule=True))
    for num_shown in NUM_SHOWN:
        family = list(taught(sheets, num_shown))
        yield from ("", f"## {num_shown} small runs of the family", "", *_table(family, _source, with_rule=False))


def _source(case: Case) -> str:
    return case.source if len(case.source) <= 40 else case.source[:37] + "..."


def main() -> None:
    """Print how much proxy trials (runs on fewer ranks) improve the predictions of large runs.

    ``--learn`` prints the correlations that explain the runs best instead.
    """
    by = next((by for by in ("model", "catalog") if f"--{by}" in sys.argv), "source")
    found = tables("catalog" if "--quick" in sys.argv else by)
    sheets = [sheet for some in found.values() for sheet in some]
    if "--learn" in sys.argv:
        cases = [*twins(sheets), *taught(sheets, 1), *taught(sheets, 4)]
        print(*_learn_lines(learn(cases)), sep="\n")  # noqa: T201
        return
    for line in lines(sheets):
        print(line, flush=True)  # noqa: T201
    memory = read_table(PUBLISHED / "aleph_alpha_layouts_sweep.csv").sheets
    print("", "## Memory, `aleph_alpha_layouts_sweep`", "", *_memory_lines(memory), sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()

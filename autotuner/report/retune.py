"""The reports of scheduled retunings: the list, one with its trend and its runs, and how a run ended."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from autotuner.core.upkeep import Retune, RetuneRun, Trigger
from autotuner.report.charts import Axis, Band, Dot, Dots, Line, Mark, Plot, Rule, stairs
from autotuner.report.report import (
    Block,
    Button,
    Calendar,
    Cell,
    Cells,
    Code,
    Column,
    Figure,
    Lines,
    Link,
    Moment,
    Quantity,
    Quiet,
    Report,
    Section,
    Source,
    State,
    Strong,
    Table,
    measured,
)
from autotuner.report.verdicts import explanation
from autotuner.report.words import counted, environment_change, plain
from autotuner.search.upkeep.cron import Cron
from autotuner.search.upkeep.retune import TrendPoint, trend

_TRIGGERS = {
    Trigger.CRON: "schedule",
    Trigger.CAUGHT_UP: "missed schedule",
    Trigger.MANUAL: "by hand",
    Trigger.ENVIRONMENT: "software changed",
    Trigger.LINKS: "links changed",
}
"""Reasons why a run began."""

_MOST_POINTS = 90
"""Maximum number of runs in the trend: three months of nightly runs."""

_NIGHTS_S = 13 * 7 * 86_400.0
"""Seconds that the calendar shows before the newest run: 13 weeks."""

_MOST_LABELS = 6
_FEWEST_PLACES = 6
"""Minimum number of places on the axis, so that a few runs do not stand far apart."""

_VERDICTS = ("unchanged", "better_found", "regression", "could_not_run", "skipped")


# ------------------------------------------------------------------ the list of retunings
def retunes_report(retunes: Sequence[Retune], server: str = "") -> Report:
    """Return the report of all retunes by name: when each is due, its layout in use, and how its last run ended.

    A retune is a sweep that starts again on a schedule.

    Args:
        retunes: The retunes, in the order of the table.
        server: URL for the option ``--server`` of the commands that the report shows; empty: no such option.
    """
    add = (
        'autotuner retune add nightly --cron "0 2 * * *" --model llama-demo --cluster local \\\n'
        f"  --seq-len 128 --global-batch-size 16 --trials 8{_option(server)}"
    )
    columns = (
        Column("retune", is_number=False),
        Column("job", is_number=False, is_minor=True),
        Column("due", is_number=False),
        Column("last run", is_number=False),
        Column("layout in use", is_number=False),
        Column("MFU"),
    )
    none = (
        "No retune yet. A retune runs on a schedule: it measures the layout in use, says whether the layout became "
        "slower, and looks for a better layout."
    )
    table = Table(
        columns=columns,
        rows=[_cells_of(one) for one in retunes],
        caption=f"{counted(len(retunes), 'retune')}, by name",
        if_empty=none,
    )
    blocks: list[Block] = [table] if retunes else [table, Code(add)]
    return Report(headline="Retunes", sections=(Section(blocks=blocks),))


def _cells_of(retune: Retune) -> tuple[Cells, ...]:
    job, name = retune.request.template.job, Link(retune.name, "retunes", retune.name, key=f"link-{retune.name}")
    return (
        (name, Quiet(f"by {retune.created_by}")) if retune.created_by else name,
        (job.model.name, Quiet(f"on {job.cluster.name}")),
        (_due(retune), Quiet(_schedule(retune))),
        _last(retune.last_run),
        retune.incumbent or "the first run finds it",
        _mfu(retune),
    )


# ------------------------------------------------------------------ one retuning
def retune_report(
    retune: Retune,
    runs: Sequence[RetuneRun] | None = None,
    total: int = 0,
    server: str = "",
    *,
    has_buttons: bool = False,
) -> Report:
    """Return the report of one retune (a scheduled search for a better layout): its last run and its newest runs.

    It also has the results of the layout in use.

    Args:
        retune: The retune as it is stored.
        runs: Its newest runs, the newest first; None: they are not shown.
        total: Number of all its runs.
        server: URL for the option ``--server`` of the commands that the report shows; empty: no such option.
        has_buttons: True if the reader may start a run, pause the retune and resume it.
    """
    template = retune.request.template
    workload = template.job.workload
    batch = f"{workload.global_batch_size} sequences of {workload.seq_len} tokens per step"
    facts: list[Cell] = [Strong(template.job.model.name), "on", Strong(template.job.cluster.name), f", {batch}"]
    facts += [", trained by", Strong(template.trainer.name)] if template.trainer else []
    facts += [f". {_schedule(retune)}."]
    facts += [Quiet(f"By {retune.created_by}.")] if retune.created_by else []
    sections = [Section(title="Now", blocks=tuple(_standing(retune, has_buttons=has_buttons)))]
    sections += [] if runs is None else _sections(retune, runs, total, server)
    return Report(
        headline=retune.name,
        state=State("paused") if retune.is_paused else None,
        facts=facts,
        sections=sections,
    )


def _sections(retune: Retune, runs: Sequence[RetuneRun], total: int, server: str) -> Iterator[Section]:
    points = trend(runs)
    if points:
        source = _source(retune)
        note = (
            f"Mean {source} rate of the layout in use, with its slowest and fastest measurement. The line is the rate "
            "that the run was compared with, and the band around it is the noise. A square is a regression. A dashed "
            "line marks a change to another layout."
        )
        yield Section(title="Rate of each run", blocks=(_chart(points, source),), note=note, id="trend")
    if runs:
        days = _days([run for run in runs if run.request.due_at > runs[0].request.due_at - _NIGHTS_S])
        yield Section(title="Outcome of each night", blocks=(Calendar(days=days, words=_VERDICTS),), id="calendar")
    if runs:
        yield Section(title="Runs", blocks=(_runs(runs, points, total, _source(retune), retune.request.time_zone),))
    else:
        begin = f"autotuner retune run {retune.name}{_option(server)}"
        yield Section(title="Runs", blocks=(Lines(items=("No run yet. This command starts one now:",)), Code(begin)))


def _standing(retune: Retune, *, has_buttons: bool) -> Iterator[Block]:
    test, last = retune.request.test, retune.last_run
    held = measured(retune.measured_tokens_per_s, "tokens/s", source=_source(retune), is_exact=True)
    yield (
        Figure("last run", _last(last)),
        Figure("due next", _due(retune)),
        Figure("layout in use", retune.incumbent or "the first run finds it"),
        Figure("compared with", (held, Quiet(f"the mean of {counted(len(retune.baseline), 'run')}"))),
        Figure("MFU", _mfu(retune)),
        Figure("slowdown accepted", Quantity(value=test.tolerance, unit="share")),
        Figure("slowdown to detect", Quantity(value=test.loss, unit="share")),
        *([Figure("by hand", _buttons(retune))] if has_buttons else []),
    )
    if last is None:
        yield Lines(items=("A service or `autotuner worker` starts each run.",), is_quiet=True)
    if last and last.result:
        yield Lines(items=tuple(_said(last, retune.request.time_zone)))
        if last.result.changes:
            yield Lines(items=("Differences from the last run without a regression:",), is_quiet=True)
            yield Lines(items=tuple(map(environment_change, last.result.changes)))


def _buttons(retune: Retune) -> Cells:
    name = retune.name
    word = "Resume" if retune.is_paused else "Pause"
    run = Button(words="Run now", path=f"retunes/{name}/run", says=f"Start a run of {name} now")
    return (run, Button(words=word, path=f"retunes/{name}/{word.lower()}", says=f"{word} {name}"))


def run_report(run: RetuneRun, time_zone: str = "UTC") -> Report:
    """Return the report of one run of a retune (a search on a schedule): how it ended, or that it has not ended yet.

    Args:
        run: The run.
        time_zone: Time zone in which times are written, usually that of the retune's schedule.
    """
    if run.result is None:
        go_on = f"{run.id} has started; a service or `autotuner worker` runs its sweep {run.child_id}."
        return Report(headline=go_on, sections=())
    lines = Lines(items=tuple(_said(run, time_zone)))
    return Report(headline=run.subject, state=State(run.result.word), sections=(Section(blocks=(lines,)),))


def _said(run: RetuneRun, time_zone: str) -> Iterator[str]:
    yield run.detail
    yield from explanation(run.result, time_zone) if run.result else ()


# ------------------------------------------------------------------ its trend
def _chart(points: Sequence[TrendPoint], source: Source) -> Plot:
    """Return a chart of the present layout's rate run by run, above the band within which changes are only noise."""
    shown = list(enumerate(points[-_MOST_POINTS:], 1))
    known = ((one.lowest, one.highest, one.band_low, one.band_high) for _, one in shown)
    ends = [rate for rates in known for rate in rates if rate]
    marks: list[Mark] = []
    banded = [(place, one) for place, one in shown if one.reference and one.band_low and one.band_high]
    if banded:
        stretches = [*banded, (banded[-1][0] + 1, banded[-1][1])]
        over, under, held = (
            stairs([(place - 0.5, float(getattr(one, name))) for place, one in stretches])
            for name in ("band_high", "band_low", "reference")
        )
        marks += [Band(upper=over, lower=under), Line(points=held, look="reference")]
    marks += [
        Rule(at=place - 0.5, along="x", look="event")
        for (_, before), (place, one) in pairwise(shown)
        if before.layout != one.layout
    ]
    marks.append(Dots(dots=[_dot(place, one, source) for place, one in shown]))
    axis = Axis.around(ends, f"{source} rate", unit="tokens/s", margin=0.08)
    last = max(len(shown), _FEWEST_PLACES)
    return Plot(
        says=f"The {source} rate of the layout in use over {counted(len(shown), 'run')}, with the band of noise",
        x=Axis(title="", low=0.5, high=last + 0.5, labels=_labels(shown)),
        y=axis,
        height=260,
        wide=1296,
        marks=marks,
    )


def _dot(place: int, one: TrendPoint, source: Source) -> Dot:
    day = datetime.fromtimestamp(one.at, UTC)
    held = f", compared with {one.reference:,.0f}" if one.reference else ""
    rate, times = f"{one.tokens_per_s:,.0f} tokens/s", counted(one.num_measurements, "measurement")
    return Dot(
        x=place,
        y=one.tokens_per_s,
        low=one.lowest,
        high=one.highest,
        look="regression" if one.verdict == "regression" else "simulated" if source == "simulated" else "measured",
        said=f"{day.day} {day:%b}: {plain(one.verdict)}, {rate} in {times}{held}; {one.layout}",
    )


def _labels(points: Sequence[tuple[int, TrendPoint]]) -> tuple[tuple[float, str], ...]:
    """Return labels with the day of some runs, always of the newest; with their time if all runs are of one day."""
    every = math.ceil(len(points) / _MOST_LABELS)
    moments = [(place, datetime.fromtimestamp(one.at, UTC)) for place, one in points]
    is_one_day = len({moment.date() for _, moment in moments}) == 1
    words = [(float(place), f"{at:%H:%M}" if is_one_day else f"{at.day} {at:%b}") for place, at in moments]
    return tuple(words[::-1][::every][::-1])


# ------------------------------------------------------------------ its runs
def _days(runs: Sequence[RetuneRun]) -> tuple[tuple[float, str, Link | None], ...]:
    return tuple(
        (one.request.due_at, one.word, Link(one.id, "sweeps", one.child_id) if one.child_id else None)
        for one in reversed(runs)
    )


def _runs(runs: Sequence[RetuneRun], points: Sequence[TrendPoint], total: int, source: Source, time_zone: str) -> Table:
    by_run = {point.run_id: point for point in points}
    columns = (
        Column("due", is_number=False),
        Column("started by", is_number=False),
        Column("outcome", is_number=False),
        Column("reached"),
        Column("baseline", is_minor=True),
        Column("noise ±", is_minor=True),
        Column("finding", is_number=False, may_wrap=True),
        Column("sweep", is_number=False),
    )
    every = f"{counted(total, 'run')}, newest first"
    return Table(
        columns=columns,
        rows=[tuple(_cells_of_run(one, by_run.get(one.id), source, time_zone)) for one in runs],
        caption=f"the newest {len(runs)} of {total} runs" if total > len(runs) else every,
    )


def _cells_of_run(run: RetuneRun, point: TrendPoint | None, source: Source, time_zone: str) -> Iterator[Cells]:
    yield Moment(run.request.due_at, time_zone)
    why = _TRIGGERS[run.request.trigger]
    yield (why, Quiet(f"replaces {run.request.num_missed} missed runs")) if run.request.num_missed else why
    yield State(run.word)
    yield measured(point.tokens_per_s if point else None, "tokens/s", source=source, is_exact=True)
    yield Quantity(value=point.reference if point else None, unit="tokens/s", is_exact=True)
    band = point.band_high / point.reference - 1 if point and point.band_high and point.reference else None
    yield Quantity(value=band, unit="share")
    if run.result:
        yield run.detail
    else:
        yield Quiet("The run before it was not finished." if run.request.is_skipped else "Under way.")
    yield Link(run.child_id, "sweeps", run.child_id, key=f"link-{run.id}") if run.child_id else None


def _last(run: RetuneRun | None) -> Cells:
    if run is None:
        return "never ran"
    if run.result is None and run.child_id:
        return (State(run.word), Link(run.child_id, "sweeps", run.child_id))
    return (State(run.word), Moment(run.finished_at or run.request.started_at))


def _due(retune: Retune) -> Cell:
    if retune.is_paused or retune.next_due_at is None:
        return State("paused")
    return Moment(retune.next_due_at, retune.request.time_zone)


def _schedule(retune: Retune) -> str:
    words = Cron(expression=retune.request.cron).in_words
    return f"{words}, {retune.request.time_zone}"


def _mfu(retune: Retune) -> Quantity:
    return measured(retune.measured_mfu, "share", source=_source(retune))


def _source(retune: Retune) -> Source:
    return retune.request.template.runs_on.source


def _option(server: str) -> str:
    return f" --server {server}" if server else ""

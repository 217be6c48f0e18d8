"""The report of a sweep's trials: how the best was found, which options mattered, and how good predictions were.

Each chart has its own section, beside the numbers that it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.report.charts import Glyph
from autotuner.report.report import (
    Block,
    Cells,
    Column,
    Folded,
    Lines,
    Link,
    Notice,
    Quantity,
    Report,
    Section,
    Source,
    Table,
)
from autotuner.report.sweep_charts import (
    CloudPoint,
    TrialPoint,
    agreement,
    best_so_far,
    change_of,
    effects,
    importance,
    is_limit_near,
    memory_front,
    on_front,
    parallel,
    rises,
    trial_points,
)
from autotuner.report.words import counted, number, percent, sentence
from autotuner.search.results.pairs import PairEffect
from autotuner.search.results.sensitivity import Choices
from autotuner.search.results.sweep_answer import Accuracy

_MOST_EFFECTS = 10


def charts_report(
    request: SweepRequest,
    trials: Sequence[Trial],
    *,
    source: Source,
    choices: Choices,
    accuracy: Accuracy,
    predicted: Sequence[CloudPoint] = (),
    remaining_gain: float | None = None,
    root: str = "",
) -> Report:
    """Return the report of charts on the trials of a sweep; it has no sections while no trial has a result.

    Args:
        request: The request of the sweep.
        trials: All trials, by number.
        source: Source of the results: measured, simulated or estimated.
        choices: Importance of each option of the layouts.
        accuracy: Differences between predictions and results.
        predicted: Layouts that are predicted to fit and never ran.
        remaining_gain: Gain that the search expects from one more trial, as a share of the best MFU; None: not known.
        root: Path before every address of the service.
    """
    incumbent = request.challenge.incumbent if request.challenge else None
    points = trial_points(trials, request.objective, root=root, incumbent=incumbent, is_simulated=source == "simulated")
    if not any(point.mfu is not None for point in points):
        return Report(headline="No trial has a result yet.", sections=())
    limit_bytes = float(request.trial_job.cluster.accelerator.memory_bytes)
    sections = [
        _history(points, source, remaining_gain),
        _front(points, source, limit_bytes, predicted),
        *_parallel(points, choices),
        _mattered(choices, source, trials[0].sweep_id),
        _calibration(points, source, accuracy),
    ]
    return Report(headline="What the trials show", sections=sections)


def _history(points: Sequence[TrialPoint], source: Source, gain: float | None) -> Section:
    raised, chart = [*rises(points)][::-1], best_so_far(points, gain)
    columns = (
        Column("after trials"),
        Column("layout", is_number=False),
        Column("MFU"),
        Column("gain"),
        Column("trial", is_number=False),
    )
    rows: list[Sequence[Cells]] = [
        (
            Quantity(value=position, unit="count"),
            point.name,
            Quantity(value=point.mfu, unit="share", source=source),
            Quantity(value=more, unit="signed_share"),
            _link(point),
        )
        for position, point, more in raised
    ]
    table = Table(columns=columns, rows=rows, name="Trials that improved the best result", is_compact=True)
    summary = f"{counted(len(raised), 'trial')} improved the best result, as a table"
    has_band = any(point.expected_gain is not None for point in points)
    return Section(
        title="Best MFU so far",
        id="history",
        note="The band is the expected gain of one more trial. When it is close to zero, a sweep ends."
        if has_band
        else "",
        blocks=(*([chart] if chart else []), Folded(summary=summary, id="history-numbers", blocks=(table,))),
        is_half=True,
    )


def _front(
    points: Sequence[TrialPoint], source: Source, limit_bytes: float, predicted: Sequence[CloudPoint]
) -> Section:
    best, is_near = on_front(points)[::-1], is_limit_near(points, limit_bytes)
    chart = memory_front(points, limit_bytes, predicted)
    glyphs: list[tuple[Glyph, str]] = [(source if source == "simulated" else "measured", source), ("front", "front")]
    glyphs += [("cloud", f"predicted to fit ({len(predicted)})")] if predicted else []
    has_crosses = is_near and any(point.is_out_of_memory for point in points)
    glyphs += [("cross", "out of memory")] if has_crosses else []
    columns = (
        Column("layout", is_number=False),
        Column("peak memory"),
        Column("MFU"),
        Column("trial", is_number=False),
    )
    rows: list[Sequence[Cells]] = [
        (
            point.name,
            Quantity(value=point.shown_bytes, unit="bytes"),
            Quantity(value=point.mfu, unit="share", source=source),
            _link(point),
        )
        for point in best
    ]
    table = Table(columns=columns, rows=rows, name="The front", is_compact=True)
    far = f"The memory limit of a rank, {number(limit_bytes, 'bytes')}, is outside the picture on the right."
    summary = (
        f"The Pareto front as a table: {counted(len(best), 'layout')}; no layout is faster with the same memory or less"
    )
    return Section(
        title="MFU against memory",
        id="front",
        glyphs=glyphs,
        blocks=(
            *([chart] if chart else []),
            *([] if is_near else [Lines(items=(far,), is_quiet=True)]),
            Folded(summary=summary, id="front-numbers", blocks=(table,)),
        ),
        is_half=True,
    )


def _link(point: TrialPoint) -> Link:
    return Link(str(point.number), "trials", point.href.rpartition("/")[2])


def _parallel(points: Sequence[TrialPoint], choices: Choices) -> Iterator[Section]:
    chart, left_out = parallel(points, choices)
    if chart is not None:
        hidden = f" Not shown: {', '.join(left_out)}." if left_out else ""
        note = f"Each line is a trial; the best trial is green.{hidden}"
        yield Section(title="All options in one picture", id="parallel", note=note, blocks=(chart,))


def _mattered(choices: Choices, source: Source, sweep_id: str) -> Section:
    found = [one for one in choices.effects if one.num_pairs]
    note = "Pairs of trials that differ only in one option: gain in throughput by the change, median and range."
    return Section(
        title="What mattered",
        id="mattered",
        note=note if found else "",
        blocks=(*_effects(found, source, sweep_id), *_importance(choices)),
    )


def _effects(found: Sequence[PairEffect], source: Source, sweep_id: str) -> Iterator[Block]:
    shown = found[:_MOST_EFFECTS]
    chart = effects(shown)
    if chart is None:
        yield Notice(words="No two trials with a result differ only in one option yet.")
        return
    yield chart
    if len(found) > len(shown):
        more = f"{len(found) - len(shown)} more, with smaller medians, are in the"
        yield Lines(items=((more, Link("JSON", f"api/v1/sweeps/{sweep_id}/choices"), "."),), is_quiet=True)
    columns = (Column("change", is_number=False), *map(Column, ("median", "least", "most", "faster in")))
    rows: list[Sequence[Cells]] = [
        (
            change_of(one),
            Quantity(value=one.median_gain, unit="signed_share", source=source),
            Quantity(value=one.least_gain, unit="signed_share"),
            Quantity(value=one.greatest_gain, unit="signed_share"),
            f"{one.num_faster} of {one.num_pairs}",
        )
        for one in shown
    ]
    table = Table(columns=columns, rows=rows, name="What single changes gained", is_compact=True)
    yield Folded(summary="The same as a table", id="mattered-numbers", blocks=(table,))


def _importance(choices: Choices) -> Iterator[Block]:
    chart = importance(choices)
    if chart is not None:
        explained = choices.explained
        together = "" if explained is None else f"; all options together explain {percent(explained)}"
        yield Lines(
            items=(
                f"Share of the differences in throughput between {choices.num_ranked} trials that each option "
                "explains. The band begins at the share that only this option explains, and ends at the share that it "
                f"explains by itself{together}",
            ),
            is_quiet=True,
        )
        yield chart


def _calibration(points: Sequence[TrialPoint], source: Source, accuracy: Accuracy) -> Section:
    chart = agreement(points, source)
    meant = (
        "On the dashed line, the prediction was right. The band is the usual 80 % interval of predictions, and the "
        f"whisker is the 95 % interval of the {source} value."
    )
    return Section(
        title="Were the predictions right?",
        id="calibration",
        note=" ".join([*map(sentence, _errors(accuracy)), meant]),
        blocks=(chart,) if chart else (),
    )


def _errors(found: Accuracy) -> Iterator[str]:
    """Yield how many intervals held and by how much predictions were wrong; nothing before the first trial."""
    if found.median_error is None or found.bias is None:
        return
    if found.num_intervals:
        yield f"{found.num_within} of {found.num_intervals} step times lie within the 80 % interval of their prediction"
    side = "longer" if found.bias >= 0 else "shorter"
    bias = f"in the median they are {100 * abs(found.bias):.1f} % {side} than predicted"
    yield f"half of the step times are off by less than {percent(found.median_error)}; {bias}"
    if found.memory_error is not None:
        yield f"half of the peaks are off by less than {percent(found.memory_error)}"

"""A step as lanes of blocks: measured beside predicted, and with nominal links beside slow links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from autotuner.core.timeline import BlockKind, RankTimeline, StepTimeline
from autotuner.core.units import format_seconds
from autotuner.report.charts import Glyph
from autotuner.report.lanes import KIND_CLASSES, KIND_WORDS, WHOLE, WIDE, Lanes, Window
from autotuner.report.link_lanes import LinkLanes
from autotuner.report.links import link_in_words
from autotuner.report.report import Cells, Column, Folded, Lines, Quantity, Section, Source, Strong, Table
from autotuner.report.words import percent
from autotuner.search.explain.link_timelines import LinkTimelines
from autotuner.search.explain.timeline import PredictedTimeline

Shown = Literal["both", "measured", "predicted"]

_PARTS = (
    *(("forward_s", "forward"), ("backward_s", "backward"), ("weight_s", "weight gradient"), ("send_s", "send")),
    *(("sync_s", "gradient sync"), ("optimizer_s", "optimizer"), ("idle_s", "idle")),
)
"""Names of a lane's time fields, each with its name in the table."""

_APART = 0.001
"""Relative difference below which two steps count as equally long."""

_LEAST_IDLE = 1e-4
"""Share of the step below which a wait is not shown."""

_LEAST_ADDED = 5e-4
"""Share of a step below which a difference is not shown."""

_FEW_ROWS = 4
"""Largest number of rows of a table that is open at first."""


def timeline_section(
    predicted: PredictedTimeline | None,
    measured: StepTimeline | None,
    *,
    shown: Shown = "both",
    window: Window = WHOLE,
    wide: int = WIDE,
) -> Section | None:
    """Return a section with the timeline of a step; None if there is no timeline.

    Args:
        predicted: Timeline of the schedule simulator; None: not known.
        measured: Timeline that the profiler recorded; None: not known.
        shown: Which of the two to show, if both are known.
        window: Part of the step that is drawn.
        wide: Width of the picture in pixels.
    """
    expected = None if predicted is None else predicted.timeline
    if shown == "measured" and measured is not None:
        expected = None
    main = expected if measured is None or (shown == "predicted" and expected is not None) else measured
    if main is None:
        return None
    is_measured = main is measured
    thin = expected if is_measured else None
    table = _seconds(main, thin, is_measured=is_measured)
    caption = _caption(main, thin, predicted if expected is not None else None, is_measured=is_measured)
    return Section(
        id="timeline",
        title="Timeline of a step",
        glyphs=_key(main, thin),
        blocks=(
            Lanes(main=main, thin=thin, window=window, is_measured=is_measured, wide=wide),
            Lines(items=(caption,), is_quiet=True),
            Folded(summary="Seconds by rank", blocks=(table,), is_open=len(table.rows) <= _FEW_ROWS),
        ),
    )


def _key(main: StepTimeline, thin: StepTimeline | None) -> Sequence[tuple[Glyph, str]]:
    lanes = [*main.ranks, *(thin.ranks if thin else ())]
    idles = any(lane.seconds.idle_s > _LEAST_IDLE * main.step_s for lane in lanes)
    return [*_colours(lanes), *([("idle", "idle")] if idles else [])]


def _colours(lanes: Iterable[RankTimeline]) -> Iterator[tuple[Glyph, str]]:
    """Yield every colour of the blocks in these lanes, with the words for the kinds of blocks that have it."""
    kinds = {block.kind for lane in lanes for block in lane.blocks}
    words: dict[str, list[str]] = {}
    for kind in filter(kinds.__contains__, BlockKind):
        of_look = words.setdefault(KIND_CLASSES[kind], [])
        if KIND_WORDS[kind] not in of_look:
            of_look.append(KIND_WORDS[kind])
    yield from ((look, ", ".join(of_look)) for look, of_look in words.items())


def _caption(
    main: StepTimeline, thin: StepTimeline | None, predicted: PredictedTimeline | None, *, is_measured: bool
) -> str:
    idle_s = sum(lane.seconds.idle_s for lane in main.ranks) / len(main.ranks)
    said = ["Numbers are micro-batches."]
    if is_measured:
        said.append("Thick blocks were measured on a step under the profiler" + (", thin ones" if thin else "."))
        if thin:
            said[-1] += " are predicted by the schedule simulator."
    else:
        alike = "every rank of a stage" if len(main.ranks) > 1 else "every rank"
        said.append(f"Predicted by the schedule simulator; {alike} does the same.")
    lanes = [lane.pipeline_rank for lane in main.ranks]
    if lanes[-1] - lanes[0] >= len(set(lanes)):
        said.append(f"The picture has the first and the last {len(set(lanes)) // 2} pipeline ranks.")
    if idle_s > _LEAST_IDLE * main.step_s:
        said.append(f"Idle: {format_seconds(idle_s)} of {format_seconds(main.step_s)}, mean of the lanes.")
    if predicted is not None and abs(predicted.apart) > _APART:
        longer = "longer" if predicted.apart > 0 else "shorter"
        said.append(f"The simulated step is {percent(abs(predicted.apart))} {longer} than the predicted one.")
    return " ".join(said)


def _seconds(main: StepTimeline, thin: StepTimeline | None, *, is_measured: bool) -> Table:
    """Return a table of the seconds of each lane by part."""
    lanes = [(rank, is_measured) for rank in main.ranks] + [(rank, False) for rank in (thin.ranks if thin else ())]
    parts = [(field, name) for field, name in _PARTS if any(getattr(lane.seconds, field) for lane, _ in lanes)]
    several = len({one.pipeline_rank for one in main.ranks}) > 1
    rows: list[Sequence[Cells]] = []
    for lane, was_measured in lanes:
        source: Source = "measured" if was_measured else "predicted"
        place = f", pipeline rank {lane.pipeline_rank}" if several else ""
        rows.append(
            [f"rank {lane.rank}{place}, {source}", *(_part(getattr(lane.seconds, field), source) for field, _ in parts)]
        )
    columns = (Column("lane", is_number=False), *(Column(name) for _, name in parts))
    return Table(columns=columns, rows=rows, name="Seconds by rank, table", is_compact=True)


def _part(seconds: float, source: Source) -> Quantity:
    return Quantity(value=seconds or None, unit="s", source=source)


# ------------------------------------------------------------------ slow links
def link_timelines_section(
    found: LinkTimelines, *, window: Window = WHOLE, wide: int = WIDE, key: str = "links"
) -> Section | None:
    """Return a section that compares a step under nominal and under slow links; None if no link is known to be slow.

    Args:
        found: Timelines of the step.
        window: Part of the longest step that is drawn.
        wide: Width of the picture in pixels.
        key: HTML id of the heading.
    """
    if found.slow is None:
        return None
    steps = [found.healthy.timeline, found.slow.timeline, *([found.measured] if found.measured else [])]
    glyphs = [
        *_colours(lane for step in steps for lane in step.ranks),
        ("idle", "idle"),
        ("message", "message on time"),
        ("late", "message that a rank waits for"),
    ]
    return Section(
        id=key,
        title="With and without the slow link",
        glyphs=glyphs,
        blocks=(
            Lines(items=(" ".join(cost_in_words(found)),), is_list=False),
            LinkLanes(found=found, window=window, wide=wide),
            Lines(items=(_link_caption(found),), is_quiet=True),
            _link_table(found, found.healthy.timeline, found.slow.timeline, steps),
        ),
    )


def cost_in_words(found: LinkTimelines) -> Iterator[str]:
    """Yield sentences that describe how slow links lengthen the step; nothing if no link is slow."""
    if found.slow is None:
        return
    healthy, slow = found.healthy.timeline, found.slow.timeline
    longer = slow.step_s / healthy.step_s - 1
    said = f"With {'; '.join(map(link_in_words, found.links))}, the step is predicted to take"
    if abs(longer) < _APART:
        yield f"{said} {format_seconds(slow.step_s)}, as long as with links without faults."
    else:
        than = f"{percent(abs(longer))} {'more' if longer > 0 else 'less'}"
        yield f"{said} {format_seconds(slow.step_s)} instead of {format_seconds(healthy.step_s)}, {than}."
        delay_s = max((hop.delay_s for hop in found.hops), default=0.0)
        if delay_s and found.added_s > 0:
            yield f"That is {found.added_s / delay_s:.2g} times the delay of one message."
    if not found.hops:
        yield "No two neighbouring stages send data over it."
    elif found.messages:
        late = sum(one.is_late for one in found.messages)
        yield f"Ranks wait for {late or 'none'} of {len(found.messages)} messages over it."
    if found.held_up is not None:
        stage, held_s = found.held_up.pipeline_rank, found.held_up.added_s
        yield f"Sends delay other work: stage {stage} waits {format_seconds(held_s)} until its own sends are done."


def _link_table(
    found: LinkTimelines, healthy: StepTimeline, slow: StepTimeline, steps: Sequence[StepTimeline]
) -> Table:
    """Return a table of the steps and their parts, as means over the lanes, and of the time that slow links add."""
    parts = [(field, name) for field, name in _PARTS if any(_mean_s(step, field) for step in steps)]
    fields = [field for field, _ in parts]
    rows: list[Sequence[Cells]] = [
        ["healthy links, predicted", *_times(healthy, fields, "predicted")],
        ["slow links, predicted", *_times(slow, fields, "predicted")],
        [Strong("difference"), *_added(healthy, slow, fields)],
    ]
    if found.measured is not None:
        under = "slow" if found.is_measured_slow else "healthy"
        rows.append([f"{under} links, measured", *_times(found.measured, fields, "measured")])
    columns = (Column("mean of the ranks", is_number=False), Column("step"), *(Column(name) for _, name in parts))
    return Table(columns=columns, rows=rows, name="Time that the slow links add, table", is_compact=True)


def _mean_s(step: StepTimeline, field: str) -> float:
    return float(sum(getattr(lane.seconds, field) for lane in step.ranks)) / len(step.ranks)


def _times(step: StepTimeline, fields: Sequence[str], source: Source) -> Iterator[Quantity]:
    yield Quantity(value=step.step_s, unit="s", source=source)
    yield from (_part(_mean_s(step, field), source) for field in fields)


def _added(healthy: StepTimeline, slow: StepTimeline, fields: Sequence[str]) -> Iterator[Quantity]:
    changes = (_mean_s(slow, field) - _mean_s(healthy, field) for field in fields)
    for change in (slow.step_s - healthy.step_s, *changes):
        is_some = abs(change) >= _LEAST_ADDED * healthy.step_s
        yield Quantity(value=change if is_some else 0.0, unit="signed_s", source="predicted")


def _link_caption(found: LinkTimelines) -> str:
    said = ["All steps have the same time axis. The dashed line is the end of the step with links without faults."]
    if found.messages:
        said.append("Slanted lines are messages over the slow link, from send to receive.")
    if found.stretch is not None:
        last = found.stretch.first_step + found.stretch.num_steps - 1
        said.append(f"This is the worst part of the fault trace, steps {found.stretch.first_step} to {last}.")
    if found.measured is not None and not found.is_measured_slow:
        said.append("The measured step was recorded before the trace began.")
    return " ".join(said)

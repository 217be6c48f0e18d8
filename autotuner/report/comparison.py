"""The report of a comparison: where the steps of two to four layouts go, and through what the fastest is ahead."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from autotuner.core.units import format_bytes, format_seconds
from autotuner.report.charts import Axis, Interval, Intervals, Look, Stack, Stacks
from autotuner.report.charts import Block as Part
from autotuner.report.report import Column, Folded, Quantity, Report, Section, Source, Table
from autotuner.report.trial_parts import MEMORY_PARTS, memory_blocks, size_of
from autotuner.report.words import sentence
from autotuner.search.results.comparison import LETTERS, SideBySide

_WORTH_DRAWING = 5e-4
_WORTH_SAYING = 0.005
"""Shares of the slowest step: a smaller shift is part of everything else, or is quiet."""

_MOST_FALLS = 9

_ENDS: dict[Source, tuple[Look, Look]] = {
    "measured": ("measured", "best"),
    "simulated": ("simulated", "best"),
    "predicted": ("predicted", "best_predicted"),
}
"""How a step looks, and the fastest, by what is known of both."""


def comparison_report(found: SideBySide) -> Report:
    """Return where the time of each layout goes, what shifts from the slowest to the fastest, and their memory."""
    sections = (_time(found), *_shifts(found), *_memory(found))
    return Report(headline=found.heading, facts=tuple(map(sentence, found.said)), sections=sections)


def _time(found: SideBySide) -> Section:
    source = _source(found)
    stacks = [
        Stack(
            name=LETTERS[place],
            blocks=[Part(name=one.name, look=one.kind, value=one.seconds) for one in parts],
            is_predicted=source == "predicted",
            told=format_seconds(found.steps_s[place]),
            is_strong=place == found.fastest,
        )
        for place, parts in enumerate(found.parts)
    ]
    steps = ", ".join(f"{stack.name} {stack.told}" for stack in stacks)
    table = Table(
        columns=(Column("part", is_number=False), *(Column(stack.name) for stack in stacks)),
        rows=[
            (row[0].name, *(Quantity(value=one.seconds, unit="s", source=source) for one in row))
            for row in zip(*found.parts, strict=True)
            if any(one.seconds for one in row)
        ],
        name="Parts of a step",
        is_compact=True,
    )
    how = "" if source == "predicted" else " Of steps that were profiled, or timed by phase where not all were."
    return Section(
        title=f"Where the time goes, {found.parts_are}",
        note=f"One axis; the parts stand in the same order.{how}",
        blocks=(
            Stacks(says=f"Steps by part: {steps}", unit="s", rows=stacks, is_joined=True),
            Folded(summary="The same as a table", blocks=(table,), id="time-table"),
        ),
        id="time",
    )


def _source(found: SideBySide) -> Source:
    return next(one for one in _ENDS if one == found.parts_are)


def _shifts(found: SideBySide) -> Iterator[Section]:
    """Yield the parts that shift, each beginning where the last ended; nothing where none does."""
    if found.slowest is None or not found.is_one_job or not any(one.seconds for one in found.shifts):
        return
    before, after = found.steps_s[found.slowest], found.steps_s[found.fastest]
    shown = [one for one in found.shifts if abs(one.seconds) >= _WORTH_DRAWING * before][:_MOST_FALLS]
    moved = [(one.name, one.seconds) for one in shown]
    rest = after - before - sum(seconds for _, seconds in moved)
    if abs(rest) >= _WORTH_DRAWING * before:
        moved.append(("everything else", rest))
    levels = list(accumulate((seconds for _, seconds in moved), initial=before))
    looks = _ENDS[_source(found)]
    first, last = LETTERS[found.slowest], LETTERS[found.fastest]
    rows = [
        _end(first, before, looks[0]),
        *(
            Interval(
                name=name,
                value=level + seconds,
                low=min(level, level + seconds),
                high=max(level, level + seconds),
                told=_signed(seconds),
                look="gain" if seconds < 0 else "loss",
                is_quiet=abs(seconds) < _WORTH_SAYING * before,
            )
            for (name, seconds), level in zip(moved, levels, strict=False)
        ),
        _end(last, after, looks[after < before]),
    ]
    falls = "; ".join(f"{name} {_signed(seconds)}" for name, seconds in moved)
    picture = Intervals(
        says=f"From {first}, {format_seconds(before)}, to {last}, {format_seconds(after)}: {falls}",
        x=Axis.around(levels, "step", unit="s", margin=0.08, floor=0.0),
        rows=rows,
        is_banded=True,
        wide=896,
    )
    note = f"What changes the step, as {found.parts_are}."
    yield Section(title=f"From {first} to {last}", note=note, blocks=(picture,), id="shifts")


def _end(letter: str, seconds: float, look: Look) -> Interval:
    return Interval(name=letter, value=seconds, low=seconds, high=seconds, told=format_seconds(seconds), look=look)


def _signed(seconds: float) -> str:
    """Return ``−15.7 s`` or ``+230 ms``."""
    return f"{'−' if seconds < 0 else '+'}{format_seconds(abs(seconds))}"


def _memory(found: SideBySide) -> Iterator[Section]:
    """Yield what the fullest stage of each holds; nothing where limits differ."""
    if len(set(found.limit_bytes)) > 1:
        return
    shown = [part for part in MEMORY_PARTS if any(size_of(memory, part) for memory in found.memory)]
    measured = [None if one.source == "predicted" else one.peak_bytes for one in found.figures]
    peaks = [memory.total_bytes if peak is None else peak for memory, peak in zip(found.memory, measured, strict=True)]
    stacks = [
        Stack(
            name=LETTERS[place],
            blocks=memory_blocks(memory, shown),
            mark=measured[place],
            told=free_in_words(found.limit_bytes[0] - peaks[place]),
            is_strong=peaks[place] == max(peaks),
        )
        for place, memory in enumerate(found.memory)
    ]
    fullest, limit = format_bytes(max(peaks)), format_bytes(found.limit_bytes[0])
    picture = Stacks(
        says=f"Memory of the fullest stage of {len(stacks)} layouts by part, at most {fullest} of {limit}",
        unit="bytes",
        rows=stacks,
        limit=found.limit_bytes[0],
        wide=896,
    )
    note = "Bars are predicted; a rule marks the peak that was measured."
    glyphs = [(part, part) for part in shown]
    yield Section(title="Fullest stage", note=note, blocks=(picture,), glyphs=glyphs, id="memory")


def free_in_words(free_bytes: float) -> str:
    """Return what is free of a memory, or by how much something is too large for it."""
    return f"{format_bytes(free_bytes)} free" if free_bytes >= 0 else f"{format_bytes(-free_bytes)} too large"

"""The report of a comparison: how two to four layouts differ, what they reached, and how their steps' time divides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.units import format_bytes, format_seconds
from autotuner.exports.shared.target import Note
from autotuner.report.charts import (
    Axis,
    Interval,
    Intervals,
    Look,
    MemoryCell,
    RangeAxis,
    RangeCell,
    Spread,
    Stack,
    Stacks,
)
from autotuner.report.charts import Block as Part
from autotuner.report.layouts import chips, degrees, shared_chips
from autotuner.report.parts import PART_WORDS
from autotuner.report.report import (
    Cells,
    Column,
    Folded,
    Lines,
    Link,
    Quantity,
    Quiet,
    Report,
    Section,
    Source,
    Strong,
    Table,
    Words,
    measured,
    predicted,
)
from autotuner.report.trial_parts import MEMORY_PARTS, memory_blocks, size_of
from autotuner.report.words import plain, sentence, value_in_words
from autotuner.search.results.layout_comparison import (
    LETTERS,
    ComparedLayout,
    Figures,
    LayoutCandidate,
    LayoutComparison,
    Shift,
)

_WORTH_DRAWING = 5e-4
_WORTH_SAYING = 0.005
"""Share of the slowest step from which a shift is shown; smaller ones are summed up, or left out of the text."""

_MOST_FALLS = 9

_ENDS: dict[Source, tuple[Look, Look]] = {
    "measured": ("measured", "best"),
    "simulated": ("simulated", "best"),
    "predicted": ("predicted", "best_predicted"),
}
"""Looks of a step, and of the fastest step, by the source of their numbers."""


def comparison_report(found: LayoutComparison, of: Sequence[LayoutCandidate]) -> Report:
    """Return the report that compares two to four layouts.

    It shows how the options of the layouts differ, the result of each layout, and the parts of a step. It also shows
    which parts take longer in the slowest layout than in the fastest, and the memory of each layout.

    Args:
        found: The comparison.
        of: The layouts, in the order in which the report names them A, B, C and D.
    """
    sections = (
        _differences(found, of),
        _figures(found, of),
        _time(found),
        *_shifts(found),
        *_memory(found, of),
        *(_notes(one.notes) for one in of if one.notes),
    )
    return Report(headline=_headline(found), facts=tuple(map(sentence, _said(found))), sections=sections)


def _headline(found: LayoutComparison) -> str:
    """Return the outcome in one sentence: ``A is 8.6 % faster than B and does not differ measurably from C``."""
    letter, how = found.fastest, "faster than" if found.is_one_job else "ahead of"
    in_what = "" if found.is_one_job else " in MFU"
    close = [one.letter for one in found.items if one.beside and not one.beside.is_beyond_noise]
    said = []
    for verb, is_found in (("is", True), ("is predicted", False)):
        ahead = [
            f"{100 * one.beside.gain:.1f} % {how} {one.letter}{in_what}"
            for one in found.items
            if one.beside and one.beside.is_beyond_noise and _is_found(found, one) is is_found
        ]
        if ahead:
            said.append(f"{verb} {' and '.join(ahead)}")
    if not said:
        return f"{' and '.join((letter, *close))} do not differ measurably"
    if close:
        said.append(f"does not differ measurably from {' and '.join(close)}")
    return f"{letter} {' and '.join(said)}"


def _said(found: LayoutComparison) -> Iterator[str]:
    """Yield sentences on whether the differences exceed the noise, and which parts of the step cause them."""
    others = [one.beside for one in found.items if one.beside]
    is_found = all(_is_found(found, one) for one in found.items)
    bound = "the noise of equal runs" if is_found else "the error of predictions and runs"
    beyond = sum(one.is_beyond_noise for one in others)
    each = "The difference" if len(others) == 1 else "Each difference"
    if 0 < beyond < len(others):
        yield f"{beyond} of {len(others)} differences are beyond {bound}"
    else:
        yield f"{each} is {'beyond' if beyond == len(others) else 'within'} {bound}"
    if found.slowest is not None and found.is_one_job:
        least_s = _WORTH_SAYING * found.at(found.slowest).step_s
        if moved := shifts_in_words([one for one in found.shifts if abs(one.seconds) > least_s]):
            yield f"compared with {found.slowest}, a {found.parts_are} step of {found.fastest} spends {moved}"


def _is_found(found: LayoutComparison, one: ComparedLayout) -> bool:
    return "predicted" not in (found.at(found.fastest).figures.source, one.figures.source)


def shifts_in_words(shifts: Sequence[Shift], *, num_longer: int = 1) -> str:
    """Describe which parts of a step became shorter or longer: the two largest savings, then the largest increases.

    The text is empty if no part differs.

    Args:
        shifts: Difference in seconds for each part of a step, the largest change first; a negative number is a saving.
        num_longer: Largest number of increases to name.
    """
    shorter = [one for one in shifts if one.seconds < 0][:2]
    longer = [one for one in shifts if one.seconds > 0][:num_longer]
    less = [f"{format_seconds(-one.seconds)} less on {PART_WORDS.get(one.name, one.name)}" for one in shorter]
    more = [f"{format_seconds(one.seconds)} more on {PART_WORDS.get(one.name, one.name)}" for one in longer]
    return ", but ".join(filter(None, (" and ".join(less), " and ".join(more))))


# ------------------------------------------------------------------ differences
_DEGREES: Mapping[str, str] = {
    "tensor_parallel_degree": "tp",
    "pipeline_parallel_degree": "pp",
    "data_parallel_degree": "dp",
    "context_parallel_degree": "cp",
    "expert_parallel_degree": "ep",
    "micro_batch_size": "mb",
}
"""Column heads of the degrees by the name of their field, in the order of the columns."""

_NUM_SHOWN = 6
"""Number of shared options that are shown; the rest is folded."""


def _differences(found: LayoutComparison, of: Sequence[LayoutCandidate]) -> Section:
    layouts = [one.layout for one in of]
    rows = [*_jobs([one.job for one in of]), *_options(found.differing, layouts)]
    table = Table(
        columns=(Column("", is_number=False), *(Column(LETTERS[place], is_number=False) for place in range(len(of)))),
        rows=[(label, *_beside_first(values)) for label, values in rows],
        if_empty="Nothing: they are the same layout of the same job.",
        is_compact=True,
    )
    same = tuple(_same(found.differing, layouts))
    more = f" ({len(same) - _NUM_SHOWN} more)" if len(same) > _NUM_SHOWN else ""
    summary = f"Same in all: {', '.join(same[:_NUM_SHOWN])}{more}"
    folded = Folded(summary=summary, blocks=(Lines(items=((", ".join(same),),), is_quiet=True),), id="same")
    return Section(title="What differs", blocks=(table, *([folded] if same else [])), id="differs")


def _beside_first(values: Sequence[str]) -> Iterator[Cells]:
    """Yield the first value in strong letters, and the others in strong letters where they differ from it."""
    first, *others = values
    yield Strong(first)
    yield from (Quiet(value) if value == first else Strong(value) for value in others)


def _jobs(jobs: Sequence[Job]) -> Iterator[tuple[str, Sequence[str]]]:
    said = {
        "model": [job.model.name for job in jobs],
        "cluster": [job.cluster.name for job in jobs],
        "sequence length": [f"{job.workload.seq_len:,}" for job in jobs],
        "global batch": [f"{job.workload.global_batch_size:,}" for job in jobs],
        "software": [job.stack.name for job in jobs],
    }
    yield from ((label, values) for label, values in said.items() if len(set(values)) > 1)


def _options(differing: Sequence[str], layouts: Sequence[Layout]) -> Iterator[tuple[str, Sequence[str]]]:
    for field, letters in _DEGREES.items():
        if field in differing:
            yield letters, [f"{getattr(layout, field):,}" for layout in layouts]
    for field in differing:
        if field in {"shard_level", "data_parallel_shard_degree"}:
            yield "sharding", [_sharding(layout) for layout in layouts]
        elif field not in _DEGREES:
            yield OPTIONS[field].label, [_value(layout, field) for layout in layouts]


def _sharding(layout: Layout) -> str:
    return next((chip for chip in chips(layout) if chip.startswith(("ZeRO", "FSDP", "HSDP"))), "none")


def _value(layout: Layout, field: str) -> str:
    value: Any = getattr(layout, field)
    return f"{value:,}" if type(value) is int else value_in_words(value)


def _same(differing: Sequence[str], layouts: Sequence[Layout]) -> Iterator[str]:
    for field, degree in zip(_DEGREES, degrees(layouts[0]), strict=True):
        if field not in differing:
            yield f"{degree.letters} {degree.value}"
    yield from shared_chips(layouts)


# ------------------------------------------------------------------ results
def _figures(found: LayoutComparison, of: Sequence[LayoutCandidate]) -> Section:
    every = [one.figures for one in found.items]
    reached = [None if one.source == "predicted" else Spread.within(one.mfu, _half(one)) for one in every]
    expected = [Spread.within_factor(one.prediction.mfu, one.prediction.relative_error) for one in of]
    axis = RangeAxis.around([*filter(None, reached), *expected], found.at(found.fastest).figures.mfu)
    rows = []
    for place, (one, figures) in enumerate(zip(of, every, strict=True)):
        mfu = RangeCell(
            axis=axis,
            predicted=expected[place],
            reached=reached[place],
            is_simulated=figures.source == "simulated",
        )
        memory = MemoryCell(
            limit_bytes=max(map(_limit_bytes, of)),
            predicted_bytes=one.prediction.memory.total_bytes,
            reached_bytes=None if figures.source == "predicted" else figures.peak_bytes,
        )
        note = _why_not(one) or _too_large(figures, _limit_bytes(one))
        called = _called(one)
        rest = _rest(found, found.items[place])
        rows.append((LETTERS[place], called, *_reached(figures), mfu, *rest, memory, note))
    is_robust = all(one.is_robust for one in every)
    columns = (
        Column("", is_number=False),
        Column("layout", is_number=False),
        Column("robust MFU" if is_robust else "MFU"),
        Column("MFU, drawn", is_drawn=True, axis=axis),
        Column(f"against {found.fastest}"),
        Column("step"),
        Column("throughput"),
        Column("peak memory"),
        Column("memory, drawn", is_drawn=True, is_minor=True),
        *([Column("note", is_number=False, may_wrap=True)] if any(row[-1] for row in rows) else []),
    )
    table = Table(columns=columns, rows=[row[: len(columns)] for row in rows])
    return Section(title="Results", blocks=(table,), id="figures")


def _called(one: LayoutCandidate) -> Cells:
    link = Link(one.name, "trials", one.trial.id) if one.trial else Link(one.name, "explore", query=one.explored)
    return link if one.rank is None else (link, Quiet(f"rank {one.rank}"))


def _limit_bytes(one: LayoutCandidate) -> float:
    """Return the number of bytes that a rank of this layout may allocate."""
    return float(one.job.cluster.accelerator.memory_bytes)


def _half(figures: Figures) -> float | None:
    return None if figures.relative_error is None else figures.mfu * figures.relative_error


def _reached(figures: Figures) -> Iterator[Cells]:
    if figures.source == "predicted":
        mfu = predicted(figures.mfu, "share", figures.relative_error)
    else:
        mfu = measured(figures.mfu, "share", _half(figures), figures.source)
    yield replace(mfu, beside=figures.source) if figures.source in ("predicted", "estimated") else mfu


def _rest(found: LayoutComparison, one: ComparedLayout) -> Iterator[Cells]:
    """Yield the cells of a layout: how much slower than the fastest it is, its step time, rate and memory."""
    figures, beside = one.figures, one.beside
    if beside is None:
        yield "the fastest"
    else:
        lost, error = beside.gain / (1 + beside.gain), beside.gain_error / (1 + beside.gain) ** 2
        behind = Quantity(
            value=-lost,
            unit="signed_share",
            low=-lost - error,
            high=-lost + error,
            source=figures.source if _is_found(found, one) else "predicted",
        )
        yield behind, Quiet(f"{'beyond' if beside.is_beyond_noise else 'within'} the noise")
    yield Quantity(value=figures.step_time_s, unit="s", source=figures.source)
    yield Quantity(value=figures.tokens_per_s, unit="tokens/s", source=figures.source)
    yield Quantity(value=figures.peak_bytes, unit="bytes", source=figures.source)


def _why_not(one: LayoutCandidate) -> str:
    """Return why a layout has only predicted figures; empty if it ran or no trial tried it."""
    trial = one.trial
    if trial is None or trial.reached is not None:
        return ""
    if trial.failure is not None:
        return f"its trial failed ({plain(trial.failure.kind)}): {trial.failure.message}"
    return f"its trial is {trial.state}, so this is predicted"


def _too_large(figures: Figures, limit_bytes: float) -> str:
    beyond = (figures.peak_bytes or 0.0) - limit_bytes
    if figures.source == "measured" or beyond <= 0:
        return ""
    return f"it is {figures.source} not to fit: {format_bytes(beyond)} over the limit"


def _notes(notes: Sequence[Note]) -> Section:
    """Return a section that says how command-line flags were interpreted."""
    items = [(Strong(str(note.kind)), Words(note.setting), Quiet(note.detail)) for note in notes]
    return Section(title="How your flags were read", blocks=(Lines(items=items),), id="notes")


# ------------------------------------------------------------------ where the time goes
def _time(found: LayoutComparison) -> Section:
    source = found.parts_are
    stacks = [
        Stack(
            name=one.letter,
            blocks=[Part(name=part.name, look=part.kind, value=part.seconds) for part in one.parts],
            is_predicted=source == "predicted",
            end_text=format_seconds(one.step_s),
            is_strong=one.letter == found.fastest,
        )
        for one in found.items
    ]
    steps = ", ".join(f"{stack.name} {stack.end_text}" for stack in stacks)
    table = Table(
        columns=(Column("part", is_number=False), *(Column(stack.name) for stack in stacks)),
        rows=[
            (row[0].name, *(Quantity(value=one.seconds, unit="s", source=source) for one in row))
            for row in zip(*(one.parts for one in found.items), strict=True)
            if any(one.seconds for one in row)
        ],
        name="Parts of a step",
        is_compact=True,
    )
    how = (
        ""
        if source == "predicted"
        else " Measured on profiled steps, or by the phases of steps if not all trials have a profiled step."
    )
    return Section(
        title=f"Where the time goes, {found.parts_are}",
        note=f"All steps have the same axis, and their parts are in the same order.{how}",
        blocks=(
            Stacks(says=f"Steps by part: {steps}", unit="s", rows=stacks, is_joined=True),
            Folded(summary="The same as a table", blocks=(table,), id="time-table"),
        ),
        id="time",
    )


def _shifts(found: LayoutComparison) -> Iterator[Section]:
    """Yield a chart of the parts whose time differs, each bar starting where the last ended.

    Nothing if none differs.
    """
    if found.slowest is None or not found.is_one_job or not any(one.seconds for one in found.shifts):
        return
    before, after = found.at(found.slowest).step_s, found.at(found.fastest).step_s
    shown = [one for one in found.shifts if abs(one.seconds) >= _WORTH_DRAWING * before][:_MOST_FALLS]
    moved = [(one.name, one.seconds) for one in shown]
    rest = after - before - sum(seconds for _, seconds in moved)
    if abs(rest) >= _WORTH_DRAWING * before:
        moved.append(("everything else", rest))
    levels = list(accumulate((seconds for _, seconds in moved), initial=before))
    looks = _ENDS[found.parts_are]
    first, last = found.slowest, found.fastest
    rows = [
        _end(first, before, looks[0]),
        *(
            Interval(
                name=name,
                value=level + seconds,
                low=min(level, level + seconds),
                high=max(level, level + seconds),
                end_text=_signed(seconds),
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
    note = f"Differences in the parts of the step, {found.parts_are}."
    yield Section(title=f"From {first} to {last}", note=note, blocks=(picture,), id="shifts")


def _end(letter: str, seconds: float, look: Look) -> Interval:
    return Interval(name=letter, value=seconds, low=seconds, high=seconds, end_text=format_seconds(seconds), look=look)


def _signed(seconds: float) -> str:
    """Return a signed time in words: ``−15.7 s`` or ``+230 ms``."""
    return f"{'−' if seconds < 0 else '+'}{format_seconds(abs(seconds))}"


def _memory(found: LayoutComparison, of: Sequence[LayoutCandidate]) -> Iterator[Section]:
    """Yield a chart of the memory of each layout's fullest stage; nothing if the layouts have different limits."""
    limit_bytes, *others = {_limit_bytes(one) for one in of}
    if others:
        return
    memories = [one.prediction.memory for one in of]
    shown = [part for part in MEMORY_PARTS if any(size_of(memory, part) for memory in memories)]
    every = [one.figures for one in found.items]
    measured = [None if one.source == "predicted" else one.peak_bytes for one in every]
    peaks = [memory.total_bytes if peak is None else peak for memory, peak in zip(memories, measured, strict=True)]
    stacks = [
        Stack(
            name=LETTERS[place],
            blocks=memory_blocks(memory, shown),
            mark=measured[place],
            end_text=free_in_words(limit_bytes - peaks[place]),
            is_strong=peaks[place] == max(peaks),
        )
        for place, memory in enumerate(memories)
    ]
    fullest, limit = format_bytes(max(peaks)), format_bytes(limit_bytes)
    picture = Stacks(
        says=f"Memory of the fullest stage of {len(stacks)} layouts by part, at most {fullest} of {limit}",
        unit="bytes",
        rows=stacks,
        limit=limit_bytes,
        wide=896,
    )
    note = "Bars are predicted; a rule marks the peak that was measured."
    glyphs = [(part, part) for part in shown]
    yield Section(title="Memory of the fullest stage", note=note, blocks=(picture,), glyphs=glyphs, id="memory")


def free_in_words(free_bytes: float) -> str:
    """Describe free memory in words: ``12 GB free``, or ``3 GB too large`` if the number of bytes is negative."""
    return f"{format_bytes(free_bytes)} free" if free_bytes >= 0 else f"{format_bytes(-free_bytes)} too large"

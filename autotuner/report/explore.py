"""The report of a layout chosen by hand: its legality, its speed, and the parts of its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.prediction import Memory, Prediction
from autotuner.core.rules.rule import Reason
from autotuner.core.units import format_bytes, format_seconds
from autotuner.report.charts import Stack, Stacks
from autotuner.report.cluster import topology_section
from autotuner.report.comparison import free_in_words
from autotuner.report.explanation import LinkTo, explanation_report
from autotuner.report.layouts import in_short
from autotuner.report.parts import source_in_words
from autotuner.report.report import (
    Block,
    Cells,
    Column,
    Figure,
    Folded,
    Lines,
    Notice,
    Quantity,
    Quiet,
    Report,
    Section,
    State,
    Strong,
    Swatch,
    Table,
    predicted,
)
from autotuner.report.trial_parts import MEMORY_PARTS, memory_blocks, size_of
from autotuner.report.words import counted, likely, mfu_quantity, number, value_in_words
from autotuner.search.explain.choosable import WhatIf
from autotuner.search.explain.communication import routes
from autotuner.search.space.moves import arrange, with_choice

_MOST_STAGES = 8
"""Largest number of stages shown side by side; of more, the fullest one and some others are shown."""

_FEW_STAGES = 4
"""Largest number of stages whose table has room for a column with the source of each part."""

_SURE = 0.9

_BESIDE_PANEL = 896
"""Width in pixels of a picture beside the controls of a page."""


def explore_report(answer: WhatIf, job: Job, link_to: LinkTo) -> Report:
    """Return the report of a layout chosen by hand: verdict, memory, helpful changes; or why it cannot run.

    Args:
        answer: The prediction of the layout, or the rules that it breaks.
        job: The job that the layout would train.
        link_to: Returns a link to the page of another layout.
    """
    if answer.legal is None:
        said = f"cannot run: {counted(len(answer.reasons), 'rule')} broken"
        verdict = _verdict(Quantity(value=None, unit="share", source="predicted"), State(said, "failed"))
        return Report(headline=said, sections=(verdict, _broken(answer, job, link_to)))
    explanation, workload = answer.legal.explanation, job.workload
    found, limit_bytes = explanation.prediction, float(job.cluster.accelerator.memory_bytes)
    fit = _fit(found, found.peak_bytes - limit_bytes)
    peak = Quantity(value=found.peak_bytes, unit="bytes", source="predicted", beside=f"of {format_bytes(limit_bytes)}")
    figures = (
        Figure("step", predicted(found.step_time_s, "s", found.relative_error)),
        Figure("throughput", predicted(found.tokens_per_s, "tokens/s")),
        Figure("peak memory", peak),
    )
    more = explanation_report(explanation, lengths=workload.lengths, untried=answer.legal.untried, link_to=link_to)
    topology = topology_section(job.cluster, routes(answer.layout, job))
    behind = (more["batches"], more["help"], more["where"], topology, more["about"])
    return Report(
        headline=f"predicted MFU {number(found.mfu, 'share')}, step {format_seconds(found.step_time_s)}, {fit.word}",
        sections=(
            _verdict(mfu_quantity(found), fit, figures),
            _memory(explanation.stages, answer.layout, job),
            *filter(None, behind),
        ),
    )


def _verdict(mfu: Quantity, standing: State, figures: Sequence[Figure] = ()) -> Section:
    first = Figure("MFU, predicted", mfu, is_first=True)
    return Section(blocks=((first, *figures, Figure("legality", standing)),), id="verdict")


def _fit(found: Prediction, excess_bytes: float) -> State:
    if not found.fits:
        return State(f"{format_bytes(excess_bytes)} too large", "failed")
    is_sure = found.fit_probability >= _SURE
    return State(f"legal, fits {likely(found.fit_probability)}", "complete" if is_sure else "warned")


# ------------------------------------------------------------------ rules
def _broken(answer: WhatIf, job: Job, link_to: LinkTo) -> Section:
    notices = [Notice(words=_rule(one, answer.layout, job, link_to), look="bad") for one in answer.reasons]
    nearest: list[Block] = []
    if answer.nearest is not None:
        link = replace(link_to(answer.nearest, in_short(answer.nearest)), key="nearest")
        nearest = [Lines(items=(("Nearest layout that can run:", link),), is_quiet=True)]
    return Section(title="Why it cannot run", blocks=(*notices, *nearest), id="rules")


def _rule(reason: Reason, layout: Layout, job: Job, link_to: LinkTo) -> Cells:
    """Return a broken rule with a link to the nearest legal layout."""
    if reason.rule == "world-size":
        return Strong("degrees"), f": {reason.message}"
    subject = reason.field if reason.is_of_job else OPTIONS[reason.field].label
    broken = (Strong(f"{subject} {value_in_words(reason.value(layout, job))}"), f": {reason.message}")
    if reason.nearest is None or reason.is_of_job:
        return broken
    mended = arrange(with_choice(layout, reason.field, OPTIONS[reason.field].from_plain(reason.nearest)), job)
    return *broken, link_to(mended, f"{subject} {value_in_words(reason.nearest)} instead")


# ------------------------------------------------------------------ memory
def _memory(stages: Sequence[Memory], layout: Layout, job: Job) -> Section:
    limit_bytes, fullest = float(job.cluster.accelerator.memory_bytes), max(one.total_bytes for one in stages)
    noun = "stage" if layout.virtual_stages_per_rank == 1 else "rank"
    shown = {f"{noun} {place}": stages[place] for place in _shown(stages)}
    some = f" {len(shown)} of {len(stages)} {noun}s; the others lie between." if len(shown) < len(stages) else ""
    left = f"{free_in_words(limit_bytes - fullest)} on the fullest {noun if len(stages) > 1 else 'rank'}"
    parts = [part for part in MEMORY_PARTS if any(size_of(memory, part) for memory in shown.values())]
    sources = {part: source_in_words(f"{part}_bytes", layout, job) for part in parts}
    return Section(
        title="Memory calculator",
        note=f"{left}. The hatched part is a reserve, not a prediction.{some}",
        blocks=(_bars(shown, limit_bytes), *_table(shown, sources, limit_bytes)),
        id="calculator",
    )


def _bars(shown: Mapping[str, Memory], limit_bytes: float) -> Stacks:
    fullest = max(memory.total_bytes for memory in shown.values())
    stacks = [
        Stack(
            name=name,
            blocks=memory_blocks(memory, MEMORY_PARTS),
            end_text=free_in_words(limit_bytes - memory.total_bytes),
            is_strong=memory.total_bytes == fullest,
        )
        for name, memory in shown.items()
    ]
    peak, limit = format_bytes(fullest), format_bytes(limit_bytes)
    says = f"Memory of {counted(len(stacks), 'pipeline stage')} by part, the fullest {peak} of {limit}"
    return Stacks(says=says, unit="bytes", rows=stacks, limit=limit_bytes, wide=_BESIDE_PANEL)


def _table(shown: Mapping[str, Memory], sources: Mapping[str, str], limit_bytes: float) -> Iterator[Block]:
    """Yield a table of the parts of each stage's memory.

    Their sources stand beside them if there is room, else below.
    """
    has_room = len(shown) <= _FEW_STAGES
    columns = [Column("part", is_number=False), *map(Column, shown)]
    rows: list[list[Cells]] = [[Swatch(part, part), *_sizes(shown, part)] for part in sources]
    rows.append([Strong("peak"), *(predicted(memory.total_bytes, "bytes") for memory in shown.values())])
    if has_room:
        columns.append(Column("where it comes from", is_number=False, may_wrap=True))
        behind = [*sources.values(), f"per rank, of {format_bytes(limit_bytes)}"]
        rows = [[*row, Quiet(words)] for row, words in zip(rows, behind, strict=True)]
    yield Table(columns=columns, rows=rows, name="Memory by part and stage, table", is_compact=True)
    if not has_room:
        said = Lines(items=tuple((Strong(part), words) for part, words in sources.items()))
        yield Folded(summary="Where each part comes from", blocks=(said,), id="calculator-sources")


def _sizes(shown: Mapping[str, Memory], part: str) -> Iterator[Quantity]:
    yield from (predicted(size_of(memory, part) or None, "bytes") for memory in shown.values())


def _shown(stages: Sequence[Memory]) -> Sequence[int]:
    """Return the indices of the stages to show: all of them, or the first, the last, the fullest and some between."""
    count = len(stages)
    if count <= _MOST_STAGES:
        return range(count)
    fullest = max(range(count), key=lambda rank: stages[rank].total_bytes)
    spread = {round(index * (count - 1) / (_MOST_STAGES - 2)) for index in range(_MOST_STAGES - 1)}
    return sorted({fullest, *spread})

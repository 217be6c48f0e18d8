"""The reports of a job's phases and of its layers of communication."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from autotuner.core.amounts import written_amount
from autotuner.core.field_change import difference
from autotuner.core.requests import JobRequest, PhasesRequest
from autotuner.core.units import format_bytes, format_duration, format_long_duration
from autotuner.report.caveats import caveats_in_words
from autotuner.report.charts import Block as Part
from autotuner.report.charts import Stack, Stacks
from autotuner.report.report import (
    Cells,
    Column,
    Figure,
    Lines,
    Quantity,
    Quiet,
    Report,
    Section,
    Source,
    Table,
    predicted,
)
from autotuner.report.words import changes_in_words, cluster_in_words, in_sentences, number, percent, sentence, signed
from autotuner.search.explain.layers import LayerGain, LayerReport, SweepLayers
from autotuner.search.planning.phases import Course, PhaseChoice, PhasesPlan

_WIDE = 896
"""Pixels of a picture beside inputs."""


def job_named(request: JobRequest) -> str:
    """Return the model and the cluster of a request: ``llama-3-8b on h100:64``."""
    model = request.model if isinstance(request.model, str) else request.model.name
    return f"{model} on {cluster_in_words(request.cluster)}"


# ---------------------------------------------------------------- phases
def phases_report(request: PhasesRequest, plan: PhasesPlan) -> Report:
    """Return the report on a job with phases: the phases, the choices of a layout for each, and the best choice.

    A phase is a part of the training run that has, for example, its own sequence length or batch size.
    """
    return Report(
        headline=f"{job_named(request)}, {written_amount(request.num_tokens)} tokens",
        sections=(
            Section(blocks=(tuple(_phases_figures(plan)),)),
            Section(
                title="Sequences of layouts for all phases",
                blocks=(
                    _course_bars(plan),
                    Lines(items=tuple(map(sentence, course_in_words(plan)))),
                    _courses(plan),
                ),
            ),
            Section(title="The best, phase by phase", blocks=(_phases(plan.best),)),
            Section(blocks=(Lines(items=(in_sentences(caveats_in_words(plan.caveats)),), is_quiet=True),)),
        ),
    )


def _phases_figures(plan: PhasesPlan) -> Iterator[Figure]:
    yield Figure("whole training, predicted", predicted(plan.best.total_s, "long_duration"), is_first=True)
    yield Figure("switches", (f"{plan.best.num_switches}", Quiet(f"{format_duration(plan.switch_s)} each")))
    if plan.saved_s is not None:
        staying = Quiet(f"of {number(plan.statics[0].total_s, 'long_duration')}")
        yield Figure("less than staying", (predicted(plan.saved_s, "long_duration"), staying))


def course_in_words(plan: PhasesPlan) -> Iterator[str]:
    """Describe the best course and why it is best, in statements without full stops.

    A course is a choice of one layout for each phase of a job.
    """
    best = plan.best
    switch, size = format_duration(plan.switch_s), format_bytes(plan.checkpoint_bytes)
    yield f"a switch takes {switch}: the ranks restart, and a checkpoint of {size} is written and read"
    for before, after in pairwise(best.choices):
        if after.switch_s:
            yield f"switch before {after.phase}: {changes_in_words(difference(before.layout, after.layout))}"
    for choice in best.choices:
        if choice.label != choice.fastest:
            saved = format_long_duration(choice.expected_s - choice.fastest_s)
            yield (
                f"keep the layout in {choice.phase}: {choice.fastest} would save {saved} of it, but its switches "
                "take as long"
            )
    if not plan.statics:
        yield "no layout can run in every phase, so the layout must be switched"
        return
    static = plan.statics[0]
    saved_s = static.total_s - best.total_s
    if not best.num_switches:
        yield f"one layout for all phases is best: {best.choices[0].label}"
    elif saved_s <= 0:
        yield f"one layout for all phases takes no longer: {static.choices[0].label}"
    else:
        share = percent(saved_s / static.total_s)
        yield (
            f"this takes {format_long_duration(best.total_s)}, {format_long_duration(saved_s)} ({share}) less than the "
            f"best single layout for all phases, {static.choices[0].label}"
        )


_PHASE = (
    Column("phase", is_number=False),
    Column("layout", is_number=False, may_wrap=True),
    *map(Column, ("steps", "step", "takes")),
    Column("switch into it", is_number=False),
)


def _phases(best: Course) -> Table:
    return Table(columns=_PHASE, rows=[_phase(choice) for choice in best.choices])


def _phase(choice: PhaseChoice) -> tuple[Cells, ...]:
    switch: Cells = predicted(choice.switch_s, "duration") if choice.switch_s else "stays"
    if choice.label != choice.fastest:
        faster = predicted(choice.fastest_s, "long_duration")
        switch = (switch, Quiet(f"{choice.fastest} would take"), faster)  # type: ignore[assignment]  # a cell
    return (
        choice.phase,
        choice.layout,
        predicted(choice.num_steps, "count"),
        predicted(choice.step_s, "s", choice.relative_error),
        predicted(choice.expected_s, "long_duration"),
        switch,
    )


_WAY = (Column("way", is_number=False, may_wrap=True), *map(Column, ("switches", "takes", "longer by")))


def _courses(plan: PhasesPlan) -> Table:
    """Return a table of the best course, of each phase's fastest layout, and of courses with one layout."""
    rows = [("best", plan.best), ("fastest layout in each phase", plan.greedy)]
    rows += [(f"stay in {one.choices[0].label}", one) for one in plan.statics]
    return Table(columns=_WAY, rows=[_course(name, one, plan.best.total_s) for name, one in rows])


def _course(name: str, course: Course, best_s: float) -> tuple[Cells, ...]:
    more_s = course.total_s - best_s
    more: Cells = (predicted(more_s, "long_duration"), Quiet(percent(more_s / best_s))) if more_s > 0 else ""
    return (name, f"{course.num_switches}", predicted(course.total_s, "long_duration"), more)


_LOOKS = ("forward", "weight", "optimizer", "communication")
"""Fills of the phases in turn; neighbours differ in light and in dark mode."""


def _course_bars(plan: PhasesPlan) -> Stacks:
    """Return the courses as bars on one axis of time: a block for each phase, hatched where the layout is switched."""
    shown = [("best", plan.best)]
    shown += [("each fastest", plan.greedy)] if plan.greedy != plan.best else []
    staying = zip(("staying", "staying, 2nd"), plan.statics, strict=False)
    shown += [(name, one) for name, one in staying if one != plan.best]
    rows = [_bar(name, course, is_first=course is plan.best) for name, course in shown]
    totals = ", ".join(f"{row.name} {row.end_text}" for row in rows)
    says = f"Sequences of layouts for all phases on one time axis: {totals}. Hatched: a switch between layouts."
    return Stacks(says=says, unit="long_duration", rows=rows, is_joined=True, wide=_WIDE)


def _bar(name: str, course: Course, *, is_first: bool) -> Stack:
    blocks = []
    for place, choice in enumerate(course.choices):
        blocks.append(Part(name="switch", look="idle", value=choice.switch_s))
        look = _LOOKS[place % len(_LOOKS)]
        blocks.append(Part(name=f"{choice.phase}: {choice.label}", look=look, value=choice.expected_s))
    end_text = number(course.total_s, "long_duration")
    return Stack(name=name, blocks=blocks, is_predicted=True, end_text=end_text, is_strong=is_first)


# ---------------------------------------------------------------- layers
LAYERS = "Gain from each layer of communication"


def layers_report(found: SweepLayers, job: str = "", *, is_of_sweep: bool = False) -> Report:
    """Return the report on how much each layer of communication options gains for a job.

    A layer is a group of options: parallel strategy, task scheduling, collectives, flow scheduling, network.

    Args:
        found: Predicted gain of each layer and, for a sweep, the gain that its trials show.
        job: Model and cluster in words; empty: not shown.
        is_of_sweep: True if the report is about a sweep. If no trials can be compared yet, the report then says so.
    """
    sections = [_layers("By prediction", found.predicted, "expected MFU", "layouts")]
    if found.measured is not None:
        sections.append(_layers("Among trials", found.measured, "reached", "trials"))
    elif is_of_sweep:
        nothing = "No trial with a result yet has default values for the options of later layers."
        sections.append(Section(title="Among trials", blocks=(Lines(items=(nothing,)),)))
    note = "Options of later layers keep their defaults, so no layer is worse than the layer before it."
    sections.append(Section(blocks=(Lines(items=(note,), is_quiet=True),)))
    return Report(headline=LAYERS, facts=(job,) if job else (), sections=sections)


def _layers(title: str, report: LayerReport, value: str, counted_as: str) -> Section:
    """Return a section with a table and a chart of the layers."""
    is_measured = counted_as == "trials"
    source: Source = "measured" if is_measured else "predicted"
    is_share = all(gain.value <= 1 for gain in report.gains)
    columns = (
        Column("up to layer", is_number=False),
        Column("layout", is_number=False, may_wrap=True),
        *map(Column, ("step", value, "gain", counted_as)),
        Column("what it changes", is_number=False, may_wrap=True),
    )
    rows = [
        (
            str(gain.layer),
            gain.layout if gain.changes or not place else Quiet("the same"),
            Quantity(value=gain.step_time_s, unit="s", source=source),
            Quantity(value=gain.value, unit="share" if is_share else "", source=source),
            Quantity(value=gain.gain, unit="signed_share", source=source) if gain.changes else "",
            f"{gain.num_layouts:,}",
            changes_in_words(gain.changes) or ("nothing" if place else ""),
        )
        for place, gain in enumerate(report.gains)
    ]
    lines = (_total(report), *(in_sentences([caveat]) for caveat in caveats_in_words(report.caveats)))
    bars = _layer_bars(report, is_measured=is_measured)
    return Section(title=title, blocks=(bars, Table(columns=columns, rows=rows), Lines(items=lines, is_quiet=True)))


def _total(report: LayerReport) -> str:
    """Return a sentence on the gain of all layers together."""
    if not any(gain.changes for gain in report.gains):
        return "All layers together gain nothing over the strategy alone."
    return f"All layers together gain {percent(report.total_gain)} over the strategy alone."


def _layer_bars(report: LayerReport, *, is_measured: bool) -> Stacks:
    """Return a bar for each layer: the best layout so far relative to strategies alone, and what the layer adds."""
    first, before, rows = report.gains[0].value, 0.0, []
    for place, gain in enumerate(report.gains):
        reached = gain.value / first
        rows.append(_layer_bar(gain, before if place else reached, reached, is_measured=is_measured))
        before = reached
    says = "Throughput of the best layout, as a share of the throughput with strategies alone. "
    said = "; ".join(f"{gain.layer}: {_gave(gain, is_first=not place)}" for place, gain in enumerate(report.gains))
    return Stacks(says=says + said, unit="share", rows=rows, wide=_WIDE)


def _gave(gain: LayerGain, *, is_first: bool) -> str:
    if gain.changes:
        return f"{changes_in_words(gain.changes)} gives {percent(gain.gain)} more"
    return f"the best is {gain.layout}" if is_first else "nothing found is better"


def _layer_bar(gain: LayerGain, before: float, reached: float, *, is_measured: bool) -> Stack:
    blocks = [Part(name="the best", look="mem" if is_measured else "p-band", value=min(before, reached))]
    is_gain = bool(gain.changes) and reached > before
    blocks += [Part(name="what it adds", look="gain", value=reached - before)] if is_gain else []
    return Stack(
        name=str(gain.layer), blocks=blocks, is_predicted=not is_measured, end_text=signed(gain.gain) if is_gain else ""
    )

"""The parts of a trial's time and memory, its steps and its losses: sections with their pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from autotuner.core.convergence_gate import GateResult
from autotuner.core.layout import Layout
from autotuner.core.measurement import LinkEvent, Measurement, RobustMeasurement, StepReport
from autotuner.core.prediction import Memory
from autotuner.core.trial import Trial
from autotuner.core.units import format_bytes, format_seconds
from autotuner.report.charts import (
    Axis,
    Band,
    BarCell,
    Dot,
    Dots,
    Glyph,
    Line,
    Mark,
    Note,
    Plot,
    Rule,
    Spread,
    Stack,
    Stacks,
    Stretch,
)
from autotuner.report.charts import Block as Part
from autotuner.report.links import event_in_words
from autotuner.report.parts import PART_WORDS, limit_in_words, part_limit, part_name
from autotuner.report.report import (
    Block,
    Cell,
    Cells,
    Column,
    Folded,
    Lines,
    Quantity,
    Quiet,
    Section,
    Source,
    Strong,
    Swatch,
    Table,
    predicted,
)
from autotuner.report.scale import Scale
from autotuner.report.words import counted, link_state, mfu_quantity, percent, quantity, sentence
from autotuner.search.explain.explanation import Explanation, StagePeak, TrialParts
from autotuner.search.explain.step_parts import StepPart, StepParts

_MOST_STEPS = 400
"""Maximum number of steps drawn, since a picture has no more columns of pixels; of more steps, every n-th is drawn."""

MEMORY_PARTS = tuple(one.name.removesuffix("_bytes") for one in fields(Memory) if one.name.endswith("_bytes"))
"""Names of the parts of memory, which are CSS classes too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A trial that ran, with the parts of its step and memory, and the explanation of its layout.

    ``source`` says whether its results were measured or simulated.
    """

    trial: Trial
    source: Source
    parts: TrialParts
    explanation: Explanation


# ------------------------------------------------------------------ time
def step_section(of: Ran) -> Section:
    """Return a section on how the time of a step is divided, with the predicted parts above the measured ones."""
    step, found, parts = of.parts.step, of.trial.ran_measurement, of.parts
    error = None if parts.is_small else of.trial.prediction.relative_error
    rows = [_side(step, "predicted", Spread.within_factor(step.predicted_s, error), is_measured=False)]
    if step.measured_s is not None and found is not None:
        whole = Spread.within(found.step_time_s, found.step_time_error_s)
        rows.append(_side(step, of.source, whole, is_measured=True))
    totals = ", ".join(f"{row.name} {format_seconds(row.total)}" for row in rows)
    chart = Stacks(says=f"A step by part on one axis: {totals}", unit="s", rows=rows, is_joined=True)
    blocks: list[Block] = [chart, _parts_table(step, of.trial.ran, of.source)]
    if overlap := overlap_sentence(parts.predicted_overlap, parts.measured_overlap):
        blocks.append(Lines(items=(overlap,), is_quiet=True))
    if not parts.is_small:
        blocks.append(_kinds(of.explanation))
    title = f"Where a step’s time goes{', in the proxy trial' if parts.is_small else ''}"
    return Section(id="time", title=title, note=_how_divided(step, of.source, found), blocks=blocks)


def _how_divided(step: StepParts, source: Source, found: Measurement | None) -> str:
    if step.rank is not None:
        return (
            f"Measured on rank {step.rank}, which computes longest, in a profiled step after the timed steps. "
            "Communication is counted only while the rank does not compute."
        )
    if step.measured_s is not None:
        return (
            f"{source.capitalize()} by phases of the timed steps, each on its slowest rank; interruptions of a pass "
            "count as part of the pass."
        )
    return "Only predicted: the steps were timed as a whole." if found else "Only predicted: nothing was measured."


def _side(step: StepParts, name: str, whole: Spread, *, is_measured: bool) -> Stack:
    values = [(part.measured_s if is_measured else part.predicted_s) or 0.0 for part in step.parts]
    blocks = [Part(name=part_name(one), look=one.kind, value=s) for one, s in zip(step.parts, values, strict=True)]
    end_text = format_seconds(sum(values))
    return Stack(
        name=name, blocks=blocks, is_predicted=not is_measured, whole=whole, end_text=end_text, is_strong=is_measured
    )


def _parts_table(step: StepParts, layout: Layout, source: Source) -> Table:
    is_measured = step.measured_s is not None
    scale = Scale.around("s", [max(step.predicted_s, step.measured_s or 0.0)], are_parts=True)
    beside = (
        (Column("Difference", scale=scale), Column("Difference, drawn", is_drawn=True, is_minor=True))
        if is_measured
        else (Column("Share"),)
    )
    columns = (
        Column("Part", is_number=False),
        *([Column(source.capitalize(), scale=scale)] if is_measured else []),
        Column("Predicted", scale=scale),
        *beside,
        Column("What limits it", is_number=False, may_wrap=True, is_minor=True),
    )
    most = max((abs(_difference_s(part) or 0.0) for part in step.parts), default=0.0)
    rows: list[Sequence[Cells]] = [
        (
            Swatch(part.kind, part_name(part)),
            *_numbers(part, step, source, most),
            Quiet(part_limit(part, step, layout)),
        )
        for part in step.parts
    ]
    rows.append((Strong("step"), *_numbers(step, step, source, 0.0), Quiet(_off(step))))
    return Table(columns=columns, rows=rows, is_compact=True)


def _numbers(part: StepPart | StepParts, step: StepParts, source: Source, most_s: float) -> Iterator[Cell]:
    expected = Quantity(value=part.predicted_s, unit="s", source="predicted")
    if step.measured_s is None:
        yield expected
        yield percent((part.predicted_s or 0.0) / step.predicted_s)
        return
    yield Quantity(value=part.measured_s, unit="s", source=source)
    yield expected
    difference_s = _difference_s(part)
    yield Quantity(value=difference_s, unit="signed_s")
    is_drawn = most_s > 0 and difference_s is not None
    yield BarCell(value=difference_s or 0.0, most=most_s, is_signed=True) if is_drawn else ""


def _difference_s(part: StepPart | StepParts) -> float | None:
    """Return the measured minus the predicted time of a part; a part without a prediction counts as predicted 0."""
    return None if part.measured_s is None else part.measured_s - (part.predicted_s or 0.0)


def _off(step: StepParts) -> str:
    if step.measured_s is None:
        return ""
    off = step.predicted_s / step.measured_s - 1
    return f"predicted {percent(abs(off))} {'longer' if off > 0 else 'shorter'} than this step"


def _kinds(explanation: Explanation) -> Folded:
    columns = (
        Column("Part", is_number=False),
        Column("Time"),
        Column("Share"),
        Column("What limits it", is_number=False, may_wrap=True),
    )
    rows = [
        (
            PART_WORDS[part.part],
            Quantity(value=part.seconds, unit="s", source="predicted"),
            percent(part.share),
            Quiet(limit_in_words(part.limit, explanation.layout)),
        )
        for part in explanation.time
    ]
    now = explanation.prediction
    step = quantity(predicted(now.step_time.total_s, "s", now.relative_error))
    caption = f"As predicted today: step {step}, MFU {quantity(mfu_quantity(now))}."
    name = "Prediction by kind of work"
    table = Table(columns=columns, rows=rows, caption=caption, name=name, is_compact=True)
    return Folded(summary=f"{name}, and what limits each", id="kinds", blocks=(table,))


def overlap_sentence(predicted: float | None, measured: float | None) -> str:
    """Describe how many gradient bytes are reduced while a backward pass still runs; empty if no gradients are reduced.

    Args:
        predicted: Predicted share of the bytes, 0 to 1; None: no gradients are reduced.
        measured: Measured share of the bytes; None: not measured.
    """
    if predicted is None:
        return ""
    shares = f"{percent(predicted)} predicted" + ("" if measured is None else f", {percent(measured)} measured")
    return f"Gradients whose reduction starts before the last backward pass ends: {shares}, by bytes."


# ------------------------------------------------------------------ memory
def memory_section(of: Ran) -> Section:
    """Return a section that shows how the memory of each pipeline rank is divided, compared with the memory limit."""
    stages, limit_bytes, source = of.parts.stages, of.parts.limit_bytes, of.source
    names = ["each rank"] if len(stages) == 1 else [f"stage {peak.stage}" for peak in stages]
    shown = [part for part in MEMORY_PARTS if any(size_of(peak.predicted, part) > 0 for peak in stages)]
    is_measured = any(peak.measured_bytes is not None for peak in stages)
    fullest = max(stages, key=_peak_bytes)
    stacks = [
        Stack(
            name=name,
            blocks=memory_blocks(peak.predicted, shown),
            mark=peak.measured_bytes,
            end_text=_free(limit_bytes - _peak_bytes(peak)),
            is_strong=peak is fullest,
        )
        for name, peak in zip(names, stages, strict=True)
    ]
    peak, limit = format_bytes(_peak_bytes(fullest)), format_bytes(limit_bytes)
    says = f"Memory of {counted(len(stacks), 'pipeline stage')} by part, the fullest {peak} of {limit}"
    how = "is predicted" if fullest.measured_bytes is None else f"was {source}"
    rule = f", the black rule is the {source} peak memory of the rank that needs most" if is_measured else ""
    stands = _beside_limit(limit_bytes - _peak_bytes(fullest))
    name = names[stages.index(fullest)].capitalize()
    return Section(
        id="memory",
        title=f"Memory per stage{', of the proxy trial' if of.parts.is_small else ''}",
        note=f"Bars are predicted{rule}. {name} {how} to hold {peak}, {stands} of {limit}.",
        blocks=(
            Stacks(says=says, unit="bytes", rows=stacks, limit=limit_bytes, wide=632),
            _memory_table(of, names, shown, is_measured=is_measured),
        ),
        glyphs=[(part, PART_WORDS[f"{part}_bytes"]) for part in shown],
    )


def _memory_table(of: Ran, names: Sequence[str], shown: Sequence[str], *, is_measured: bool) -> Folded:
    columns = (
        Column("Stage", is_number=False),
        *(Column(PART_WORDS[f"{part}_bytes"]) for part in shown),
        Column("Predicted"),
        *([Column(of.source.capitalize())] if is_measured else []),
        Column("Free"),
    )
    rows = []
    for name, peak in zip(names, of.parts.stages, strict=True):
        cells: list[Cells] = [name]
        cells += [
            Quantity(value=size_of(peak.predicted, part) or None, unit="bytes", source="predicted") for part in shown
        ]
        cells.append(Quantity(value=peak.predicted_bytes, unit="bytes", source="predicted"))
        if is_measured:
            beside = "" if peak.rank is None else f"rank {peak.rank}"
            cells.append(Quantity(value=peak.measured_bytes, unit="bytes", source=of.source, beside=beside))
        free_bytes = of.parts.limit_bytes - _peak_bytes(peak)
        cells.append(f"{'−' if free_bytes < 0 else ''}{format_bytes(abs(free_bytes))}")
        rows.append(cells)
    table = Table(columns=columns, rows=rows, name="Memory by part and stage", is_compact=True)
    return Folded(summary="By part and stage, as a table", id="memory-parts", blocks=(table,))


def size_of(memory: Memory, part: str) -> float:
    """Return the bytes of one part of a rank's memory; ``part`` is a name in ``MEMORY_PARTS``."""
    return float(getattr(memory, f"{part}_bytes"))


def memory_blocks(memory: Memory, parts: Iterable[str]) -> list[Part]:
    """Return parts of a rank's memory as the blocks of one bar of a chart, each with its bytes."""
    return [Part(name=part, look=part, value=size_of(memory, part)) for part in parts]


def _peak_bytes(peak: StagePeak) -> float:
    return float(peak.predicted_bytes if peak.measured_bytes is None else peak.measured_bytes)


def _free(free_bytes: float) -> str:
    return f"{format_bytes(abs(free_bytes))} {'free' if free_bytes >= 0 else 'over'}"


def _beside_limit(free_bytes: float) -> str:
    return f"{format_bytes(abs(free_bytes))} {'below' if free_bytes >= 0 else 'above'} the limit"


# ------------------------------------------------------------------ steps
def steps_section(trial: Trial) -> Section:
    """Return a section with the time of each step of a trial, which must have at least one step."""
    found = trial.ran_measurement
    whose = "Of the proxy trial. " if trial.proxy else ""
    how = (
        "The line is the median of the measured steps, and the band is its 95 % interval."
        if found
        else "As they come in."
    )
    blocks: list[Block] = [step_series(trial.steps, found)]
    if found and found.link_events:
        columns = (Column("step"), Column("what", is_number=False), Column("more", is_number=False, may_wrap=True))
        rows = [(str(event.step + 1), *event_in_words(event)) for event in found.link_events]
        caption = "Events: what the pipeline found out about its links"
        blocks.append(Table(columns=columns, rows=rows, caption=caption, is_compact=True))
    return Section(id="steps", title="Step by step", note=f"{whose}{how}", blocks=blocks)


def step_series(steps: Sequence[StepReport], found: Measurement | None) -> Plot:
    """Return a chart of step times. It marks warm-up steps, the median with its interval, link faults and link events.

    Args:
        steps: The steps in order, at least one; steps under a fault trace come last.
        found: The measurement computed from the steps; None while the trial runs.
    """
    shown = steps[:: -(-len(steps) // _MOST_STEPS)]
    median = None if found is None else Spread.within(found.step_time_s, found.step_time_error_s)
    robust, events = (found.robust, found.link_events) if found else (None, ())
    times = [one.step_time_s for one in shown] + ([median.low, median.high] if median else [])
    x = Axis(title="step", unit="count", low=shown[0].step + 0.5, high=shown[-1].step + 1.5)
    marks: list[Mark] = []
    warm = [one.step for one in shown if one.is_warmup]
    if warm:
        marks.append(Stretch(low=x.low, high=max(warm) + 1.5, label="warm-up"))
    if robust is not None:
        marks += _under_trace(shown, robust)
    if median is not None:
        marks += _median(shown, median, x)
    marks += _events(events, x)
    marks.append(Dots(dots=[_dot(one, is_simulated=bool(found and found.is_simulated)) for one in shown]))
    y = Axis.around(times, "step time", unit="s", margin=0.2 if robust else 0.08)
    return Plot(says=_says(shown, median, events), x=x, y=y, marks=marks, height=200, wide=632)


def _dot(one: StepReport, *, is_simulated: bool) -> Dot:
    said = f"step {one.step + 1}: {format_seconds(one.step_time_s)}"
    look = "soft" if one.is_warmup else "simulated" if is_simulated else "measured"
    return Dot(x=one.step + 1, y=one.step_time_s, said=said, look=look)  # type: ignore[arg-type]  # these are looks


def _says(steps: Sequence[StepReport], median: Spread | None, events: Sequence[LinkEvent]) -> str:
    num_traced = sum(one.is_under_trace for one in steps)
    said = f"Times of {len(steps)} steps, {sum(one.is_warmup for one in steps)} of them to warm up"
    said += f", {num_traced} under the fault trace" if num_traced else ""
    said += f", median {format_seconds(median.value)}" if median else ""
    return said + (f"; {len(events)} events of its links" if events else "")


def _median(steps: Sequence[StepReport], median: Spread, x: Axis) -> Iterator[Mark]:
    """Yield a band for the interval over the measured steps, and a line for their median."""
    counting = [one.step + 1 for one in steps if not one.is_warmup and not one.is_under_trace]
    ends = (min(counting) - 0.5, max(counting) + 0.5) if counting else (x.low, x.high)
    yield Band(upper=[(end, median.high) for end in ends], lower=[(end, median.low) for end in ends])
    yield Line(points=[(end, median.value) for end in ends])
    half_s = median.high - median.value
    spread = f" ± {format_seconds(half_s)}" if half_s else ""
    yield Note(words=f"median {format_seconds(median.value)}{spread}", x=ends[1], y=median.high, is_above=True)


def _under_trace(steps: Sequence[StepReport], robust: RobustMeasurement) -> Iterator[Mark]:
    """Yield the stretches of the fault trace with a degraded link, and a line for the mean over the whole trace."""
    first = next((one.step + 1 for one in steps if one.is_under_trace), None)
    if first is None:
        return
    for stretch in robust.stretches:
        low = first + stretch.first_step - 0.5
        if stretch.links:
            label = ", ".join(f"{link} {link_state(link)}" for link in stretch.links[:2])
            look = "dead-link" if any(link.is_dead for link in stretch.links) else "late-link"
            yield Stretch(low=low, high=low + len(stretch.step_times_s), label=label, look=look)
    last, mean_s = steps[-1].step + 1.0, robust.step_time_s
    yield Line(points=[(first - 0.5, mean_s), (last, mean_s)])
    yield Note(words=f"mean under the trace {format_seconds(mean_s)}", x=last, y=mean_s, is_above=True)


def _events(events: Sequence[LinkEvent], x: Axis) -> Iterator[Mark]:
    """Yield a line at each step with an event; the table below the chart describes the events."""
    steps = sorted({event.step + 1.0 for event in events})
    yield from (Rule(at=at, along="x", look="event") for at in steps if x.low <= at <= x.high)


# ------------------------------------------------------------------ losses
def loss_curves(gate: GateResult) -> Plot | None:
    """Return a chart of a convergence gate's losses, one curve for each seed; None if no curve has two losses.

    A curve ends before its first loss that is not finite.
    """
    sides = (("reference", gate.reference_losses), ("measured", gate.candidate_losses))
    shown = [(look, curve) for look, every in sides for one in every if len(curve := _finite(one)) > 1]
    if not shown:
        return None
    return Plot(
        says=(
            f"Loss by step: {counted(len(gate.candidate_losses), 'run')} of this layout, "
            f"{len(gate.reference_losses)} of its reference"
        ),
        x=Axis(title="step", unit="count", low=1, high=max(len(curve) for _, curve in shown)),
        y=Axis.around([loss for _, curve in shown for loss in curve], "loss", margin=0.05),
        marks=[
            Line(points=[*enumerate(curve, 1)], look=look)  # type: ignore[arg-type]  # both are looks
            for look, curve in shown
        ],
        height=240,
        wide=632,
    )


def _finite(curve: Sequence[float]) -> Sequence[float]:
    """Return the curve up to the first loss that is NaN or infinite."""
    return curve[: next((place for place, loss in enumerate(curve) if not math.isfinite(loss)), len(curve))]


def losses_section(trial: Trial, gate: GateResult, chart: Plot) -> Section:
    """Return a section with the loss curves of a trial's convergence gate, and the outcome of the gate in words.

    Args:
        trial: The trial.
        gate: Result of the convergence gate.
        chart: Chart of the loss curves.
    """
    glyphs: list[tuple[Glyph, str]] = [("line", "this layout"), ("reference", f"reference {gate.reference}")]
    words = [sentence(gate.detail)]
    if to_loss := time_to_loss_in_words(gate, None if trial.reached is None else trial.reached.step_time_s):
        words.append(sentence(to_loss))
    if gate.candidate_validation:
        words.append("The curves are training losses. The gate compared the loss on held-out text after the last step.")
    blocks = (chart, Lines(items=(" ".join(words),), is_quiet=True))
    return Section(id="losses", title="Convergence gate", blocks=blocks, glyphs=glyphs)


def time_to_loss_in_words(gate: GateResult, step_time_s: float | None) -> str:
    """Describe after which steps a candidate layout and its reference reach the last loss of the reference.

    The text is empty if that is not known.

    Args:
        gate: Result of the convergence gate, which trained both layouts.
        step_time_s: Step time of the candidate; None: the text has only the number of steps of the candidate.
    """
    if gate.target_loss is None or gate.reference_steps is None or gate.steps_to_loss is None:
        return ""
    mine = f"{gate.steps_to_loss:.1f} steps"
    if step_time_s is not None:
        mine += f", {format_seconds(gate.steps_to_loss * step_time_s)}"
    theirs = f"{gate.reference_steps} steps"
    if gate.reference_time_to_loss_s is not None:
        theirs += f", {format_seconds(gate.reference_time_to_loss_s)} in its gate"
    return f"to the loss {gate.target_loss:.3f}: {mine}; its reference: {theirs}"

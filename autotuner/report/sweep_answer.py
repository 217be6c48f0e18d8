"""The reports of a sweep's answer: the layout to train with, and the Pareto front of layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autotuner.core.field_change import difference
from autotuner.core.layout import Layout
from autotuner.core.objective import Metric, Weight
from autotuner.core.sweep import ExpectedImprovement, SweepRequest
from autotuner.core.trial import trial_id
from autotuner.core.units import format_rate, format_seconds
from autotuner.report.charts import Shares, Unit
from autotuner.report.comparison import shifts_in_words
from autotuner.report.layouts import in_short
from autotuner.report.links import under_trace
from autotuner.report.parts import PART_WORDS, limit_in_words
from autotuner.report.report import (
    Block,
    Cells,
    Chip,
    Column,
    Figure,
    Folded,
    Lines,
    Link,
    Quantity,
    Quiet,
    Report,
    Section,
    Source,
    Table,
    measured,
    predicted,
)
from autotuner.report.words import (
    changes_in_words,
    counted,
    estimate_in_words,
    gain_in_words,
    gate_in_words,
    likely,
    listed,
    number,
    ranges,
    sentence,
    signed,
)
from autotuner.search.explain.step_parts import limit_of
from autotuner.search.results.axis import AXES
from autotuner.search.results.reached import Reached
from autotuner.search.results.sweep_answer import Answer, Rival, Role, Why
from autotuner.search.results.sweep_front import Change, FrontPoint, SweepFront
from autotuner.search.results.trial_table import TableRow

_NUM_RIVALS = 4
_NUM_BEHIND = 5
"""Number of trials behind the Pareto front that a report names; the JSON has all."""

_NUM_NAMED = 3
"""Largest number of choices that a sentence names; of more, it only gives the number."""

_LONGEST_CHANGE = 60
"""Maximum number of characters of a change between two layouts. If it is longer, the other layout's short name is
shown."""

_APART = 0.03
"""Difference between the predicted and the measured gain, as a share, above which both are mentioned."""


# ------------------------------------------------------------------ the layout to train with
def answer_report(
    found: Answer,
    request: SweepRequest,
    *,
    sweep_id: str,
    expected_improvement: ExpectedImprovement | None = None,
    is_finished: bool = True,
) -> Report:
    """Return the report of a sweep's answer: the recommended layout, its certainty, the layouts it beats, and why.

    Args:
        found: The answer of the sweep.
        request: The request of the sweep.
        sweep_id: Id of the sweep, for links.
        expected_improvement: Gains that the search expects from further trials; None: not known.
        is_finished: True if the sweep has ended.
    """
    remarks = Lines(items=tuple(map(sentence, _remarks(found))), is_quiet=True)
    figures = tuple(_figures(found.best, request))
    return Report(
        headline=f"Best layout: {_headline(found, request)}",
        sections=(
            Section(title=_advice(found, is_finished=is_finished), id="answer", blocks=(remarks, figures)),
            Section(title="How sure", blocks=(_chances(found), _certainty(found, request, expected_improvement))),
            Section(title="What it beats", blocks=(_rivals(found, sweep_id),)),
            Section(title="Why", blocks=(_why(found.why, request, sweep_id),)),
        ),
    )


def _headline(found: Answer, request: SweepRequest) -> str:
    """Return the best layout, its speed, and the first layout that it beats or is tied with."""
    best, trace = found.best, request.fault_trace
    noun = "MFU" if best.healthy_mfu is None or trace is None else f"MFU {under_trace(trace, best.healthy_mfu)}"
    source = estimate_in_words(best.estimate) if best.estimate else best.source
    reached = f"{100 * best.mfu:.1f} ± {100 * best.mfu * best.relative_error:.1f} % {noun}, {source}"
    against = ""
    if found.rivals and not found.rivals[0].is_tie:
        first = found.rivals[0]
        against = f"; {signed(first.gain, first.gain_error)} over {_name(first)}"
    elif found.ties:
        against = f"; tied with rank{'s' if len(found.ties) > 1 else ''} {ranges(tie.rank for tie in found.ties)}"
    return f"{best.layout}: {reached}, {format_rate(best.tokens_per_s, 'token/s')}{against}"


def foreseen_report(best: TableRow, limit_bytes: float, *, is_finished: bool) -> Report:
    """Return the report of the best predicted layout, for a sweep in which no trial has a result.

    Args:
        best: The best predicted layout.
        limit_bytes: Bytes of memory that a rank may use.
        is_finished: True if the sweep has ended.
    """
    prediction, error = best.prediction, best.prediction.relative_error
    healthy = predicted(prediction.mfu, "share", error)
    if prediction.robust_mfu is None:
        rates = [Figure("MFU, predicted", healthy, is_first=True)]
    else:
        robust = predicted(prediction.robust_mfu, "share", error)
        rates = [Figure("robust MFU, predicted", robust, is_first=True), Figure("healthy MFU", healthy)]
    figures = (
        *rates,
        Figure("throughput", Quantity(value=best.tokens_per_s, unit="tokens/s", source="predicted")),
        Figure("step", predicted(best.step_time_s, "s", error)),
        *_beside_speed(prediction.memory.total_bytes, limit_bytes, best.price_per_million_tokens, "predicted"),
    )
    ended = "no trial was completed" if is_finished else "no trial is complete yet"
    section = Section(title=f"Predicted best; {ended}", id="answer", blocks=(figures,))
    return Report(headline=f"Predicted best: {best.layout}", sections=(section,))


def _advice(found: Answer, *, is_finished: bool) -> str:
    if found.is_in_use:
        return "Go on with this layout"
    if not is_finished:
        return "Best layout so far"
    must_do = ["measure it"] if found.best.source == "simulated" else []
    must_do += ["compare its losses"] if found.gate is not None and found.gate != "passed" else []
    return f"Best found; {', and '.join(must_do)}, before you train with it" if must_do else "Train with this layout"


def _remarks(found: Answer) -> Iterator[str]:
    if found.best.estimate:
        yield f"{sentence(estimate_in_words(found.best.estimate))} It was not measured at this size."
    elif found.best.source == "simulated":
        yield "Simulated: nothing ran."
    if found.gate is not None:
        yield gate_in_words(found.gate)


def _figures(best: Reached, request: SweepRequest) -> Iterator[Figure]:
    error, source = best.relative_error, best.source
    noun = "MFU" if best.healthy_mfu is None else "robust MFU"
    yield Figure(f"{noun}, {source}", measured(best.mfu, "share", best.mfu * error, source), is_first=True)
    if best.healthy_mfu is not None:
        yield Figure("healthy MFU", Quantity(value=best.healthy_mfu, unit="share", source=source))
    yield Figure("throughput", Quantity(value=best.tokens_per_s, unit="tokens/s", source=source))
    yield Figure("step", measured(best.step_time_s, "s", best.step_time_s * error, source))
    limit_bytes = float(request.trial_job.cluster.accelerator.memory_bytes)
    yield from _beside_speed(best.peak_bytes, limit_bytes, best.price_per_million_tokens, source)


def _beside_speed(
    peak_bytes: float | None, limit_bytes: float, price: float | None, source: Source
) -> Iterator[Figure]:
    if peak_bytes is not None:
        beside = f"of {number(limit_bytes, 'bytes')}"
        yield Figure("peak memory", Quantity(value=peak_bytes, unit="bytes", source=source, beside=beside))
    if price is not None:
        yield Figure("price", Quantity(value=price, unit="$", source=source, beside="per M tokens"))


def _chances(found: Answer) -> Shares:
    """Return the chances to be the best: of the best layout, of the first two tied with it, and of all others."""
    ties = found.ties[:2]
    rest = max(0.0, 1 - found.probability_best - sum(tie.probability_best for tie in ties))
    chances = [f"rank 1 {100 * found.probability_best:.0f} %"]
    chances += [f"rank {tie.rank} {100 * tie.probability_best:.0f} %" for tie in ties]
    return Shares(
        says=f"Likely the best: {', '.join(chances)}, any other {100 * rest:.0f} %",
        parts=((found.probability_best, "best"), *((tie.probability_best, "tie") for tie in ties), (rest, "rest")),
    )


def _certainty(found: Answer, request: SweepRequest, expected_improvement: ExpectedImprovement | None) -> Lines:
    said = [*_of_ranked(found), *(_of_space(found, request, expected_improvement) if expected_improvement else ())]
    return Lines(items=tuple(map(sentence, said)), is_list=False)


def _of_ranked(found: Answer) -> Iterator[str]:
    if found.num_ranked == 1:
        yield "it is the only layout with a rank so far"
        return
    sure = likely(found.probability_best)
    yield f"the chance that it is the best of the {found.num_ranked:,} ranked layouts is {sure}"
    match found.ties:
        case ():
            yield "no other layout is as fast within the noise of equal runs"
        case (one,):
            yield f"it is tied with {_tie(one, found.best.layout)}"
        case (one, *_):
            ranks = ranges(tie.rank for tie in found.ties)
            yield f"it is tied with ranks {ranks}; the closest is {_tie(one, found.best.layout)}"


def _tie(tie: Rival, best: Layout) -> str:
    """Return the rank of a tied layout and how it differs; if many choices differ, only their number."""
    change = changes_in_words(difference(best, tie.layout))
    num_changes = change.count(" → ")
    change = change if num_changes <= _NUM_NAMED else f"{num_changes} choices differ"
    return f"rank {tie.rank} ({change}; its chance is {likely(tie.probability_best)})"


def _of_space(found: Answer, request: SweepRequest, expected_improvement: ExpectedImprovement) -> Iterator[str]:
    legal, fitting = expected_improvement.num_candidates, expected_improvement.num_fitting
    yield f"{fitting:,} of {legal:,} legal layouts are predicted to fit in memory, and {found.num_tried:,} were tried"
    if expected_improvement.expected_gain is not None:
        raised = "the front's hypervolume" if request.objective.front else "the best value"
        yield gain_in_words(expected_improvement.expected_gain, raised)


# ------------------------------------------------------------------ rivals and reasons
def _rivals(found: Answer, sweep_id: str) -> Table:
    columns = (Column("gain"), Column("over", is_number=False, may_wrap=True))
    rows = [(_gain(one, found.best.source), _rival(one, found.best, sweep_id)) for one in found.rivals[:_NUM_RIVALS]]
    return Table(columns=columns, rows=rows, is_compact=True, if_empty="No other layout has a rank yet.")


def _gain(one: Rival, source: Source) -> Quantity:
    beside = f"± {100 * one.gain_error:.1f} %"
    return Quantity(value=one.gain, unit="signed_share", source=source, beside=beside)


def _rival(one: Rival, best: Reached, sweep_id: str) -> Cells:
    change = changes_in_words(difference(one.layout, best.layout))
    change = change if change and len(change) < _LONGEST_CHANGE else in_short(one.layout)
    return (_link(_name(one), sweep_id, one.trial), Quiet(f"{change}; a tie" if one.is_tie else change))


def _name(one: Rival) -> str:
    """Return the words for a rival, such as ``rank 2`` or ``rank 4, the best with another value of tp or pp``."""
    if not one.lacks:
        return _place(one)
    choices = [AXES[name].label for name in one.lacks]
    if len(choices) > _NUM_NAMED:
        choices = [", ".join(choices[: _NUM_NAMED - 1]), f"{len(choices) - _NUM_NAMED + 1} other choices"]
    return f"{_place(one)}, the best with another value of {' or '.join(choices)}"


def _place(one: Rival) -> str:
    return "the layout in use" if one.role is Role.IN_USE else f"rank {one.rank}"


def _why(why: Why | None, request: SweepRequest, sweep_id: str) -> Lines:
    if why is None:
        return Lines(items=("Only one layout was measured, so there is nothing to compare yet.",), is_list=False)
    than = _place(why.rival)
    tie = ", a tie:" if why.rival.is_tie else ":"
    against: Cells = (Quiet("Compared with"), _link(than, sweep_id, why.rival.trial), tie)
    return Lines(items=(against, *map(sentence, _reasons(why, request, than))), is_list=False)


def _reasons(why: Why, request: SweepRequest, than: str) -> Iterator[str]:
    """Yield where the gain comes from, and the predicted gain if it is a different one."""
    gain = why.rival.gain
    if why.faulty_step_s is not None:
        mine, theirs = map(format_seconds, why.faulty_step_s)
        yield f"under the fault trace, the mean step is predicted to take {mine}, and the mean step of {than} {theirs}"
    yield from _parts(why, request, than)
    if _is_another(why.predicted_gain, gain):
        yield f"the predicted gain was {signed(why.predicted_gain)}, and the trials found {signed(gain)}"


def _parts(why: Why, request: SweepRequest, than: str) -> Iterator[str]:
    where, gain, of_parts = "" if why.faulty_step_s is None else "on healthy links ", why.rival.gain, why.parts_gain
    if of_parts is not None and _is_another(of_parts, gain) and (of_parts * gain <= 0 or abs(of_parts) < abs(gain) / 2):
        found = f"the sum of the parts gives a gain of {signed(of_parts)}, the whole step a gain of {signed(gain)}"
        yield f"the {why.parts_are} parts of their steps do not explain it: {found}"
        return
    is_predicted = why.parts_are == "predicted"
    moved = shifts_in_words(why.shifts, num_longer=2 if is_predicted else 1)
    if moved:
        yield f"{where}its {'step is predicted to spend' if is_predicted else f'{why.parts_are} step spends'} {moved}"
    elif is_predicted:
        yield f"{where}no part of the step is predicted to differ by 1 % of the step time"
    else:
        yield f"{where}no {why.parts_are} part of the step differs by 1 % of the step time"
    saved = next((one.name for one in why.shifts if one.seconds < 0), "")
    if is_predicted and saved:
        layout = why.rival.layout
        limit = limit_of(saved, layout, request.trial_job)
        yield f"{PART_WORDS[saved]} of {than}: {limit_in_words(limit, layout)}"


def _is_another(of_parts: float, gain: float) -> bool:
    return abs(of_parts - gain) >= _APART or (of_parts < 0) != (gain < 0)


def _link(words: str, sweep_id: str, trial: int) -> Link:
    return Link(words, "trials", trial_id(sweep_id, trial))


# ------------------------------------------------------------------ the front
METRIC_UNITS: Mapping[Metric, Unit] = {
    Metric.MFU: "share",
    Metric.ROBUSTNESS: "share",
    Metric.TOKENS_PER_S: "tokens/s",
    Metric.TOKENS_PER_JOULE: "tokens/J",
    Metric.TOKENS_PER_DOLLAR: "tokens/$",
    Metric.TOKENS_PER_KG_CO2: "tokens/kg CO2",
}
"""Units of metrics; simplicity has no unit."""


def front_report(found: SweepFront, source: Source | None = None, *, sweep_id: str) -> Report:
    """Return the report of a sweep's Pareto front: its layouts with the reason for each, and the trials they beat.

    Args:
        found: The front of the sweep.
        sweep_id: Id of the sweep, for links.
        source: Source of the results: measured, simulated or estimated; None: the report does not name it.
    """
    columns = (
        Column("trial", is_number=False),
        Column("layout, and why it is on the Pareto front", is_number=False, may_wrap=True),
        *(Column(metric.noun) for metric in found.metrics),
        Column("of the front"),
    )
    table = Table(
        columns=columns,
        rows=[tuple(_cells_of(one, found, source, sweep_id)) for one in found.points],
        if_empty=f"No trial has a value of {listed([metric.noun for metric in found.metrics])} yet.",
        name="The front",
    )
    blocks: list[Block] = [table]
    if found.points:
        blocks.append(Lines(items=tuple(map(sentence, _notes(found))), is_quiet=True))
    if found.behind:
        behind = Lines(items=tuple(map(sentence, _behind(found))))
        blocks.append(Folded(summary=f"{counted(len(found.behind), 'trial')} behind the front", blocks=(behind,)))
    return Report(
        headline="Layouts that no other layout beats in all metrics",
        sections=(Section(id="trades", blocks=tuple(blocks)),),
    )


def _cells_of(point: FrontPoint, found: SweepFront, source: Source | None, sweep_id: str) -> Iterator[Cells]:
    link = _link(str(point.trial), sweep_id, point.trial)
    marks = [Chip("first", "yours")] * point.is_first + [Chip("knee")] * point.is_knee
    yield (link, *marks)
    reasons = _why_on_front(point, len(found.points) + len(found.behind))
    yield (point.layout, Quiet(sentence("; ".join(reasons))))
    for metric, value in zip(found.metrics, point.values, strict=True):
        yield Quantity(value=value, unit=METRIC_UNITS.get(metric, ""), source=source)
    yield Quantity(value=point.volume_share, unit="share")


def _why_on_front(point: FrontPoint, num_trials: int) -> Iterator[str]:
    if num_trials == 1:
        yield "the only trial so far that has values of all these metrics"
        return
    if point.best_in:
        is_all = len(point.best_in) == len(point.values)
        what = "everything" if is_all else listed([metric.noun for metric in point.best_in])
        yield f"the best of {num_trials} in {what}"
    if point.is_knee:
        yield "the closest to the best value of every metric"
    for trade in point.trades:
        yield f"trial {trade.trial} has {_listed(trade.gains)} for {_listed(trade.costs)}"
    if point.num_beaten:
        yield f"{point.num_beaten} other{'s are' if point.num_beaten > 1 else ' is'} not better in any metric"


def _listed(changes: Sequence[Change]) -> str:
    return listed([f"{signed(one.share)} {one.metric.noun}" for one in changes])


def _notes(found: SweepFront) -> Iterator[str]:
    yield f"first by {_weighed(found.profile) or 'the objective of the sweep'}"
    if any(one.is_knee for one in found.points):
        yield "the knee is the layout closest to the best value of every metric"
    yield "“of the front” is the share of the front's hypervolume that would be lost without the trial"
    if found.num_without_values:
        yield f"{found.num_without_values} ranked trials have no value of some metric"


def _behind(found: SweepFront) -> Iterator[str]:
    for one in found.behind[:_NUM_BEHIND]:
        unsure = "; within the uncertainty of both trials, it may belong to the front" if one.may_belong else ""
        yield f"trial {one.trial} is behind trial {one.by}, which has {_listed(one.changes)}{unsure}"
    if (left := len(found.behind) - _NUM_BEHIND) > 0:
        yield f"{left} more are behind the front"


def _weighed(profile: Sequence[Weight]) -> str:
    """Return the weights of a profile in words: ``MFU x2, simplicity x1``.

    A single metric is named without a weight.
    """
    if len(profile) == 1:
        return profile[0].metric.noun
    return ", ".join(f"{one.metric.noun} x{one.weight:g}" for one in profile)

"""The reports of what a sweep answers: the layout to train with, and the layouts that no other beats in everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autotuner.core.layout import Layout
from autotuner.core.objective import Metric, Weight
from autotuner.report.charts import Shares, Unit
from autotuner.report.layouts import in_short
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
from autotuner.report.words import counted, number, sentence
from autotuner.search.results.reached import Reached
from autotuner.search.results.sweep_answer import Answer, Beaten, Certainty, Why
from autotuner.search.results.sweep_front import FrontPoint, SweepFront
from autotuner.search.results.trial_table import TableRow
from autotuner.search.text.sentences import gate_in_words, listed, signed

_NUM_BEATEN = 4
_NUM_BEHIND = 5
"""Trials behind the front that a report names; the JSON has all."""

_LONGEST_CHANGE = 60
"""Letters of a change between two layouts; instead of a longer one, the other layout is named in short."""


# ------------------------------------------------------------------ the layout to train with
def answer_report(found: Answer, *, is_finished: bool = True) -> Report:
    """Return the layout to train with, how sure that is, which layouts it beats, and why.

    Args:
        found: The answer of a sweep.
        is_finished: The sweep has ended.
    """
    remarks = Lines(items=tuple(map(sentence, _remarks(found))), is_quiet=True)
    return Report(
        headline=f"Best layout: {found.sentence}",
        sections=(
            Section(title=_advice(found, is_finished=is_finished), id="answer", blocks=(remarks, _figures(found.best))),
            Section(title="How sure", blocks=tuple(_certainty(found.certainty))),
            Section(title="What it beats", blocks=(_beaten(found.beaten, found.best.source),)),
            Section(title="Why", blocks=(_why(found.why),)),
        ),
    )


def foreseen_report(best: TableRow, limit_bytes: float, *, is_finished: bool) -> Report:
    """Return the best prediction of a sweep in which no trial has a result.

    Args:
        best: The best predicted layout.
        limit_bytes: What a rank may use.
        is_finished: The sweep has ended.
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
    if found.best.said:
        yield f"{sentence(found.best.said)} Never measured at this size."
    elif found.best.source == "simulated":
        yield "Simulated: nothing ran."
    if found.gate is not None:
        yield gate_in_words(found.gate)


def _figures(best: Reached) -> tuple[Figure, ...]:
    error, source = best.relative_error, best.source
    noun = "MFU" if best.healthy_mfu is None else "robust MFU"
    mfu = Figure(f"{noun}, {source}", measured(best.mfu, "share", best.mfu * error, source), is_first=True)
    healthy = Figure("healthy MFU", Quantity(value=best.healthy_mfu, unit="share", source=source))
    return (
        mfu,
        *([] if best.healthy_mfu is None else [healthy]),
        Figure("throughput", Quantity(value=best.tokens_per_s, unit="tokens/s", source=source)),
        Figure("step", measured(best.step_time_s, "s", best.step_time_s * error, source)),
        *_beside_speed(best.peak_bytes, best.limit_bytes, best.price_per_million_tokens, source),
    )


def _beside_speed(
    peak_bytes: float | None, limit_bytes: float, price: float | None, source: Source
) -> Iterator[Figure]:
    if peak_bytes is not None:
        beside = f"of {number(limit_bytes, 'bytes')}"
        yield Figure("peak memory", Quantity(value=peak_bytes, unit="bytes", source=source, beside=beside))
    if price is not None:
        yield Figure("price", Quantity(value=price, unit="$", source=source, beside="per M tokens"))


def _certainty(sure: Certainty) -> Iterator[Block]:
    ties = sure.ties[:2]
    rest = max(0.0, 1 - sure.probability_best - sum(tie.probability_best for tie in ties))
    told = [f"rank 1 {100 * sure.probability_best:.0f} %"]
    told += [f"rank {tie.rank} {100 * tie.probability_best:.0f} %" for tie in ties]
    yield Shares(
        says=f"Likely the best: {', '.join(told)}, any other {100 * rest:.0f} %",
        parts=((sure.probability_best, "best"), *((tie.probability_best, "tie") for tie in ties), (rest, "rest")),
    )
    yield Lines(items=tuple(map(sentence, sure.sentences)), is_list=False)


def _beaten(rivals: Sequence[Beaten], source: Source) -> Table:
    columns = (Column("gain"), Column("over", is_number=False, may_wrap=True))
    rows = [(_gain(one, source), _rival(one)) for one in rivals[:_NUM_BEATEN]]
    return Table(columns=columns, rows=rows, is_compact=True, if_empty="Nothing else has a rank yet.")


def _gain(one: Beaten, source: Source) -> Quantity:
    beside = f"± {100 * one.gain_error:.1f} %"
    return Quantity(value=one.gain, unit="signed_share", source=source, beside=beside)


def _rival(one: Beaten) -> Cells:
    change = one.change if one.change and len(one.change) < _LONGEST_CHANGE else in_short(one.layout)
    return (Link(one.said, "trials", one.trial_id), Quiet(f"{change}; a tie" if one.is_tie else change))


def _why(why: Why | None) -> Lines:
    if why is None:
        return Lines(items=("With one layout measured there is nothing to compare yet.",), is_list=False)
    tie = ", a tie:" if why.is_tie else ":"
    against: Cells = (Quiet("Compared with"), Link(why.than, "trials", why.trial_id), tie)
    return Lines(items=(against, *map(sentence, why.sentences)), is_list=False)


# ------------------------------------------------------------------ the front
METRIC_UNITS: Mapping[Metric, Unit] = {
    Metric.MFU: "share",
    Metric.ROBUSTNESS: "share",
    Metric.TOKENS_PER_S: "tokens/s",
    Metric.TOKENS_PER_JOULE: "tokens/J",
    Metric.TOKENS_PER_DOLLAR: "tokens/$",
    Metric.TOKENS_PER_KG_CO2: "tokens/kg CO2",
}
"""Units of metrics; simplicity has none."""


def front_report(found: SweepFront, source: Source | None = None) -> Report:
    """Return the layouts that no other beats in everything, why each is among them, and which are behind.

    Args:
        found: The front of a sweep.
        source: What the figures of its trials are called; None: they are not named.
    """
    columns = (
        Column("trial", is_number=False),
        Column("layout, and why it is on the front", is_number=False, may_wrap=True),
        *(Column(metric.noun) for metric in found.metrics),
        Column("of the front"),
    )
    table = Table(
        columns=columns,
        rows=[tuple(_cells_of(one, found.metrics, source)) for one in found.points],
        if_empty=f"No trial has a result that tells {listed([metric.noun for metric in found.metrics])} yet.",
        name="The front",
    )
    blocks: list[Block] = [table]
    if found.points:
        blocks.append(Lines(items=tuple(map(sentence, _notes(found))), is_quiet=True))
    if found.behind:
        behind = Lines(items=tuple(map(sentence, _behind(found))))
        blocks.append(Folded(summary=f"{counted(len(found.behind), 'trial')} behind the front", blocks=(behind,)))
    return Report(
        headline="What no other layout beats in everything", sections=(Section(id="trades", blocks=tuple(blocks)),)
    )


def _cells_of(point: FrontPoint, metrics: Sequence[Metric], source: Source | None) -> Iterator[Cells]:
    link = Link(str(point.number), "trials", point.trial_id)
    marks = [Chip("first", "yours")] * point.is_first + [Chip("knee")] * point.is_knee
    yield (link, *marks)
    yield (Layout.parse(point.label), Quiet(sentence("; ".join(point.why))))
    for metric, value in zip(metrics, point.values, strict=True):
        yield Quantity(value=value, unit=METRIC_UNITS.get(metric, ""), source=source)
    yield Quantity(value=point.volume_share, unit="share")


def _notes(found: SweepFront) -> Iterator[str]:
    yield f"first by {_weighed(found.profile) or 'what the sweep ranks by'}"
    if any(one.is_knee for one in found.points):
        yield "the knee is nearest to the best of everything"
    yield "of the front: the part of its hypervolume that it would lose without the trial"
    if found.num_untold:
        yield f"{found.num_untold} ranked trials do not tell some of it"


def _behind(found: SweepFront) -> Iterator[str]:
    for one in found.behind[:_NUM_BEHIND]:
        more = listed([f"{signed(change.share)} {change.metric.noun}" for change in one.changes])
        unsure = "; within the intervals of both it may belong to the front" if one.may_belong else ""
        yield f"trial {one.number} is behind trial {one.by}, which has {more}{unsure}"
    if (left := len(found.behind) - _NUM_BEHIND) > 0:
        yield f"{left} more are behind the front"


def _weighed(profile: Sequence[Weight]) -> str:
    """Return what a profile weighs: ``MFU x2, simplicity x1``; one metric alone has no weight."""
    if len(profile) == 1:
        return profile[0].metric.noun
    return ", ".join(f"{one.metric.noun} x{one.weight:g}" for one in profile)

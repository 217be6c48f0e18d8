"""The reports of explanations: why a layout is as fast as it is, and what measured layouts show about the options."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown, Measurement
from autotuner.core.prediction import Prediction
from autotuner.core.rules.rule import Reason
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.core.workload import LengthDistribution
from autotuner.report.caveats import caveats_in_words
from autotuner.report.charts import Axis, Line, Look, Note, Plot, Rule, Stack, Stacks, Stretch, stairs
from autotuner.report.charts import Block as Part
from autotuner.report.cluster import route_in_words
from autotuner.report.links import link_in_words
from autotuner.report.parts import PART_WORDS, limit_in_words, moved_in_words
from autotuner.report.report import (
    Cell,
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
from autotuner.report.sweep_charts import change_of
from autotuner.report.trial_facts import certainty, facts, phases
from autotuner.report.words import (
    changes_in_words,
    fit_in_words,
    likely,
    listed,
    mfu_quantity,
    model_in_words,
    percent,
    quantity,
    sentence,
    signed,
)
from autotuner.search.explain.bandwidth import BandwidthCurve, BandwidthWay
from autotuner.search.explain.communication import CrossedLink, NcclWays
from autotuner.search.explain.explanation import Explanation, Refusal
from autotuner.search.results.pairs import MeasuredRules, PairEffect
from autotuner.search.space.moves import Alternative, BatchWay

_BESIDE_PANEL = 896
"""Width in pixels of a picture beside the controls of a page."""

_SURE = 0.9
"""Chance to fit in memory from which no warning is shown."""

_MOST_BARS = 32
"""Maximum number of bars for ranges of sequence lengths."""

LinkTo = Callable[[Layout, str], Link]
"""Function that returns a link to the page of a layout, with the given text."""


def explanation_report(
    explanation: Explanation,
    curve: BandwidthCurve | None = None,
    *,
    ran: Measurement | None = None,
    lengths: LengthDistribution | None = None,
    untried: Sequence[Reason] = (),
    link_to: LinkTo | None = None,
) -> Report:
    """Return the report that explains a layout: its parts of time and memory, their limits, and helpful changes.

    Args:
        explanation: The explanation of the layout.
        curve: Predicted step time as a function of the bandwidth between nodes; None: not shown.
        ran: Measurement of the layout by a trial, which is shown first; None: no trial ran.
        lengths: Distribution of sequence lengths, which is drawn if sequences differ in length; None: they do not.
        untried: Reasons why a sweep would not try the layout.
        link_to: Returns a link to the page of another layout; None: rows name other layouts without a link.
    """
    known = (*(f"A sweep does not try it: {one.message}" for one in untried), *caveats_in_words(explanation.caveats))
    about = tuple(map(sentence, known))
    sections = [
        *([_measured(ran)] if ran else []),
        Section(title="Predicted, not measured", blocks=(_figures(explanation),), id="predicted"),
        _times(explanation),
        _memory(explanation),
        *_network(explanation),
        *([_batches(explanation.batches, lengths, link_to)] if explanation.batches else []),
        *([bandwidth_section(curve)] if curve and curve.ways else []),
        _changes(explanation, link_to),
        *([_refused(explanation)] if explanation.illegal else []),
        *([Section(title="What to know", blocks=(Lines(items=about),), id="about")] if about else []),
    ]
    return Report(
        headline=f"{model_in_words(explanation.model_size)}: {explanation.layout}",
        sections=sections,
    )


def rules_report(rules: MeasuredRules) -> Report:
    """Return the report on the effect of each option on measured throughput, one statement for each option.

    An effect comes from pairs of measured layouts that differ in this option only.
    """
    said = Lines(items=tuple(map(effect_in_words, rules.items)))
    head = f"From {rules.num_measured} measured trials, in pairs that differ only in one option"
    return Report(headline=head, sections=(Section(blocks=(said,)),))


def effect_in_words(found: PairEffect) -> str:
    """Describe the effect of changing one option: ``recompute full → none: +30.0 % throughput, one pair``."""
    return f"{change_of(found)}: {_gained(found)}"


def _gained(found: PairEffect) -> str:
    if found.median_gain is None or found.least_gain is None or found.greatest_gain is None:
        return "no pairs: no two measured layouts differ only in it"
    median = f"{signed(found.median_gain)} throughput"
    if found.num_pairs == 1:
        return f"{median}, one pair"
    spread = f"{signed(found.least_gain)} to {signed(found.greatest_gain)}"
    return f"{median} in the median of {found.num_pairs} pairs ({spread}), faster in {found.num_faster} of them"


# ------------------------------------------------------------------ measurements of a trial
def _measured(ran: Measurement) -> Section:
    word: Source = ran.source
    step = measured(ran.step_time_s, "s", ran.step_time_interval_s, source=word)
    if ran.step_time_interval_s is None:
        step = replace(step, beside=certainty(ran))
    figures = (
        Figure("step", step),
        Figure("MFU", replace(measured(ran.mfu, "share", source=word), beside=f"of the {ran.peak_source}")),
        *(Figure(name, text) for name, text in facts(ran).items()),
    )
    parts = [_breakdown(ran.breakdown, word)] if ran.breakdown else []
    return Section(title=word.capitalize(), blocks=(figures, *parts), id="measured")


def _breakdown(breakdown: Breakdown, word: Source) -> Table:
    name = f"Parts of the step of rank {breakdown.rank} under the profiler"
    whole = ("the whole step", measured(breakdown.step_s, "s", source=word), measured(1.0, "share", source=word))
    parts = [
        (one.name, measured(one.seconds, "s", source=word), measured(one.share, "share", source=word))
        for one in phases(breakdown)
    ]
    columns = (Column("part", is_number=False), Column("time"), Column("share"))
    return Table(columns=columns, rows=[*parts, whole], name=name, caption=name, is_compact=True)


# ------------------------------------------------------------------ where time and memory go
def _figures(explanation: Explanation) -> tuple[Figure, ...]:
    found = explanation.prediction
    margin = explanation.margin_bytes
    where = f"{format_bytes(abs(margin))} {'below' if margin >= 0 else 'above'} the limit"
    return (
        Figure("step", predicted(found.step_time_s, "s", found.relative_error)),
        Figure("MFU", mfu_quantity(found)),
        Figure("peak memory", (predicted(found.peak_bytes, "bytes"), Quiet(where))),
        Figure("limit", Quantity(value=explanation.limit_bytes, unit="bytes")),
        Figure("memory suffices", fit_in_words(found.fits, found.fit_probability)),
    )


def _times(explanation: Explanation) -> Section:
    table = Table(
        columns=(
            Column("part", is_number=False),
            Column("time"),
            Column("share"),
            Column("what limits it", is_number=False, may_wrap=True),
        ),
        rows=[
            (
                PART_WORDS[one.part],
                predicted(one.seconds, "s"),
                predicted(one.share, "share"),
                Quiet(limit_in_words(one.limit, explanation.layout)),
            )
            for one in explanation.time
        ],
        name="Parts of the step, table",
        is_compact=True,
    )
    note = "Times of the slowest pipeline rank. Communication that computation hides is not counted."
    return Section(title="Parts of the step time", blocks=(table,), note=note, id="where")


def _memory(explanation: Explanation) -> Section:
    table = Table(
        columns=(Column("part", is_number=False), Column("memory"), Column("share")),
        rows=[
            (PART_WORDS[one.part], predicted(one.num_bytes, "bytes"), predicted(one.share, "share"))
            for one in explanation.memory
        ],
        name="Memory by part, table",
        is_compact=True,
    )
    return Section(
        title="Where memory goes", blocks=(table,), note="Memory of the pipeline rank that needs most.", id="memory"
    )


def _network(explanation: Explanation) -> Iterator[Section]:
    """Yield a section on links that are degraded or limit a group, and on what NCCL would choose by itself."""
    said = [*map(crossed_in_words, explanation.links), *map(route_in_words, explanation.routes)]
    nccl = [*map(nccl_in_words, explanation.nccl)]
    if said or nccl:
        blocks = (Lines(items=said), Lines(items=nccl, is_quiet=True))
        yield Section(title="Links and collectives", blocks=[one for one in blocks if one.items], id="network")


def crossed_in_words(link: CrossedLink) -> str:
    """Describe a degraded link: its fault, and the axes whose groups of ranks communicate over it."""
    over = f"{listed(link.axes)} groups communicate over it" if link.axes else "no group of ranks communicates over it"
    return f"{link_in_words(link.health)}: {over}"


def nccl_in_words(of: NcclWays) -> str:
    """Describe the algorithms and protocols that NCCL would choose by itself, each with its range of message sizes."""
    named = [f"{band.algorithm} {band.protocol}" for band in of.bands]
    ways = [f"{way} below {format_bytes(after.from_bytes)}" for way, after in zip(named, of.bands[1:], strict=False)]
    ways.append(f"{named[-1]} {'above' if ways else 'at all sizes'}")
    calls = "gathers and reduce-scatters" if of.collective == "all_gather" else "all-reduces"
    return f"among {of.num_ranks} {of.axis} ranks NCCL would take {', '.join(ways)} for {calls}"


# ------------------------------------------------------------------ batches
def _batches(ways: Sequence[BatchWay], lengths: LengthDistribution | None, link_to: LinkTo | None) -> Section:
    table = Table(
        columns=(
            Column("balancing", is_number=False),
            Column("slowest rank"),
            Column("padding"),
            Column("step"),
            Column("", is_number=False),
        ),
        rows=[_cells_of_way(one, link_to) for one in ways],
        name="Batches by balancing method, table",
        is_compact=True,
    )
    stacks = Stacks(
        says="Tokens that the slowest rank computes for a sequence. " + "; ".join(map(way_in_words, ways)),
        unit="count",
        rows=[
            Stack(
                name=one.name,
                blocks=(
                    Part(name="real tokens", look="forward", value=one.real_tokens),
                    Part(name="padding", look="other", value=one.computed_tokens - one.real_tokens),
                    Part(name="beyond the mean", look="idle", value=one.slowest_tokens - one.computed_tokens),
                ),
                is_strong=one.is_own,
            )
            for one in ways
        ],
        wide=_BESIDE_PANEL,
    )
    glyphs = (
        ("forward", "real tokens"),
        ("other", "padding"),
        ("idle", "what the slowest rank computes beyond the mean"),
    )
    note = (
        "Sequences differ in length, and all ranks wait for the slowest one. A bar is the number of tokens for a "
        "sequence on that rank."
    )
    pictures = [_lengths(lengths), stacks] if lengths else [stacks]
    return Section(title="Batches", blocks=[*pictures, table], note=note, glyphs=glyphs)


def way_in_words(way: BatchWay) -> str:
    """Describe the costs of a method that divides sequences into batches: uneven ranks and padding.

    Example: ``snake, packed: the slowest rank computes 3 % more than the mean, …``.
    """
    more = f"the slowest rank computes {percent(way.imbalance)} more than the mean"
    return f"{way.name}: {more}, padding adds {percent(way.padding_waste)} to real tokens"


def _cells_of_way(way: BatchWay, link_to: LinkTo | None) -> tuple[Cells, ...]:
    last: Cell = "this layout" if way.is_own else ""
    named: Cell = way.name if way.is_own or link_to is None else link_to(way.layout, way.name)
    more = (predicted(way.imbalance, "signed_share"), predicted(way.padding_waste, "signed_share"))
    return (named, *more, predicted(way.step_time_s, "s"), last)


def _lengths(lengths: LengthDistribution) -> Plot:
    """Return a chart of the share of sequences by their length, in ranges of equal width."""
    count = min(_MOST_BARS, lengths.longest)
    shares, total = [0.0] * count, sum(lengths.weights)
    for length, weight in zip(lengths.lengths, lengths.weights, strict=True):
        shares[(length - 1) * count // lengths.longest] += weight / total
    width = lengths.longest / count
    heights = [(place * width, share) for place, share in enumerate(shares)]
    steps = stairs([(0.0, 0.0), *heights, (float(lengths.longest), 0.0)])
    return Plot(
        says=f"Sequences by length, up to {lengths.longest:,} tokens, {lengths.mean:,.0f} on average",
        x=Axis(title="tokens of a sequence", low=0.0, high=float(lengths.longest)),
        y=Axis(title="of sequences", unit="share", low=0.0, high=1.1 * max(shares)),
        marks=(
            Line(points=steps, look="front"),
            Rule(at=lengths.mean, along="x", look="event"),
            Note(words=f"mean {lengths.mean:,.0f}", x=lengths.mean, y=1.1 * max(shares), look="soft"),
        ),
        height=190,
        wide=_BESIDE_PANEL,
    )


# ------------------------------------------------------------------ bandwidth
def bandwidth_section(curve: BandwidthCurve, wide: int = _BESIDE_PANEL) -> Section:
    """Return a section that shows which gradient exchange is fastest at each bandwidth between nodes.

    Args:
        curve: Predicted step times with each kind of gradient exchange; it has at least one kind.
        wide: Width of the picture in pixels.
    """
    ways = [way for way in curve.ways if way.fits]
    places = list(enumerate(curve.bandwidths_bytes_per_s))[::4]
    said = [*curve_in_words(curve)]
    table = Table(
        columns=(Column("between nodes"), *(Column(way.name) for way in ways)),
        rows=[(_bits(rate), *(predicted(way.step_s[place], "s") for way in ways)) for place, rate in places],
        name="Steps by bandwidth, table",
        is_compact=True,
    )
    blocks = (
        _curve(curve, ways, said[0], wide),
        Folded(summary="The same as numbers", blocks=(table,)),
        Lines(items=tuple(map(sentence, said))),
    )
    glyphs = (("way", "full exchange"), ("lossy", "lossy exchange"), ("own", "this layout"))
    return Section(title="By the bandwidth between nodes", blocks=blocks, id="bandwidth", glyphs=glyphs)


def _curve(curve: BandwidthCurve, ways: Sequence[BandwidthWay], said: str, wide: int) -> Plot:
    rates = curve.bandwidths_bytes_per_s
    steps_s = [seconds for way in ways for seconds in way.step_s]
    low, high = min(steps_s) / 1.8, 1.2 * max(steps_s)  # names of spans stand below the lines
    tens = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    powers = [(10.0**power, format_seconds(10.0**power)) for power in tens]
    spans = [
        Stretch(
            low=span.low_bytes_per_s,
            high=span.high_bytes_per_s,
            label=f"{span.way} shortest",
            look="span odd" if place % 2 else "span",
        )
        for place, span in enumerate(curve.spans)
    ]
    lines = [
        Line(points=list(zip(rates, way.step_s, strict=True)), look=_look(way, curve), label=way.name) for way in ways
    ]
    here = Note(words=f"here {_bits(curve.own_bytes_per_s)}", x=curve.own_bytes_per_s, y=high, is_above=True)
    return Plot(
        says=f"Predicted step time by bandwidth between nodes: {said}",
        x=Axis(
            title="bandwidth between nodes, of one accelerator, bit/s",
            low=rates[0],
            high=rates[-1],
            log=True,
            labels=[(rate, _bits(rate, short=True)) for rate in rates[::4]],
        ),
        y=Axis(title="step, predicted", low=low, high=high, log=True, labels=powers),
        marks=(
            *spans,
            Rule(at=curve.own_bytes_per_s, along="x", look="event"),
            here,
            *lines,
        ),
        height=350,
        wide=wide,
    )


def curve_in_words(curve: BandwidthCurve) -> Iterator[str]:
    """Describe which gradient exchange is fastest at which bandwidth between nodes.

    The text also says below which bandwidth a lossy exchange is faster than every full exchange.

    Args:
        curve: Predicted step times with each kind of gradient exchange; it has at least one kind.
    """
    below = [f"{span.way} below {_rate(span.high_bytes_per_s)}" for span in curve.spans[:-1]]
    fastest = ", ".join((*below, f"{curve.spans[-1].way} {'above' if below else 'at all bandwidths'}"))
    own = _rate(curve.own_bytes_per_s)
    yield (
        f"layout with the shortest predicted step, by the bandwidth of a rank between nodes ({own} on this "
        f"cluster): {fastest}"
    )
    lossy = [way for way in curve.ways if way.is_lossy and way.fits]
    wins = [
        f"{way.name} up to {_rate(bound)} and beyond"
        if bound == curve.spans[-1].high_bytes_per_s
        else f"{way.name} below {_rate(bound)}"
        for way in lossy
        if (bound := way.faster_below_bytes_per_s)
    ]
    if wins:
        yield (
            f"shorter than with every full exchange: {', '.join(wins)}; each is not numerically equivalent, so it gets "
            "a rank only after it passed a convergence gate"
        )
    if never := [way.name for way in lossy if way.faster_below_bytes_per_s is None]:
        yield f"never shorter than with a full exchange: {', '.join(never)}"
    if large := [way.name for way in curve.ways if not way.fits]:
        yield f"does not fit: {', '.join(large)}"


def _rate(bytes_per_s: float) -> str:
    return format_rate(8 * bytes_per_s, "bit/s")


def _bits(bytes_per_s: float, *, short: bool = False) -> str:
    """Return a bandwidth in bits per second: ``400 Gbit/s``, or ``400G`` beside an axis that names the unit."""
    words = _rate(bytes_per_s).replace(",", "")
    return words.removesuffix("bit/s").replace(" ", "") if short else words


def _look(way: BandwidthWay, curve: BandwidthCurve) -> Look:
    return "own" if way.name == curve.own else "lossy" if way.is_lossy else "way"


# ------------------------------------------------------------------ improvements
def _changes(explanation: Explanation, link_to: LinkTo | None) -> Section:
    found = (*explanation.helpful, *explanation.too_large)
    itself = [] if link_to else [Column("layout", is_number=False, may_wrap=True)]
    table = Table(
        columns=(
            Column("change", is_number=False),
            *itself,
            Column("step"),
            Column("MFU"),
            Column("memory", is_number=False),
            Column("what moves", is_number=False, may_wrap=True, is_minor=True),
        ),
        rows=[_cells_of_change(one, explanation, link_to) for one in found],
        if_empty="No single change is predicted to save 1 % of the step time.",
        name="Changes that would help, table",
        is_compact=True,
    )
    title = "Would help" if explanation.prediction.fits else "Would make it fit"
    note = "Effect of each single change. The differences are more certain than the predictions themselves."
    return Section(title=title, blocks=(table,), note=note, id="help")


def _cells_of_change(one: Alternative, explanation: Explanation, link_to: LinkTo | None) -> tuple[Cells, ...]:
    change, after = changes_in_words(one.changes), one.prediction
    return (
        link_to(one.layout, change) if link_to else change,
        *([] if link_to else [one.layout]),
        predicted(-one.saved_share, "signed_share"),
        predicted(after.mfu, "share"),
        _fit(one),
        Quiet(moved_in_words(explanation.prediction.step_time, after.step_time)),
    )


def alternative_in_words(change: Alternative, own: Prediction) -> str:
    """Describe how a change of the layout alters step time and memory.

    Args:
        change: The change, with the prediction of the changed layout.
        own: Prediction of the unchanged layout.
    """
    said, then, before = changes_in_words(change.changes), change.prediction, own.step_time
    after = quantity(predicted(then.step_time.total_s, "s", then.relative_error))
    effect = f"{moved_in_words(before, then.step_time)}: step {format_seconds(before.total_s)} → {after}"
    if change.excess_bytes:
        return f"{said} would not fit by {format_bytes(change.excess_bytes)}; otherwise {effect}"
    return f"{said} {effect}; {fit_in_words(then.fits, then.fit_probability)}"


def _fit(one: Alternative) -> Chip:
    chance = one.prediction.fit_probability
    if one.excess_bytes:
        return Chip(f"{format_bytes(one.excess_bytes)} too large", "oom")
    sure = f"fits, {likely(chance)}" if chance is not None else "fits"
    return Chip(sure, "tight" if chance is not None and chance < _SURE else "")


def _refused(explanation: Explanation) -> Section:
    said = Lines(items=tuple(map(refusal_in_words, explanation.illegal)))
    return Section(title="Cannot run", blocks=(said,), id="refused")


def refusal_in_words(refusal: Refusal) -> str:
    """Describe a change that is not legal, and the rule that it breaks."""
    return f"{changes_in_words(refusal.changes)}: {refusal.reason.message}"

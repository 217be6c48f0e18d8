"""The preview of a sweep before it is created: the best predicted layouts, and why others are left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotuner.core.layout import OPTIONS
from autotuner.core.sweep import SweepRequest
from autotuner.core.units import format_bytes
from autotuner.report.caveats import caveats_in_words
from autotuner.report.link_faults import slow_links
from autotuner.report.prediction import remedies_in_words
from autotuner.report.report import (
    Block,
    Cells,
    Column,
    Figure,
    Folded,
    Lines,
    Notice,
    Report,
    Section,
    Strong,
    Table,
    predicted,
)
from autotuner.report.words import changes_in_words, fit_in_words, mfu_quantity, quantity
from autotuner.search.predicted_ranking import PredictedLayout
from autotuner.search.preview import SweepPreview
from autotuner.search.suggestions import Shortfall

_NUM_SHOWN = 6
"""Number of rules that are named one by one; the others rarely matter, so they are counted together."""

_STRIP = 400
"""Width in pixels of a fault trace beside the form."""


def sweep_preview_report(request: SweepRequest, found: SweepPreview, *, looks_on: bool = False) -> Report:
    """Return the report on the search of a sweep that has not started; all its numbers are predicted.

    Args:
        request: The request of the sweep.
        found: Number of layouts, predictions, and the rules that exclude layouts.
        looks_on: True if no layout fits, and the service still computes which changes would help.
    """
    table, limit_bytes = found.predicted, request.trial_job.cluster.accelerator.memory_bytes
    limit = format_bytes(limit_bytes)
    links = slow_links(request, _STRIP)
    sections = [
        *([_best(table.items[0], table.unchanged, limit)] if table.items else []),
        *([_missing(table.shortfall, limit, looks_on=looks_on)] if table.shortfall else []),
        *([links] if links else []),
        Section(title="How many layouts the sweep would search", is_silent=True, blocks=(_funnel(found, limit),)),
        Section(
            title="Why other layouts are excluded",
            note="Each rule has its first example."
            if found.sieved
            else "There are too many combinations to count them rule by rule; choose fewer values to see it.",
            blocks=(_outfall(found, limit),),
        ),
    ]
    if table.not_searched:
        said = [
            f"{changes_in_words(one.changes)}: {100 * one.saved_share:.1f} % less time, predicted"
            for one in table.not_searched
        ]
        sections.append(Section(title="Outside the space", blocks=(Lines(items=said),)))
    if table.caveats:
        caveats = Folded(summary="Notes on the prediction", blocks=(Lines(items=caveats_in_words(table.caveats)),))
        sections.append(Section(blocks=(caveats,)))
    return Report(headline=_headline(found), sections=sections)


def _headline(found: SweepPreview) -> str:
    table = found.predicted
    if not table.items:
        return f"none of {table.num_legal:,} fits"
    return f"{table.num_fitting:,} fit, best {_mfu(table.items[0])} MFU"


def _mfu(one: PredictedLayout) -> str:
    return quantity(mfu_quantity(one.prediction))


def _best(best: PredictedLayout, unchanged: PredictedLayout | None, limit: str) -> Section:
    found = best.prediction
    fits = fit_in_words(found.fits, found.fit_probability)
    rows: list[tuple[Cells, ...]] = [
        ("step", predicted(found.step_time_s, "s", found.relative_error)),
        ("throughput", predicted(found.tokens_per_s, "tokens/s")),
        ("peak memory", replace(predicted(found.peak_bytes, "bytes"), beside=f"of {limit}, {fits}")),
    ]
    figures = (Figure("MFU", mfu_quantity(found), is_first=True),)
    columns = (Column("", is_number=False), Column(""))
    blocks: list[Block] = [
        figures,
        Lines(items=(best.layout,), is_list=False),
        Table(columns=columns, rows=rows, is_compact=True, name="The best by prediction"),
    ]
    if unchanged is not None:
        blocks.append(Lines(items=(f"Best numerically equivalent layout: {_mfu(unchanged)} MFU",), is_quiet=True))
    return Section(title="Predicted best, nothing was measured", id="predicted-best", blocks=blocks)


def _missing(shortfall: Shortfall, limit: str, *, looks_on: bool) -> Section:
    needs = format_bytes(shortfall.nearest.prediction.peak_bytes)
    words = f"No layout is predicted to fit: the smallest needs {needs}, a rank has {limit}."
    more = tuple(_remedies(shortfall)) or ("Neither more recomputation nor more nodes are predicted to help.",)
    return Section(
        blocks=(
            Notice(
                words=Strong(words), look="bad", more=("Looking for changes that would help.",) if looks_on else more
            ),
        )
    )


def _remedies(shortfall: Shortfall) -> Iterator[str]:
    for one in shortfall.remedies:
        lacks = f"still lacks {format_bytes(one.missing_bytes)}" if one.missing_bytes else "fits"
        yield f"{remedies_in_words(one.kinds)}: {lacks}"
    if larger := shortfall.larger:
        yield f"{larger.num_accelerators} accelerators on {larger.num_nodes} nodes: fits"


def _funnel(found: SweepPreview, limit: str) -> Table:
    table, rows = found.predicted, list[tuple[Cells, ...]]()
    if found.sieved:
        rows.append(("combinations of these values", f"{found.sieved.num_candidates:,}"))
    rows.append(("legal, a trial can run them", f"{table.num_legal:,}"))
    rows.append((f"predicted to fit in {limit}", f"{table.num_fitting:,}"))
    if found.proxy_trials:
        rows.append(("that a trial on the smaller cluster can represent", f"{found.proxy_trials.num_layouts:,}"))
    columns = (Column("", is_number=False, may_wrap=True), Column(""))
    return Table(columns=columns, rows=rows, is_compact=True)


def _outfall(found: SweepPreview, limit: str) -> Table:
    rows = [(why, f"{count:,}") for why, count in _outfalls(found, limit)]
    columns = (Column("why", is_number=False, may_wrap=True), Column("layouts"))
    return Table(columns=columns, rows=rows, is_compact=True)


def _outfalls(found: SweepPreview, limit: str) -> Iterator[tuple[Cells, int]]:
    """Yield the most frequent reasons why layouts are left out, each with the number of layouts."""
    num_too_large = (found.predicted.num_legal or 0) - (found.predicted.num_fitting or 0)
    if num_too_large:
        yield f"memory: need more than {limit}", num_too_large
    falls = found.sieved.falls if found.sieved else ()
    for fall in falls[:_NUM_SHOWN]:
        subject = OPTIONS[fall.field].label if fall.field in OPTIONS else fall.field
        yield f"{subject}: {fall.message}", fall.num_layouts
    if rest := falls[_NUM_SHOWN:]:
        yield f"{len(rest)} other {'rule' if len(rest) == 1 else 'rules'}", sum(fall.num_layouts for fall in rest)
    for one in found.proxy_trials.refused[:3] if found.proxy_trials else ():
        yield f"smaller cluster: {one.why}", one.num_layouts

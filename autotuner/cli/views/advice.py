"""What stands under a table of predictions, or in its place where nothing fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotuner.core.layout import OPTIONS
from autotuner.core.units import format_bytes
from autotuner.search.text.sentences import expected_rate, fit_in_words, likely

_MOST_NAMED = 5
"""Options that one line names; ``explain`` has them all."""


def shortfall_in_words(shortfall: Mapping[str, Any]) -> Iterator[str]:
    """How much is missing, which change would help, and which cluster would do; a line each."""
    nearest = shortfall["nearest"]
    yield f"nothing fits: the nearest layout lacks {format_bytes(shortfall['missing_bytes'])} ({nearest['label']})"
    for remedy in shortfall["remedies"]:
        yield _remedy(remedy)
    larger = shortfall["larger"]
    if larger is None:
        yield "no larger cluster of these accelerators was found on which a layout fits"
    else:
        nodes = f"{larger['num_nodes']} node{'s' if larger['num_nodes'] > 1 else ''}"
        yield f"the smallest cluster that does: {larger['num_accelerators']} of them on {nodes}, {_met(larger['best'])}"


def _remedy(remedy: Mapping[str, Any]) -> str:
    if not remedy["missing_bytes"]:
        return f"with {remedy['change']} it fits: {_met(remedy['candidate'])}"
    return f"even with {remedy['change']}, {format_bytes(remedy['missing_bytes'])} are missing"


def _met(candidate: Mapping[str, Any]) -> str:
    """A layout with what it is predicted to reach: ``fsdp8 mb1 offload (104 ktoken/s ± 11 %, fits 97 %)``."""
    predicted = candidate["predicted"]
    rate = expected_rate(predicted["tokens_per_s"], predicted["relative_error"])
    return f"{candidate['label']} ({rate}, fits {likely(predicted['fit_probability'])})"


def beyond_the_table(answer: Mapping[str, Any]) -> Iterator[str]:
    """Lines about what no row shows: which options change the mathematics, and options that were not searched."""
    marks = []
    if changing := [item["layout"] for item in answer["items"] if item["changes_mathematics"]]:
        how = [said for name, said in MATHEMATICS.items() if any(_changes(name, layout) for layout in changing)]
        marks.append(
            f"A layout marked * {' or '.join(how)}, so its losses may differ. Compare losses before you use it."
        )
    if answer["unchanged"] is not None:
        marks.append("The row marked – is the best layout without that.")
    if marks:
        yield " ".join(marks)
    named = [f"{one['change']} (−{100 * one['saved_share']:.1f} %)" for one in answer["not_searched"][:_MOST_NAMED]]
    if named:
        yield f"Options outside the search that would shorten the first row's step: {'; '.join(named)}."
    elif answer["num_legal"] is not None:
        yield "Options outside the search were predicted too: none shortens the first row's step by 0.5 % or more."


MATHEMATICS: Mapping[str, str] = {
    "precision": "multiplies in fewer bits",
    "gradient_sync": "exchanges less than the whole gradients",
    "gradient_clip": "clips gradients before they are whole",
}
"""What each option does that may change the mathematics."""


def _changes(name: str, layout: Mapping[str, Any]) -> bool:
    option = OPTIONS[name]
    return name in layout and option.from_plain(layout[name]) in option.not_equivalent


def beside_today(answer: Mapping[str, Any]) -> Iterator[str]:
    """What the best would give in the place of what runs today, or why that cannot run here."""
    current = answer["current"]
    if current is None:
        return
    if current["candidate"] is None:
        yield f"What runs today cannot run here: {current['label']}"
        yield from (f"  {_reason(reason)}" for reason in current["reasons"])
        return
    if not answer["items"]:
        yield f"what runs today: {_fit_of(current['candidate'])}"
        return
    for gain, name in ((current["best"], "1"), (current["unchanged"], "–")):
        if gain is not None:
            yield f"now → {name}: {_gain(gain)}"


def _fit_of(candidate: Mapping[str, Any]) -> str:
    predicted = candidate["predicted"]
    fit = fit_in_words(predicted["fits"], predicted["fit_probability"])
    return f"{candidate['label']} is predicted to need {format_bytes(predicted['peak_bytes'])}: {fit}"


def _gain(gain: Mapping[str, Any]) -> str:
    if not gain["change"]:
        return "the same layout"
    share = 100 * gain["gain"]
    rate = f"{abs(share):.1f} % {'more' if share >= 0 else 'fewer'} tokens per second"
    return f"{rate} (predicted); it changes {gain['change']}"


def _reason(reason: Mapping[str, Any]) -> str:
    nearest = "" if reason["nearest"] is None else f"; nearest legal value: {reason['nearest']}"
    return f"{reason['field']}: {reason['message']}{nearest}"

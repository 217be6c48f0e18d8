"""The head of a trial's page: its place in the ranking, its figures, its flags, and what lies one step away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self
from urllib.parse import urlencode

from markupsafe import Markup

from api.dashboard import words
from api.dashboard.charts.cells import MemoryAxis, is_tight
from api.dashboard.charts.drawing import Scale, cell, rect
from api.dashboard.charts.timeline import WHOLE, Window
from api.dashboard.views.address import Permalink
from api.dashboard.views.timelines import Shown
from api.schemas.explanations import LayoutChange, LayoutExplanation
from api.schemas.trials import TrialView
from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import RankedTime
from autotuner.core.units import format_bytes, format_seconds
from autotuner.export.registry import TARGETS, export, refusals
from autotuner.export.target import Export
from autotuner.search.results.reached import standings
from autotuner.search.text.sentences import fit_in_words, percent

# The head of a trial's page: its place in the ranking, its figures, and what lies one step away.

Kind = Literal["measured", "simulated", "estimated", "predicted"]


# ---------------------------------------------------------------- its place
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A trial among the ranked ones of its sweep."""

    rank: int
    num_ranked: int
    best_id: str
    """The first of them."""
    said: str
    """What the ranking cannot tell apart; empty where it is sure."""


def place_of(trial_id: str, times: Sequence[RankedTime]) -> Place | None:
    """The place of a trial; None without one."""
    ids = [time.trial_id for time in times]
    if trial_id not in ids:
        return None
    rank, standing = ids.index(trial_id) + 1, standings(times)[trial_id]
    said = f"{percent(standing.probability_best)} likely the fastest" if standing.probability_best < 0.995 else ""
    if rank > 1:
        said = f"tied with the first, {said}" if standing.tied_with_best else ""
    return Place(rank=rank, num_ranked=len(ids), best_id=ids[0], said=said)


# ---------------------------------------------------------------- its figures
@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that the page begins with."""

    name: str
    value: str
    spread: str = ""
    kind: Kind = "predicted"
    first: bool = False


def figures(
    trial: TrialView, source: Literal["measured", "simulated"], limit_bytes: float | None
) -> tuple[Figure, ...]:
    """What it reached beside what was predicted; the prediction alone where nothing was reached."""
    predicted = Figure(name="MFU", value=words.predicted_mfu(trial.predicted))
    of_limit = f"of {format_bytes(limit_bytes)}" if limit_bytes else ""
    if trial.measured is not None:
        return tuple(_measured(trial, source, predicted, of_limit))
    if trial.estimated is not None:
        return tuple(_estimated(trial, predicted, of_limit))
    return tuple(_predicted(trial, of_limit))


def _measured(trial: TrialView, kind: Kind, predicted: Figure, of_limit: str) -> Iterator[Figure]:
    measured = trial.measured
    assert measured is not None, "it was measured"
    off = measured.step_time_error_s / measured.step_time_s
    yield Figure(
        name="MFU", value=words.percent(measured.mfu), spread=f"± {100 * off * measured.mfu:.1f}", kind=kind, first=True
    )
    if measured.robust is not None:
        error = 100 * measured.robust.mfu * measured.robust.step_time_error_s / measured.robust.step_time_s
        yield Figure(name="robust MFU", value=words.percent(measured.robust.mfu), spread=f"± {error:.1f}", kind=kind)
    yield Figure(name="MFU, predicted", value=predicted.value)
    if words.has_own_peak(trial):
        name = f"of its {words.plain(trial.layout.precision)} peak"
        yield Figure(name=name, value=words.percent(trial.measured_precision_utilization), kind=kind)
    yield Figure(name="step", value=format_seconds(measured.step_time_s), spread=words.certainty(measured), kind=kind)
    yield Figure(name="step, predicted", value=words.predicted_seconds(trial.predicted))
    yield Figure(name="throughput", value=words.token_rate(measured.tokens_per_s), kind=kind)
    if measured.peak_bytes:
        yield Figure(name="peak memory", value=format_bytes(max(measured.peak_bytes)), spread=of_limit, kind=kind)


def _estimated(trial: TrialView, predicted: Figure, of_limit: str) -> Iterator[Figure]:
    estimated = trial.estimated
    assert estimated is not None, "it was estimated"
    yield Figure(name="MFU", value=words.estimated_mfu(estimated), kind="estimated", first=True)
    yield Figure(name="MFU, predicted", value=predicted.value)
    yield Figure(name="step", value=words.predicted_seconds(estimated), kind="estimated")
    yield Figure(name="step, predicted", value=words.predicted_seconds(trial.predicted))
    yield Figure(name="throughput", value=words.token_rate(estimated.tokens_per_s), kind="estimated")
    spread = f"{of_limit}, {words.estimated_fit(estimated)}".strip(", ")
    yield Figure(name="peak memory", value=format_bytes(estimated.peak_bytes), spread=spread, kind="estimated")


def _predicted(trial: TrialView, of_limit: str) -> Iterator[Figure]:
    predicted = trial.predicted
    yield Figure(name="MFU", value=words.predicted_mfu(predicted), first=True)
    if words.has_own_peak(trial):
        name = f"of its {words.plain(trial.layout.precision)} peak"
        yield Figure(name=name, value=words.percent(predicted.precision_utilization))
    yield Figure(name="step", value=words.predicted_seconds(predicted))
    yield Figure(name="throughput", value=words.token_rate(predicted.tokens_per_s))
    spread = f"{of_limit}, {words.fit(predicted)}".strip(", ")
    yield Figure(name="peak memory", value=format_bytes(predicted.peak_bytes), spread=spread)


# ---------------------------------------------------------------- one step away
@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """A layout one step away."""

    change: str
    saved: str
    """Change of the step time: ``−5.8 %``."""
    picture: Markup
    memory: str
    """Whether it fits, or by how much not."""
    look: str
    """Class of a chip."""
    sentence: str
    address: str
    """Where it can be explored."""


_BAR, _BAR_HEIGHT = 110.0, 28.0


def change_rows(explanation: LayoutExplanation, at: Permalink) -> tuple[ChangeRow, ...]:
    """Changes that help, then those that would and do not fit.

    Args:
        explanation: Of the layout.
        at: The layout's job as an address.
    """
    found = (*explanation.helpful, *explanation.too_large)
    most = max((abs(change.saved_share) for change in found), default=0.0)
    scale = Scale(0.0, most, 0.0, _BAR)
    return tuple(_change(change, scale, explanation.limit_bytes, at) for change in found)


def _change(change: LayoutChange, scale: Scale, limit_bytes: float, at: Permalink) -> ChangeRow:
    fits = change.excess_bytes == 0
    gains, moved = change.saved_share >= 0, f"{100 * abs(change.saved_share):.1f} %"
    sign = "" if moved == "0.0 %" else "−" if gains else "+"
    look = ("gain" if gains else "loss") if fits else "p-band"
    axis = MemoryAxis(limit_bytes=limit_bytes, most_bytes=limit_bytes)
    tight = "tight" if is_tight(axis, change.predicted.peak_bytes) else ""
    memory = fit_in_words(change.predicted.fits, change.predicted.fit_probability)
    return ChangeRow(
        change=change.change,
        saved=f"{sign}{moved}",
        picture=cell(_BAR, _BAR_HEIGHT, [rect(0, 10, scale(abs(change.saved_share)), 8, look, radius=1)]),
        memory=memory if fits else f"{format_bytes(change.excess_bytes)} too large",
        look=tight if fits else "oom",
        sentence=change.sentence,
        address=at.with_layout(change.layout).to("/explore"),
    )


# What of a trial's page is looked at: the trainer whose words are shown, windows of the timelines, a rank.


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """What an address of the page asks for beside the trial."""

    format: ExportFormat | None = None
    show: Shown = "both"
    window: Window
    links_window: Window = WHOLE
    rank: int = 0

    def timeline_at(self, show: Shown, window: Window) -> str:
        """The address of another part of the timeline."""
        return f"{self._query(show=show, zoom=window)}#timeline"

    def links_at(self, window: Window) -> str:
        """The address of another part of the steps with and without a slow link."""
        return f"{self._query(near=window)}#links"

    def rank_at(self, rank: int) -> str:
        """The address of another rank's groups."""
        return f"{self._query(rank=rank)}#ranks"

    def format_at(self, other: ExportFormat) -> str:
        """The address of another trainer's words."""
        return f"{self._query(format=other)}#use"

    def _query(
        self,
        *,
        format: ExportFormat | None = None,  # noqa: A002  # as the address calls it
        show: Shown | None = None,
        zoom: Window | None = None,
        near: Window | None = None,
        rank: int | None = None,
    ) -> str:
        window, links_window = zoom or self.window, near or self.links_window
        said = {
            "format": str(format or self.format or ""),
            "show": "" if (show or self.show) == "both" else str(show or self.show),
            "zoom": "" if window.is_whole else str(window),
            "near": "" if links_window.is_whole else str(links_window),
            "rank": str(self.rank if rank is None else rank),
        }
        return f"?{urlencode({name: value for name, value in said.items() if value not in ('', '0')})}"


# The launch flags of a layout in one trainer's words, and where the others' stand.

_FIRST = ExportFormat.TORCHTITAN
"""What is shown to who asked for no trainer's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsView:
    """Launch flags."""

    formats: tuple[tuple[ExportFormat, str], ...]
    """All that there are, each with its address."""
    export: Export

    @classmethod
    def of(cls, request: SweepRequest, layout: Layout, looked_at: LookedAt) -> Self | None:
        """In the words asked for, else in those of the sweep's own trainer.

        None where a rule that is younger than the layout forbids it.
        """
        own = request.trainer.format if request.trainer else _FIRST
        wanted = looked_at.format or own
        try:
            if refused := refusals(request.job, layout, wanted):
                usage = "No script is written: our trial would refuse this layout"
                version = TARGETS[wanted].version
                made = Export(format=wanted, layout=layout, version=version, unsaid=refused, usage=usage)
            else:
                made = export(request.job, layout, wanted)
        except InvalidInput:
            return None
        formats = tuple((one, looked_at.format_at(one)) for one in ExportFormat if one in TARGETS)
        return cls(formats=formats, export=made)

"""A step with healthy links beside the same with slow ones, as pages show it: picture, cost in words, and seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.link_timelines import link_timeline_picture
from api.dashboard.charts.timeline import WIDE
from api.dashboard.charts.window import Window
from api.dashboard.views.timeline_looks import PARTS, TimelineLink, colours, moves
from autotuner.core.timeline import StepTimeline
from autotuner.core.units import format_seconds
from autotuner.search.explain.link_timelines import LinkTimelines
from autotuner.search.text.faults import link_in_words

_LEAST = 5e-4
"""Share of a step below which a difference is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondsRow:
    """One step, or what is added to it, by part in the order of ``LinkTimelinesView.heads``."""

    name: str
    look: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTimelinesView:
    """What the template shows.

    Attributes:
        part: What the page calls the section, and its address asks for.
        key: Class and words of every colour in the picture.
        cost: What the links cost, as sentences.
        links: What is not healthy, one by one.
        heads: The step and its parts, means of the lanes.
    """

    part: str
    picture: Markup
    key: tuple[tuple[str, str], ...]
    cost: str
    links: tuple[str, ...]
    caption: str
    moves: tuple[TimelineLink, ...]
    heads: tuple[str, ...]
    rows: tuple[SecondsRow, ...]


def link_timelines_view(
    found: LinkTimelines, address: Callable[[Window], str], *, window: Window, width: int = WIDE, part: str = "links"
) -> LinkTimelinesView | None:
    """The view; None where no link is known to be slow."""
    if found.slow is None:
        return None
    healthy, slow = found.healthy.timeline, found.slow.timeline
    steps = [healthy, slow, *([found.measured] if found.measured else [])]
    parts = [(field, name) for field, name in PARTS if any(_mean(step, field) for step in steps)]
    fields = [field for field, _ in parts]
    rows = [
        SecondsRow(name="healthy links, predicted", look="predicted", cells=_cells(healthy, fields)),
        SecondsRow(name="slow links, predicted", look="predicted", cells=_cells(slow, fields)),
        SecondsRow(name="what they add", look="whole-step", cells=_added(healthy, slow, fields)),
    ]
    if found.measured is not None:
        under = "slow" if found.is_measured_slow else "healthy"
        cells = _cells(found.measured, fields)
        rows.append(SecondsRow(name=f"{under} links, measured", look="measured", cells=cells))
    return LinkTimelinesView(
        part=part,
        picture=link_timeline_picture(found, window, width=width),
        key=(*colours(lane for step in steps for lane in step.ranks).items(), ("idle", "idle")),
        cost=found.cost,
        links=tuple(map(link_in_words, found.links)),
        caption=_caption(found),
        moves=moves(window, address),
        heads=("step", *(name for _, name in parts)),
        rows=tuple(rows),
    )


def _mean(step: StepTimeline, field: str) -> float:
    return float(sum(getattr(lane.seconds, field) for lane in step.ranks)) / len(step.ranks)


def _cells(step: StepTimeline, fields: Sequence[str]) -> tuple[str, ...]:
    parts = (format_seconds(value) if (value := _mean(step, field)) else "–" for field in fields)
    return (format_seconds(step.step_s), *parts)


def _added(healthy: StepTimeline, slow: StepTimeline, fields: Sequence[str]) -> tuple[str, ...]:
    changes = (_mean(slow, field) - _mean(healthy, field) for field in fields)
    return tuple(_signed(change, healthy.step_s) for change in (slow.step_s - healthy.step_s, *changes))


def _signed(seconds: float, step_s: float) -> str:
    if abs(seconds) < _LEAST * step_s:
        return "0"
    return f"{'+' if seconds > 0 else '−'}{format_seconds(abs(seconds))}"


def _caption(found: LinkTimelines) -> str:
    said = ["All steps stand on one axis; the dashed line is where the step ends with healthy links."]
    if found.messages:
        said.append("Slanted lines are what passes the slow link, from send to receive.")
    if found.stretch is not None:
        last = found.stretch.first_step + found.stretch.num_steps - 1
        said.append(f"Of the fault trace it is the worst stretch, steps {found.stretch.first_step} to {last}.")
    if found.measured is not None and not found.is_measured_slow:
        said.append("The measured step was recorded before the trace began.")
    return " ".join(said)

"""The timeline of a step as pages show it: picture, meaning of its colours, numbers, and where to look closer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from api.dashboard.charts.timeline import WIDE, timeline_picture
from api.dashboard.charts.window import Window
from api.dashboard.views.timeline_looks import PARTS, TimelineLink, colours, moves
from autotuner.core.timeline import RankTimeline, StepTimeline
from autotuner.core.units import format_seconds
from autotuner.search.explain.timeline import PredictedTimeline
from autotuner.search.text.sentences import percent

Shown = Literal["both", "measured", "predicted"]
SHOWN: tuple[Shown, ...] = ("both", "measured", "predicted")

Address = Callable[[Shown, Window], str]
"""Address of the page with another choice of what is shown, and of the part that is looked at."""

_APART = 0.001
"""Share of the step below which the simulator and the closed form say the same."""

_LEAST_IDLE = 1e-4
"""Share of the step below which nobody waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    """Seconds of one lane by part, in the order of ``TimelineView.heads``."""

    name: str
    is_measured: bool
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """What the template shows.

    Attributes:
        key: Class and words of every colour in the picture.
        caption: What the blocks are, as sentences.
        choices: Measured, predicted, or both; empty where there is one alone.
        moves: Where to look closer; those that lead nowhere are left out.
        heads: Parts in the columns of the table.
    """

    picture: Markup
    key: tuple[tuple[str, str], ...]
    caption: str
    choices: tuple[TimelineLink, ...]
    moves: tuple[TimelineLink, ...]
    heads: tuple[str, ...]
    rows: tuple[TimelineRow, ...]


def timeline_view(
    predicted: PredictedTimeline | None,
    measured: StepTimeline | None,
    address: Address,
    *,
    shown: Shown = "both",
    window: Window,
    width: int = WIDE,
) -> TimelineView | None:
    """The view of a step, measured or predicted, drawn so wide; None where there is neither."""
    expected = None if predicted is None else predicted.timeline
    if shown == "measured" and measured is not None:
        expected = None
    main = expected if measured is None or (shown == "predicted" and expected is not None) else measured
    if main is None:
        return None
    thin = expected if main is measured else None
    lanes = [(rank, main is measured) for rank in main.ranks] + [(rank, False) for rank in (thin.ranks if thin else ())]
    parts = [(field, name) for field, name in PARTS if any(getattr(lane.seconds, field) for lane, _ in lanes)]
    return TimelineView(
        picture=timeline_picture(main, thin, window, is_measured=main is measured, width=width),
        key=_key(main, thin),
        caption=_caption(main, thin, predicted if expected is not None else None, is_measured=main is measured),
        choices=() if measured is None or predicted is None else _choices(shown, window, address),
        moves=moves(window, lambda to: address(shown, to)),
        heads=tuple(name for _, name in parts),
        rows=tuple(_row(lane, is_measured, main, [field for field, _ in parts]) for lane, is_measured in lanes),
    )


def _key(main: StepTimeline, thin: StepTimeline | None) -> tuple[tuple[str, str], ...]:
    lanes = [*main.ranks, *(thin.ranks if thin else ())]
    idles = any(lane.seconds.idle_s > _LEAST_IDLE * main.step_s for lane in lanes)
    return (*colours(lanes).items(), *([("idle", "idle")] if idles else []))


def _caption(
    main: StepTimeline, thin: StepTimeline | None, predicted: PredictedTimeline | None, *, is_measured: bool
) -> str:
    idle_s = sum(lane.seconds.idle_s for lane in main.ranks) / len(main.ranks)
    said = ["Numbers are micro-batches."]
    if is_measured:
        said.append("Thick blocks were measured on a step under the profiler" + (", thin ones" if thin else "."))
        if thin:
            said[-1] += " are predicted by the schedule simulator."
    else:
        alike = "every rank of a stage" if len(main.ranks) > 1 else "every rank"
        said.append(f"Predicted by the schedule simulator; {alike} does the same.")
    lanes = [lane.pipeline_rank for lane in main.ranks]
    if lanes[-1] - lanes[0] >= len(set(lanes)):
        said.append(f"Shown are the first and the last {len(set(lanes)) // 2} pipeline ranks.")
    if idle_s > _LEAST_IDLE * main.step_s:
        said.append(f"Idle: {format_seconds(idle_s)} of {format_seconds(main.step_s)}, mean of the lanes.")
    if predicted is not None and abs(predicted.apart) > _APART:
        longer = "longer" if predicted.apart > 0 else "shorter"
        said.append(f"The simulated step is {percent(abs(predicted.apart))} {longer} than the predicted one.")
    return " ".join(said)


def _choices(shown: Shown, window: Window, address: Address) -> tuple[TimelineLink, ...]:
    return tuple(TimelineLink(name=one.capitalize(), address=address(one, window), is_on=one == shown) for one in SHOWN)


def _row(lane: RankTimeline, is_measured: bool, main: StepTimeline, fields: list[str]) -> TimelineRow:
    several = len({one.pipeline_rank for one in main.ranks}) > 1
    name = f"rank {lane.rank}" + (f", pipeline rank {lane.pipeline_rank}" if several else "")
    cells = tuple(format_seconds(value) if (value := getattr(lane.seconds, field)) else "–" for field in fields)
    return TimelineRow(name=name, is_measured=is_measured, cells=cells)

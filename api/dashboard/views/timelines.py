"""Timelines of a step as pages show them: of a trial, of a layout, and under slow links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from api.dashboard.charts.link_timelines import link_timeline_picture
from api.dashboard.charts.rank_grid import GROUP_CLASSES, rank_grid, shown_nodes
from api.dashboard.charts.timeline import KIND_CLASSES, KIND_WORDS, WIDE, Window, timeline_picture
from autotuner.core.timeline import BlockKind, RankTimeline, StepTimeline
from autotuner.core.units import format_bytes, format_seconds
from autotuner.search.explain.communication import RankGroup, RankGroups
from autotuner.search.explain.links import LinkTimelines
from autotuner.search.explain.timeline import PredictedTimeline
from autotuner.search.text.links import link_in_words
from autotuner.search.text.sentences import percent

# What every picture of timelines has beside it: parts of a lane's seconds, meaning of the colours, ways to look on.

PARTS = (
    *(("forward_s", "forward"), ("backward_s", "backward"), ("weight_s", "weight gradient"), ("send_s", "send")),
    *(("sync_s", "gradient sync"), ("optimizer_s", "optimizer"), ("idle_s", "idle")),
)
"""Fields of a lane's seconds, and what a table calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineLink:
    """A way to look elsewhere; ``is_on`` where it is taken already, and ``key`` presses it."""

    name: str
    address: str
    is_on: bool = False
    key: str = ""


def colours(lanes: Iterable[RankTimeline]) -> dict[str, str]:
    """Class of every colour that blocks of the lanes have, with the words for all that has it."""
    kinds = {block.kind for lane in lanes for block in lane.blocks}
    words: dict[str, list[str]] = {}
    for kind in filter(kinds.__contains__, BlockKind):
        of_look = words.setdefault(KIND_CLASSES[kind], [])
        if KIND_WORDS[kind] not in of_look:
            of_look.append(KIND_WORDS[kind])
    return {look: ", ".join(of_look) for look, of_look in words.items()}


def moves(window: Window, address: Callable[[Window], str]) -> tuple[TimelineLink, ...]:
    """Where to look closer or farther; without those that lead nowhere."""
    ways = (
        ("Closer", window.closer, "+"),
        ("Farther", window.farther, "-"),
        ("Earlier", window.earlier, "ArrowLeft"),
        ("Later", window.later, "ArrowRight"),
        ("Whole step", Window(0.0, 1.0), "0"),
    )
    return tuple(
        TimelineLink(name=name, address=address(to), key=key) for name, to, key in ways if str(to) != str(window)
    )


# The timeline of a step as pages show it: picture, meaning of its colours, numbers, and where to look closer.

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
    """What the template shows."""

    picture: Markup
    key: tuple[tuple[str, str], ...]
    """Class and words of every colour in the picture."""
    caption: str
    """What the blocks are, as sentences."""
    choices: tuple[TimelineLink, ...]
    """Measured, predicted, or both; empty where there is one alone."""
    moves: tuple[TimelineLink, ...]
    """Where to look closer; those that lead nowhere are left out."""
    heads: tuple[str, ...]
    """Parts in the columns of the table."""
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


# A step with healthy links beside the same with slow ones, as pages show it: picture, cost in words, and seconds.

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
    """What the template shows."""

    part: str
    """What the page calls the section, and its address asks for."""
    picture: Markup
    key: tuple[tuple[str, str], ...]
    """Class and words of every colour in the picture."""
    cost: str
    """What the links cost, as sentences."""
    links: tuple[str, ...]
    """What is not healthy, one by one."""
    caption: str
    moves: tuple[TimelineLink, ...]
    heads: tuple[str, ...]
    """The step and its parts, means of the lanes."""
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
        caption=_link_caption(found),
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


def _link_caption(found: LinkTimelines) -> str:
    said = ["All steps stand on one axis; the dashed line is where the step ends with healthy links."]
    if found.messages:
        said.append("Slanted lines are what passes the slow link, from send to receive.")
    if found.stretch is not None:
        last = found.stretch.first_step + found.stretch.num_steps - 1
        said.append(f"Of the fault trace it is the worst stretch, steps {found.stretch.first_step} to {last}.")
    if found.measured is not None and not found.is_measured_slow:
        said.append("The measured step was recorded before the trace began.")
    return " ".join(said)


# The groups of a rank as pages show them: the picture of the nodes, and a table of the groups.

_MANY = 8
"""Ranks of a group that are told one by one; of more, the first and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group in words."""

    name: str
    letters: str
    look: str
    """Class of its ranks in the picture."""
    ranks: str
    crosses: str
    """Which link it crosses: ``nvlink4, inside node 2``."""
    sent: str
    waits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroupsView:
    """What the template shows."""

    picture: Markup
    rank: int
    """Whose groups these are."""
    where: str
    """In which node and stage it lies."""
    last_rank: int
    """The highest that may be asked for."""
    rows: tuple[GroupRow, ...]
    missing: str
    """What the picture leaves out; empty where it shows all."""


def rank_groups_view(groups: RankGroups, address: Callable[[int], str]) -> RankGroupsView:
    """The view of a rank's groups; ``address`` is where the page shows those of another."""
    shown, stages = len(shown_nodes(groups)), groups.world_size // groups.ranks_per_stage
    num_nodes = -(-groups.world_size // groups.ranks_per_node)
    return RankGroupsView(
        picture=rank_grid(groups, address),
        rank=groups.rank,
        where=f"node {groups.node}" + (f", pipeline rank {groups.pipeline_rank}" if stages > 1 else ""),
        last_rank=groups.world_size - 1,
        rows=tuple(_group_row(group, groups) for group in groups.groups),
        missing="" if shown == num_nodes else f"{shown} of {num_nodes} nodes: those that hold ranks of its groups.",
    )


def _group_row(group: RankGroup, groups: RankGroups) -> GroupRow:
    inside = group.num_nodes == 1
    place = f"inside node {groups.node}" if inside else f"across {group.num_nodes} nodes"
    return GroupRow(
        name=group.axis,
        letters=group.letters,
        look=GROUP_CLASSES[group.axis],
        ranks=_ranks_in_words(group.ranks),
        crosses=", ".join((group.link, place, *map(link_in_words, group.slow_links))),
        sent=format_bytes(group.sent_bytes) if group.sent_bytes else "–",
        waits=format_seconds(group.exposed_s) if group.exposed_s else "–",
    )


def _ranks_in_words(ranks: Sequence[int]) -> str:
    """``20 21 22 23``, or ``0 64 … 448`` with how many there are."""
    if len(ranks) <= _MANY:
        return " ".join(map(str, ranks))
    return f"{ranks[0]} {ranks[1]} … {ranks[-1]} ({len(ranks)})"

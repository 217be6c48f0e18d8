"""Where a trial's time and memory go, as pages show it: pictures, tables, and the groups of its ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.drawing import Scale, SecondsUnit, cell, line, rect
from api.dashboard.charts.rank_grid import GROUP_CLASSES, rank_grid, shown_nodes
from api.dashboard.charts.spread import Spread
from api.dashboard.charts.stage_memory import MEMORY_PARTS, StageBar, stage_memory
from api.dashboard.charts.step_bars import step_bars
from autotuner.core.units import format_bytes, format_seconds
from autotuner.search.explain.communication import RankGroup, RankGroups
from autotuner.search.explain.explanation import StagePeak, TrialParts
from autotuner.search.explain.step_parts import PartKind, StepPart, StepParts
from autotuner.search.text.links import link_in_words
from autotuner.search.text.sentences import percent

# Where a trial's time and memory go, as pages show it: pictures, and tables with one unit to a column.

_UNKNOWN = "–"
_BAR, _BAR_HEIGHT = 120.0, 28.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """A part of a step, in the unit of its table."""

    name: str
    kind: PartKind
    measured: str
    predicted: str
    difference: str
    share: str
    """Of the step that the table is about: the measured one where there is one."""
    picture: Markup
    """The difference, from the middle; nothing where there is none."""
    limit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step by part."""

    picture: Markup
    unit: str
    """Of every number in the table."""
    is_measured: bool
    """A step was divided; else the prediction stands alone."""
    rank: int | None
    """Whose step was profiled; None where phases of the slowest ranks were timed, or nothing."""
    rows: tuple[PartRow, ...]
    """The parts, and last the whole step."""
    overlap: str = ""
    """How much of the gradients is reduced under backward passes, as a sentence; empty where nothing is."""

    @classmethod
    def of(
        cls, step: StepParts, *, predicted: Spread, reached: Spread | None, reached_name: str, overlap: str = ""
    ) -> Self:
        """The view of a step; spreads are those of the whole step, as ``step_bars`` takes them."""
        unit = SecondsUnit.of(max(step.predicted_s, step.measured_s or 0.0))
        most_s = max((abs(_difference_s(part) or 0.0) for part in step.parts), default=0.0)
        scale = Scale(-most_s, most_s, 0.0, _BAR)
        rows = [_row(part, unit, step.measured_s or step.predicted_s, scale) for part in step.parts]
        return cls(
            picture=step_bars(step, predicted=predicted, reached=reached, reached_name=reached_name),
            unit=unit.name,
            is_measured=step.measured_s is not None,
            rank=step.rank,
            rows=(*rows, _whole(step, unit)),
            overlap=overlap,
        )


def _row(part: StepPart, unit: SecondsUnit, whole_s: float, scale: Scale) -> PartRow:
    difference_s = _difference_s(part)
    counted_s = part.predicted_s if part.measured_s is None else part.measured_s
    return PartRow(
        name=part.name,
        kind=part.kind,
        measured=_told(part.measured_s, unit),
        predicted=_told(part.predicted_s, unit),
        difference=_UNKNOWN if difference_s is None else unit.signed(difference_s),
        share=percent((counted_s or 0.0) / whole_s),
        picture=Markup("") if difference_s is None else _drawn(difference_s, scale),
        limit=part.limit,
    )


def _difference_s(part: StepPart) -> float | None:
    """Measured less predicted; what no law explains was predicted to take nothing."""
    return None if part.measured_s is None else part.measured_s - (part.predicted_s or 0.0)


def _drawn(difference_s: float, scale: Scale) -> Markup:
    middle, end = scale(0.0), scale(difference_s)
    axis = line(middle, 0, middle, _BAR_HEIGHT, "axis")
    return cell(_BAR, _BAR_HEIGHT, [axis, rect(min(middle, end), 10, abs(end - middle), 8, "mem", radius=1)])


def _whole(step: StepParts, unit: SecondsUnit) -> PartRow:
    measured_s = step.measured_s
    limit = ""
    if measured_s is not None:
        off = step.predicted_s / measured_s - 1
        limit = f"predicted {percent(abs(off))} {'longer' if off > 0 else 'shorter'} than the divided step"
    return PartRow(
        name="step",
        kind="other",
        measured=_told(measured_s, unit),
        predicted=_told(step.predicted_s, unit),
        difference=_UNKNOWN if measured_s is None else unit.signed(measured_s - step.predicted_s),
        share=percent(1.0),
        picture=Markup(""),
        limit=limit,
    )


def _told(seconds: float | None, unit: SecondsUnit) -> str:
    return _UNKNOWN if seconds is None else unit.told(seconds)


# ---------------------------------------------------------------- memory
@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """Memory of a stage."""

    name: str
    parts: tuple[str, ...]
    """In the order of ``MemoryView.parts``."""
    predicted: str
    peak: str
    """As it was measured, with the rank that had it; empty where nothing was."""
    rank: int | None
    free: str
    """Below the limit, by the measured peak where there is one."""
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """Memory by stage."""

    picture: Markup
    parts: tuple[str, ...]
    """Those that take any memory, which are classes of the style sheet, too."""
    limit: str
    is_measured: bool
    said: str
    """How the fullest stage stands to the limit, as a sentence."""
    rows: tuple[StageRow, ...]

    @classmethod
    def of(cls, parts: TrialParts, *, wide: int) -> Self:
        """The view of a trial's stages in a picture so wide on a desk."""
        names = [_name(peak, parts) for peak in parts.stages]
        peaks = list(zip(names, parts.stages, strict=True))
        bars = [StageBar.of(name, peak.predicted, peak.measured_bytes) for name, peak in peaks]
        shown = tuple(part for part in MEMORY_PARTS if any(bar.parts[part] > 0 for bar in bars))
        return cls(
            picture=stage_memory(bars, parts.limit_bytes, wide=wide),
            parts=shown,
            limit=format_bytes(parts.limit_bytes),
            is_measured=any(peak.measured_bytes is not None for peak in parts.stages),
            said=_said(peaks, parts.limit_bytes),
            rows=tuple(
                _stage(peak, bar, shown, parts.limit_bytes) for peak, bar in zip(parts.stages, bars, strict=True)
            ),
        )


def _name(peak: StagePeak, parts: TrialParts) -> str:
    return "each rank" if len(parts.stages) == 1 else f"stage {peak.stage}"


def _stage(peak: StagePeak, bar: StageBar, shown: tuple[str, ...], limit_bytes: float) -> StageRow:
    free_bytes = limit_bytes - bar.peak_bytes
    return StageRow(
        name=bar.name,
        parts=tuple(format_bytes(bar.parts[part]) if bar.parts[part] else _UNKNOWN for part in shown),
        predicted=format_bytes(peak.predicted_bytes),
        peak="" if peak.measured_bytes is None else format_bytes(peak.measured_bytes),
        rank=peak.rank,
        free=format_bytes(free_bytes) if free_bytes >= 0 else f"−{format_bytes(-free_bytes)}",
        is_over=free_bytes < 0,
    )


def _said(peaks: list[tuple[str, StagePeak]], limit_bytes: float) -> str:
    name, fullest = max(peaks, key=lambda pair: pair[1].measured_bytes or pair[1].predicted_bytes)
    measured = fullest.measured_bytes
    num_bytes = fullest.predicted_bytes if measured is None else measured
    free_bytes = limit_bytes - num_bytes
    stands = f"{format_bytes(abs(free_bytes))} {'below' if free_bytes >= 0 else 'above'} the limit"
    how = "is predicted to hold" if measured is None else "was measured to hold"
    return f"{name.capitalize()} {how} {format_bytes(num_bytes)}, {stands} of {format_bytes(limit_bytes)}."


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

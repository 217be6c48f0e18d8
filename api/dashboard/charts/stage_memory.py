"""Memory of pipeline stages by part, beside each other on one axis, with the limit and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.drawing import Scale, for_both, hatched, line, picture, rect, text
from autotuner.core.prediction import Memory
from autotuner.core.units import GIGA, KILO, MEGA, TERA, format_bytes

MEMORY_PARTS = tuple(f.name.removesuffix("_bytes") for f in fields(Memory) if f.name.endswith("_bytes"))
"""Parts from left to right; each is a class of the style sheet, too."""

_LETTER = 7.5
"""Pixels of a letter at most, in the type of a measured peak."""

_WORTH_THE_LIMIT = 0.2
"""Share of the limit that a bar has to reach: shorter ones would be slivers beside it, so it lies outside then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBar:
    """What one stage, or one layout of several, holds at its fullest."""

    name: str
    parts: Mapping[str, float]
    """Bytes by part, predicted."""
    measured_bytes: float | None = None
    """The peak that was measured; None where nothing ran."""

    @classmethod
    def of(cls, name: str, memory: Memory, measured_bytes: float | None = None) -> Self:
        """The bar of a prediction."""
        parts = {part: getattr(memory, f"{part}_bytes") for part in MEMORY_PARTS}
        return cls(name=name, parts=parts, measured_bytes=measured_bytes)

    @property
    def total_bytes(self) -> float:
        """The predicted peak."""
        return sum(self.parts.values())

    @property
    def peak_bytes(self) -> float:
        """The peak that counts: measured where it was."""
        return self.total_bytes if self.measured_bytes is None else self.measured_bytes


def stage_memory(bars: Sequence[StageBar], limit_bytes: float, *, wide: int = 896) -> Markup:
    """The bars for a desk and for a phone."""
    return for_both(lambda width: _drawn(bars, limit_bytes, width), wide)


def _drawn(bars: Sequence[StageBar], limit_bytes: float, width: int) -> Markup:
    space = _Space.of(bars, limit_bytes, width)
    label = (
        f"Memory of {len(bars)} pipeline stage(s) by part, the fullest "
        f"{format_bytes(max(bar.peak_bytes for bar in bars))} of {format_bytes(limit_bytes)}"
    )
    return picture(width, space.height, _parts(bars, space), label)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """Where things lie."""

    limit_bytes: float
    shows_limit: bool
    is_narrow: bool
    width: int
    left: float
    right: float
    row: float
    thick: float
    height: float
    x: Scale

    @classmethod
    def of(cls, bars: Sequence[StageBar], limit_bytes: float, width: int) -> Self:
        is_narrow, longest = width < 500, max(len(bar.name) for bar in bars)
        most = max(max(bar.total_bytes, bar.measured_bytes or 0.0) for bar in bars)
        shows_limit = most >= _WORTH_THE_LIMIT * limit_bytes
        left, right = 14.0 + 6.6 * longest, 8.0 if is_narrow else 104.0
        row, thick = (40.0, 22.0) if is_narrow or len(bars) > 4 else (46.0, 26.0)
        high = 1.06 * max(most, limit_bytes) if shows_limit else 1.06 * most
        return cls(
            limit_bytes=limit_bytes,
            shows_limit=shows_limit,
            is_narrow=is_narrow,
            width=width,
            left=left,
            right=right,
            row=row,
            thick=thick,
            height=row * len(bars) + 52,
            x=Scale(0.0, high, left, width - right),
        )


def _parts(bars: Sequence[StageBar], space: _Space) -> Iterator[Markup]:
    yield from _axis(space)
    fullest = max(bar.peak_bytes for bar in bars)
    for index, bar in enumerate(bars):
        yield from _bar(bar, 26 + space.row * index, space, is_fullest=bar.peak_bytes == fullest)
    if space.shows_limit:
        at = space.x(space.limit_bytes)
        yield line(at, 16, at, space.height - 30, "limit")
        anchor = "end" if space.is_narrow else "middle"
        yield text(at, 11, f"limit {format_bytes(space.limit_bytes)}", "bad-text", anchor)


def _axis(space: _Space) -> Iterator[Markup]:
    unit, prefix = _unit(space.x.high)
    in_units = Scale(0.0, space.x.high / unit, space.x.start, space.x.end)
    for mark in in_units.marks(5 if space.is_narrow else 8):
        yield line(in_units(mark), 20, in_units(mark), space.height - 30, "rule")
        yield text(
            in_units(mark), space.height - 12, f"{mark:g} {prefix}" if not mark else f"{mark:g}", anchor="middle"
        )


def _unit(most_bytes: float) -> tuple[float, str]:
    units = ((TERA, "TB"), (GIGA, "GB"), (MEGA, "MB"), (KILO, "kB"))
    return next(((float(unit), name) for unit, name in units if most_bytes >= unit), (1.0, "B"))


def _bar(bar: StageBar, y: float, space: _Space, *, is_fullest: bool) -> Iterator[Markup]:
    middle = y + space.thick / 2 + 4
    yield text(space.left - 10, middle, bar.name, "lane-label", "end")
    yield from _blocks(bar, y, space)
    if bar.measured_bytes is not None:
        at = space.x(bar.measured_bytes)
        yield line(at, y - 4, at, y + space.thick + 4, "mark")
        if not space.is_narrow:
            said = format_bytes(bar.measured_bytes)
            has_room = at + 7 + _LETTER * len(said) < space.width - space.right + 12
            yield text(at + (7 if has_room else -7), middle, said, "strong halo", None if has_room else "end")
    if not space.is_narrow:
        yield text(space.width - space.right + 12, middle, _free(bar, space), "ink-text" if is_fullest else None)


def _blocks(bar: StageBar, y: float, space: _Space) -> Iterator[Markup]:
    held = 0.0
    for part in MEMORY_PARTS:
        size = bar.parts.get(part, 0.0)
        start, end = space.x(held), space.x(held + size)
        if size <= 0:
            continue
        if part == "allowance":
            yield hatched(start, y, end - start, space.thick)
        else:
            yield rect(start, y, end - start, space.thick, part, title=f"{part} {format_bytes(size)}")
        yield line(end, y, end, y + space.thick, "gap")
        held += size


def _free(bar: StageBar, space: _Space) -> str:
    free = space.limit_bytes - bar.peak_bytes
    return f"{format_bytes(free)} free" if free >= 0 else f"{format_bytes(-free)} over"

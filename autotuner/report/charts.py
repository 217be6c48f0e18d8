"""Charts as plain values: their marks, units and links.

A chart knows no pixels and no colours; ``drawing`` turns it into SVG. Its numbers are in SI units, and the unit of an
axis says how people read them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from markupsafe import Markup

from autotuner.core.cluster import Cluster

Look = Literal[
    "measured",
    "simulated",
    "predicted",
    "soft",
    "best",
    "best_predicted",
    "front",
    "limit",
    "regression",
    "reference",
    "incumbent",
    "event",
    "way",
    "lossy",
    "own",
    "gain",
    "loss",
]
"""Look of a mark: measured values are black, simulated ones amber, predicted ones grey like pencil, the best is green,
limits and failures are red. A regression is a square, so that readers who see no colours can find it. Predicted lines
of ways to share gradients are ``way``, ``lossy`` or the layout's ``own``; the loss and the gain of a change are
``loss`` and ``gain``."""


Unit = Literal[
    "share",
    "signed_share",
    "chance",
    "s",
    "signed_s",
    "duration",
    "long_duration",
    "days",
    "bytes",
    "bytes/s",
    "tokens/s",
    "tokens/J",
    "tokens/$",
    "tokens/kg CO2",
    "FLOP/s",
    "FLOP",
    "parameters",
    "$",
    "money",
    "h",
    "kWh",
    "MWh",
    "W",
    "points",
    "kg",
    "count",
    "×",
    "",
]
"""Unit of an axis. ``share`` is shown in tenths of a percent, and ``chance`` in whole percents, because chances are not
known more exactly. All times are in seconds: ``duration`` is shown in hours, minutes and seconds; ``long_duration``
without seconds from one hour on, and in days from two days on; ``days`` always in days; ``s`` in the unit that reads
best. ``$`` has cents, and ``money`` has three digits. ``points`` are percentage points with their sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of a chart: its title, its range, and the unit of its values."""

    title: str
    """Name of the quantity; the chart adds the unit if ``unit`` is set."""
    unit: Unit = ""
    low: float
    high: float
    log: bool = False
    labels: Sequence[tuple[float, str]] = ()
    """Values on the axis with the text of their labels, such as days; if empty, round values are labelled."""

    @classmethod
    def around(
        cls,
        values: Iterable[float],
        title: str,
        *,
        unit: Unit = "",
        margin: float = 0.06,
        floor: float | None = None,
        log: bool = False,
    ) -> Axis:
        """Return an axis with room for all given values.

        Args:
            values: Values that the axis must show; at least one.
            title: Name of the quantity.
            unit: Unit of the values; empty: none.
            margin: Share of the values' range that is added on both sides; for a logarithmic axis, the ends are divided
                and multiplied by 1 + margin.
            floor: Lowest value at which the axis may begin; None: any.
            log: True if the axis is logarithmic; every value must then be above 0.
        """
        known = list(values)
        low, high = min(known), max(known)
        if log:
            return cls(title=title, unit=unit, low=low / (1 + margin), high=high * (1 + margin), log=True)
        room = margin * (high - low) or margin * abs(high) or 1.0
        low = low - room if floor is None else max(floor, low - room)
        return cls(title=title, unit=unit, low=low, high=high + room)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One point of a chart, such as a trial; it is a link if it has an address."""

    x: float
    y: float
    said: str = ""
    """Text of the tooltip, which screen readers read too."""
    href: str = ""
    key: int | None = None
    """Number of the trial. A brush marks all dots with the same number, in every chart."""
    name: str = ""
    """Short label beside the dot, shown if there is room; empty: no label."""
    low: float | None = None
    high: float | None = None
    """``low`` and ``high`` are the ends of the interval in ``y``; None if they are not known."""
    look: Look = "measured"
    is_simulated: bool = False
    """True for a simulated result: the dot is amber, unless it is the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """Points of a chart. Many points without a name are drawn as one path, which keeps the page small."""

    dots: Sequence[Dot]
    is_named_right: bool = False
    """True if names stand to the right of their dots, as fits a falling Pareto front; else they stand to the left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Trials without a result, which a chart draws as crosses."""

    dots: Sequence[Dot]
    past: float | None = None
    """Value on the axis to the right of which all crosses stand, side by side if they would lie on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line in a chart through given points, from left to right."""

    points: Sequence[tuple[float, float]]
    look: Look = "measured"
    label: str = ""
    """Text above the left end of the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The shaded area between an upper and a lower line of a chart."""

    upper: Sequence[tuple[float, float]]
    lower: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A straight line across the whole plot of a chart at one value of an axis, such as a limit or a target."""

    at: float
    along: Literal["x", "y"]
    """The axis on which ``at`` is a value."""
    label: str = ""
    look: Look = "limit"
    beyond: bool = False
    """True if the area beyond the line is shaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Words next to a place in the plot; if ``x`` is None, they stand to the right of the plot."""

    words: str
    x: float | None
    y: float
    look: Look = "measured"
    lines_below: int = 0
    is_above: bool = False
    """True if the words stand above the point and end there; else they stand below it and begin there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A shaded part of the x axis, with a label if it has room for one."""

    low: float
    high: float
    label: str = ""
    look: str = "band"


Mark = Dots | Failures | Line | Band | Rule | Note | Stretch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A chart with two axes; its marks are painted in their order, so that later ones cover earlier ones."""

    says: str
    """Description of the chart in a sentence, for readers who cannot see it."""
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    height: int = 330
    wide: int = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One row of an ``Intervals`` chart: a name, a value and the range around it."""

    name: str
    value: float
    low: float
    high: float
    end_text: str = ""
    """Text at the end of the row."""
    look: Look = "measured"
    is_quiet: bool = False
    """True if the name of the row stands out less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """A chart of values with their ranges, one row for each, on one axis."""

    says: str
    x: Axis
    rows: Sequence[Interval]
    is_banded: bool = False
    """True if ranges are drawn as bands, which suits estimates; else as lines."""
    wide: int = 700


@dataclass(frozen=True, slots=True)
class Spread:
    """A value and the ends of its interval; both ends equal the value if no interval is known."""

    value: float
    low: float
    high: float

    @classmethod
    def within(cls, value: float, half: float | None) -> Spread:
        """Return a value with the interval from value − ``half`` to value + ``half``.

        Measurements have such intervals. If ``half`` is None, the interval is not known.
        """
        return cls(value, value - (half or 0.0), value + (half or 0.0))

    @classmethod
    def within_factor(cls, value: float, relative_error: float | None) -> Spread:
        """Return a value with the interval from value / (1 + e) to value x (1 + e). Predictions have such intervals.

        Args:
            value: The value.
            relative_error: The relative half-width e of the interval; None: no interval is known.
        """
        factor = 1 + (relative_error or 0.0)
        return cls(value, value / factor, value * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One part of a bar in a ``Stacks`` chart, such as the forward passes of a step: its name, colour and value."""

    name: str
    look: str
    """Class of its colour: ``forward``, ``activations``, ``idle``."""
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A bar of a ``Stacks`` chart, which is made of parts (blocks), such as one step of training."""

    name: str
    blocks: Sequence[Block]
    is_predicted: bool = False
    whole: Spread | None = None
    """The total from another measurement, with its interval; None if there is none."""
    mark: float | None = None
    """A measured value, drawn as a line across the bar."""
    end_text: str = ""
    """Text at the end of the row."""
    is_strong: bool = False

    @property
    def total(self) -> float:
        """Sum of the values of all parts of the bar."""
        return sum(block.value for block in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """A chart of bars, one above the other, that consist of the same parts and share one axis from 0."""

    says: str
    unit: Unit
    rows: Sequence[Stack]
    limit: float | None = None
    """Value at which a red line is drawn, if a bar reaches at least a fifth of it. For shorter bars, the line would
    make them too small to read."""
    is_joined: bool = False
    """True if blocks hold their names, and lines join the end of each part to its end in the next bar."""
    wide: int = 1296


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """One bar with a part for each share of a total; parts with the look ``rest`` are drawn without their number."""

    says: str
    parts: Sequence[tuple[float, Literal["best", "tie", "rest"]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceAxis:
    """An axis of parallel coordinates for an option of layouts, such as the tensor-parallel degree."""

    name: str
    label: str
    words: Sequence[str]
    """Names of the choices on the axis, the lowest first."""
    codes: Sequence[int]
    """Index in ``words`` of each trial's choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberAxis:
    """An axis of parallel coordinates for a numeric result, such as the MFU."""

    name: str
    axis: Axis
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """A chart of parallel coordinates: an axis for each option and result of trials, and a line for each trial.

    A script on the page lets readers filter the lines. It reads the scales of the axes from the picture.
    """

    says: str
    dots: Sequence[Dot]
    """One dot for each trial; its ``y`` is the trial's rank, counted from 0."""
    axes: Sequence[ChoiceAxis | NumberAxis]


Limits = Mapping[str, Sequence[str]]
"""Axes of a layout that a link limits, by the name of the link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A picture of the network between a cluster's nodes and of the links inside a node.

    It shows only the parts that the description of the cluster contains.
    """

    cluster: Cluster
    limits: Limits = field(default_factory=dict)


class Drawing(ABC):
    """A picture with drawing code of its own, unlike a chart of marks on two axes; it is as wide as its content."""

    __slots__ = ()

    @property
    @abstractmethod
    def drawn(self) -> Markup:
        """The picture as SVG markup, for a page."""

    @property
    @abstractmethod
    def look(self) -> str:
        """CSS class of the box around the picture. A picture wider than its box is scrolled."""


Chart = Drawing | Plot | Intervals | Stacks | Shares | Parallel | Topology


# ---------------------------------------------------------------- pictures in cells of a table
@dataclass(frozen=True, slots=True, kw_only=True)
class BarCell:
    """A cell of a table that shows a number as a bar, from the left or, if ``is_signed`` is True, from the middle."""

    value: float
    most: float
    look: str = "mem"
    is_signed: bool = False


Glyph = Literal["measured", "soft", "predicted", "best", "limit", "cross", "front", "cloud", "line", "reference"] | str
"""A mark in the key of a chart; any other word is the colour of a part."""


_BEYOND = 1.5
"""A band that reaches beyond all values by more than this factor is cut off, because it would squeeze the measured
values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeAxis:
    """The axis that all range pictures of a column share, with the best value of the table.

    Its values are shares between 0 and 1, such as MFU.
    """

    low: float
    high: float
    best: float | None

    @classmethod
    def around(cls, values: Iterable[Spread], best: float | None) -> RangeAxis:
        """Return an axis with room for all given values and for the best value; without values it goes from 0 to 1.

        Args:
            values: Values with their intervals. The end of an interval is cut off if it lies far beyond all values.
            best: Best value of the whole table; None: there is none.
        """
        shown = [*values, *([Spread.within(best, None)] if best is not None else [])]
        if not shown:
            return cls(low=0.0, high=1.0, best=None)
        centres = [one.value for one in shown]
        low = max(min(one.low for one in shown), min(centres) / _BEYOND)
        high = min(max(one.high for one in shown), max(centres) * _BEYOND)
        margin = 0.03 * (high - low) or 0.05 * high
        return cls(low=max(0.0, low - margin), high=high + margin, best=best)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeCell:
    """A prediction (band with a ring) and a trial's result (dot with its interval) on the shared axis of a column."""

    axis: RangeAxis
    predicted: Spread | None = None
    reached: Spread | None = None
    """The result with its interval; None if there is no result."""
    is_simulated: bool = False
    """True if the result was simulated; it is then drawn in amber, unless it is the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCell:
    """A picture of a memory peak as a bar and of the predicted peak as a ring; a red line marks the memory limit."""

    limit_bytes: float
    predicted_bytes: float | None = None
    reached_bytes: float | None = None

    @property
    def is_tight(self) -> bool:
        """True if the peak of the trial is more than 95 % of the memory limit."""
        return is_tight(self.reached_bytes, self.limit_bytes)


@dataclass(frozen=True, slots=True)
class GrowthCell:
    """A cell of a table with a small line, which shows the best value so far after each trial.

    ``values`` has one value for each trial, and None for a trial without a result.
    """

    values: Sequence[float | None]


CellPicture = BarCell | RangeCell | MemoryCell | GrowthCell


def is_tight(num_bytes: float | None, limit_bytes: float) -> bool:
    """Return True if a number of bytes is more than 95 % of the memory limit; False if either number is unknown."""
    return bool(limit_bytes and num_bytes and num_bytes > 0.95 * limit_bytes)


def stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points of a step line through the given points: each ``y`` holds until the ``x`` of the next point."""
    out = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        out += [(x, before), (x, y)]
    return out


def front(dots: Iterable[Dot], *, least_x: bool = True) -> list[Dot]:
    """Return the Pareto front: the dots that no other dot beats in both ``x`` and ``y``, from left to right.

    Args:
        dots: The dots; a higher ``y`` is better.
        least_x: True if a lower ``x`` is better; False if a higher ``x`` is better.
    """
    found: list[Dot] = []
    for dot in sorted(dots, key=lambda dot: (dot.x if least_x else -dot.x, -dot.y)):
        if not found or dot.y > found[-1].y:
            found.append(dot)
    return found if least_x else found[::-1]

"""BandwidthCurve: the fastest method of data parallelism for each bandwidth between nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Literal

import numpy as np

from autotuner.core.choices import GradientSync
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import require_legal
from autotuner.costmodel.memory.peak import memory
from autotuner.costmodel.scenarios import steps_by_bandwidth
from autotuner.search.space.moves import exchange_ways

_LOWEST_BYTES_PER_S, _HIGHEST_BYTES_PER_S = 1.25e6, 125e9
"""Lowest and highest bandwidth of the curve: 10 Mbit/s, a shaped link in the tests of arXiv 2502.06728, and 1 Tbit/s,
because ports of 2026 have 800 Gbit/s."""

_PER_DECADE = 4
"""Number of bandwidths per decade. Only one change between two neighbouring bandwidths can be found."""

_EXACT = 1.005
"""Ratio of the two bandwidths at which the bisection for a crossing stops; texts show about three digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthWay:
    """One method to shard the model and exchange gradients, with its predicted step time at each of several bandwidths.

    A bandwidth is that of the network between nodes.
    """

    name: str
    """Name of the method: ``FSDP``, ``HSDP``, ``replicas`` or ``demo``."""
    label: str
    """Short text for the layout with this method."""
    layout: Layout
    is_lossy: bool
    """True if the method is lossy: it trains another function than a full exchange, and is ranked only if its
    convergence gate passed."""
    fits: bool
    """True if the predicted peak is within memory. A method that does not fit is not drawn and is never the fastest."""
    step_s: tuple[float, ...]
    """Predicted step time at each bandwidth of the curve."""
    faster_below_bytes_per_s: float | None
    """Bandwidth below which a lossy method has a shorter step than every method with a full exchange. It is the curve's
    highest bandwidth if the lossy method always has the shorter step; None if it never has, or if the method is not
    lossy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthSpan:
    """A range of bandwidths between nodes in which one method to exchange gradients has the shortest step."""

    way: str
    low_bytes_per_s: float
    high_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthCurve:
    """Predicted step times of several methods to exchange gradients, at several bandwidths between nodes.

    Nothing here was measured.
    """

    bandwidths_bytes_per_s: tuple[float, ...]
    """Bandwidths of the network port of one accelerator, ascending."""
    own_bytes_per_s: float
    """Bandwidth that the cluster has."""
    own: str
    """Name of the method that the layout itself uses."""
    ways: tuple[BandwidthWay, ...]
    spans: tuple[BandwidthSpan, ...]
    """Fastest method for each range of bandwidths, from the lowest bandwidth on."""
    why_empty: Literal["no_network", "nothing_fits"] | None = None
    """Reason why there are no methods to compare: no network is between data-parallel ranks, or no method fits in
    memory."""


def bandwidth_curve(layout: Layout, job: Job) -> BandwidthCurve:
    """Return the predicted step time of each method to exchange gradients, at low to high bandwidths between nodes.

    The curve is empty if no network lies between data-parallel ranks, or if no method fits in memory.

    Raises:
        InvalidInput: The layout breaks a rule. The error names the first broken rule.
    """
    require_legal(layout, job)
    own_bytes_per_s = job.cluster.inter_node_link.bandwidth_bytes_per_s
    nothing = BandwidthCurve(bandwidths_bytes_per_s=(), own_bytes_per_s=own_bytes_per_s, own="", ways=(), spans=())
    if job.cluster.num_nodes == 1 or layout.data_parallel_degree == 1:
        return replace(nothing, why_empty="no_network")
    ways = exchange_ways(layout, job)
    peaks_bytes = memory(LayoutColumns.from_layouts(ways.values()), job).total_bytes
    fits = tuple(bool(one) for one in peaks_bytes <= job.cluster.accelerator.memory_bytes)
    if not any(fits):
        return replace(nothing, why_empty="nothing_fits")
    table = _Table(ways, fits, job)
    methods = tuple(table.methods())
    return BandwidthCurve(
        bandwidths_bytes_per_s=table.bandwidths,
        own_bytes_per_s=own_bytes_per_s,
        own=next((way.name for way in methods if way.layout == layout), ""),
        ways=methods,
        spans=table.spans(),
    )


class _Table:
    """Step times of all methods by bandwidth, and the bandwidths at which two of them cross."""

    def __init__(self, ways: Mapping[str, Layout], fits: Sequence[bool], job: Job) -> None:
        self._ways = ways
        self._fits = np.array(fits)
        self._lossy = np.array([layout.gradient_sync != GradientSync.FULL for layout in ways.values()])
        own_bytes_per_s = job.cluster.inter_node_link.bandwidth_bytes_per_s
        low, high = min(_LOWEST_BYTES_PER_S, own_bytes_per_s), max(_HIGHEST_BYTES_PER_S, own_bytes_per_s)
        # a bandwidth that was rounded to a whole number stays whole
        count = 1 + math.ceil(_PER_DECADE * math.log10(high / low) - 1e-9)
        self.bandwidths = tuple(low * 10 ** (number / _PER_DECADE) for number in range(count))
        ends = self.bandwidths[0], self.bandwidths[-1]
        self._at = cache(steps_by_bandwidth(LayoutColumns.from_layouts(ways.values()), job, ends))

    def methods(self) -> Iterator[BandwidthWay]:
        """Yield every method, including those that do not fit in memory."""
        for number, (name, layout) in enumerate(self._ways.items()):
            competes = bool(self._lossy[number] and self._fits[number])
            yield BandwidthWay(
                name=name,
                label=str(layout),
                layout=layout,
                is_lossy=bool(self._lossy[number]),
                fits=bool(self._fits[number]),
                step_s=tuple(float(self._at(one)[number]) for one in self.bandwidths),
                faster_below_bytes_per_s=self._faster_below(number) if competes else None,
            )

    def spans(self) -> tuple[BandwidthSpan, ...]:
        """Return the fastest method for each range of bandwidths, from the lowest bandwidth on."""
        names, winners = list(self._ways), [self._fastest(self._at(one)) for one in self.bandwidths]
        changes = [index for index, (before, after) in enumerate(pairwise(winners)) if before != after]
        edges = [self._crossing(partial(self._is_fastest, winners[index]), index) for index in changes]
        lows, highs = (self.bandwidths[0], *edges), (*edges, self.bandwidths[-1])
        order = [names[winners[index]] for index in (*changes, -1)]
        return tuple(
            BandwidthSpan(way=way, low_bytes_per_s=low, high_bytes_per_s=high)
            for way, low, high in zip(order, lows, highs, strict=True)
        )

    def _fastest(self, steps_s: Floats) -> int:
        return int(np.argmin(np.where(self._fits, steps_s, np.inf)))

    def _is_fastest(self, number: int, steps_s: Floats) -> bool:
        return self._fastest(steps_s) == number

    def _faster_below(self, number: int) -> float | None:
        faster = [self._beats_full(number, self._at(one)) for one in self.bandwidths]
        if not faster[0]:
            return None
        if all(faster):
            return self.bandwidths[-1]
        return self._crossing(partial(self._beats_full, number), faster.index(False) - 1)

    def _beats_full(self, number: int, steps_s: Floats) -> bool:
        full = self._fits & ~self._lossy
        return bool(steps_s[number] < np.min(steps_s, where=full, initial=np.inf))

    def _crossing(self, holds: Callable[[Floats], bool], index: int) -> float:
        """Return the bandwidth up to which a condition is true.

        It must be true at the given index of the curve and false at the next.
        """
        low, high = self.bandwidths[index], self.bandwidths[index + 1]
        while high > _EXACT * low:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if holds(self._at(middle)) else (low, middle)
        return math.sqrt(low * high)

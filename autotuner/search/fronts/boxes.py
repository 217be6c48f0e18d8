"""Boxes: the space above a reference that no point of a front dominates, cut into boxes that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats

Side = tuple[float, float]
Box = tuple[Side, ...]

_MOST_AT_ONCE = 1 << 21
"""Sides of boxes that are compared with points at once: 16 MiB of them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Boxes:
    """Boxes as two columns of corners, of shape (boxes, dimensions); the upper ones may be infinite."""

    low: Floats
    high: Floats

    def volumes_below(self, points: Floats) -> Floats:
        """How much of the boxes each point dominates; ``points`` has shape (..., dimensions)."""
        flat = points.reshape(-1, points.shape[-1])
        at_once = max(1, _MOST_AT_ONCE // self.low.size)
        parts = [self._volumes_below(flat[first : first + at_once]) for first in range(0, len(flat), at_once)]
        volumes: Floats = np.concatenate([np.empty(0), *parts]).reshape(points.shape[:-1])
        return volumes

    def _volumes_below(self, points: Floats) -> Floats:
        volumes = np.ones((len(points), len(self.low)))
        for column in range(points.shape[1]):  # of few: one array at a time stays in the cache
            reach = np.minimum(points[:, column, None], self.high[None, :, column]) - self.low[None, :, column]
            volumes *= np.maximum(reach, 0.0)
        dominated: Floats = volumes.sum(axis=1)
        return dominated


def open_boxes(points: Floats, reference: Floats) -> Boxes:
    """The part of the space above the reference that no point dominates.

    The space is cut at the points' last coordinates, and each slab like a space of one dimension less (hypervolume by
    slicing objectives, Knowles 2002); a box that goes on in the next slab stays one box, so that three dimensions take
    about twice as many boxes as points.

    Args:
        points: Shape (points, dimensions); those that are not above the reference in everything count for nothing.
        reference: One lower bound per dimension.
    """
    above = points[(points > reference).all(axis=1)]
    boxes = _open([tuple(point) for point in above.tolist()], reference.tolist())
    corners = np.array(list(boxes), dtype=np.float64)  # (boxes, dimensions, 2)
    return Boxes(low=corners[..., 0], high=corners[..., 1])


def _open(points: Sequence[tuple[float, ...]], reference: Sequence[float]) -> Iterator[Box]:
    *others, last = reference
    if not others:
        yield ((max((point[-1] for point in points), default=last), math.inf),)
        return
    tops: dict[Box, float] = {}  # where boxes end that go on downwards
    for top in (math.inf, *sorted({point[-1] for point in points}, reverse=True)):
        beneath = dict.fromkeys(_open([point[:-1] for point in points if point[-1] >= top], others), top)
        yield from ((*box, (top, tops[box])) for box in tops if box not in beneath)
        tops = {box: tops.get(box, top) for box in beneath}
    yield from ((*box, (last, top)) for box, top in tops.items())

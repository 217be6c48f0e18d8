"""Frontier: what points dominate above a reference, and how much more another would."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from autotuner.core.columns import Floats
from autotuner.search.fronts.boxes import Boxes, open_boxes
from autotuner.search.fronts.dominance import non_dominated

_MARGIN = 0.1
"""Part of a front's range by which the reference lies below its worst, so that its ends count, too. A usual choice
(Ishibuchi et al. 2018, Evolutionary Computation 26, section 3; BoTorch takes the same)."""

LEAST_MARGIN = 1e-3
"""The same of a front whose points are equal in something; in logarithms, 0.1 %."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Frontier:
    """Points that may dominate each other, above a reference.

    Attributes:
        points: Shape (points, dimensions), more is better; whatever is not above the reference counts for nothing.
        reference: One lower bound per dimension.
    """

    points: Floats
    reference: Floats

    @classmethod
    def of(cls, points: Floats, reference: Floats) -> Self:
        """The same with those alone that no other dominates."""
        return cls(points=points[non_dominated(points)], reference=reference)

    @cached_property
    def boxes(self) -> Boxes:
        """What lies above the reference and is not dominated."""
        return open_boxes(self.points, self.reference)

    @cached_property
    def volume(self) -> float:
        """The hypervolume: how much of the space above the reference the points dominate; exact."""
        if not len(self.points):
            return 0.0
        best = np.maximum(self.points.max(axis=0), self.reference)
        return float(np.prod(best - self.reference) - self.boxes.volumes_below(best[None, :])[0])

    def gains(self, points: Floats) -> Floats:
        """By how much the hypervolume would rise with each point alone; ``points`` has shape (..., dimensions)."""
        return self.boxes.volumes_below(points)


def reference_below(points: Floats) -> Floats:
    """A reference for the front of these points: a tenth of its range below the worst of it in each dimension."""
    front = points[non_dominated(points)]
    worst, best = front.min(axis=0), front.max(axis=0)
    reference: Floats = worst - np.maximum(_MARGIN * (best - worst), LEAST_MARGIN)
    return reference

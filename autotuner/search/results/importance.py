"""How much of the differences between some values each of several choices explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.costmodel.columns import Floats, Integers

__all__ = ["Shares", "shares_explained"]

_NOTHING = 1e-9
"""Share of the largest eigenvalue below which a direction is none: columns that follow from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of a variance, 0..1.

    Attributes:
        alone: What each choice explains by itself.
        beyond_others: What is lost where it is left out and all others stay.
        together: What all of them explain.
    """

    alone: tuple[float, ...]
    beyond_others: tuple[float, ...]
    together: float


def shares_explained(choices: Sequence[Floats], values: Floats) -> Shares:
    """How much of the values' variance a sum of one effect for each value of each choice explains.

    Both ends of what is called relative importance: entered first and entered last (Grömping 2006, J. Statistical
    Software 17(1), *first* and *last*). Each is adjusted for the number of effects, as many effects explain something
    of any few values, and is no less than 0.

    Args:
        choices: Of each its effects as columns of 0 and 1, one row for each value.
        values: At least two.
    """
    centred = values - values.mean()
    columns = np.hstack([each - each.mean(axis=0) for each in choices])
    ends = np.cumsum([each.shape[1] for each in choices])
    own = [np.arange(end - each.shape[1], end) for each, end in zip(choices, ends, strict=True)]
    fit = _Fit(
        products=columns.T @ columns,
        with_values=columns.T @ centred,
        total=float(centred @ centred),
        free=len(values) - 1,
    )
    every = np.arange(columns.shape[1])
    together = fit.explained(every)
    return Shares(
        alone=tuple(fit.explained(mine) for mine in own),
        beyond_others=tuple(max(0.0, together - fit.explained(np.setdiff1d(every, mine))) for mine in own),
        together=together,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Fit:
    """Least squares on some of many columns, from their products with one another.

    Attributes:
        products: Of each column with each.
        with_values: Of each column with the values.
        total: Sum of the squared values.
        free: Values less the mean.
    """

    products: Floats
    with_values: Floats
    total: float
    free: int

    def explained(self, columns: Integers) -> float:
        """Adjusted coefficient of determination; 0 where as many effects as values explain anything."""
        weights, directions = np.linalg.eigh(self.products[np.ix_(columns, columns)])
        tells = weights > _NOTHING * weights.max(initial=0.0)
        along = directions.T[tells] @ self.with_values[columns]
        left = self.free - int(tells.sum())
        if not self.total or left <= 0:
            return 0.0
        share = float((along**2 / weights[tells]).sum()) / self.total
        return min(1.0, max(0.0, 1 - (1 - share) * self.free / left))  # rounding may pass both ends

"""How much of the differences between some values each of several choices explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats, Integers

_NOTHING = 1e-9
"""Share of its square below which the rest of a column is rounding: it follows from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of a variance, 0..1.

    Attributes:
        alone: What each choice explains by itself.
        beyond_others: What is lost where it is left out and all others stay.
        together: What all of them explain; None where there are as many effects as values, which explain anything.
    """

    alone: tuple[float, ...]
    beyond_others: tuple[float, ...]
    together: float | None


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
    whole = together or 0.0
    return Shares(
        alone=tuple(fit.explained(mine) or 0.0 for mine in own),
        beyond_others=tuple(max(0.0, whole - (fit.explained(np.setdiff1d(every, mine)) or 0.0)) for mine in own),
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

    def explained(self, columns: Integers) -> float | None:
        """Adjusted coefficient of determination; None where there are as many effects as values.

        Columns are made orthogonal to those before them, one after the other (Gram and Schmidt), within their products:
        so many small factorizations would keep the threads of a linear algebra library waiting for one another.
        """
        products, with_values = self.products[np.ix_(columns, columns)], self.with_values[columns]
        lengths, explained, num_effects = products.diagonal().copy(), 0.0, 0
        for index, length in enumerate(lengths):
            left = float(products[index, index])
            if left <= _NOTHING * length:
                continue
            explained, num_effects = explained + with_values[index] ** 2 / left, num_effects + 1
            share = products[index] / left
            with_values = with_values - share * with_values[index]
            products = products - np.outer(products[index], share)
        free = self.free - num_effects
        if free <= 0:
            return None
        if not self.total:
            return 0.0
        adjusted = 1 - (1 - float(explained) / self.total) * self.free / free
        return min(1.0, max(0.0, adjusted))  # rounding may pass both ends

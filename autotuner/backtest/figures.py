"""Figures that judge a model by measured runs; each is None where it has no meaning."""

from __future__ import annotations

import numpy as np

from autotuner.core.columns import Booleans, Floats


def share(condition: Booleans) -> float | None:
    """Share of the rows for which it holds, 0..1; None without rows."""
    return float(condition.mean()) if condition.size else None


def mean(values: Floats) -> float | None:
    """None without values."""
    return float(values.mean()) if values.size else None


def quantile(values: Floats, fraction: float) -> float | None:
    """The value that ``fraction`` of the values do not exceed, interpolated; None without values."""
    return float(np.quantile(values, fraction)) if values.size else None


def spearman(left: Floats, right: Floats) -> float | None:
    """Correlation of ranks, -1..1, equal values sharing their mean rank; None where either side has one value only."""
    if min(np.unique(left).size, np.unique(right).size) < 2:
        return None
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks

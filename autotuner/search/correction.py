"""What the measured trials say about the predictions of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["correction"]

_RIDGE = 0.5
"""Prior weight, in trials, of "this value is predicted as well as any other": with one trial per value the fit
moves two thirds of the way. Chosen so that a single noisy trial cannot turn the order around by itself."""


def correction(codes: NDArray[np.int64], log_errors: Mapping[int, float]) -> NDArray[np.float64]:
    """Factor by which to multiply each row's predicted step time.

    A ridge regression of log(measured / predicted) on which value each field has, so that what one trial showed
    (tensor parallelism is slow here) carries over to untried rows that share the value.

    Args:
        codes: One row per layout, one integer column per field.
        log_errors: log(measured / predicted) of the measured rows.
    """
    if not log_errors:
        return np.ones(len(codes))
    rows = np.array(list(log_errors))
    errors = np.array([log_errors[row] for row in rows])
    common = errors.mean()
    factor = np.full(len(codes), common)
    indicators: list[NDArray[np.float64]] = []
    columns: list[tuple[int, np.int64]] = []
    for position in range(codes.shape[1]):
        values = np.unique(codes[rows, position])
        if values.size > 1:  # a field that never varied explains nothing
            indicators.extend((codes[rows, position] == value).astype(np.float64) for value in values)
            columns.extend((position, value) for value in values)
    if indicators:
        design = np.stack(indicators, axis=1)
        weights = np.linalg.solve(design.T @ design + _RIDGE * np.eye(len(columns)), design.T @ (errors - common))
        for (position, value), weight in zip(columns, weights, strict=True):
            factor += weight * (codes[:, position] == value)
    corrected: NDArray[np.float64] = np.exp(factor)
    return corrected

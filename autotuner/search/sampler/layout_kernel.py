"""How alike two layouts are, between 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.layout import OPTIONS
from autotuner.core.option import OptionSpec

_LENGTH = 2.0
"""Steps of distance after which similarity has fallen to 1 / e. Replays of published sweeps hardly tell lengths of 1 to
16 apart (docs/sampler.md)."""


def similarity(left: LayoutColumns, right: LayoutColumns) -> Floats:
    """exp(-distance / length), shape (left, right); 1 for equal layouts only.

    The distance has one step for each doubling of a number, one for each unit of a number that may be zero (layers that
    an end gives away), and one for each choice that differs. A product of exponential kernels, one per field, is a
    valid covariance (Rasmussen and Williams 2006, sections 4.2.1 and 4.2.4).
    """
    distance = np.zeros((len(left), len(right)))
    for name, one in OPTIONS.items():
        ours, theirs = getattr(left, name)[:, None], getattr(right, name)[None, :]
        if _is_constant(ours, theirs):
            continue  # most fields of a space never vary
        distance += _steps(one, ours, theirs)
    return np.exp(distance / -_LENGTH)


def _steps(one: OptionSpec, ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    steps: npt.NDArray[Any]
    if not one.is_number:
        steps = ours != theirs
    elif one.lowest == 0:
        steps = np.abs(ours - theirs)
    else:
        steps = np.abs(np.log2(ours) - np.log2(theirs))
    return steps


def _is_constant(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> bool:
    return not theirs.size or bool((ours == theirs[0, 0]).all() and (theirs == theirs[0, 0]).all())

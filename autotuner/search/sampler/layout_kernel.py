"""How alike two layouts are, between 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.domain.choice import Choice
from autotuner.domain.layout import LAYOUT_FIELDS, Layout

__all__ = ["similarity"]

_LENGTH = 2.0
"""Steps of distance after which similarity has fallen to 1 / e. Replays of published sweeps hardly tell lengths of 1 to
16 apart (docs/sampler.md)."""

_CHOICES = tuple(n for n in LAYOUT_FIELDS if isinstance(Layout.__dataclass_fields__[n].default, bool | Choice))


_COUNTS = ("first_stage_less_layers", "last_stage_less_layers")
"""Fields that may be zero, and count."""


def similarity(left: LayoutColumns, right: LayoutColumns) -> Floats:
    """exp(-distance / length), shape (left, right); 1 for equal layouts only.

    The distance has one step for each doubling of a degree, one for each layer that an end gives away, and one for each
    choice that differs. A product of
    exponential kernels, one per field, is a valid covariance (Rasmussen and Williams 2006, sections 4.2.1 and 4.2.4).
    """
    distance = np.zeros((len(left), len(right)))
    for name in LAYOUT_FIELDS:
        ours, theirs = getattr(left, name)[:, None], getattr(right, name)[None, :]
        if _is_constant(ours, theirs):
            continue  # most fields of a space never vary
        distance += _steps(name, ours, theirs)
    return np.exp(distance / -_LENGTH)


def _steps(name: str, ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    steps: npt.NDArray[Any]
    if name in _CHOICES:
        steps = ours != theirs
    elif name in _COUNTS:
        steps = np.abs(ours - theirs)
    else:
        steps = np.abs(np.log2(ours) - np.log2(theirs))
    return steps


def _is_constant(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> bool:
    return not theirs.size or bool((ours == theirs[0, 0]).all() and (theirs == theirs[0, 0]).all())

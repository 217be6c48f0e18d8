"""Filters for templates: numbers with their units, and layouts in words. Unknown values become a dash."""

from __future__ import annotations

import math
from typing import TypeGuard

from autotuner.core.model import ModelSize, TransformerSpec
from autotuner.core.objective import Objective
from autotuner.core.units import format_duration as duration
from autotuner.report.engine_jobs import waiting_in_words as waiting
from autotuner.report.words import (
    listed,
    plain,
    sentence,
    size_in_words,
)
from autotuner.report.words import moment as date

__all__ = [
    "compared_by",
    "date",
    "duration",
    "hours",
    "percent",
    "plain",
    "sentence",
    "size",
    "waiting",
]

_UNKNOWN = "–"


def percent(share: float | None) -> str:
    """Return a share (0 to 1) in percent, such as ``41.3 %``; a dash if it is unknown."""
    return f"{100 * share:.1f} %" if _known(share) else _UNKNOWN


def compared_by(objective: Objective) -> str:
    """Describe an objective in words, such as ``MFU ×2, tokens per joule ×1``; empty if the objective is MFU alone."""
    weighed = [f"{one.metric.noun} ×{one.weight:g}" for one in objective.profile]
    ranked = ", ".join(weighed) or objective.metric.noun
    front = f"; front of {listed([metric.noun for metric in objective.front])}" if objective.front else ""
    return "" if objective == Objective(under_faults=objective.under_faults) else f"{ranked}{front}"


def size(model: ModelSize | TransformerSpec) -> str:
    """Return the size of a model in words: ``46.7B parameters, 12.9B active``."""
    return size_in_words(model.num_parameters, model.num_active_parameters)


def hours(value: float) -> str:
    """Return a number of hours as a text with few digits: ``0.0125``, ``37.4``, ``1,050``."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)

"""Template filters: numbers with their units, layouts in words. What is unknown reads as a dash."""

from __future__ import annotations

import math
from typing import Literal, TypeGuard

from autotuner.core.cluster import SIMULATED
from autotuner.core.model import ModelSize, TransformerSpec
from autotuner.core.objective import Objective
from autotuner.core.prediction import Prediction
from autotuner.core.sweep import SweepRequest
from autotuner.core.units import format_bytes, format_rate
from autotuner.core.units import format_duration as duration
from autotuner.report.caveats import caveat_in_words as caveat
from autotuner.report.words import moment as date
from autotuner.report.words import plain, sentence
from autotuner.search.text.sentences import (
    expected_mfu,
    expected_seconds,
    fit_in_words,
    listed,
    size_in_words,
)
from autotuner.search.text.trials import engine_in_words
from autotuner.search.text.trials import waiting_in_words as waiting

__all__ = [
    "caveat",
    "compared_by",
    "date",
    "duration",
    "engine",
    "fit",
    "hours",
    "num_bytes",
    "percent",
    "plain",
    "predicted_mfu",
    "predicted_seconds",
    "sentence",
    "size",
    "source",
    "token_rate",
    "waiting",
]

_UNKNOWN = "–"


def percent(share: float | None) -> str:
    """``41.3 %``."""
    return f"{100 * share:.1f} %" if _known(share) else _UNKNOWN


def compared_by(objective: Objective) -> str:
    """What layouts are compared by, where it is not MFU alone: ``MFU ×2, tokens per joule ×1``."""
    weighed = [f"{one.metric.noun} ×{one.weight:g}" for one in objective.profile]
    ranked = ", ".join(weighed) or objective.metric.noun
    front = f"; front of {listed([metric.noun for metric in objective.front])}" if objective.front else ""
    return "" if objective == Objective(under_faults=objective.under_faults) else f"{ranked}{front}"


def num_bytes(value: float | None) -> str:
    """``39 GB``."""
    return format_bytes(value) if _known(value) else _UNKNOWN


def size(model: ModelSize | TransformerSpec) -> str:
    """``46.7B parameters, 12.9B active``."""
    return size_in_words(model.num_parameters, model.num_active_parameters)


def token_rate(per_s: float | None) -> str:
    """``104 ktokens/s``."""
    return format_rate(per_s, "tokens/s") if _known(per_s) else _UNKNOWN


def predicted_seconds(predicted: Prediction) -> str:
    """The predicted step time with its 80 % interval: ``1.23 s ± 11 %``."""
    value = predicted.step_time_s
    return expected_seconds(value, predicted.relative_error) if _known(value) else _UNKNOWN


def predicted_mfu(predicted: Prediction) -> str:
    """The predicted MFU with its 80 % interval, in points: ``41.0 ± 4.5 %``."""
    if not _known(predicted.mfu):
        return _UNKNOWN
    return expected_mfu(predicted.mfu, predicted.relative_error, predicted.precision_utilization)


def fit(predicted: Prediction) -> str:
    """Whether the layout is predicted to fit, and how sure that is: ``fits, 97 % sure``."""
    return fit_in_words(predicted.fits, predicted.fit_probability)


def source(request: SweepRequest) -> Literal["measured", "simulated"]:
    """What the figures of a sweep's trials are called."""
    return "simulated" if request.runs_on.engine == SIMULATED else "measured"


def engine(name: str, queue: str = "") -> str:
    """Who runs the trials: ``by slurm, queue batch``; nothing on the service's own machine."""
    return engine_in_words(name, queue)


def hours(value: float) -> str:
    """``0.0125``, ``37.4``, ``1,050``."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)

"""Template filters: numbers with their units, layouts in words. What is unknown reads as a dash."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, TypeGuard

from api.schemas.trials import Estimated, TrialView
from autotuner.core.choices import ShardLevel
from autotuner.core.cluster import SIMULATED
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.model import ModelSize, TransformerSpec
from autotuner.core.objective import Objective
from autotuner.core.prediction import Prediction
from autotuner.core.sweep import SweepRequest
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.core.units import format_duration as duration
from autotuner.costmodel.evidence import PHRASES
from autotuner.report.layouts import phrase
from autotuner.report.words import moment as date
from autotuner.report.words import plain, sentence
from autotuner.search.text.sentences import (
    expected_mfu,
    expected_seconds,
    fit_in_words,
    listed,
    size_in_words,
)
from autotuner.search.text.trials import engine_in_words, latest
from autotuner.search.text.trials import has_own_peak as differs
from autotuner.search.text.trials import job_in_words as job
from autotuner.search.text.trials import waiting_in_words as waiting

__all__ = [
    "compared_by",
    "date",
    "duration",
    "engine",
    "fit",
    "has_own_peak",
    "hours",
    "in_words",
    "job",
    "latest",
    "num_bytes",
    "percent",
    "plain",
    "predicted_mfu",
    "predicted_seconds",
    "seconds",
    "sentence",
    "size",
    "source",
    "token_rate",
    "waiting",
]

_UNKNOWN = "–"

_SHARDING = {
    ShardLevel.NONE: "sharded",
    ShardLevel.OPTIMIZER: "optimizer-sharded",
    ShardLevel.GRADIENTS: "gradient-sharded",
    ShardLevel.PARAMETERS: "fully sharded",
}


_FIRST = ("pipeline_schedule", "micro_batch_size")
_LAST = ("precision", "attention_kernel")
_PHRASED = (
    *_FIRST,
    *(
        name
        for name in sorted(OPTIONS, key=lambda name: OPTIONS[name].topic)
        if name in PHRASES and not OPTIONS[name].qualifies and name not in (*_FIRST, *_LAST)
    ),
    *_LAST,
)
"""Fields beside the degrees, in the order in which a page says them."""


def percent(share: float | None) -> str:
    """``41.3 %``."""
    return f"{100 * share:.1f} %" if _known(share) else _UNKNOWN


def compared_by(objective: Objective) -> str:
    """What layouts are compared by, where it is not MFU alone: ``MFU ×2, tokens per joule ×1``."""
    weighed = [f"{one.metric.noun} ×{one.weight:g}" for one in objective.profile]
    ranked = ", ".join(weighed) or objective.metric.noun
    front = f"; front of {listed([metric.noun for metric in objective.front])}" if objective.front else ""
    return "" if objective == Objective(under_faults=objective.under_faults) else f"{ranked}{front}"


def seconds(value: float | None) -> str:
    """``512 ms``."""
    return format_seconds(value) if _known(value) else _UNKNOWN


def num_bytes(value: float | None) -> str:
    """``39 GB``."""
    return format_bytes(value) if _known(value) else _UNKNOWN


def size(model: ModelSize | TransformerSpec) -> str:
    """``46.7B parameters, 12.9B active``."""
    return size_in_words(model.num_parameters, model.num_active_parameters)


def token_rate(per_s: float | None) -> str:
    """``104 ktokens/s``."""
    return format_rate(per_s, "tokens/s") if _known(per_s) else _UNKNOWN


def predicted_seconds(predicted: Prediction | Estimated) -> str:
    """The predicted, or estimated, step time with its 80 % interval: ``1.23 s ± 11 %``."""
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


def has_own_peak(trial: TrialView) -> bool:
    """Whether the layout's precision has another peak than the one behind MFU, so that its utilization says more."""
    if trial.measured:
        return differs(trial.measured.mfu, trial.measured_precision_utilization)
    return differs(trial.predicted.mfu, trial.predicted.precision_utilization)


def source(request: SweepRequest) -> Literal["measured", "simulated"]:
    """What the figures of a sweep's trials are called."""
    return "simulated" if request.runs_on.engine == SIMULATED else "measured"


def engine(name: str, queue: str = "") -> str:
    """Who runs the trials: ``by slurm, queue batch``; nothing on the service's own machine."""
    return engine_in_words(name, queue)


def hours(value: float) -> str:
    """``0.0125``, ``37.4``, ``1,050``."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


@lru_cache(maxsize=4096)  # a page says the same of the same layouts, every few seconds
def in_words(layout: Layout) -> str:
    """The layout as a person would say it."""
    degrees = [f"{name} {degree}" for name, degree in _degrees(layout) if degree > 1]
    choices = [phrase(name, layout) for name in _PHRASED if layout.shows(name)]
    prefix = "one rank · " if layout.world_size == 1 else ""
    return prefix + " · ".join([*degrees, *choices])


def _degrees(layout: Layout) -> tuple[tuple[str, int], ...]:
    return (
        ("tensor", layout.tensor_parallel_degree),
        ("pipeline", layout.pipeline_parallel_degree),
        ("stages per rank", layout.virtual_stages_per_rank),
        ("data", layout.data_parallel_replicate_degree),
        (f"{_SHARDING[layout.shard_level]} data", layout.data_parallel_shard_degree),
        ("context", layout.context_parallel_degree),
        ("expert", layout.expert_parallel_degree),
    )


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)

"""Objectives as people write them: ``mfu=2,tokens_per_dollar=1`` is a profile, ``mfu,tokens_per_joule`` a front."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from autotuner.core.runs.metric import Metric
from autotuner.core.runs.objective import Weight
from autotuner.errors import InvalidInput

__all__ = ["metrics_text", "profile_text", "read_metrics", "read_profile"]


def read_profile(text: str, field: str) -> tuple[Weight, ...]:
    """Metrics with their weights; one without a weight counts 1.

    Args:
        text: ``METRIC=WEIGHT,...``.
        field: What the text is called in errors.

    Raises:
        InvalidInput: A metric that there is not, or a weight that is no number above 0.
    """
    return tuple(_weight(part.strip(), field) for part in text.split(",") if part.strip())


def read_metrics(text: str, field: str) -> tuple[Metric, ...]:
    """Metrics of a front: ``METRIC,...``.

    Raises:
        InvalidInput: A metric that there is not.
    """
    return tuple(_metric(part.strip(), field) for part in text.split(",") if part.strip())


def profile_text(profile: Iterable[Weight]) -> str:
    """As ``read_profile`` reads it."""
    return ",".join(f"{one.metric.value}={one.weight:g}" for one in profile)


def metrics_text(metrics: Iterable[Metric]) -> str:
    """As ``read_metrics`` reads it."""
    return ",".join(metric.value for metric in metrics)


def _weight(part: str, field: str) -> Weight:
    name, _, weight = part.partition("=")
    metric = _metric(name.strip(), field)
    try:
        return Weight(metric=metric, weight=float(weight or 1))
    except ValueError:
        rule = "must be a number above 0 after the metric's name"
        raise InvalidInput(field, part, rule, f"{metric.value}=1") from None


def _metric(name: str, field: str) -> Metric:
    try:
        return Metric(name)
    except ValueError:
        known = [metric.value for metric in Metric]
        near = get_close_matches(name.lower(), known, 1, cutoff=0.0)
        raise InvalidInput(field, name, f"must be one of {', '.join(known)}", near[0]) from None

"""The Pareto front of several metrics on the page of a sweep: chosen metrics, weights, pictures and explanations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from autotuner.api.dashboard.views.address import Address
from autotuner.api.dashboard.words import plain
from autotuner.core.errors import InvalidInput
from autotuner.core.objective import Metric, Objective, Weight, known_metrics, read_metrics, read_profile, require_known
from autotuner.core.sweep import Sweep, SweepRequest
from autotuner.core.trial import Trial
from autotuner.report.drawing import draw
from autotuner.report.report import Report, Source
from autotuner.report.sweep_answer import front_report
from autotuner.report.sweep_charts import metric_fronts, trial_points
from autotuner.report.words import listed
from autotuner.search.results.sweep_front import SweepFront, sweep_front

_WEIGHTS = (0.5, 1.0, 2.0, 4.0)
"""Weights that the form offers; an address may use any other weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChoice:
    """A metric that the Pareto front can compare trials by, as the form offers it."""

    metric: Metric
    is_chosen: bool
    """True if the metric is part of the front."""
    weights: tuple[tuple[str, str, bool], ...]
    """Weights that the form offers: value, words, and True for the current one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFrontView:
    """The Pareto front of a sweep by several metrics, as its page shows it.

    The address of the page names the metrics. If it names none, they come from the sweep's objective.
    """

    choices: tuple[MetricChoice, ...]
    """Every metric that can be computed for the sweep's cluster."""
    front: SweepFront | None
    pictures: tuple[Markup, ...]
    """Charts of the first metric against each of the others."""
    report: Report | None = None
    """Report of the front; None if it cannot be shown."""
    refused: str = ""
    """Reason why the front cannot be shown as the address asks; empty if it is shown."""

    @classmethod
    def of(
        cls, sweep: Sweep, trials: Sequence[Trial], address: Address, *, source: Source, root: str = ""
    ) -> Self | None:
        """Return the view of the Pareto front; None if neither the address nor the sweep's objective names metrics.

        Args:
            sweep: The sweep.
            trials: Trials of the sweep.
            address: Query of the page; ``metrics`` and ``profile`` name the metrics and their weights.
            source: Source of the results: measured, simulated or estimated.
            root: Path before every address of the service.
        """
        request = sweep.request
        if not request.objective.front and not address.get("metrics"):
            return None
        try:
            asked = _asked(request, address)
        except InvalidInput as error:
            choices = _choices(request, *_typed(address))
            return cls(choices=choices, front=None, pictures=(), refused=_refused(error))
        front = sweep_front(request, trials, asked.front, asked.profile)
        is_simulated = request.runs_on.source == "simulated"
        shown = trial_points(trials, request.objective, root=root, is_simulated=is_simulated)
        return cls(
            choices=_choices(request, front.metrics, asked.profile),
            front=front,
            pictures=tuple(map(draw, metric_fronts(shown, front))),
            report=front_report(front, source, sweep_id=sweep.id),
        )


def _asked(request: SweepRequest, address: Address) -> Objective:
    """Return the metrics and the profile of the address; those of the sweep if the address names none."""
    metrics = read_metrics(address.get("metrics"), "metrics") or request.objective.front
    profile = read_profile(address.get("profile"), "profile") or request.objective.profile
    asked = Objective(front=metrics, profile=profile)
    require_known(asked, request.job.cluster, has_trace=request.fault_trace is not None)
    return asked


def _typed(address: Address) -> tuple[Sequence[Metric], Sequence[Weight]]:
    """Return the metrics and weights of an address that can be read, so that the form keeps the user's choices."""
    metrics: Sequence[Metric] = ()
    profile: Sequence[Weight] = ()
    with suppress(InvalidInput):
        metrics = read_metrics(address.get("metrics"), "metrics")
    with suppress(InvalidInput):
        profile = read_profile(address.get("profile"), "profile")
    return tuple(dict.fromkeys((*metrics, *(one.metric for one in profile)))), profile


def _refused(error: InvalidInput) -> str:
    """Describe an error with its value and the nearest legal value."""
    values = error.value if isinstance(error.value, list) else [error.value]
    said = listed([plain(value) for value in values])
    nearest = f"; nearest: {plain(error.nearest)}" if error.nearest is not None else ""
    return f"{_PARTS.get(error.field, error.field)} {said}: {error.rule}{nearest}"


_PARTS = {"objective.profile": "weights of", "objective.front": "to compare by", "metrics": "to compare by"}
"""Words for the fields that errors beside the form name."""


def _choices(request: SweepRequest, metrics: Sequence[Metric], profile: Sequence[Weight]) -> tuple[MetricChoice, ...]:
    known = known_metrics(request.job.cluster, has_trace=request.fault_trace is not None)
    weights = {one.metric: one.weight for one in profile}
    return tuple(
        MetricChoice(metric=metric, is_chosen=metric in metrics, weights=_offered(metric, weights.get(metric)))
        for metric in known
    )


def _offered(metric: Metric, weight: float | None) -> tuple[tuple[str, str, bool], ...]:
    offered = sorted({*_WEIGHTS, *([] if weight is None else [weight])})
    return (
        ("", "0", weight is None),
        *((f"{metric.value}={each:g}", f"{each:g}", each == weight) for each in offered),
    )

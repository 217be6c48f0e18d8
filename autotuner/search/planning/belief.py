"""Belief: how far off the predicted times of several clusters may be, together, and what small trials would tell.

The logarithm of a run's time is normal. Its error is made of factors that clusters of the same accelerator share, one
for each part of a step and one for how fast such machines are, and of what is a layout's own. Small trials on few
accelerators tell the shared factors; nothing but the whole run tells the rest. Accelerators are taken to err
independently of each other, which is an assumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Prediction
from autotuner.costmodel.uncertainty import PARTS, interval_error
from autotuner.search.planning.outcome import Outcome

_S_PER_HOUR = 3600.0

_NUM_FACTORS = len(PARTS) + 1
"""The parts of a step, and the cluster's speed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Errors:
    """What the logarithm of one predicted step time may be off by.

    Attributes:
        parts: By the order of ``PARTS``: what a standard deviation of each part's factor does to the whole step.
        shares: Of the step, by the same order.
        common: The same of the factor of all parts.
        residual: A layout's own.
    """

    parts: Floats
    shares: Floats
    common: float
    residual: float


def errors_of(layout: Layout, job: Job, prediction: Prediction) -> Errors:
    """The errors behind a prediction's interval."""
    found = interval_error(LayoutColumns.from_layouts([layout]), job)
    deviations = np.array([float(np.ravel(found.parts[name])[0]) for name in PARTS])
    total_s = prediction.step_time.total_s
    shares = np.array([getattr(prediction.step_time, name) / total_s for name in PARTS])
    residual = float(np.ravel(found.residual)[0])
    return Errors(parts=shares * deviations, shares=shares, common=found.common, residual=residual)


@dataclass(frozen=True, eq=False, kw_only=True)
class Told:
    """What a small sweep on one accelerator tells: sums of standard factors, each with noise.

    Attributes:
        accelerator: Whose factors they are.
        rows: Weights of the factors in each sum: shape (sums, factors).
        noise: Standard deviation of each.
    """

    accelerator: str
    rows: Floats
    noise: Floats

    @classmethod
    def by_parts(cls, accelerator: str, errors: Errors, parts: Iterable[str], num_trials: int) -> Told | None:
        """What trials tell of the parts that they run as the target does; None where that is nothing.

        Each part's own factor times that of all parts is measured, as well as trials scatter: by the residual of a
        whole step, of which a part is a share.
        """
        names = tuple(PARTS)
        seen = [names.index(name) for name in parts if errors.shares[names.index(name)] > 0]
        if not seen:
            return None
        rows = np.zeros((len(seen), _NUM_FACTORS))
        rows[:, -1] = errors.common
        rows[np.arange(len(seen)), seen] = errors.parts[seen] / errors.shares[seen]
        return cls(
            accelerator=accelerator, rows=rows, noise=errors.residual / errors.shares[seen] / np.sqrt(num_trials)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Belief:
    """The joint belief of the logarithms of the times, in hours, of several clusters.

    Attributes:
        log_hours: Their means.
        weights: What each standard factor adds: shape (clusters, factors of all accelerators).
        covariance: Of the factors as far as they are known: shape (factors, factors).
        own: Standard deviation of what each has for itself.
        accelerators: Whose factors stand where, by their order.
    """

    log_hours: Floats
    weights: Floats
    covariance: Floats
    own: Floats
    accelerators: tuple[str, ...]

    @classmethod
    def of(cls, found: Sequence[Outcome], errors: Sequence[Errors]) -> Belief:
        """What is believed before anything is measured."""
        names = tuple(dict.fromkeys(outcome.cluster.accelerator.name for outcome in found))
        weights = np.zeros((len(found), _NUM_FACTORS * len(names)))
        for row, (outcome, error) in enumerate(zip(found, errors, strict=True)):
            weights[row, _columns(names, outcome.cluster.accelerator.name)] = [*error.parts, error.common]
        shared = np.sum(weights**2, axis=1)
        deviations = np.array([outcome.deviation for outcome in found])
        return cls(
            log_hours=np.log([outcome.time_s.median / _S_PER_HOUR for outcome in found]),
            weights=weights,
            covariance=np.eye(weights.shape[1]),
            own=np.sqrt(np.maximum(deviations**2 - shared, 0.0)),
            accelerators=names,
        )

    @property
    def deviations(self) -> Floats:
        """Standard deviation of each logarithm."""
        shared = np.einsum("if,fg,ig->i", self.weights, self.covariance, self.weights)
        whole: Floats = np.sqrt(np.maximum(shared, 0.0) + self.own**2)
        return whole

    @property
    def shared_covariance(self) -> Floats:
        """Of the logarithms, without what each has for itself."""
        found: Floats = self.weights @ self.covariance @ self.weights.T
        return found

    def after(self, told: Told) -> Belief:
        """The belief once trials have told something: the means stay, as nobody knows yet what they tell."""
        rows = np.zeros((len(told.rows), self.weights.shape[1]))
        rows[:, _columns(self.accelerators, told.accelerator)] = told.rows
        across = rows @ self.covariance
        gain = np.linalg.solve(across @ rows.T + np.diag(told.noise**2), across)
        return replace(self, covariance=self.covariance - across.T @ gain)

    def of_some(self, rows: Any) -> Belief:
        """The same of some of the clusters."""
        return replace(self, log_hours=self.log_hours[rows], weights=self.weights[rows], own=self.own[rows])


def _columns(names: Sequence[str], name: str) -> slice:
    start = _NUM_FACTORS * names.index(name)
    return slice(start, start + _NUM_FACTORS)

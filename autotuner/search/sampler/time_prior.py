"""How long the step of each layout takes, as far as predictions and the trials so far tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.costmodel.predict import PredictionColumns
from autotuner.costmodel.uncertainty import PARTS, LayoutErrors, TimeError, part_shares
from autotuner.search.sampler.posterior import Posterior, Prior, Related, condition
from autotuner.search.sampler.robust import believed_noise

COMMON = "common"
"""What the factor of all step times of a job or a cluster is called, beside those of parts."""

TIME_FACTORS = (*PARTS, COMMON)
"""Factors of the belief about step times, in its order."""

_RESIDUAL_CORRELATION = 0.7
"""Part of the residual that like layouts share; replays hardly tell 0 from 1 (docs/sampler.md)."""

_RUN_TO_RUN = 0.01
"""Standard deviation of log(measured step time) from run to run of one layout: the two timed twice in arXiv 2311.05610
differ by 0.3 % and 0.8 %. Replays do not tell 0.01 from 0.05."""

_SWEEP_TO_SWEEP = 0.03
"""Standard deviation of log(step time) of one layout from one sweep to a later one: other nodes, another day. An
assumption."""

_CLAIM = 2.0
"""Measurements that the prior's claim about its own precision is worth, see ``scale_inflation``: few, since where it is
wrong a sweep takes longer and stops too early (docs/sampler.md)."""


def time_prior(
    layouts: LayoutColumns,
    predictions: PredictionColumns,
    error: TimeError | LayoutErrors,
    *,
    under_faults: bool = False,
) -> Prior:
    """The belief about the log of each row's step time in seconds before any trial.

    Deviations may differ from layout to layout; those of parts are then told by the shares, and are 1. Where runs told
    of the parts, what a layout's options leave open beyond that is its own, a residual. Under faults the step time is
    the mean of a trace, believed as surely as that of healthy steps and moved by the same parts.
    """
    step_time, robust_s = predictions.step_time, predictions.robust_step_s if under_faults else None
    shares = np.concatenate([part_shares(step_time, error), np.ones((len(layouts), 1))], axis=1)
    residual: float | Floats
    if isinstance(error, LayoutErrors):
        shares, residual = _moved(shares, error), _own(shares, error)
        deviations = np.ones(shares.shape[1])
    else:
        deviations, residual = np.array([*error.parts.values(), error.common]), error.residual
    return Prior(
        layouts=layouts,
        log_predicted=np.log(step_time.total_s if robust_s is None else robust_s),
        shares=shares,
        deviations=deviations,
        residual=residual,
        residual_correlation=_RESIDUAL_CORRELATION,
    )


def _moved(shares: Floats, error: LayoutErrors) -> Floats:
    """What one standard deviation of each factor moves in each row."""
    if error.covariance is not None:
        moved: Floats = error.moved_by(shares[:, :-1]) @ _root(error.covariance)
        return moved
    return shares * _by_row(error, len(shares))


def _own(shares: Floats, error: LayoutErrors) -> Floats:
    """Deviation of what no factor explains in each row."""
    if error.covariance is None:
        return error.residual
    own: Floats = np.sqrt(np.square(error.residual) + np.square(shares * _by_row(error, len(shares))).sum(axis=1))
    return own


def _by_row(error: LayoutErrors, num_rows: int) -> Floats:
    deviations = (*error.parts.values(), error.common)
    return np.stack([np.broadcast_to(one, num_rows) for one in deviations], axis=1)


def _root(covariance: Floats) -> Floats:
    """The symmetric square root: factors that are independent of each other, each still about the part of its name."""
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


def learn_times(
    prior: Prior,
    step_time_s: Mapping[int, float],
    *,
    related: Related | None = None,
    related_step_time_s: Sequence[float] = (),
    related_noise: Sequence[float] = (),
) -> Posterior:
    """The belief after some rows were timed, and some layouts of other jobs.

    Args:
        prior: The belief before.
        step_time_s: By row.
        related: Points of other jobs.
        related_step_time_s: One for each of these.
        related_noise: Variance by which the first of them count; the others vary from run to run as rows do.
    """
    rows = np.array(list(step_time_s), dtype=np.int64)
    log_s = np.log([*step_time_s.values(), *related_step_time_s])
    noise = np.full(log_s.size, _RUN_TO_RUN**2)
    noise[len(rows) : len(rows) + len(related_noise)] = related_noise
    return condition(prior, rows, log_s, noise, related)


def past_noise(prior: Prior, related: Related, step_time_s: Sequence[float]) -> Floats:
    """Variance by which each past trial counts: more than from sweep to sweep where it was slowed down by a fault.

    Args:
        prior: The belief before any trial.
        related: The past trials.
        step_time_s: One for each.
    """
    points = related.points
    covariance = prior.covariance_of(points, points, related.kinship)
    errors = np.log(step_time_s) - points.log_predicted
    return believed_noise(covariance, errors, np.full(len(points), _SWEEP_TO_SWEEP**2), only_above=True)


def scale_inflation(times: Posterior) -> float:
    """Factor on standard deviations: above 1 once predictions have proved worse than they claimed.

    That of a Student-t process: the prior's scale is itself uncertain, with an inverse-gamma belief worth ``_CLAIM``
    observations (Shah, Wilson and Ghahramani 2014, arXiv 1402.4306, section 3). Never below 1: a few predictions that
    prove right are no reason to stop looking.
    """
    return max(1.0, math.sqrt((_CLAIM + times.surprise) / (_CLAIM + len(times.seen))))

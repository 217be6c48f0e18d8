"""How long the step of each layout takes, as far as predictions and the trials so far tell."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.predict import PredictionColumns
from autotuner.costmodel.uncertainty import TimeError, part_shares
from autotuner.search.sampler.posterior import Posterior, Prior, condition

__all__ = ["learn_times", "scale_inflation", "time_prior"]

_RESIDUAL_CORRELATION = 0.7
"""Part of the residual that like layouts share; replays hardly tell 0 from 1 (docs/sampler.md)."""

_RUN_TO_RUN = 0.01
"""Standard deviation of log(measured step time) from run to run of one layout: the two timed twice in arXiv 2311.05610
differ by 0.3 % and 0.8 %. Replays do not tell 0.01 from 0.05."""

_CLAIM = 2.0
"""Measurements that the prior's claim about its own precision is worth, see ``scale_inflation``: few, since where it is
wrong a sweep takes longer and stops too early (docs/sampler.md)."""


def time_prior(layouts: LayoutColumns, predictions: PredictionColumns, error: TimeError) -> Prior:
    """The belief about the log of each row's step time in seconds before any trial."""
    shares = part_shares(predictions.step_time, error)
    return Prior(
        layouts=layouts,
        log_predicted=np.log(predictions.step_time.total_s),
        shares=np.concatenate([shares, np.ones((len(shares), 1))], axis=1),
        deviations=np.array([*error.parts.values(), error.common]),
        residual=error.residual,
        residual_correlation=_RESIDUAL_CORRELATION,
    )


def learn_times(prior: Prior, step_time_s: Mapping[int, float]) -> Posterior:
    """The belief after some rows were timed."""
    rows = np.array(list(step_time_s), dtype=np.int64)
    return condition(prior, rows, np.log(list(step_time_s.values())), np.full(rows.size, _RUN_TO_RUN**2))


def scale_inflation(times: Posterior) -> float:
    """Factor on standard deviations: above 1 once predictions have proved worse than they claimed.

    That of a Student-t process: the prior's scale is itself uncertain, with an inverse-gamma belief worth ``_CLAIM``
    observations (Shah, Wilson and Ghahramani 2014, arXiv 1402.4306, section 3). Never below 1: a few predictions that
    prove right are no reason to stop looking.
    """
    return max(1.0, math.sqrt((_CLAIM + times.surprise) / (_CLAIM + times.rows.size)))

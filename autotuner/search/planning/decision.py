"""Decision: which cluster has the least expected loss, how sure that is, and what knowing more would be worth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autotuner.core.columns import Floats
from autotuner.search.planning.belief import Belief
from autotuner.search.planning.loss import Loss

_NUM_DRAWS = 2048
"""Of what measurements may say: the standard error of a value is 2 % of a cluster's own error."""

_SEED = 20_261_123
"""The same draws for every question, so that answers differ by what is asked alone."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Decision:
    """A choice among clusters by what is believed of their times."""

    belief: Belief
    loss: Loss

    @property
    def losses(self) -> Floats:
        """The expected loss of each cluster."""
        return self.loss.expected(self.belief.log_hours, self.belief.deviations)

    @property
    def best(self) -> int:
        """The cluster with the least."""
        return int(np.argmin(self.losses))

    @property
    def chances_kept(self) -> Floats:
        """How likely each is to keep the goal's limits; 1 where there are none."""
        return self.loss.chance_kept(self.belief.log_hours, self.belief.deviations)

    def regret_saved(self, after: Belief) -> float:
        """What the choice is better by, on average in dollars, if it is made once more is known (value of information).

        The means that will then be believed are drawn; a choice that stays as it is saves nothing (Raiffa and Schlaifer
        1961, Applied Statistical Decision Theory, preposterior analysis).
        """
        return self._dollars(self._saved(after, after.deviations))

    @property
    def regret(self) -> float:
        """Dollars by which the choice is worse, on average, than if all times were known beforehand."""
        nothing_left = self.belief.shared_covariance + np.diag(self.belief.own**2)
        means = self._drawn(nothing_left)
        return self._dollars(self._least(means, np.zeros(len(self.belief.own))))

    def chances_best(self) -> Floats:
        """How likely each cluster is to turn out with the least loss."""
        means = self._drawn(self.belief.shared_covariance + np.diag(self.belief.own**2))
        losses = self.loss.expected(means, np.zeros(len(self.belief.own)))
        winners = np.bincount(np.argmin(losses, axis=1), minlength=len(self.belief.own))
        chances: Floats = winners / len(means)
        return chances

    def _saved(self, after: Belief, deviations: Floats) -> float:
        return self._least(self._drawn(self.belief.shared_covariance - after.shared_covariance), deviations)

    def _least(self, means: Floats, deviations: Floats) -> float:
        """What the least loss of each draw is below that of the present choice, on average."""
        losses = self.loss.expected(means, deviations)
        return float(np.mean(losses[:, self.best] - np.min(losses, axis=1)))

    def _drawn(self, covariance: Floats) -> Floats:
        """Means that may be believed later: shape (draws, clusters).

        The root is the symmetric one: eigenvectors alone have another sign on another processor, and draws with them.
        """
        values, vectors = np.linalg.eigh(covariance)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        drawn: Floats = self.belief.log_hours + _normals(len(values)) @ root
        return drawn

    def _dollars(self, loss: float) -> float:
        return loss * float(self.loss.dollars[self.best])


@lru_cache(maxsize=8)
def _normals(num_clusters: int) -> Floats:
    normals = np.random.default_rng(_SEED).standard_normal((_NUM_DRAWS, num_clusters))
    normals.setflags(write=False)
    return normals

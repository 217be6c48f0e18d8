"""What the bench makes of errors of runs that were left out of a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.catalog.compared import BITS_16, DENSE
from bench.intervals import POOLED_RUNS, Miss, cluster_deviation, covered, on_known_clusters, pooled, scatter

OWNER, OTHER = ("megatron", "a100-80gb", DENSE), ("nemo", "h100-sxm", DENSE)


def misses(deviation: float, count: int, shift: float = 0.0, **changes: Any) -> list[Miss]:
    """Runs whose errors are drawn from a normal distribution, of one sheet each."""
    errors = shift + np.random.default_rng(count).normal(0.0, deviation, count)
    one = Miss(
        owner=OWNER, sheet="", cluster="a", bits=BITS_16, error=0.0, parts=0.0, residual=deviation**2, common=0.01
    )
    return [replace(one, sheet=str(n), error=float(error), **changes) for n, error in enumerate(errors)]


def test_the_scatter_of_many_runs_is_their_own() -> None:
    found = misses(0.1, 4000, common=0.0)
    assert scatter(found)[OWNER][BITS_16] == pytest.approx(0.1, rel=0.05)  # two deviations of a quantile of 4,000


def test_few_runs_scatter_as_others_of_their_kind() -> None:
    found = [*misses(0.2, 400, common=0.0), *misses(0.0, 2, common=0.0, owner=OTHER)]
    assert scatter(found)[OTHER][BITS_16] == pytest.approx(0.2, rel=2 * 2 / POOLED_RUNS)  # the weight of its own two
    assert pooled(found)[DENSE][BITS_16] < 0.2  # each owner counts as much


def test_runs_with_their_own_scatter_are_covered_as_often_as_an_interval_says() -> None:
    found = misses(0.1, 4000, common=0.0)
    own = scatter(found)[OWNER][BITS_16]
    assert covered([replace(miss, residual=own**2) for miss in found]) == pytest.approx(0.8, abs=0.001)  # by one run


def test_what_runs_of_other_sheets_say_of_a_cluster_is_taken_away() -> None:
    found = list(on_known_clusters(misses(0.02, 200, shift=0.3)))
    assert np.mean([miss.error for miss in found]) == pytest.approx(0.0, abs=0.005)  # three deviations of a mean of 200
    assert max(miss.common for miss in found) < 0.01 / 100


def test_a_cluster_that_is_alone_with_a_sheet_stays_unknown() -> None:
    (miss,) = misses(0.02, 1, shift=0.3)
    (alone,) = on_known_clusters([miss])
    assert alone.error == pytest.approx(miss.error)  # rounding
    assert alone.common == pytest.approx(miss.common)  # rounding


def test_clusters_that_lie_apart_have_that_deviation() -> None:
    shifts = np.random.default_rng(0).normal(0.0, 0.2, 400)
    found = [miss for n, shift in enumerate(shifts) for miss in misses(0.0, 1, shift, cluster=str(n))]
    assert cluster_deviation(found) == pytest.approx(0.2, rel=0.15)  # two deviations of a quantile of 400

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import Recompute
from autotuner.core.layout import Layout
from autotuner.core.trial import Trial
from autotuner.search.results.choices import choices
from autotuner.search.results.importance import shares_explained
from tests.builders import big_job, sweep_request
from tests.unit.search.results.trials import BASE, died, ran

REQUEST = sweep_request(job=big_job())


def crossed() -> list[Trial]:
    """Every pair of three micro-batches and four ways to recompute: recomputation costs most, micro-batches little."""
    trials = []
    for size in (1, 2, 4):
        for every, cost in ((1, 1.6), (2, 1.4), (3, 1.2)):
            trials.append((replace(BASE, micro_batch_size=size, recompute=Recompute.FULL, recompute_every=every), cost))
        trials.append((replace(BASE, micro_batch_size=size), 1.0))
    return [ran(n, layout, cost * (1 + layout.micro_batch_size / 100)) for n, (layout, cost) in enumerate(trials)]


def test_what_explains_most_comes_first() -> None:
    found = choices(REQUEST, crossed())
    assert found.num_ranked == 12
    assert [one.name for one in found.importance][-1] == "mb"
    assert found.explained == pytest.approx(1.0, abs=0.01)  # the effects multiply, so their logarithms add up
    assert all(0 <= share <= 1 for one in found.importance for share in (one.alone, one.beyond_others, one.share))


def test_degrees_that_move_together_explain_alone_and_nothing_beyond_each_other() -> None:
    trials = []
    for stages in (1, 2, 4, 8):
        layout = replace(BASE, pipeline_parallel_degree=stages, data_parallel_replicate_degree=16 // stages)
        for size in (1, 2, 4):
            trials.append((replace(layout, micro_batch_size=size), 1 + stages / 10 + size / 100))
    found = choices(REQUEST, [ran(number, *one) for number, one in enumerate(trials)])
    shares = {one.name: (one.alone, one.beyond_others) for one in found.importance}
    for name in ("pp", "dp"):
        assert shares[name] == pytest.approx((0.996, 0.0), abs=1e-3)  # micro-batches leave the rest


def test_levels_tell_the_best_of_each_value_in_order() -> None:
    (size,) = [one for one in choices(REQUEST, crossed()).importance if one.name == "mb"]
    assert [(level.value, level.num_ranked) for level in size.levels] == [(1, 4), (2, 4), (4, 4)]
    assert [level.best_value for level in size.levels] == pytest.approx([0.4 / 1.01, 0.4 / 1.02, 0.4 / 1.04])


def test_of_few_layouts_nothing_is_said_to_explain_anything() -> None:
    found = choices(REQUEST, crossed()[:5])
    assert found.explained is None
    assert {one.share for one in found.importance} == {0.0}


def test_effects_are_those_of_pairs_the_largest_first() -> None:
    found = choices(REQUEST, crossed())
    assert found.effects[0].statement.startswith("recompute full → none: +60.0 % throughput in the median of 3 pairs")
    assert all(one.num_pairs for one in found.effects)


def test_without_trials_nothing_mattered() -> None:
    found = choices(REQUEST, [died(0, Layout())])
    assert (found.num_ranked, found.explained, found.importance, found.effects) == (0, None, (), ())


def test_an_effect_beside_noise_is_found_and_noise_alone_explains_nothing() -> None:
    rng = np.random.default_rng(0)
    matters, noise = rng.integers(0, 2, (2, 400)).astype(np.float64)
    shares = shares_explained([matters[:, None], noise[:, None]], matters + rng.normal(0, 0.5, 400))
    assert shares.alone[0] == pytest.approx(0.5, abs=0.1)  # both have a variance of one quarter
    assert shares.alone[1] < 0.03
    assert shares.together == pytest.approx(shares.alone[0], abs=0.02)


def test_as_many_effects_as_values_explain_nothing() -> None:
    shares = shares_explained([np.eye(5)], np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert shares.together is None


def test_equal_values_leave_nothing_to_explain() -> None:
    shares = shares_explained([np.array([[0.0], [1.0], [0.0]])], np.ones(3))
    assert shares.alone == (0.0,)

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from trials.mesh import stage_layers


@given(st.integers(1, 16).flatmap(lambda stages: st.tuples(st.just(stages), st.integers(stages, 100))))
def test_stages_share_the_layers_in_order_and_the_earliest_take_the_odd_ones(shape: tuple[int, int]) -> None:
    num_stages, num_layers = shape
    stages = [stage_layers(num_layers, num_stages, stage) for stage in range(num_stages)]
    assert [layer for stage in stages for layer in stage] == list(range(num_layers))
    assert all(0 <= len(earlier) - len(later) <= 1 for earlier, later in pairwise(stages))
    assert len(stages[0]) - len(stages[-1]) <= 1

"""Max-min fair rates of small networks that textbooks solve by hand."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.flows.filling import fair_rates
from autotuner.flows.streams import Streams


def streams(*paths: dict[int, float]) -> Streams:
    entries = [(stream, link, weight) for stream, path in enumerate(paths) for link, weight in path.items()]
    stream, link, weight = zip(*entries, strict=True)
    return Streams(
        num_streams=len(paths),
        stream=np.array(stream),
        link=np.array(link),
        weight=np.array(weight, dtype=np.float64),
    )


def test_streams_share_a_link_equally_and_what_a_narrow_one_leaves_goes_to_the_others() -> None:
    # a long stream over both links, one over each; the second link is narrow
    rates = fair_rates(streams({0: 1, 1: 1}, {0: 1}, {1: 1}), np.array([10.0, 4.0]))
    assert rates.tolist() == pytest.approx([2, 8, 2])


def test_a_stream_that_passes_a_link_twice_takes_twice_of_it() -> None:
    assert fair_rates(streams({0: 2}, {0: 1}), np.array([9.0])).tolist() == pytest.approx([3, 3])


def test_a_stream_without_a_link_is_as_fast_as_it_likes() -> None:
    assert fair_rates(streams({0: 1}, {}), np.array([5.0])).tolist() == [5, np.inf]


def test_no_link_passes_more_than_it_can_and_every_stream_meets_a_full_one() -> None:
    draw = np.random.default_rng(1)
    found = streams(*({int(link): 1.0 for link in draw.choice(30, 4, replace=False)} for _ in range(200)))
    capacities = draw.uniform(1, 10, 30)
    rates = fair_rates(found, capacities)
    passed = np.bincount(found.link, weights=rates[found.stream], minlength=30)
    assert (passed <= capacities * (1 + 1e-9)).all()
    full = passed >= capacities * (1 - 1e-9)
    assert set(found.stream[full[found.link]]) == set(range(200))

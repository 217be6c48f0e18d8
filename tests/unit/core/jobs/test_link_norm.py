"""Which of several measured links are not healthy."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import combinations

import pytest

from autotuner.core.jobs.link_health import LinkEnds, LinkHealth
from autotuner.core.jobs.link_norm import LinkNorm, link_health_of
from autotuner.core.jobs.link_points import LinkPoint
from tests.builders import link_point

TYPICAL = 50e-6


def pairs(num_ends: int, **slow: float) -> list[LinkPoint]:
    """Links of 50 µs, but for those named as ``l0_1``."""
    delays = {tuple(map(int, name[1:].split("_"))): delay for name, delay in slow.items()}
    return [link_point(*ends, delay=delays.get(ends, TYPICAL)) for ends in combinations(range(num_ends), 2)]


def ailing(points: list[LinkPoint], bandwidth: float = 1e9) -> Mapping[LinkEnds | None, LinkHealth]:
    found = link_health_of(points, bandwidth_bytes_per_s=bandwidth, source="measured 2026-11-22")
    return {health.ends: health for health in found}


def test_links_that_are_alike_say_nothing() -> None:
    assert not ailing(pairs(4))


def test_a_late_link_is_said_with_its_delay_on_top_of_the_others_and_its_source() -> None:
    (health,) = ailing(pairs(4, l2_3=0.03)).values()
    assert health == LinkHealth(ends=(2, 3), delay_s=0.03 - TYPICAL, jitter_s=2e-6, source="measured 2026-11-22")


def test_a_narrow_link_has_its_share_of_what_the_cluster_says_of_such_links() -> None:
    points = [*pairs(4)[:-1], link_point(2, 3, delay=TYPICAL, back=0.25e9)]
    (health,) = ailing(points, bandwidth=40e9).values()
    assert health.bandwidth_bytes_per_s == pytest.approx(10e9)
    assert health.delay_s == 0.0


def test_a_node_of_four_whose_every_link_is_late_is_found() -> None:
    assert set(ailing(pairs(4, l0_1=0.03, l0_2=0.03, l0_3=0.031))) == {(0, 1), (0, 2), (0, 3)}


def test_two_links_of_six_are_found() -> None:
    assert set(ailing(pairs(4, l0_1=0.03, l1_2=0.06))) == {(0, 1), (1, 2)}


def test_one_of_three_links_is_found() -> None:
    assert set(ailing(pairs(3, l0_2=0.002))) == {(0, 2)}


def test_a_link_with_no_other_to_compare_with_is_not_judged() -> None:
    assert LinkNorm.of([link_point(0, 1, delay=1.0)]) is None
    assert not ailing([link_point(0, 1, delay=1.0)])


@pytest.mark.parametrize("delay", [TYPICAL, 1.7 * TYPICAL, 149e-6])
def test_a_difference_that_does_not_matter_is_no_ailment(delay: float) -> None:
    assert not ailing(pairs(4, l2_3=delay))


@pytest.mark.parametrize(("jitter", "is_late"), [(0.9e-3, True), (1.1e-3, False)])
def test_a_delay_within_the_jitter_of_its_own_messages_is_noise(jitter: float, is_late: bool) -> None:
    points = [*pairs(4)[:-1], link_point(2, 3, delay=1e-3 + TYPICAL, jitter=jitter)]
    assert bool(ailing(points)) == is_late


def test_two_tiers_of_switches_are_healthy() -> None:
    points = [
        link_point(
            low, high, delay=5e-6 if low // 4 == high // 4 else 9e-6, forth=4e9 if low // 4 == high // 4 else 3e9
        )
        for low, high in combinations(range(8), 2)
    ]
    assert not ailing(points)


def test_a_link_without_one_of_its_two_rails_is_narrow() -> None:
    points = [*pairs(4)[:-1], link_point(2, 3, delay=TYPICAL, forth=0.5e9)]
    assert set(ailing(points)) == {(2, 3)}


def test_noise_of_a_tenth_rings_no_alarm_in_a_thousand_measurements() -> None:
    noise = random.Random(0)
    for _ in range(1000):
        points = [
            link_point(*ends, delay=0.002 * noise.lognormvariate(0, 0.1), forth=1e9 * noise.lognormvariate(0, 0.1))
            for ends in combinations(range(4), 2)
        ]
        assert len(ailing(points)) == 0

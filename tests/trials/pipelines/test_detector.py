"""What the detector finds, told of steps that nobody had to run."""

from __future__ import annotations

import pytest

from autotuner.core.measurement import LinkEventKind
from tests.trials.pipelines.observed import PASS_S, Steps
from trials.pipelines.detector import Detector, Finding

HEALTHY_STEPS = 8


def watched(steps: Steps, detector: Detector, num_steps: int) -> list[tuple[int, Finding]]:
    """What was found in which of the next steps."""
    return [(number, finding) for number in range(num_steps) for finding in detector.look(steps.next())]


def started() -> tuple[Steps, Detector]:
    steps, detector = Steps(), Detector(4)
    assert watched(steps, detector, HEALTHY_STEPS) == []
    return steps, detector


@pytest.mark.parametrize("delay_s", [PASS_S / 2, PASS_S, 0.06])
@pytest.mark.parametrize("link", [0, 1, 2])
def test_a_slow_link_is_named_in_the_second_step_with_its_delay(link: int, delay_s: float) -> None:
    steps, detector = started()
    steps.delays_s = tuple(delay_s * (one == link) for one in range(3))
    ((number, finding),) = watched(steps, detector, 20)
    assert (number, finding.kind, finding.stages) == (1, LinkEventKind.LINK_SLOW, (link, link + 1))
    assert finding.delay_s == pytest.approx(delay_s, abs=0.001)  # twice the noise
    assert detector.delays_s[link] == finding.delay_s


def test_a_link_that_recovers_is_healthy_again_in_the_second_step() -> None:
    steps, detector = started()
    steps.delays_s = (0.0, 0.0, 0.06)
    watched(steps, detector, 20)
    steps.delays_s = (0.0, 0.0, 0.0)
    ((number, finding),) = watched(steps, detector, 20)
    assert (number, finding.kind, finding.stages) == (1, LinkEventKind.LINK_RECOVERED, (2, 3))
    assert detector.delays_s == (0.0, 0.0, 0.0)


def test_a_link_that_is_slow_one_way_takes_more_steps_to_be_sure_of() -> None:
    steps, detector = started()
    steps.delays_s, steps.is_one_way = (0.0, 0.0, 0.06), True
    ((number, finding),) = watched(steps, detector, 20)
    assert (number, finding.kind, finding.stages) == (5, LinkEventKind.LINK_SLOW, (2, 3))


def test_a_slow_rank_is_no_slow_link_though_it_sees_late_what_comes() -> None:
    steps, detector = started()
    steps.slower_s = (0.0, PASS_S, 0.0, 0.0)
    ((number, finding),) = watched(steps, detector, 20)
    assert (number, finding.kind, finding.stages) == (3, LinkEventKind.RANK_SLOW, (1,))
    assert finding.delay_s == pytest.approx(3 * PASS_S, abs=0.003)  # three passes of each micro-batch, and their noise
    steps.slower_s = (0.0,) * 4
    ((_, finding),) = watched(steps, detector, 20)
    assert (finding.kind, finding.stages) == (LinkEventKind.RANK_RECOVERED, (1,))


def test_a_machine_that_slows_every_rank_is_neither() -> None:
    steps, detector = started()
    steps.slower_s = (PASS_S,) * 4
    assert watched(steps, detector, 20) == []


def test_a_slow_link_beside_a_slow_rank_elsewhere_is_found() -> None:
    steps, detector = started()
    steps.slower_s, steps.delays_s = (PASS_S, 0.0, 0.0, 0.0), (0.0, 0.0, 0.06)
    kinds = {finding.kind: finding.stages for _, finding in watched(steps, detector, 20)}
    assert kinds == {LinkEventKind.LINK_SLOW: (2, 3), LinkEventKind.RANK_SLOW: (0,)}


def test_a_link_that_ranks_lost_is_dead_at_once_and_recovers_when_they_have_it_again() -> None:
    steps, detector = started()
    steps.dead = frozenset({1})
    assert watched(steps, detector, 3) == [(0, Finding(kind=LinkEventKind.LINK_DEAD, stages=(1, 2)))]
    assert detector.dead_links == {1}
    steps.dead = frozenset()
    assert watched(steps, detector, 3) == [(0, Finding(kind=LinkEventKind.LINK_RECOVERED, stages=(1, 2)))]


def test_delays_that_were_known_are_no_news() -> None:
    steps, detector = Steps(delays_s=(0.03, 0.0, 0.0)), Detector(4, known_s=(0.03, 0.0, 0.0))
    assert watched(steps, detector, 30) == []
    steps.delays_s = (0.0, 0.0, 0.0)
    ((_, finding),) = watched(steps, detector, 10)
    assert (finding.kind, detector.delays_s) == (LinkEventKind.LINK_RECOVERED, (0.0, 0.0, 0.0))


def test_a_message_that_nobody_saw_come_tells_nothing() -> None:
    steps, detector = started()
    unseen = [type(one)(stage=one.stage, forward_s=PASS_S, micro_batch_s=3 * PASS_S) for one in steps.next()]
    assert detector.look(unseen) == ()


def test_thousands_of_healthy_steps_raise_no_alarm() -> None:
    assert watched(Steps(noise_s=0.003), Detector(4), 2_000) == []

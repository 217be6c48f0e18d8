"""Detector: finds slow links and slow stages in the measurements of all ranks of a pipeline in a step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, Self

from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.schedules.schedule import Kind
from autotuner.training.pipelines.pipeline import ResilientPipeline

# ---------------------------------------------------------------- one noisy series of times
LEARNED_STEPS = 5
"""Number of steps from which the first nominal level is learned. A fault during these steps is not detected."""

_KEPT_STEPS = 32
"""Number of steps whose median is the nominal level. The level so follows slow changes such as drifting clocks."""

_FINEST = 1 / 8
"""Smallest scale of the noise, as a share of the shift to detect, because a few steps may have less noise than
usual."""

_AGREEING = 0.25
"""Relative difference of two delays that count as the same delay, for example because of jitter."""

_NORMAL_MAD = 1.4826
"""Number of standard deviations of normal noise in one median absolute deviation (1 / 0.6745, any table of the normal
distribution)."""


def threshold_for(false_alarms_per_step: float, num_tests: int) -> float:
    """Return the threshold for sums of log-likelihood ratios at which false alarms are as rare as requested.

    The sums restart at 0. The mean time to a false alarm of such a sum is at least exp(threshold), whatever the
    distribution of the ratios (Lorden, 1971, Annals of Mathematical Statistics 42, theorem 2). If the ratios are
    clipped, false alarms are even rarer.

    Args:
        false_alarms_per_step: Maximum mean number of false alarms per step, over all tests together.
        num_tests: Number of tests that run at the same time.

    Example:
        >>> round(threshold_for(1e-4, num_tests=10), 2)
        11.51
    """
    return math.log(max(1, num_tests) / false_alarms_per_step)


class NominalLevel:
    """The usual duration and the noise of a series of step times, against which new steps are compared.

    They are the median and the median absolute deviation of up to 32 steps.
    """

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_KEPT_STEPS)

    @property
    def is_learned(self) -> bool:
        """True if enough steps were observed to know the usual step time, so that new steps can be compared with it."""
        return len(self._values) >= LEARNED_STEPS

    @property
    def level_s(self) -> float:
        """The median time in seconds of the observed steps, which is the usual step time; 0 if there are no steps."""
        return median(self._values) if self._values else 0.0

    @property
    def scale_s(self) -> float:
        """The standard deviation of the noise, estimated from the median absolute deviation as for normal noise.

        The estimate is increased if there are few steps, because it is then less precise.
        """
        level_s, count = self.level_s, len(self._values)
        spread_s = median(abs(value - level_s) for value in self._values)
        return _NORMAL_MAD * spread_s * count / (count - 1)

    def add(self, value_s: float) -> None:
        """Add the time of one step, in seconds, to the steps from which the usual duration is computed."""
        self._values.append(value_s)

    def forget(self, num_steps: int) -> None:
        """Remove the latest ``num_steps`` steps, because their times were already at a new level."""
        for _ in range(min(num_steps, len(self._values))):
            self._values.pop()

    def restart(self, values_s: Sequence[float]) -> None:
        """Compute the usual duration from these step times only, and forget all earlier ones."""
        self._values = deque(values_s, maxlen=_KEPT_STEPS)


class _Sum:
    """The sum of log-likelihood ratios of a shift in one direction, over the steps since it was last 0.

    Noise that is not normal has more outliers than its scale suggests. So a step adds at most the observed rareness of
    outliers, and at most 1 / ``num_steps`` of the threshold, so that at least ``num_steps`` steps are needed.
    """

    def __init__(self, threshold: float, num_steps: int) -> None:
        self._threshold = threshold
        self._most = threshold / num_steps
        self._num_steps = 0
        self._num_outliers = 0
        self._pending = 0
        self._sum = 0.0

    def add(self, off_s: float, shift_s: float, scale_s: float) -> bool:
        """Add a step that is ``off_s`` away from the level in this direction.

        Return True if the shift is now certain.
        """
        ratio = shift_s * (off_s - shift_s / 2) / scale_s**2
        self._sum = max(0.0, self._sum + min(self._rareness(), ratio))
        self._num_steps += 1
        self._pending += off_s > shift_s / 2
        if self._sum == 0.0:  # the shift was not a lasting change
            self._num_outliers, self._pending = self._num_outliers + self._pending, 0
        return self._sum >= self._threshold * (1 - 1e-9)  # equal parts sum to a little less

    def restart(self) -> None:
        """Set the sum back to 0, because the shift was confirmed."""
        self._sum, self._pending = 0.0, 0

    def _rareness(self) -> float:
        """Return minus the logarithm of the share of outliers.

        At first, outliers are assumed to be as rare as one part of the threshold requires.
        """
        rarest = math.exp(self._most)
        return min(self._most, math.log((rarest + self._num_steps) / (1 + self._num_outliers)))


class ChangeTest:
    """A sequential test that finds out when a series of times moves away from its nominal level, up or down.

    In each step, the test adds a log-likelihood ratio to a sum that never falls below 0 (CUSUM: Page, 1954, Biometrika
    41). The ratio compares a shift of the level with no shift, for normal noise of the learned scale. A single outlier
    never moves the level, however large it is: at least ``num_steps`` steps must agree, and more steps if outliers were
    seen before.

    Args:
        threshold: Result of ``threshold_for``.
        num_steps: Minimum number of steps that must agree on a new level.
        level_s: Seconds above the nominal level that are known at the start.

    Attributes:
        level_s: Seconds above the nominal level.
    """

    def __init__(self, threshold: float, *, num_steps: int = 2, level_s: float = 0.0) -> None:
        self.level_s = level_s
        self._num_steps = num_steps
        self._nominal = NominalLevel()
        self._later, self._earlier = _Sum(threshold, num_steps), _Sum(threshold, num_steps)
        self._recent: deque[float] = deque(maxlen=num_steps + 1)
        self._waited = False

    def above_s(self, value_s: float) -> float:
        """Return the seconds by which a time exceeds the nominal level, which is the usual time of earlier steps.

        It is 0 until the nominal level is known.
        """
        return value_s - self._nominal.level_s if self._nominal.is_learned else 0.0

    def add(self, value_s: float, shift_s: float, *, doubt_s: float = 0.0) -> bool:
        """Add the time of a step, and return True if this step shows that the level has changed.

        Args:
            value_s: Time of this step.
            shift_s: The smallest shift of the level that matters. The test never finds a shift of less than half of it.
            doubt_s: Part of the increase over the nominal level that may have another cause. It is subtracted first.
        """
        self._recent.append(value_s)
        if self._nominal.is_learned and self._is_changed(value_s, shift_s, max(0.0, doubt_s)):
            return self._moved(shift_s)
        self._waited = False
        self._nominal.add(value_s - self.level_s)
        return False

    def settle(self, level_s: float) -> None:
        """Set the level to one that another test of the same link found, and restart this test from there.

        Args:
            level_s: Seconds above the nominal level.
        """
        self.level_s, self._waited = level_s, False
        self._later.restart()
        self._earlier.restart()

    def _is_changed(self, value_s: float, shift_s: float, doubt_s: float) -> bool:
        scale_s = max(self._nominal.scale_s, _FINEST * shift_s)
        off_s = value_s - self._nominal.level_s - self.level_s
        off_s = max(0.0, off_s - doubt_s) if off_s > 0 else off_s
        is_later, is_earlier = self._later.add(off_s, shift_s, scale_s), self._earlier.add(-off_s, shift_s, scale_s)
        return is_later or is_earlier

    def _moved(self, shift_s: float) -> bool:
        """Adopt a new level if the last steps agree on it, or most of them if one was disturbed.

        Return True if the level has changed.
        """
        *_, last_s = recent = list(self._recent)[-self._num_steps :]
        if max(recent) - min(recent) > max(shift_s / 2, _AGREEING * abs(last_s)) and not self._waited:
            self._waited = True  # the next step shows which of them is the new level
            return False
        before_s, seen_s = self.level_s, median(self._recent) if self._waited else min(recent)
        self._waited = False
        self._nominal.forget(self._num_steps - 1)  # the removed steps were at the new level
        self._later.restart()
        self._earlier.restart()
        above_s = seen_s - self._nominal.level_s
        self.level_s = above_s if above_s >= shift_s / 2 else 0.0
        if above_s <= -shift_s / 2:  # the learned level was already a slow one
            self._nominal.restart(recent)
        return self.level_s != before_s


# ---------------------------------------------------------------- what ranks measure
_KEPT_PASSES = 32
"""Number of passes whose median counts as the time of a pass (the ring buffer of PipeMorph, arXiv 2504.19232)."""


class RecentPasses:
    """The durations of the last 32 passes of each kind on this rank. The passes may belong to several steps."""

    def __init__(self) -> None:
        self._durations: dict[Kind, deque[float]] = {}

    def add(self, durations_s: Mapping[Kind, Sequence[float]]) -> None:
        """Add the durations of the passes of one more step.

        Args:
            durations_s: Durations by kind of pass.
        """
        for kind, values in durations_s.items():
            self._durations.setdefault(kind, deque(maxlen=_KEPT_PASSES)).extend(values)

    def median_s(self, kind: Kind) -> float:
        """Return the median duration, in seconds, of this rank's last passes of one kind; 0 if no such pass ran."""
        kept = self._durations.get(kind)
        return median(kept) if kept else 0.0


class RankObservation(NamedTuple):
    """The times of passes and messages that one pipeline rank measured in one step, as a few numbers for all ranks."""

    stage: int
    """Pipeline stage of the observed rank."""
    forward_s: float
    """Median time of the rank's last 32 forward passes, over several steps. The times of backward passes below are such
    medians too."""
    micro_batch_s: float
    """Time of all passes of one micro-batch: the sum of medians over this step alone."""
    input_s: float = 0.0
    """Time of backward passes for inputs, or half of the time of whole backward passes."""
    weight_s: float = 0.0
    """Time of backward passes for weights, or half of the time of whole backward passes."""
    pipeline_index: int = 0
    """Number of the rank's pipeline among those with the same stages. Messages stay within one pipeline."""
    from_previous_s: float | None = None
    """Shortest time of a transfer from the previous rank in this step; None if none was observed."""
    from_next_s: float | None = None
    """Shortest time of a transfer from the next rank in this step; None if none was observed."""
    lost_previous: bool = False
    """True if the link to the previous rank is broken, so that only delegates can send over it."""
    lost_next: bool = False
    """True if the link to the next rank is broken, so that only delegates can send over it."""

    @classmethod
    def of(cls, pipeline: ResilientPipeline, recent: RecentPasses | None = None, *, pipeline_index: int = 0) -> Self:
        """Return the times that this rank measured in the pipeline's last step, for the exchange with other ranks.

        The pipeline must have one stage per rank.

        Args:
            pipeline: The pipeline of this rank.
            recent: The passes of earlier steps, whose medians are part of the result. The passes of this step are added
                to them. None: only this step counts.
            pipeline_index: Number of this pipeline among the pipelines with the same stages.
        """
        recent = RecentPasses() if recent is None else recent
        timings, stage, dead = pipeline.timings, pipeline.rank, pipeline.transport.dead_peers
        recent.add(timings.passes_s)
        half_s = recent.median_s(Kind.BACKWARD) / 2
        return cls(
            stage=stage,
            pipeline_index=pipeline_index,
            forward_s=recent.median_s(Kind.FORWARD),
            input_s=recent.median_s(Kind.INPUT) or half_s,
            weight_s=recent.median_s(Kind.WEIGHT) or half_s,
            micro_batch_s=sum(map(median, timings.passes_s.values())),
            from_previous_s=timings.shortest_transfer_s(stage - 1),
            from_next_s=timings.shortest_transfer_s(stage + 1),
            lost_previous=stage - 1 in dead,
            lost_next=stage + 1 in dead,
        )

    def numbers(self) -> list[float]:
        """Return the observation as a list of numbers, with the same length on every rank. A missing value is NaN."""
        return [math.nan if one is None else float(one) for one in self]

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> Self:
        """Return the observation of another rank from the list of numbers that its method ``numbers`` made."""
        values: list[Any] = [None if math.isnan(one) else one for one in numbers]
        found = cls(*values)
        return found._replace(
            stage=int(found.stage),
            pipeline_index=int(found.pipeline_index),
            lost_previous=bool(found.lost_previous),
            lost_next=bool(found.lost_next),
        )


_FALSE_ALARMS_PER_STEP = 1e-4
"""Highest number of false alarms per step, of all tests together: one in 10,000 steps."""

_LINK_STEPS = 2
"""Number of steps that must agree before a link counts as slow, or as nominal again. It is small, because a new plan
costs little and each slow step costs much."""

_ONE_WAY_STEPS = 6
"""Number of steps that must agree if messages are late in only one direction, as they are to a rank that waits for a
CPU core."""

_RANK_STEPS = 4
"""Number of steps that must agree before a rank counts as slow. It is larger, because a slow rank changes no plan, and
cores are often shared for a moment."""


_Change = tuple[LinkEventKind, tuple[int, ...], float]


class _Link:
    """The tests of one link: one for both directions, by the faster one, and one for each direction."""

    def __init__(self, threshold: float, known_s: float) -> None:
        self._both = ChangeTest(threshold, num_steps=_LINK_STEPS, level_s=known_s)
        self._each = [ChangeTest(threshold, num_steps=_ONE_WAY_STEPS, level_s=known_s) for _ in range(2)]

    @property
    def level_s(self) -> float:
        """The present delay of the link above its nominal delay, in seconds."""
        return max(self._both.level_s, *(test.level_s for test in self._each))

    def add(self, forth_s: float | None, back_s: float | None, shift_s: float, *, doubt_s: float) -> bool:
        """Add the transfer times of a step.

        Return True if the level of any test has changed.
        """
        moved = False
        for test, took_s in zip(self._each, (forth_s, back_s), strict=True):
            moved |= took_s is not None and test.add(took_s, shift_s, doubt_s=doubt_s)
        seen_s = [took_s for took_s in (forth_s, back_s) if took_s is not None]
        if seen_s and self._both.add(min(seen_s), shift_s, doubt_s=doubt_s):
            for test in self._each:
                test.settle(self._both.level_s)
            return True
        return moved


class Detector:
    """Finds slow links and slow ranks, with a separate sequential test for each of them.

    A link is slow if its messages take longer than before, from sending to arrival, and if this increase exceeds the
    increase of the passes at both ends of the link. A rank is slow if its passes became longer by more than the passes
    of other stages did. If other programs use the CPU cores of a machine, messages and passes become longer in several
    places at once, and neither links nor ranks count as slow. A delay of a link matters if it is at least half a
    forward pass of the stage before the link.

    The result depends only on the observations. Therefore all ranks with the same observations find the same, without a
    vote.

    Args:
        num_stages: Number of stages, with one stage per pipeline rank.
        num_pipelines: Number of pipelines with the same stages.
        known_s: Delays of links that exist from the first step on, in the order of the stages before the links.
    """

    def __init__(
        self,
        num_stages: int,
        *,
        num_pipelines: int = 1,
        known_s: Sequence[float] = (),
    ) -> None:
        num_tests = 2 * num_pipelines * (3 * (num_stages - 1) + num_stages)
        threshold, known_s = threshold_for(_FALSE_ALARMS_PER_STEP, num_tests), known_s or (0.0,) * (num_stages - 1)
        self._by_link = {
            (link, index): _Link(threshold, known_s[link])
            for link in range(num_stages - 1)
            for index in range(num_pipelines)
        }
        self._ranks = {
            (stage, index): ChangeTest(threshold, num_steps=_RANK_STEPS)
            for stage in range(num_stages)
            for index in range(num_pipelines)
        }
        self._dead: set[int] = set()
        self._delays_s = list(known_s)

    @property
    def delays_s(self) -> tuple[float, ...]:
        """The latest one-way delay of each link in seconds, in the order of the stages before the links."""
        return tuple(self._delays_s)

    def look(self, step: int, observations: Sequence[RankObservation]) -> list[LinkEvent]:
        """Return an event for each link or stage that became slow, dead or nominal again in this step.

        An event names the two stages at the ends of a link, or one stage. It gives the seconds above the nominal level:
        for a link, per message in one direction; for a stage, per micro-batch.

        Args:
            step: Number of the step in the events.
            observations: Measurements of all ranks in this step, in any order.
        """
        by_place = {(one.stage, one.pipeline_index): one for one in observations}
        longer_s = {place: self._ranks[place].above_s(one.micro_batch_s) for place, one in by_place.items()}
        changes = (*self._lost(observations), *self._links(by_place, longer_s), *self._stages(by_place, longer_s))
        return [LinkEvent(step=step, kind=kind, stages=stages, delay_s=delay_s) for kind, stages, delay_s in changes]

    def _lost(self, observations: Sequence[RankObservation]) -> Iterator[_Change]:
        lost = {one.stage - 1 for one in observations if one.lost_previous}
        lost |= {one.stage for one in observations if one.lost_next}
        for link in sorted(lost - self._dead):
            yield LinkEventKind.LINK_DEAD, (link, link + 1), 0.0
        for link in sorted(self._dead - lost):
            yield LinkEventKind.LINK_RECOVERED, (link, link + 1), 0.0
        self._dead = lost

    def _links(
        self, by_place: Mapping[tuple[int, int], RankObservation], longer_s: Mapping[tuple[int, int], float]
    ) -> Iterator[_Change]:
        shifts_s = {}
        for (link, index), tests in self._by_link.items():
            before, behind = by_place[link, index], by_place[link + 1, index]
            busy_s = max(longer_s[link, index], longer_s[link + 1, index])
            if tests.add(behind.from_previous_s, before.from_next_s, before.forward_s / 2, doubt_s=busy_s):
                shifts_s[link] = before.forward_s / 2
        for link, shift_s in sorted(shifts_s.items()):
            if self._is_news(link, shift_s):
                delay_s = self._delays_s[link]
                kind = LinkEventKind.LINK_SLOW if delay_s else LinkEventKind.LINK_RECOVERED
                yield kind, (link, link + 1), delay_s

    def _is_news(self, link: int, shift_s: float) -> bool:
        """Adopt the new delay of a link, and return True if it counts as a change.

        It does not if it is nearly equal to the last delay, as when the other direction follows.
        """
        found_s = max(tests.level_s for (where, _), tests in self._by_link.items() if where == link)
        before_s = self._delays_s[link]
        if bool(found_s) == bool(before_s) and abs(found_s - before_s) < shift_s / 2:
            return False
        self._delays_s[link] = found_s
        return found_s != before_s

    def _stages(
        self, by_place: Mapping[tuple[int, int], RankObservation], longer_s: Mapping[tuple[int, int], float]
    ) -> Iterator[_Change]:
        for (stage, index), test in self._ranks.items():
            one = by_place[stage, index]
            others_s = [longer_s[place] for place in longer_s if place[0] != stage] or [0.0]
            if test.add(one.micro_batch_s, one.forward_s, doubt_s=median(others_s)):
                kind = LinkEventKind.RANK_SLOW if test.level_s else LinkEventKind.RANK_RECOVERED
                yield kind, (stage,), test.level_s

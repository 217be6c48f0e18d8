"""Detector: finds slow links and slow stages in what all ranks of a pipeline measured in a step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, Self

from autotuner.core.measurement import LinkEventKind
from autotuner.schedules.schedule import Kind
from autotuner.training.pipelines.change import ChangeTest, threshold_for
from autotuner.training.pipelines.pipeline import ResilientPipeline

_KEPT_PASSES = 32
"""The time of a pass is the median of so many (the ring buffer of PipeMorph, arXiv 2504.19232)."""


class RecentPasses:
    """The last 32 durations of each kind of pass on this rank, across steps."""

    def __init__(self) -> None:
        self._durations: dict[Kind, deque[float]] = {}

    def add(self, durations_s: Mapping[Kind, Sequence[float]]) -> None:
        """Add the passes of one more step."""
        for kind, values in durations_s.items():
            self._durations.setdefault(kind, deque(maxlen=_KEPT_PASSES)).extend(values)

    def median_s(self, kind: Kind) -> float:
        """Return the median duration of a kind of pass; 0 if none ran."""
        kept = self._durations.get(kind)
        return median(kept) if kept else 0.0


class RankObservation(NamedTuple):
    """What one rank of a pipeline measured in a step, which all ranks tell each other in a few numbers."""

    stage: int
    """Its place in the pipeline."""
    forward_s: float
    """Median of its last 32 forward passes, across steps; so are the next two."""
    micro_batch_s: float
    """All passes of one micro-batch: medians of this step alone, summed."""
    input_s: float = 0.0
    """Backward passes for inputs, or half of whole ones."""
    weight_s: float = 0.0
    """Backward passes for weights, or half of whole ones."""
    pipeline_index: int = 0
    """Its pipeline, of several with the same stages; messages stay within one."""
    from_previous_s: float | None = None
    """Shortest transfer from the rank before; None if none was seen."""
    from_next_s: float | None = None
    """Shortest transfer from the rank after."""
    lost_previous: bool = False
    """Nothing passes between it and the rank before any more, except through delegates."""
    lost_next: bool = False
    """Nothing passes between it and the rank after any more, except through delegates."""

    @classmethod
    def of(cls, pipeline: ResilientPipeline, recent: RecentPasses | None = None, *, pipeline_index: int = 0) -> Self:
        """Observe the last step of a pipeline of one stage per rank, and add its passes to ``recent``."""
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
        """Return it as numbers, as many for every rank."""
        return [math.nan if one is None else float(one) for one in self]

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> Self:
        """Return the observation that these numbers are of."""
        values: list[Any] = [None if math.isnan(one) else one for one in numbers]
        found = cls(*values)
        return found._replace(
            stage=int(found.stage),
            pipeline_index=int(found.pipeline_index),
            lost_previous=bool(found.lost_previous),
            lost_next=bool(found.lost_next),
        )


_FALSE_ALARMS_PER_STEP = 1e-4
"""Most alarms of all tests together while nothing is wrong: one in 10,000 steps."""

_LINK_STEPS = 2
"""Steps that must agree before a link is called slow, or nominal again: a plan costs little, each slow step much."""

_ONE_WAY_STEPS = 6
"""Steps that must agree if messages are late in one direction alone, as to a rank that does not get its core."""

_RANK_STEPS = 4
"""Steps that must agree before a rank is called slow: nothing is replanned, and cores are shared for moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A change that was found with a step."""

    kind: LinkEventKind
    stages: tuple[int, ...]
    """Both ends of a link, or the one stage."""
    delay_s: float = 0.0
    """Seconds above the nominal: of a link one way, of a stage per micro-batch."""


class _Link:
    """Tests of one link: one of both directions, by the faster one, and one of each direction."""

    def __init__(self, threshold: float, known_s: float) -> None:
        self._both = ChangeTest(threshold, num_steps=_LINK_STEPS, level_s=known_s)
        self._each = [ChangeTest(threshold, num_steps=_ONE_WAY_STEPS, level_s=known_s) for _ in range(2)]

    @property
    def level_s(self) -> float:
        """Seconds above the nominal delay."""
        return max(self._both.level_s, *(test.level_s for test in self._each))

    def add(self, forth_s: float | None, back_s: float | None, shift_s: float, *, doubt_s: float) -> bool:
        """Add a step; return whether the level of any test has changed with it."""
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
    """Follows every link and every rank, each with sequential tests of its own.

    A link is slow if messages arrive later than before, counted from the moment of sending, by more than the passes at
    its ends became longer. A rank is slow if its passes became longer than those of other stages did. A machine whose
    cores others use makes both longer in several places at once, and is neither. A delay matters from half a forward
    pass of the stage before the link.

    Ranks that hear the same find the same, without a vote.

    Args:
        num_stages: Stages, one per pipeline rank.
        num_pipelines: Pipelines with the same stages.
        known_s: Delays that links have from the first step on, by the stage before each.
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
        """One-way delay of each link that was found last, by the stage before it."""
        return tuple(self._delays_s)

    def look(self, observations: Sequence[RankObservation]) -> tuple[Finding, ...]:
        """Return what changed with a step, by the observations of all ranks in any order."""
        by_place = {(one.stage, one.pipeline_index): one for one in observations}
        longer_s = {place: self._ranks[place].above_s(one.micro_batch_s) for place, one in by_place.items()}
        return (*self._lost(observations), *self._links(by_place, longer_s), *self._stages(by_place, longer_s))

    def _lost(self, observations: Sequence[RankObservation]) -> Iterator[Finding]:
        lost = {one.stage - 1 for one in observations if one.lost_previous}
        lost |= {one.stage for one in observations if one.lost_next}
        for link in sorted(lost - self._dead):
            yield Finding(kind=LinkEventKind.LINK_DEAD, stages=(link, link + 1))
        for link in sorted(self._dead - lost):
            yield Finding(kind=LinkEventKind.LINK_RECOVERED, stages=(link, link + 1))
        self._dead = lost

    def _links(
        self, by_place: Mapping[tuple[int, int], RankObservation], longer_s: Mapping[tuple[int, int], float]
    ) -> Iterator[Finding]:
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
                yield Finding(kind=kind, stages=(link, link + 1), delay_s=delay_s)

    def _is_news(self, link: int, shift_s: float) -> bool:
        """Take over the delay of a link, unless it is about the last one, as when its other direction follows."""
        found_s = max(tests.level_s for (where, _), tests in self._by_link.items() if where == link)
        before_s = self._delays_s[link]
        if bool(found_s) == bool(before_s) and abs(found_s - before_s) < shift_s / 2:
            return False
        self._delays_s[link] = found_s
        return found_s != before_s

    def _stages(
        self, by_place: Mapping[tuple[int, int], RankObservation], longer_s: Mapping[tuple[int, int], float]
    ) -> Iterator[Finding]:
        for (stage, index), test in self._ranks.items():
            one = by_place[stage, index]
            others_s = [longer_s[place] for place in longer_s if place[0] != stage] or [0.0]
            if test.add(one.micro_batch_s, one.forward_s, doubt_s=median(others_s)):
                kind = LinkEventKind.RANK_SLOW if test.level_s else LinkEventKind.RANK_RECOVERED
                yield Finding(kind=kind, stages=(stage,), delay_s=test.level_s)

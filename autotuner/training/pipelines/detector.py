"""Detector: tells from what all ranks measured in a step which link between stages is slow, and which stage is."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from autotuner.core.measurement import LinkEventKind
from autotuner.schedules.schedule import Kind
from autotuner.training.pipelines.change import ChangeTest, threshold_for

# Observation: one step as one rank of a pipeline saw it, told to all ranks in a few numbers.

_KEPT_PASSES = 32
"""Of which the time of a pass is the median (the ring buffer of PipeMorph, arXiv 2504.19232)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a rank measured in a step."""

    stage: int
    """Its place in the pipeline."""
    lane: int = 0
    """Which of the ranks of that place: messages go between those of one lane."""
    forward_s: float
    """Median of its last 32 forward passes, of this step and those before; as the next two."""
    input_s: float = 0.0
    """Of backward passes for inputs, or of whole ones."""
    weight_s: float = 0.0
    """Of backward passes for weights; 0 where there are none."""
    micro_batch_s: float
    """Medians of this step alone, summed: all passes of one micro-batch."""
    from_previous_s: float | None = None
    """Shortest time from send to receive of what the rank before sent; None where none was seen."""
    from_next_s: float | None = None
    """Of what the rank behind sent."""
    lost_previous: bool = False
    """Whether nothing passes between it and the rank before any more, but through delegates."""
    lost_next: bool = False
    """Of the rank behind."""

    def numbers(self) -> list[float]:
        """As it is told: as many numbers by every rank."""
        ways_s = [math.nan if one is None else one for one in (self.from_previous_s, self.from_next_s)]
        passes_s = (self.forward_s, self.input_s, self.weight_s, self.micro_batch_s)
        places_and_losses = map(float, (self.stage, self.lane, self.lost_previous, self.lost_next))
        return [*places_and_losses, *passes_s, *ways_s]

    @classmethod
    def of_numbers(cls, told: Sequence[float]) -> Observation:
        """The observation that was told so."""
        stage, lane, lost_previous, lost_next, forward_s, input_s, weight_s, micro_batch_s, previous_s, next_s = told
        return cls(
            stage=int(stage),
            lane=int(lane),
            forward_s=forward_s,
            input_s=input_s,
            weight_s=weight_s,
            micro_batch_s=micro_batch_s,
            from_previous_s=None if math.isnan(previous_s) else previous_s,
            from_next_s=None if math.isnan(next_s) else next_s,
            lost_previous=bool(lost_previous),
            lost_next=bool(lost_next),
        )


class RecentPasses:
    """The last 32 durations of each kind of pass on this rank, whichever steps they are of."""

    def __init__(self) -> None:
        self._durations: dict[Kind, deque[float]] = {}

    def add(self, durations_s: Mapping[Kind, Sequence[float]]) -> None:
        """The passes of one more step."""
        for kind, values in durations_s.items():
            self._durations.setdefault(kind, deque(maxlen=_KEPT_PASSES)).extend(values)

    def median_s(self, *kinds: Kind) -> float:
        """Of the first of these kinds that ran; 0 where none did."""
        return next((median(kept) for kind in kinds if (kept := self._durations.get(kind))), 0.0)


FALSE_ALARMS_PER_STEP = 1e-4
"""Alarms of all tests together while nothing is wrong, at most: one in 10,000 steps."""

_LINK_STEPS = 2
"""That must agree before a link is called slow or well again: a plan for it costs little, and each slow step much."""

_WAY_STEPS = 6
"""That must agree where messages are late in one direction alone, as they are to a rank that is kept from its core."""

_RANK_STEPS = 4
"""That must agree before a rank is called slow: nothing is planned anew for it, and cores are shared for moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What changed with a step."""

    kind: LinkEventKind
    stages: tuple[int, ...]
    """Both ends of a link, or the one stage."""
    delay_s: float = 0.0
    """Of a link one way, of a stage per micro-batch; beyond what is healthy."""


class _Link:
    """Tests of one link: of both directions at once, where the quicker one speaks, and of each by itself."""

    def __init__(self, threshold: float, known_s: float) -> None:
        self._both = ChangeTest(threshold, num_steps=_LINK_STEPS, level_s=known_s)
        self._each = [ChangeTest(threshold, num_steps=_WAY_STEPS, level_s=known_s) for _ in range(2)]

    @property
    def level_s(self) -> float:
        """Seconds beyond what is healthy."""
        return max(self._both.level_s, *(test.level_s for test in self._each))

    def add(self, forth_s: float | None, back_s: float | None, shift_s: float, *, doubt_s: float) -> bool:
        """Whether, with this step, the level of any test is another."""
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

    What takes its time on the way is a link: messages arrive later than they did, counted from the moment of their
    sending, by more than the passes at its ends became longer. What takes its time between is a rank: its passes became
    longer than those of other stages did. A machine whose cores others use makes both longer in several places at once,
    and is neither. A delay matters from half a forward pass of the stage before the link on.

    It has no part in what it is told: ranks that are told the same find the same, without another word between them.

    Args:
        num_stages: Stages, one per pipeline rank.
        num_lanes: Ranks per stage; messages go between those of one lane.
        known_s: Delays of links, by the stage before them, that are there from the first step on.
        false_alarms_per_step: Alarms at most while nothing is wrong.
    """

    def __init__(
        self,
        num_stages: int,
        *,
        num_lanes: int = 1,
        known_s: Sequence[float] = (),
        false_alarms_per_step: float = FALSE_ALARMS_PER_STEP,
    ) -> None:
        self._num_stages, self._num_lanes = num_stages, num_lanes
        num_tests = 2 * num_lanes * (3 * (num_stages - 1) + num_stages)
        threshold, known_s = threshold_for(false_alarms_per_step, num_tests), known_s or (0.0,) * (num_stages - 1)
        self._by_link = {
            (link, lane): _Link(threshold, known_s[link]) for link in range(num_stages - 1) for lane in range(num_lanes)
        }
        self._ranks = {
            (stage, lane): ChangeTest(threshold, num_steps=_RANK_STEPS)
            for stage in range(num_stages)
            for lane in range(num_lanes)
        }
        self._dead: set[int] = set()
        self._delays_s = list(known_s)

    @property
    def delays_s(self) -> tuple[float, ...]:
        """One-way delay of each link, by the stage before it, as it was found last."""
        return tuple(self._delays_s)

    @property
    def dead_links(self) -> frozenset[int]:
        """Links, by the stage before them, over which nothing passes but through delegates."""
        return frozenset(self._dead)

    def look(self, told: Sequence[Observation]) -> tuple[Finding, ...]:
        """What changed with a step, of which every rank has told.

        Args:
            told: Of every stage and lane, in any order.
        """
        by_place = {(one.stage, one.lane): one for one in told}
        longer_s = {place: self._ranks[place].above_s(one.micro_batch_s) for place, one in by_place.items()}
        return (*self._lost(told), *self._links(by_place, longer_s), *self._stages(by_place, longer_s))

    def _lost(self, told: Sequence[Observation]) -> Iterator[Finding]:
        lost = {one.stage - 1 for one in told if one.lost_previous} | {one.stage for one in told if one.lost_next}
        for link in sorted(lost - self._dead):
            yield Finding(kind=LinkEventKind.LINK_DEAD, stages=(link, link + 1))
        for link in sorted(self._dead - lost):
            yield Finding(kind=LinkEventKind.LINK_RECOVERED, stages=(link, link + 1))
        self._dead = lost

    def _links(
        self, by_place: Mapping[tuple[int, int], Observation], longer_s: Mapping[tuple[int, int], float]
    ) -> Iterator[Finding]:
        shifts_s = {}
        for (link, lane), tests in self._by_link.items():
            before, behind = by_place[link, lane], by_place[link + 1, lane]
            busy_s = max(longer_s[link, lane], longer_s[link + 1, lane])
            if tests.add(behind.from_previous_s, before.from_next_s, before.forward_s / 2, doubt_s=busy_s):
                shifts_s[link] = before.forward_s / 2
        for link, shift_s in sorted(shifts_s.items()):
            if self._is_news(link, shift_s):
                delay_s = self._delays_s[link]
                kind = LinkEventKind.LINK_SLOW if delay_s else LinkEventKind.LINK_RECOVERED
                yield Finding(kind=kind, stages=(link, link + 1), delay_s=delay_s)

    def _is_news(self, link: int, shift_s: float) -> bool:
        """Take over the delay of a link, unless it is about what was found before, as when its other way follows."""
        found_s = max(tests.level_s for (where, _), tests in self._by_link.items() if where == link)
        before_s = self._delays_s[link]
        if bool(found_s) == bool(before_s) and abs(found_s - before_s) < shift_s / 2:
            return False
        self._delays_s[link] = found_s
        return found_s != before_s

    def _stages(
        self, by_place: Mapping[tuple[int, int], Observation], longer_s: Mapping[tuple[int, int], float]
    ) -> Iterator[Finding]:
        for (stage, lane), test in self._ranks.items():
            one = by_place[stage, lane]
            others_s = [longer_s[place] for place in longer_s if place[0] != stage] or [0.0]
            if test.add(one.micro_batch_s, one.forward_s, doubt_s=median(others_s)):
                kind = LinkEventKind.RANK_SLOW if test.level_s else LinkEventKind.RANK_RECOVERED
                yield Finding(kind=kind, stages=(stage,), delay_s=test.level_s)

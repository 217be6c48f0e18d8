"""What each action of a schedule waits for, found once and used by every simulation of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

from autotuner.core.errors import InvalidInput
from autotuner.schedules.actions import Action, Kind, Schedule


class Step(NamedTuple):
    """One action, by numbers.

    Attributes:
        number: Actions are counted rank by rank.
        rank: Where it runs.
        needs: Number of the action of another stage that it waits for; -1 for none. What it needs of its own stage
            comes earlier on the same rank.
        receives: Whether that comes from another rank.
        channel: What its result travels over: twice the number of the link, and 1 more on the way back; -1 if it stays.
    """

    number: int
    rank: int
    needs: int
    receives: bool
    channel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The actions of a schedule, each after what it waits for.

    Attributes:
        actions: By number.
        steps: In an order that can run.
        first: Number of the first action of each rank, and of all actions.
    """

    actions: tuple[Action, ...]
    steps: tuple[Step, ...]
    first: tuple[int, ...]


@lru_cache(maxsize=64)
def flow_of(schedule: Schedule) -> Flow:
    """The flow of a schedule.

    Raises:
        InvalidInput: Its ranks wait for one another in a circle.
    """
    actions = tuple(chain.from_iterable(schedule.ranks))
    first = tuple(accumulate(map(len, schedule.ranks), initial=0))
    steps = tuple(_in_order(actions, first, _steps(schedule, actions)))
    return Flow(actions=actions, steps=steps, first=first)


def _steps(schedule: Schedule, actions: Sequence[Action]) -> list[Step]:
    """All actions, rank by rank."""
    forward, weight = Kind.FORWARD, Kind.WEIGHT
    rank_of = [schedule.rank_of[stage] for stage in range(schedule.num_stages)]
    last = len(rank_of) - 1
    numbers = [[[0] * schedule.num_micro_batches for _ in rank_of] for _ in range(2)]
    for number, (stage, kind, micro_batch) in enumerate(actions):
        if kind is not weight:
            numbers[kind is forward][stage][micro_batch] = number
    steps = []
    for number, (stage, kind, micro_batch) in enumerate(actions):
        rank = rank_of[stage]
        if kind is weight:
            steps.append(Step(number, rank, -1, False, -1))
            continue
        goes_forward = kind is forward
        before, after = (stage - 1, stage + 1) if goes_forward else (stage + 1, stage - 1)
        needs = numbers[goes_forward][before][micro_batch] if 0 <= before <= last else -1
        receives = needs >= 0 and rank_of[before] != rank
        sends = 0 <= after <= last and rank_of[after] != rank
        channel = (2 * stage if goes_forward else 2 * after + 1) if sends else -1
        steps.append(Step(number, rank, needs, receives, channel))
    return steps


def _in_order(actions: Sequence[Action], first: Sequence[int], steps: Sequence[Step]) -> Iterator[Step]:
    ran = [False] * len(steps)
    places = list(first[:-1])
    moved = True
    while moved:
        moved = False
        for rank, end in enumerate(first[1:]):
            place = places[rank]
            while place < end and (steps[place].needs < 0 or ran[steps[place].needs]):
                ran[place] = moved = True
                yield steps[place]
                place += 1
            places[rank] = place
    for place, end in zip(places, first[1:], strict=True):
        if place < end:
            raise InvalidInput("schedule", str(actions[place]), "its ranks wait for one another in a circle here")

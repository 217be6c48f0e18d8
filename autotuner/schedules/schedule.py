"""Pipeline schedules as data: what each pipeline rank runs, in which order, and what each action waits for.

A schedule prints and parses, one line per rank, an action as stage, kind and micro-batch: ``0F0 0F1 0B0 0B1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from typing import NamedTuple, Self

from autotuner.core.errors import InvalidInput


class Kind(StrEnum):
    """The kinds of actions in a schedule. The letters are those of torch.distributed.pipelining."""

    FORWARD = "F"
    BACKWARD = "B"  # gradients of inputs and of weights together
    INPUT = "I"  # gradients of inputs only; the previous stage waits for them
    WEIGHT = "W"  # gradients of weights only; no stage waits for them


class Action(NamedTuple):
    """One pass of one micro-batch through one stage."""

    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the action that prints as ``text``: ``0F1`` is stage 0, forward, micro-batch 1.

        Raises:
            InvalidInput: The text does not consist of a stage number, one of the letters F, B, I and W, and a
                micro-batch number.
        """
        match = re.fullmatch(r"(\d+)([FBIW])(\d+)", text)
        if match is None:
            raise InvalidInput(
                "action",
                text,
                "must be the number of a stage, the letter of a pass (F forward, B backward, I and W its two "
                "parts) and the number of a micro-batch, for example 0F0",
            )
        return cls(int(match[1]), Kind(match[2]), int(match[3]))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The actions of every pipeline rank, in the order in which it runs them.

    The constructor checks that every stage is on one rank, and that every micro-batch has one forward pass (F) through
    each stage, and later one backward pass: whole (B), or in two parts (I, later W). Only ``simulate`` and ``flow_of``
    check for ranks that wait for one another in a circle.
    """

    ranks: tuple[tuple[Action, ...], ...]

    def __post_init__(self) -> None:
        placed = [sorted({action.stage for action in actions}) for actions in self.ranks]
        if not all(placed) or sorted(chain.from_iterable(placed)) != list(range(max(1, self.num_stages))):
            rule = (
                "each stage must be on one rank, each rank must have a stage, and the stages must be "
                "numbered from 0 without a gap"
            )
            raise InvalidInput("schedule", placed, rule)
        for actions in self.ranks:
            _check_rank(actions, self.num_micro_batches)

    @cached_property
    def num_stages(self) -> int:
        """The number of stages over all ranks."""
        return 1 + max((action.stage for actions in self.ranks for action in actions), default=-1)

    @cached_property
    def num_micro_batches(self) -> int:
        """The number of micro-batches that a step has."""
        return 1 + max((action.micro_batch for actions in self.ranks for action in actions), default=-1)

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """The rank that holds each stage, by the number of the stage."""
        return {action.stage: rank for rank, actions in enumerate(self.ranks) for action in actions}

    def peak_in_flight(self, released_by: Kind = Kind.WEIGHT) -> tuple[int, ...]:
        """Return for each rank the highest number of forward passes whose activations it keeps at the same time.

        Each forward pass takes one micro-batch through one stage.

        Args:
            released_by: With ``WEIGHT``, a pass counts until all its activations are released. With ``INPUT``, a pass
                counts only until its input gradient; activations that are kept for the weight gradient do not count.
        """
        return tuple(_peak(actions, (Kind.BACKWARD, released_by)) for actions in self.ranks)

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, actions)) for actions in self.ranks)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the schedule that prints as ``text``: one line per rank, with spaces between actions.

        Raises:
            InvalidInput: A word is not an action such as ``0F1``, or the actions do not form a valid schedule.

        Example:
            >>> schedule = Schedule.parse("0F0 0F1 0B0 0B1")
            >>> schedule.num_micro_batches, schedule.peak_in_flight()
            (2, (2,))
        """
        return cls(ranks=tuple(tuple(map(Action.parse, line.split())) for line in text.strip().splitlines()))


def _check_rank(actions: tuple[Action, ...], num_micro_batches: int) -> None:
    """Check that every micro-batch passes through every stage of the rank in the right order."""
    ran: dict[tuple[int, int], str] = {}
    for stage, kind, micro_batch in actions:
        key = stage, micro_batch
        ran[key] = ran.get(key, "") + kind
    for stage in {action.stage for action in actions}:
        for micro_batch in range(num_micro_batches):
            kinds = ran.get((stage, micro_batch), "")
            if kinds in ("FIW", "FB"):
                continue
            twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
            if twice:
                raise InvalidInput("schedule", f"{stage}{twice}{micro_batch}", "must run only once")
            rule = (
                "must be F (forward) and either B (backward) or its two parts I and W, in this order, on stage "
                f"{stage} for every micro-batch"
            )
            raise InvalidInput("schedule", f"micro-batch {micro_batch}: {kinds or 'nothing'}", rule)


def _peak(actions: tuple[Action, ...], releasing: tuple[Kind, ...]) -> int:
    held = peak = 0
    for action in actions:
        held += (action.kind is Kind.FORWARD) - (action.kind in releasing)
        peak = max(peak, held)
    return peak


class Step(NamedTuple):
    """One action of a schedule: its number and rank, the action that it waits for, and the channel that it sends on."""

    number: int
    """Number of the action. Actions are counted rank by rank."""
    rank: int
    """Rank on which the action runs."""
    needs: int
    """Number of the action of another stage that this action waits for; -1 for none. Actions of its own stage that it
    needs come earlier on the same rank."""
    receives: bool
    """True if the action that this one waits for runs on another rank."""
    channel: int
    """Channel on which the result is sent: twice the number of the link, plus 1 on the way back; -1 if it is not
    sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The actions of a schedule in an order in which they can run: each comes after the actions that it waits for."""

    actions: tuple[Action, ...]
    """Actions by number."""
    steps: tuple[Step, ...]
    """Steps in an order in which they can run."""
    first: tuple[int, ...]
    """Number of the first action of each rank, and at the end the number of all actions."""


@lru_cache(maxsize=64)
def flow_of(schedule: Schedule) -> Flow:
    """Return the actions of a schedule in an order in which they can run: each comes after all that it waits for.

    Raises:
        InvalidInput: Ranks of the schedule wait for one another in a circle.
    """
    actions = tuple(chain.from_iterable(schedule.ranks))
    first = tuple(accumulate(map(len, schedule.ranks), initial=0))
    steps = tuple(_in_order(actions, first, _steps(schedule, actions)))
    return Flow(actions=actions, steps=steps, first=first)


def _steps(schedule: Schedule, actions: Sequence[Action]) -> list[Step]:
    """Return the steps of all actions, rank by rank."""
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
            raise InvalidInput(
                "schedule",
                str(actions[place]),
                "can never run, because it waits for another action that waits for it; change the order of the actions",
            )

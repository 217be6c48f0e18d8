"""How long a pipeline schedule takes on given stages and links: every action starts as soon as it can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from autotuner.errors import InvalidInput
from autotuner.pipeline_schedules.actions import Action, Kind, Schedule

__all__ = ["Dataflow", "PassTimes", "Timeline", "simulate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Seconds of one micro-batch's passes, by stage, and of the sends between stages.

    Attributes:
        forward_s: F of each stage.
        input_s: I of each stage; a whole backward (B) takes I and W.
        weight_s: W of each stage.
        send_s: One-way delay between stages i and i + 1, both ways; paid only where they live on different ranks.
    """

    forward_s: tuple[float, ...]
    input_s: tuple[float, ...]
    weight_s: tuple[float, ...]
    send_s: tuple[float, ...]

    def __post_init__(self) -> None:
        num_stages = len(self.forward_s)
        for name, size in (("input_s", num_stages), ("weight_s", num_stages), ("send_s", max(0, num_stages - 1))):
            if len(getattr(self, name)) != size:
                raise InvalidInput(name, getattr(self, name), f"must have {size} values for {num_stages} stages")
        for name in ("forward_s", "input_s", "weight_s", "send_s"):
            if min(getattr(self, name), default=0.0) < 0:
                raise InvalidInput(name, getattr(self, name), "must not be negative", 0.0)

    @classmethod
    def equal(cls, num_stages: int, forward_s: float, input_s: float, weight_s: float, *, send_s: float = 0.0) -> Self:
        """Equal times on every stage and link."""
        return cls(
            forward_s=(forward_s,) * num_stages,
            input_s=(input_s,) * num_stages,
            weight_s=(weight_s,) * num_stages,
            send_s=(send_s,) * (num_stages - 1),
        )

    def action_s(self, action: Action) -> float:
        """Seconds the stage computes on an action."""
        match action.kind:
            case Kind.FORWARD:
                return self.forward_s[action.stage]
            case Kind.INPUT:
                return self.input_s[action.stage]
            case Kind.WEIGHT:
                return self.weight_s[action.stage]
            case Kind.BACKWARD:
                return self.input_s[action.stage] + self.weight_s[action.stage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When each action of a schedule starts and its rank is free again, in seconds from the first start.

    Attributes:
        start_s: By rank and position in ``Schedule.ranks``.
        end_s: By rank and position; with blocking sends an action ends when what it sends has arrived.
        busy_s: Seconds in which each rank computes.
    """

    start_s: tuple[tuple[float, ...], ...]
    end_s: tuple[tuple[float, ...], ...]
    busy_s: tuple[float, ...]

    @property
    def makespan_s(self) -> float:
        """From the first start to the last end of any rank."""
        return max(ends[-1] for ends in self.end_s)


def simulate(schedule: Schedule, times: PassTimes, *, blocking_sends: bool = False) -> Timeline:
    """Start and end of every action when each rank works off its list as early as it can.

    A forward waits for the forward of the stage before, a backward for the backward of the stage behind and for its
    own forward; what comes from another rank arrives a delay later. Sends run beside compute unless they block.

    Args:
        schedule: What runs.
        times: Times of as many stages as the schedule has.
        blocking_sends: A rank that sends computes on only when what it sent has arrived: head-of-line blocking of a
            slow link (arXiv 2504.19232).

    Raises:
        InvalidInput: Times of another number of stages, or ranks that wait for one another in a circle.
    """
    if len(times.forward_s) != schedule.num_stages:
        raise InvalidInput("times", len(times.forward_s), "must have one entry per stage", schedule.num_stages)
    flow = Dataflow(_sends_between_ranks(schedule, times))
    starts: list[list[float]] = [[] for _ in schedule.ranks]
    ends: list[list[float]] = [[] for _ in schedule.ranks]
    moved = True
    while moved:
        moved = False
        for actions, start_s, end_s in zip(schedule.ranks, starts, ends, strict=True):
            while len(start_s) < len(actions):
                action = actions[len(start_s)]
                ready_s = flow.ready_s(action)
                if ready_s is None:
                    break
                start_s.append(max(ready_s, end_s[-1] if end_s else 0.0))
                finished_s = start_s[-1] + times.action_s(action)
                flow.finish(action, finished_s)
                end_s.append(finished_s + blocking_sends * flow.sent_s(action))
                moved = True
    return _timeline(schedule, times, starts, ends)


def _sends_between_ranks(schedule: Schedule, times: PassTimes) -> tuple[float, ...]:
    rank_of = schedule.rank_of
    return tuple(send_s if rank_of[i] != rank_of[i + 1] else 0.0 for i, send_s in enumerate(times.send_s))


def _timeline(schedule: Schedule, times: PassTimes, starts: list[list[float]], ends: list[list[float]]) -> Timeline:
    for actions, start_s in zip(schedule.ranks, starts, strict=True):
        if len(start_s) < len(actions):
            waiting = actions[len(start_s)]
            raise InvalidInput("schedule", str(waiting), "its ranks wait for one another in a circle here")
    return Timeline(
        start_s=tuple(map(tuple, starts)),
        end_s=tuple(map(tuple, ends)),
        busy_s=tuple(sum(map(times.action_s, actions)) for actions in schedule.ranks),
    )


class Dataflow:
    """What has finished so far, and when what follows from it can start."""

    def __init__(self, send_s: Sequence[float]) -> None:
        """Nothing has finished; ``send_s`` is the delay between stages i and i + 1, of which there are one more."""
        self._send_s = send_s
        self._finished_s: dict[tuple[int, Kind, int], float] = {}

    def finish(self, action: Action, end_s: float) -> None:
        """Record the end of an action; a whole backward ends as its input gradients do."""
        kind = Kind.INPUT if action.kind is Kind.BACKWARD else action.kind
        self._finished_s[action.stage, kind, action.micro_batch] = end_s

    def ready_s(self, action: Action) -> float | None:
        """When everything an action needs has arrived; None while something has not finished."""
        ready_s = 0.0
        stage, kind, micro_batch = action
        for needed, delay_s in self._needs(stage, kind):
            end_s = self._finished_s.get((*needed, micro_batch))
            if end_s is None:
                return None
            ready_s = max(ready_s, end_s + delay_s)
        return ready_s

    def sent_s(self, action: Action) -> float:
        """Seconds in which the result of an action travels to its neighbour; 0 where nothing is sent."""
        stage, kind, _ = action
        if kind is Kind.FORWARD:
            return self._send_s[stage] if stage < len(self._send_s) else 0.0
        return self._send_s[stage - 1] if kind is not Kind.WEIGHT and stage > 0 else 0.0

    def _needs(self, stage: int, kind: Kind) -> Iterator[tuple[tuple[int, Kind], float]]:
        """Stage and kind of what an action waits for, with the delay after it."""
        if kind is Kind.FORWARD:
            if stage > 0:
                yield (stage - 1, Kind.FORWARD), self._send_s[stage - 1]
        elif kind is Kind.WEIGHT:
            yield (stage, Kind.INPUT), 0.0
        else:
            yield (stage, Kind.FORWARD), 0.0
            if stage < len(self._send_s):
                yield (stage + 1, Kind.INPUT), self._send_s[stage]

"""How long a pipeline schedule takes on given stages and links: every action starts as soon as it can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from autotuner.core.errors import InvalidInput
from autotuner.schedules.actions import Action, Kind, Schedule
from autotuner.schedules.flow import Flow, flow_of
from autotuner.schedules.shared_links import run_on_shared_links
from autotuner.schedules.transport import BESIDE_COMPUTE, Transport


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
        start_s: By rank and position in ``Schedule.ranks``: when it computes, with what it needs received and copied.
        end_s: By rank and position: when what it sends is copied, and has arrived where sends block.
        busy_s: Seconds in which each rank computes.
    """

    start_s: tuple[tuple[float, ...], ...]
    end_s: tuple[tuple[float, ...], ...]
    busy_s: tuple[float, ...]

    @property
    def makespan_s(self) -> float:
        """From the first start to the last end of any rank."""
        return max(ends[-1] for ends in self.end_s)


def simulate(schedule: Schedule, times: PassTimes, transport: Transport = BESIDE_COMPUTE) -> Timeline:
    """Start and end of every action when each rank works off its list as early as it can.

    A forward waits for the forward of the stage before, a backward for the backward of the stage behind and for its
    own forward; what comes from another rank arrives a delay later.

    Args:
        schedule: What runs.
        times: Times of as many stages as the schedule has.
        transport: What sends occupy beside the link.

    Raises:
        InvalidInput: Times of another number of stages, or ranks that wait for one another in a circle.
    """
    if len(times.forward_s) != schedule.num_stages:
        raise InvalidInput("times", len(times.forward_s), "must have one entry per stage", schedule.num_stages)
    flow = flow_of(schedule)
    seconds = _action_seconds(flow, times)
    if transport.shares_link:
        start_s, end_s = run_on_shared_links(flow, seconds, times.send_s, blocks=transport.blocks)
    else:
        start_s, end_s = _run(flow, seconds, times.send_s, transport)
    parts = [slice(*part) for part in pairwise(flow.first)]
    return Timeline(
        start_s=tuple(tuple(start_s[part]) for part in parts),
        end_s=tuple(tuple(end_s[part]) for part in parts),
        busy_s=tuple(sum(seconds[part]) for part in parts),
    )


def _action_seconds(flow: Flow, times: PassTimes) -> list[float]:
    """Seconds of every action, by number."""
    by_kind = {
        Kind.FORWARD: times.forward_s,
        Kind.INPUT: times.input_s,
        Kind.WEIGHT: times.weight_s,
        Kind.BACKWARD: tuple(map(sum, zip(times.input_s, times.weight_s, strict=True))),
    }
    by_letter = {kind.value: seconds for kind, seconds in by_kind.items()}
    return [by_letter[kind][stage] for stage, kind, _ in flow.actions]


def _run(
    flow: Flow, seconds: Sequence[float], send_s: Sequence[float], transport: Transport
) -> tuple[list[float], list[float]]:
    """Start and end of every action, by number."""
    starts, ends, arrivals = ([0.0] * len(seconds) for _ in range(3))
    free_s = [0.0] * (len(flow.first) - 1)
    channels = _Channels(send_s, transport)
    copy_s, blocks = transport.copy_s, transport.blocks
    for number, rank, needs, receives, channel in flow.steps:
        now_s = free_s[rank]
        if needs >= 0:
            now_s = max(now_s, arrivals[needs]) + copy_s * receives
        starts[number] = now_s
        now_s += seconds[number]
        if channel >= 0:
            now_s += copy_s
            arrivals[number] = channels.arrival_s(channel, now_s)
            if blocks:
                now_s = arrivals[number]
        else:
            arrivals[number] = now_s
        ends[number] = free_s[rank] = now_s
    return starts, ends


class _Channels:
    """The ways between neighbours, and who carries what over them."""

    def __init__(self, send_s: Sequence[float], transport: Transport) -> None:
        self._send_s = [delay_s + transport.overhead_s for delay_s in send_s for _ in range(2)]
        self._free_s = [[0.0] * (transport.num_delegates or 0) for _ in self._send_s]
        self._counts = [0] * len(self._send_s)
        self._queues = transport.num_delegates is not None

    def arrival_s(self, channel: int, ready_s: float) -> float:
        """When a result arrives that can be sent from ``ready_s`` on, after all that were sent before it."""
        if not self._queues:
            return ready_s + self._send_s[channel]
        delegates, turn = self._free_s[channel], self._counts[channel]
        self._counts[channel] += 1
        place = turn % len(delegates)
        delegates[place] = max(ready_s, delegates[place]) + self._send_s[channel]
        return delegates[place]

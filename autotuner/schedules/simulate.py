"""Simulation of a pipeline schedule on given stages and links: every action starts as soon as it can."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, Self

from autotuner.core.errors import InvalidInput
from autotuner.schedules.schedule import Action, Flow, Kind, Schedule, Step, flow_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """The resources that a transfer between two ranks occupies in addition to the link, such as the sending rank."""

    blocks: bool = False
    """True if the sending rank waits until its data has arrived: head-of-line blocking of a slow link (arXiv
    2504.19232)."""
    shares_link: bool = False
    """True if a link carries one transfer at a time, in either direction."""
    num_delegates: int | None = None
    """Number of delegate processes per neighbour and direction, each of which sends one transfer at a time, in turn;
    None: any number of transfers at once."""
    overhead_s: float = 0.0
    """Seconds that a delegate is busy with a transfer, in addition to the delay of the link."""
    copy_s: float = 0.0
    """Seconds that the sender and the receiver each cannot compute, because they copy the transferred data."""

    def __post_init__(self) -> None:
        if self.shares_link and (self.num_delegates is not None or self.overhead_s or self.copy_s):
            rule = (
                "must be false if num_delegates, overhead_s or copy_s is set, because these describe sends by "
                "delegates (helper processes), which do not share the link"
            )
            raise InvalidInput("shares_link", self.shares_link, rule, nearest=False)
        if self.num_delegates is not None and self.num_delegates < 1:
            raise InvalidInput("num_delegates", self.num_delegates, "must be 1 or more", 1)
        for name in ("overhead_s", "copy_s"):
            if getattr(self, name) < 0:
                raise InvalidInput(name, getattr(self, name), "must not be negative", 0.0)


BESIDE_COMPUTE = Transport()
"""Sends that run during computation, any number at once."""

BLOCKING = Transport(blocks=True)
"""Sends that block the sending rank until the data has arrived."""

BLOCKING_IN_TURN = Transport(blocks=True, shares_link=True)
"""Sends that block the rank over links with one transfer at a time, so that both ends of a slow link block in turn."""


def delegated(num_delegates: int, *, overhead_s: float = 0.0, copy_s: float = 0.0) -> Transport:
    """Return the transport in which other processes (delegates) send and receive for a rank.

    If a stage sends once every ``t`` seconds, it needs ``(delay + overhead_s) / t`` delegates, rounded up.

    Args:
        num_delegates: Delegates per neighbour and direction.
        overhead_s: Seconds that a delegate is busy with a transfer, in addition to the delay of the link.
        copy_s: Seconds for which the sending rank, and later the receiving rank, computes nothing because it copies the
            data.
    """
    return Transport(num_delegates=num_delegates, overhead_s=overhead_s, copy_s=copy_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Seconds of one micro-batch's passes in each stage, and of each transfer between neighbouring stages."""

    forward_s: tuple[float, ...]
    """Time of the forward pass (F) of each stage."""
    input_s: tuple[float, ...]
    """Time for the gradient of the input (I) of each stage. A whole backward pass (B) takes I and W."""
    weight_s: tuple[float, ...]
    """Time for the gradients of the weights (W) of each stage."""
    send_s: tuple[float, ...]
    """One-way delay between stages i and i + 1, in both directions, if they are on different ranks."""

    def __post_init__(self) -> None:
        num_stages = len(self.forward_s)
        for name, size in (("input_s", num_stages), ("weight_s", num_stages), ("send_s", max(0, num_stages - 1))):
            if len(getattr(self, name)) != size:
                raise InvalidInput(
                    name, getattr(self, name), f"must have {size} values, because there are {num_stages} stages"
                )
        for name in ("forward_s", "input_s", "weight_s", "send_s"):
            if min(getattr(self, name), default=0.0) < 0:
                raise InvalidInput(name, getattr(self, name), "must not be negative", 0.0)

    @classmethod
    def equal(cls, num_stages: int, forward_s: float, input_s: float, weight_s: float, *, send_s: float = 0.0) -> Self:
        """Return times in which all stages have equal passes and all links have the delay ``send_s``."""
        return cls(
            forward_s=(forward_s,) * num_stages,
            input_s=(input_s,) * num_stages,
            weight_s=(weight_s,) * num_stages,
            send_s=(send_s,) * (num_stages - 1),
        )

    def action_s(self, action: Action) -> float:
        """Return the seconds that the action's stage needs to compute this action."""
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
    """The start and the end of each action of a schedule, in seconds from the first start."""

    start_s: tuple[tuple[float, ...], ...]
    """Start of each action by rank and position in ``Schedule.ranks``, after its input is received and copied."""
    end_s: tuple[tuple[float, ...], ...]
    """End of each action by rank and position, after its output is copied; if sends block, after it has arrived."""
    busy_s: tuple[float, ...]
    """Seconds in which each rank computes."""

    @property
    def makespan_s(self) -> float:
        """The seconds from the first start to the last end of any rank."""
        return max(ends[-1] for ends in self.end_s)


def simulate(schedule: Schedule, times: PassTimes, transport: Transport = BESIDE_COMPUTE) -> Timeline:
    """Return the start and end of every action, if each rank runs its actions in order and as early as possible.

    A forward pass waits for the same micro-batch's forward pass on the stage before. A backward pass waits for the
    backward pass on the stage after, and for the forward pass on its own stage. A result from another rank arrives
    later by the delay of the link.

    Args:
        schedule: Schedule to run.
        times: Times of passes and links, for as many stages as the schedule has.
        transport: Resources that sends occupy in addition to the link.

    Raises:
        InvalidInput: The times have another number of stages, or ranks wait for one another in a circle.

    Example:
        >>> from autotuner.schedules.standard_schedules import one_f_one_b
        >>> times = PassTimes.equal(2, forward_s=1.0, input_s=1.0, weight_s=1.0)
        >>> simulate(one_f_one_b(2, 4), times).makespan_s
        15.0
    """
    if len(times.forward_s) != schedule.num_stages:
        rule = f"must have one entry for each of the {schedule.num_stages} stages"
        raise InvalidInput("times", len(times.forward_s), rule, schedule.num_stages)
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
    """Return the seconds of every action, by number."""
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
    """Return the start times and the end times of all actions, by number."""
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
    """The channels between neighbours, and the delegates that send over them."""

    def __init__(self, send_s: Sequence[float], transport: Transport) -> None:
        self._send_s = [delay_s + transport.overhead_s for delay_s in send_s for _ in range(2)]
        self._free_s = [[0.0] * (transport.num_delegates or 0) for _ in self._send_s]
        self._counts = [0] * len(self._send_s)
        self._queues = transport.num_delegates is not None

    def arrival_s(self, channel: int, ready_s: float) -> float:
        """Return the arrival time of a result that is ready at ``ready_s``. Results are sent in their order."""
        if not self._queues:
            return ready_s + self._send_s[channel]
        delegates, turn = self._free_s[channel], self._counts[channel]
        self._counts[channel] += 1
        place = turn % len(delegates)
        delegates[place] = max(ready_s, delegates[place]) + self._send_s[channel]
        return delegates[place]


_COMPUTED: Final = 0
_ARRIVED: Final = 1


def run_on_shared_links(
    flow: Flow, seconds: Sequence[float], send_s: Sequence[float], *, blocks: bool
) -> tuple[list[float], list[float]]:
    """Return the start and end of every action, by the action's number, if each link carries one transfer at a time.

    Args:
        flow: Actions of the schedule, in an order in which they can run.
        seconds: Seconds of every action, by number.
        send_s: Delay of every link; a link without delay carries any number of transfers.
        blocks: True if the sending rank waits until its data has arrived, including the wait for its turn.
    """
    run = _Run(flow, seconds, send_s, blocks=blocks)
    for rank in range(len(flow.first) - 1):
        run.start_next(rank, 0.0)
    while run.moments:
        now_s, happened, number = heappop(run.moments)
        if happened == _COMPUTED:
            run.computed(number, now_s)
        else:
            run.arrived(number, now_s)
    return run.starts, run.ends


class _Run:
    """The state of a running simulation."""

    def __init__(self, flow: Flow, seconds: Sequence[float], send_s: Sequence[float], *, blocks: bool) -> None:
        self.starts, self.ends = [0.0] * len(seconds), [0.0] * len(seconds)
        self.moments: list[tuple[float, int, int]] = []
        self._seconds, self._send_s, self._blocks = seconds, send_s, blocks
        self._steps = sorted(flow.steps)  # by number
        self._waiting_for: dict[int, int] = {s.needs: s.number for s in self._steps if s.needs >= 0}
        self._next, self._last = list(flow.first[:-1]), list(flow.first[1:])
        self._is_free = [True] * len(self._next)
        self._has_arrived = [False] * len(seconds)
        self._queues: list[deque[Step]] = [deque() for _ in send_s]

    def start_next(self, rank: int, now_s: float) -> None:
        """Start the next action of a rank if the rank is free and the action's input has arrived."""
        number = self._next[rank]
        if not self._is_free[rank] or number == self._last[rank]:
            return
        needs = self._steps[number].needs
        if needs >= 0 and not self._has_arrived[needs]:
            return
        self._is_free[rank] = False
        self._next[rank] += 1
        self.starts[number] = now_s
        heappush(self.moments, (now_s + self._seconds[number], _COMPUTED, number))

    def computed(self, number: int, now_s: float) -> None:
        """Send the result of an action that was computed, as soon as the link is free."""
        step = self._steps[number]
        delay_s = self._send_s[step.channel // 2] if step.channel >= 0 else 0.0
        if delay_s == 0.0:
            self._release(step, now_s)
            self._deliver(step, now_s)
            return
        if not self._blocks:
            self._release(step, now_s)
        queue = self._queues[step.channel // 2]
        queue.append(step)
        if len(queue) == 1:
            heappush(self.moments, (now_s + delay_s, _ARRIVED, number))

    def arrived(self, number: int, now_s: float) -> None:
        """Deliver a transfer that has arrived, and begin the next one on its link."""
        step = self._steps[number]
        queue = self._queues[step.channel // 2]
        queue.popleft()
        if queue:
            heappush(self.moments, (now_s + self._send_s[step.channel // 2], _ARRIVED, queue[0].number))
        if self._blocks:
            self._release(step, now_s)
        self._deliver(step, now_s)

    def _release(self, step: Step, now_s: float) -> None:
        self.ends[step.number] = now_s
        self._is_free[step.rank] = True
        self.start_next(step.rank, now_s)

    def _deliver(self, step: Step, now_s: float) -> None:
        self._has_arrived[step.number] = True
        waiting = self._waiting_for.get(step.number)
        if waiting is not None:
            self.start_next(self._steps[waiting].rank, now_s)

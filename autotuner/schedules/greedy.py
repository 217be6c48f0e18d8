"""Orders of passes by stage, as words: made by taking what is ready, timed without more ado.

A word has a letter per pass (``FFIFIWIW``), and passes of one kind run in the order of micro-batches. That is all that
a pipeline of one stage per rank needs, and quick enough for a planner that compares many.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from autotuner.schedules.actions import Action, Kind, Schedule
from autotuner.schedules.simulate import PassTimes

_F, _I, _W = Kind.FORWARD.value, Kind.INPUT.value, Kind.WEIGHT.value


def greedy_orders(
    times: PassTimes, num_micro_batches: int, warm_up_counts: Sequence[int], most_in_flight: Sequence[int]
) -> tuple[str, ...]:
    """What each stage runs when, after its warm-up, it takes what is ready: I before F before W.

    A stage that has run its warm-up waits for its first I. One that keeps as many micro-batches as it may starts no
    further F, so that its W come earlier.

    Args:
        times: One stage per rank.
        num_micro_batches: 1 or more.
        warm_up_counts: Forwards before the first I, by stage; not fewer than on the next, nor more than may be kept.
        most_in_flight: Micro-batches that each stage may keep from F to W, 1 or more.

    Source: greedy planner of arXiv 2504.19232.
    """
    stages = [
        _Stage(min(ahead, num_micro_batches), num_micro_batches, most)
        for ahead, most in zip(warm_up_counts, most_in_flight, strict=True)
    ]
    stages[0].forward_ready_s = [0.0] * num_micro_batches
    moments = [(0.0, 0)]  # when which stage is free, or something arrives there
    last = len(stages) - 1
    while moments:
        now_s, i = heappop(moments)
        stage = stages[i]
        kind = stage.next_kind(now_s)
        if kind == _F:
            end_s = stage.run(_F, now_s, times.forward_s[i])
            arrival_s = end_s + times.send_s[i] if i < last else end_s
            (stages[i + 1].forward_ready_s if i < last else stage.input_ready_s).append(arrival_s)
            heappush(moments, (arrival_s, min(i + 1, last)))
        elif kind == _I:
            end_s = stage.run(_I, now_s, times.input_s[i])
            if i > 0:
                arrival_s = end_s + times.send_s[i - 1]
                stages[i - 1].input_ready_s.append(arrival_s)
                heappush(moments, (arrival_s, i - 1))
        elif kind == _W:
            end_s = stage.run(_W, now_s, times.weight_s[i])
        else:
            continue  # busy, or with nothing to run until something arrives
        heappush(moments, (end_s, i))
    return tuple("".join(stage.order) for stage in stages)


class _Stage:
    """What one stage has run, and when what it can run next has arrived."""

    __slots__ = (
        "_forwards", "_free_s", "_inputs", "_most_in_flight", "_num_micro_batches", "_warm_up", "_weights",
        "forward_ready_s", "input_ready_s", "order",
    )  # fmt: skip

    def __init__(self, warm_up: int, num_micro_batches: int, most_in_flight: int) -> None:
        self.forward_ready_s: list[float] = []
        self.input_ready_s: list[float] = []
        self.order: list[str] = []
        self._forwards = self._inputs = self._weights = 0
        self._free_s = 0.0
        self._warm_up, self._num_micro_batches, self._most_in_flight = warm_up, num_micro_batches, most_in_flight

    def next_kind(self, now_s: float) -> str:
        """What it starts now; nothing while it computes, or has nothing that is ready and allowed."""
        if now_s < self._free_s:
            return ""
        forwards, inputs = self._forwards, self._inputs
        warming = forwards < self._warm_up
        if not warming and inputs < len(self.input_ready_s) and self.input_ready_s[inputs] <= now_s:
            return _I
        arrived = forwards < len(self.forward_ready_s) and self.forward_ready_s[forwards] <= now_s
        if arrived and (warming or inputs) and forwards - self._weights < self._most_in_flight:
            return _F
        return _W if self._weights < inputs else ""

    def run(self, kind: str, now_s: float, seconds: float) -> float:
        """Start it; returns when it ends."""
        self.order.append(kind)
        if kind == _F:
            self._forwards += 1
        elif kind == _I:
            self._inputs += 1
        else:
            self._weights += 1
        self._free_s = now_s + seconds
        return self._free_s


def makespan_s(orders: Sequence[str], times: PassTimes) -> float:
    """How long the orders take, of sends that run beside compute; as ``simulate`` says of ``schedule_of`` them.

    The orders must be such as ``greedy_orders`` makes: without circles.
    """
    last, size = len(orders) - 1, len(orders[0])
    forward_s: list[list[float]] = [[] for _ in orders]  # ends, by micro-batch
    input_s: list[list[float]] = [[] for _ in orders]
    places, free_s = [0] * len(orders), [0.0] * len(orders)
    while min(places) < size:
        for i, order in enumerate(orders):
            place, now_s = places[i], free_s[i]
            own_f, own_i = forward_s[i], input_s[i]
            before = forward_s[i - 1] if i else None
            behind = input_s[i + 1] if i < last else None
            while place < size:
                kind = order[place]
                if kind == _F:
                    if before is not None:
                        if len(own_f) >= len(before):
                            break
                        now_s = max(now_s, before[len(own_f)] + times.send_s[i - 1])
                    now_s += times.forward_s[i]
                    own_f.append(now_s)
                elif kind == _I:
                    if behind is not None:
                        if len(own_i) >= len(behind):
                            break
                        now_s = max(now_s, behind[len(own_i)] + times.send_s[i])
                    now_s += times.input_s[i]
                    own_i.append(now_s)
                else:
                    now_s += times.weight_s[i]
                place += 1
            places[i], free_s[i] = place, now_s
    return max(free_s)


def schedule_of(orders: Sequence[str]) -> Schedule:
    """The orders as actions."""
    return Schedule(ranks=tuple(tuple(_actions(stage, order)) for stage, order in enumerate(orders)))


def _actions(stage: int, order: str) -> list[Action]:
    counts = dict.fromkeys((_F, _I, _W), 0)
    actions = []
    for letter in order:
        actions.append(Action(stage, Kind(letter), counts[letter]))
        counts[letter] += 1
    return actions

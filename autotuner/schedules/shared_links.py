"""Links that carry one transfer at a time, whichever way it goes: what runs when follows from who asks first."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from autotuner.schedules.flow import Flow, Step

_COMPUTED: Final = 0
_ARRIVED: Final = 1


def run_on_shared_links(
    flow: Flow, seconds: Sequence[float], send_s: Sequence[float], *, blocks: bool
) -> tuple[list[float], list[float]]:
    """Start and end of every action, by number.

    Args:
        flow: What runs.
        seconds: Of every action, by number.
        send_s: Delay of every link; one without delay carries any number of transfers.
        blocks: Whether the rank that sends waits until what it sent has arrived, its turn on the link included.
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
    """What has happened so far."""

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
        """Let a rank start its next action if it is free and what that needs has arrived."""
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
        """Send what an action has computed, once the link is free."""
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
        """Hand over a transfer, and begin the next of its link."""
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

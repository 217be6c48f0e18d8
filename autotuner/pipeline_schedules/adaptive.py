"""The adaptive schedule: a pipeline planned around slow links (PipeMorph, arXiv 2504.19232)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, inf

from autotuner.errors import InvalidInput
from autotuner.pipeline_schedules.actions import Action, Kind, Schedule
from autotuner.pipeline_schedules.simulate import Dataflow, PassTimes

__all__ = ["absorbed_delay_s", "adaptive", "warm_up"]

_PRIORITY = (Kind.INPUT, Kind.FORWARD, Kind.WEIGHT)


def warm_up(times: PassTimes) -> tuple[int, ...]:
    """Forwards each stage runs before its first backward: 1 on the last, ``2 + ceil(c / F)`` more per link before it.

    ``c`` is the link's delay, ``F`` the forward of the stage that sends into it. Without delays it is the warm-up of
    ZB-H2. Each micro-batch of slack beyond the first hides about a forward's time of delay (``absorbed_delay_s``).

    Source: the greedy planner of arXiv 2504.19232.
    """
    if min(times.forward_s) <= 0:
        raise InvalidInput("forward_s", times.forward_s, "must be above 0 to plan with")
    counts = [1]
    for forward_s, send_s in zip(reversed(times.forward_s[:-1]), reversed(times.send_s), strict=True):
        counts.append(counts[-1] + 2 + ceil(send_s / forward_s))
    return tuple(reversed(counts))


def absorbed_delay_s(slack: int, forward_s: float, input_s: float) -> float:
    """The longest delay of a link that adds only itself to a step, when weight gradients can be deferred.

    A longer one is paid again, the excess twice per round of the first stage's warm-up.

    Args:
        slack: Forwards that the sending stage runs ahead of the receiving one, as ``warm_up`` counts them.
        forward_s: F of both stages.
        input_s: I of both stages.

    Source: derived for two stages, and equal to the simulator there (tests/published/test_schedules.py).
    """
    if forward_s >= input_s:
        return (slack - 1) * (forward_s + input_s) / 2
    return (slack - 1) * forward_s - (input_s - forward_s)


def adaptive(times: PassTimes, num_micro_batches: int, warm_up_counts: Sequence[int]) -> Schedule:
    """The order in which stages run when each, after its warm-up, takes what is ready: I before F before W.

    A stage that has run its warm-up waits for its first backward. The order follows from the given times and delays;
    ``simulate`` tells how long the same order takes with others.

    Args:
        times: One stage per rank.
        num_micro_batches: 1 or more.
        warm_up_counts: Forwards before the first backward, by stage, such as ``warm_up(times)``.

    Source: greedy planner of arXiv 2504.19232.
    """
    if len(warm_up_counts) != len(times.forward_s):
        raise InvalidInput("warm_up_counts", warm_up_counts, f"must have {len(times.forward_s)} values, one per stage")
    if warm_up_counts[-1] < 1 or any(behind > before for before, behind in pairwise(warm_up_counts)):
        raise InvalidInput("warm_up_counts", warm_up_counts, "must not grow from stage to stage, nor fall below 1")
    if num_micro_batches < 1:
        raise InvalidInput("num_micro_batches", num_micro_batches, "must be 1 or more", 1)
    flow = Dataflow(times.send_s)
    stages = [_Stage(i, min(count, num_micro_batches), num_micro_batches) for i, count in enumerate(warm_up_counts)]
    for _ in range(3 * num_micro_batches * len(stages)):
        choices = [stage.choice(flow) for stage in stages]
        start_s, action = min(choices, key=lambda choice: choice[0])
        assert action is not None, "a stage whose forwards arrive in order always has something left to run"
        stages[action.stage].run(action, start_s + times.action_s(action), flow)
    return Schedule(ranks=tuple(tuple(stage.actions) for stage in stages))


class _Stage:
    """What one stage has run, and what it would run next."""

    def __init__(self, stage: int, warm_up_count: int, num_micro_batches: int) -> None:
        self.actions: list[Action] = []
        self._stage = stage
        self._warm_up_count = warm_up_count
        self._num_micro_batches = num_micro_batches
        self._counts = dict.fromkeys(_PRIORITY, 0)
        self._free_s = 0.0

    def choice(self, flow: Dataflow) -> tuple[float, Action | None]:
        """The earliest moment at which something can start here, and what goes first then; infinity if nothing can."""
        ready = [(ready_s, action) for action in self._allowed() if (ready_s := flow.ready_s(action)) is not None]
        start_s = max(self._free_s, min((ready_s for ready_s, _ in ready), default=inf))
        return start_s, next((action for ready_s, action in ready if ready_s <= start_s), None)

    def run(self, action: Action, end_s: float, flow: Dataflow) -> None:
        """Append an action that ends at ``end_s``."""
        self.actions.append(action)
        self._counts[action.kind] += 1
        self._free_s = end_s
        flow.finish(action, end_s)

    def _allowed(self) -> Iterator[Action]:
        """The next action of each kind that may run now, first priority first."""
        if self._counts[Kind.FORWARD] < self._warm_up_count:
            kinds: tuple[Kind, ...] = (Kind.FORWARD,)
        else:
            kinds = _PRIORITY if self._counts[Kind.INPUT] else (Kind.INPUT,)
        for kind in kinds:
            if self._counts[kind] < self._num_micro_batches:
                yield Action(self._stage, kind, self._counts[kind])

"""The adaptive schedule: a pipeline planned around slow links (PipeMorph, arXiv 2504.19232)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil

from autotuner.core.errors import InvalidInput
from autotuner.schedules.actions import Schedule
from autotuner.schedules.greedy import greedy_orders, schedule_of
from autotuner.schedules.simulate import PassTimes


def warm_up(times: PassTimes, extra_slack: int = 0) -> tuple[int, ...]:
    """Forwards each stage runs before its first backward: 1 on the last, ``2 + ceil(c / F)`` more per link before it.

    ``c`` is the link's delay, ``F`` the forward of the stage that sends into it. Without delays it is the warm-up of
    ZB-H2. Each micro-batch of slack beyond the first hides about a forward's time of delay (``absorbed_delay_s``).

    Args:
        times: One stage per rank.
        extra_slack: Micro-batches of slack per link beyond what its delay asks for, against delays that vary.

    Source: the greedy planner of arXiv 2504.19232.
    """
    if extra_slack < 0:
        raise InvalidInput("extra_slack", extra_slack, "must not be negative", 0)
    if min(times.forward_s) <= 0:
        raise InvalidInput("forward_s", times.forward_s, "must be above 0 to plan with")
    counts = [1]
    for forward_s, send_s in zip(reversed(times.forward_s[:-1]), reversed(times.send_s), strict=True):
        counts.append(counts[-1] + 2 + ceil(send_s / forward_s) + extra_slack)
    return tuple(reversed(counts))


def even_warm_up(num_stages: int, most_on_first: int) -> tuple[int, ...]:
    """The warm-up whose first stage runs ``most_on_first`` forwards and whose slack is spread evenly over the links.

    What does not divide goes to the first links.

    Source: ``get_init_warmup_fwds`` of the code of arXiv 2504.19232.
    """
    each, rest = divmod(most_on_first - 1, max(1, num_stages - 1))
    slack = [each + (link < rest) for link in range(num_stages - 1)]
    return tuple(most_on_first - before for before in accumulate(slack, initial=0))


def within(warm_up_counts: Sequence[int], most_in_flight: Sequence[int]) -> tuple[int, ...]:
    """The warm-up cut to what each stage may keep, and so to what the stages before it may."""
    return tuple(accumulate(map(min, warm_up_counts, most_in_flight), min))


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
    unlimited = [num_micro_batches] * len(warm_up_counts)
    return schedule_of(greedy_orders(times, num_micro_batches, warm_up_counts, unlimited))

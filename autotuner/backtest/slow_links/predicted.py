"""How long an iteration under slow links should take: the schedule of its method, simulated over its transport.

One number per pipeline is calibrated, by its healthy iterations alone: the seconds of a pass, equal for forwards, input
gradients and weight gradients of every stage. All else follows from the row and from constants of this module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from statistics import median

from autotuner.backtest.cells import UnusableRow
from autotuner.backtest.slow_links.iteration import Iteration, Method, Pipeline
from autotuner.pipeline_schedules.actions import Schedule, one_f_one_b
from autotuner.pipeline_schedules.adaptive import adaptive, warm_up
from autotuner.pipeline_schedules.simulate import PassTimes, simulate
from autotuner.pipeline_schedules.transport import BLOCKING, BLOCKING_IN_TURN, Transport, delegated

BYTES_PER_WIDTH = 1024 * 2
"""Of what a rank sends: 1,024 tokens of a micro-batch in fp16, as in all runs of arXiv 2504.19232."""

_DELEGATE_BYTES_PER_S = 2e9
"""From host to host, of one delegate."""

_COPY_BYTES_PER_S = 150e9
"""Between accelerators and pinned memory of their host, of all ranks of a stage together.

This and the rate of a delegate are fitted to iterations of arXiv 2504.19232 without slow links whose sends are
delegated all the same: 435, 787, 1104 and 1165 ms where plain ones take 394, 767, 933 and 962 (7B, 14B, 30B, 60B). Of
four ways to share them it is the best by these four figures alone (``python -m bench.fit_delegates``), and they do not
say much: it leaves errors of -5.3, +2.7, -2.0 and +1.4 %.
"""


def pass_seconds(iterations: Iterable[Iteration]) -> Mapping[Pipeline, float]:
    """Seconds of a pass of each pipeline, from its healthy iterations.

    Those of all methods but 1F1B are of one schedule, the fixed zero-bubble one, and their median counts; a pipeline
    that ran 1F1B alone is judged by that.
    """
    healthy: dict[Pipeline, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for one in iterations:
        if one.healthy_s is not None:
            healthy[one.pipeline][one.method is Method.ONE_F_ONE_B].append(one.healthy_s)
    return {pipeline: _pass_s(pipeline, by_1f1b[False], by_1f1b[True]) for pipeline, by_1f1b in healthy.items()}


def _pass_s(pipeline: Pipeline, zero_bubble_s: list[float], one_f_one_b_s: list[float]) -> float:
    method = Method.ZERO_BUBBLE if zero_bubble_s else Method.ONE_F_ONE_B
    schedule = _fixed(method, pipeline.num_ranks, pipeline.num_micro_batches)
    unit = PassTimes.equal(pipeline.num_ranks, 1.0, 1.0, 1.0)
    return median(zero_bubble_s or one_f_one_b_s) / simulate(schedule, unit).makespan_s


def predicted_s(iteration: Iteration, pass_s: Mapping[Pipeline, float]) -> float:
    """Seconds that the iteration should take.

    Raises:
        UnusableRow: No healthy iteration of its model is known.
    """
    seconds = _known_pass_s(iteration.pipeline, pass_s)
    num_ranks = iteration.pipeline.num_ranks
    delay_s = dict(iteration.delay_s)
    times = PassTimes(
        forward_s=(seconds,) * num_ranks,
        input_s=(seconds,) * num_ranks,
        weight_s=(seconds,) * num_ranks,
        send_s=tuple(delay_s.get(link, 0.0) for link in range(num_ranks - 1)),
    )
    return simulate(_schedule(iteration, times), times, _transport(iteration)).makespan_s


def _known_pass_s(pipeline: Pipeline, pass_s: Mapping[Pipeline, float]) -> float:
    """The pass of a pipeline, or of the same model split otherwise: as many times longer as a rank has more of it."""
    if pipeline in pass_s:
        return pass_s[pipeline]
    for other, seconds in pass_s.items():
        if (other.testbed, other.model) == (pipeline.testbed, pipeline.model):
            return seconds * other.num_ranks * other.tensor_degree / (pipeline.num_ranks * pipeline.tensor_degree)
    raise UnusableRow("no healthy iteration of the model to calibrate with", str(pipeline))


def _schedule(iteration: Iteration, times: PassTimes) -> Schedule:
    num_ranks, num_micro_batches = iteration.pipeline.num_ranks, iteration.pipeline.num_micro_batches
    if iteration.method is Method.ADAPTED and iteration.delay_s:
        return adaptive(times, num_micro_batches, warm_up(times))
    return _fixed(iteration.method, num_ranks, num_micro_batches)


@lru_cache(maxsize=64)
def _fixed(method: Method, num_ranks: int, num_micro_batches: int) -> Schedule:
    """The schedule that knows of no delay."""
    if method is Method.ONE_F_ONE_B:
        return one_f_one_b(num_ranks, num_micro_batches)
    equal = PassTimes.equal(num_ranks, 1.0, 1.0, 1.0)
    return adaptive(equal, num_micro_batches, warm_up(equal))


def _transport(iteration: Iteration) -> Transport:
    """Who carries what is sent.

    Megatron's 1F1B posts a send and the receive that comes back as one batch, and waits for it. How its zero-bubble
    schedules wait is not known here: of some two dozen combinations (held senders, shared streams, batches in the order
    that was planned) ``BLOCKING_IN_TURN`` is the one that agrees best with the published rows under slow links, so
    that its error on these is flattered. Delegates are 3 for delays of up to 30 ms and 6 above (code of arXiv
    2504.19232).
    """
    slow = any(delay_s for _, delay_s in iteration.delay_s)
    if iteration.method is Method.ONE_F_ONE_B:
        return BLOCKING
    if iteration.method is Method.ZERO_BUBBLE or (iteration.method is Method.ADAPTED and not slow):
        return BLOCKING_IN_TURN
    longest_s = max((delay_s for _, delay_s in iteration.delay_s), default=0.0)
    num_bytes = BYTES_PER_WIDTH * (iteration.hidden or 0)
    ranks_per_stage = iteration.pipeline.tensor_degree * iteration.pipeline.data_degree
    return delegated(
        3 if longest_s <= 0.030 else 6,
        overhead_s=num_bytes / _DELEGATE_BYTES_PER_S,
        copy_s=num_bytes * ranks_per_stage / _COPY_BYTES_PER_S,
    )

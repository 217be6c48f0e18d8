"""Pipelines to plan, of the authors of arXiv 2504.19232 and with slow links, and how short any schedule can be."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from autotuner.schedules.simulate import PassTimes

SIZES = ((3, 6), (4, 12), (6, 18), (8, 32))
"""Stages and micro-batches of the published comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCase:
    """A pipeline to plan; times in ms."""

    num_stages: int
    num_micro_batches: int
    base: int
    """The mean pass is drawn from ``base`` to twice that."""
    times: PassTimes


def published_cases() -> Iterator[PlanCase]:
    """The authors' 100 cases, from the seed and the distributions of their test."""
    uniform, normal = random.Random(2025), np.random.RandomState(2025)
    for (stages, micro_batches), base, _ in product(SIZES, range(10, 31, 5), range(5)):
        delay = uniform.random() * 20
        means = normal.randint(base, 2 * base, 3)
        forward, input_, weight = (tuple((mean + normal.normal(0, 2, stages)).tolist()) for mean in means)
        times = PassTimes(forward_s=forward, input_s=input_, weight_s=weight, send_s=(delay,) * (stages - 1))
        yield PlanCase(num_stages=stages, num_micro_batches=micro_batches, base=base, times=times)


def slow_link_cases(num_cases: int, seed: int = 0) -> Iterator[PlanCase]:
    """Equal stages of a transformer, one to three links slow by half a forward to six."""
    source = random.Random(seed)
    for index in range(num_cases):
        stages, micro_batches = SIZES[index % len(SIZES)]
        forward = source.uniform(5, 30)
        input_, weight = forward * source.uniform(0.8, 1.6), forward * source.uniform(0.5, 1.1)
        slow = source.sample(range(stages - 1), source.randint(1, min(3, stages - 1)))
        send = tuple(forward * source.uniform(0.5, 6) if link in slow else 0.0 for link in range(stages - 1))
        times = PassTimes(
            forward_s=(forward,) * stages, input_s=(input_,) * stages, weight_s=(weight,) * stages, send_s=send
        )
        yield PlanCase(num_stages=stages, num_micro_batches=micro_batches, base=int(forward), times=times)


def lower_bound_s(times: PassTimes, num_micro_batches: int) -> float:
    """Seconds that no order of the passes can beat, however much memory there is.

    The longest of four chains through any stage: its first forward arrives, then all of its passes; or all of its
    forwards and input gradients, after which the last gradient travels back and its weight gradient follows somewhere
    on the way; or the first micro-batch goes to the last stage and back, then all of its input gradients, and on as
    before; or all of its forwards, the last of which goes to the last stage and back to the first.
    """
    forward, input_, weight, send = times.forward_s, times.input_s, times.weight_s, times.send_s
    num_stages, m = len(forward), num_micro_batches
    chains = [0.0]
    for i in range(num_stages):
        head = sum(forward[:i]) + sum(send[:i])
        tail = max(sum(input_[j:i]) + sum(send[j:i]) + weight[j] for j in range(i + 1))
        there = sum(forward[i + 1 :]) + sum(send[i:])
        back = sum(input_[i + 1 :]) + sum(send[i:])
        chains += [
            head + m * (forward[i] + input_[i] + weight[i]),
            head + m * (forward[i] + input_[i]) + tail,
            head + forward[i] + there + back + m * input_[i] + tail,
            head + m * forward[i] + there + back + input_[i] + tail,
        ]
    return max(chains)

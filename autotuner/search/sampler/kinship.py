"""What a belief about one job shares with that about another: a smaller one of its kind, or other hardware.

Each factor, and the residual of a layout, correlates between two jobs by a constant below 1, whatever their sizes, and
by less for each of hardware and software that differs: a product of kernels, which is a valid one (Rasmussen and
Williams 2006, section 4.2.4). Equal jobs share everything, so that a trial of the very job is an ordinary observation.
The constants were learnt from published tables with sheets of one family at several sizes, which show no decay with
the ranks, the width, the depth or the length of sequences between them (``python -m bench.small_for_large --learn``,
docs/small-trials.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats
from autotuner.core.job import Job
from autotuner.costmodel.uncertainty import PARTS
from autotuner.search.sampler.posterior import Kinship
from autotuner.search.sampler.time_prior import COMMON

_BETWEEN_RANKS = tuple(name for name in PARTS if name.endswith("communication_s"))
"""Parts whose factor belongs to the links; those of all others belong to the accelerator, the common one to both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How much of what is known of one job carries over to another, as correlations.

    Attributes:
        factor: Of a factor of one job with the same factor of another.
        residual: Of the residual of a layout in one job with that of the layout in another for which it stands.
        elsewhere: What is left of either where accelerator, links or stack are others, for each of these.
    """

    factor: float
    residual: float
    elsewhere: float


TIME_REACH = Reach(factor=0.95, residual=0.7, elsewhere=0.5)
"""For step times. The first two make published large runs likeliest after small ones, each source weighing as much;
with any source left out, the others choose 0.95, and 0.6 to 0.8. The last is an assumption."""

MEMORY_REACH = Reach(factor=1.0, residual=0.7, elsewhere=0.5)
"""For peaks. An assumption: what a layer saves does not know how many replicas there are, and the residual is no better
known than that of times. Replays of the one table that says what ran out of memory do not tell 0 from 1."""


def kinship(
    jobs: Sequence[Job], factors: Iterable[str], reach: Reach, trainers: Sequence[str | None] | None = None
) -> Kinship:
    """What the jobs share, the first of them that of the table.

    Args:
        jobs: All different, or run by different trainers.
        factors: Names: parts of ``StepTime`` or of ``Memory``, or ``COMMON``.
        reach: Of times or of peaks.
        trainers: Name of the registered trainer that ran each job, None where our own decoder did; None: one ran all.
    """
    who = trainers or [None] * len(jobs)
    device, links = (_where_same([what(job) for job in jobs], reach.elsewhere) for what in (_device, _links))
    stack = _where_same([(_stack(job), trainer) for job, trainer in zip(jobs, who, strict=True)], reach.elsewhere)
    where = {name: stack * (links if name in _BETWEEN_RANKS else device) for name in PARTS} | {
        COMMON: device * links * stack
    }
    same = list(zip(jobs, who, strict=True))
    carried, residual = (_where_same(same, other) for other in (reach.factor, reach.residual))
    return Kinship(
        factors=np.stack([carried * where.get(name, stack) for name in factors]),
        residual=residual * device * links * stack,
    )


def is_same_hardware(one: Job, other: Job) -> bool:
    """Whether two jobs run on accelerators and links of one kind, so that one cluster factor is that of both."""
    return (_device(one), _links(one)) == (_device(other), _links(other))


def _where_same(values: Sequence[object], elsewhere: float) -> Floats:
    """1 where two jobs have the same, else what is left: a valid kernel for any fraction that is."""
    return np.array([[1.0 if one == other else elsewhere for other in values] for one in values])


def _device(job: Job) -> object:
    return job.cluster.accelerator.name


def _links(job: Job) -> object:
    cluster = job.cluster
    return cluster.intra_node_link.name, cluster.inter_node_link.name, cluster.oversubscription


def _stack(job: Job) -> object:
    return job.stack.name

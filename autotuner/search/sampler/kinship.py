"""What a belief about one job shares with that about another: a smaller one of its kind, or other hardware.

Each factor, and the residual of a layout, correlates between two jobs by how far these lie apart in size, by whether
they run on the same hardware, and with the same software: a product of kernels, which is a valid one (Rasmussen and
Williams 2006, section 4.2.4). Two equal jobs share everything, so that a trial of the very job is an ordinary
observation. The constants were learnt from published tables with sheets of one model family at several sizes
(``python -m bench.small_for_large --learn``); docs/small-trials.md says from which, and how well they are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.costmodel.columns import Floats
from autotuner.costmodel.uncertainty import PARTS
from autotuner.domain.jobs.job import Job
from autotuner.search.sampler.posterior import Kinship
from autotuner.search.sampler.time_prior import COMMON

__all__ = ["MEMORY_REACH", "TIME_REACH", "Reach", "is_same_hardware", "kinship"]

_BETWEEN_RANKS = tuple(name for name in PARTS if name.endswith("communication_s"))
"""Parts whose factor belongs to the links; those of all others belong to the accelerator, the common one to both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far knowledge of one job carries over to another.

    Attributes:
        factor_doublings: Of the job's size after which the correlation of a factor has fallen to 1 / e.
        residual_doublings: The same of the residual of a layout.
        elsewhere: Correlation that is left where the accelerator, the links or the stack are others, for each of these.
    """

    factor_doublings: float
    residual_doublings: float
    elsewhere: float


TIME_REACH = Reach(factor_doublings=30.0, residual_doublings=10.0, elsewhere=0.5)
"""For step times."""

MEMORY_REACH = Reach(factor_doublings=math.inf, residual_doublings=10.0, elsewhere=0.5)
"""For peaks: what a layer saves does not know how many replicas there are."""


def kinship(jobs: Sequence[Job], factors: Iterable[str], reach: Reach) -> Kinship:
    """What the jobs share, the first of them that of the table.

    Args:
        jobs: All different.
        factors: Names: parts of ``StepTime`` or of ``Memory``, or ``COMMON``.
        reach: Of times or of peaks.
    """
    apart = np.array([[_doublings(one, other) for other in jobs] for one in jobs])
    device, links, stack = (_same(jobs, what, reach.elsewhere) for what in (_device, _links, _stack))
    where = {name: stack * (links if name in _BETWEEN_RANKS else device) for name in PARTS}
    where[COMMON] = device * links
    carried = np.exp(-apart / reach.factor_doublings)
    return Kinship(
        factors=np.stack([carried * where.get(name, stack) for name in factors]),
        residual=np.exp(-apart / reach.residual_doublings) * device * links * stack,
    )


def is_same_hardware(one: Job, other: Job) -> bool:
    """Whether two jobs run on accelerators and links of one kind, so that one cluster factor is that of both."""
    return (_device(one), _links(one)) == (_device(other), _links(other))


def _doublings(one: Job, other: Job) -> float:
    """How far two jobs lie apart in size: doublings of ranks, width, depth and length of a sequence together."""
    return sum(abs(math.log2(a) - math.log2(b)) for a, b in zip(_sizes(one), _sizes(other), strict=True))


def _sizes(job: Job) -> tuple[float, ...]:
    return job.cluster.world_size, job.model.hidden_size, job.workload.seq_len


def _same(jobs: Sequence[Job], what: Callable[[Job], object], elsewhere: float) -> Floats:
    """1 where two jobs have the same, else what is left: a valid kernel for any fraction that is."""
    values = [what(job) for job in jobs]
    return np.array([[1.0 if one == other else elsewhere for other in values] for one in values])


def _device(job: Job) -> object:
    return job.cluster.accelerator.name


def _links(job: Job) -> object:
    cluster = job.cluster
    return cluster.intra_node_link.name, cluster.inter_node_link.name, cluster.oversubscription


def _stack(job: Job) -> object:
    return job.stack.name

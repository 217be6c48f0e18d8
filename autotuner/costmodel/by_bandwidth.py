"""Step times of layouts where the network between nodes has another bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.layer.model_work import PartWorks
from autotuner.costmodel.pipeline.rank_load import ranks_looked_at
from autotuner.costmodel.predict import predict
from autotuner.costmodel.step.data_parallel import data_communication_s
from autotuner.costmodel.step.rank_step import RankStep
from autotuner.costmodel.step.step_time import StepTimeColumns, total_s


def steps_by_bandwidth(x: LayoutColumns, job: Job, ends_bytes_per_s: tuple[float, float]) -> Callable[[float], Floats]:
    """A function from bytes per second of an accelerator's port to the step time of every row.

    Where data-parallel ranks alone reach over the network, all else is computed once.

    Args:
        x: Legal layouts.
        job: The job; what ails single links stays in proportion.
        ends_bytes_per_s: The lowest and the highest bandwidth that is going to be asked for.
    """

    def whole(bytes_per_s: float) -> StepTimeColumns:
        return predict(x, at_bandwidth(job, bytes_per_s)).step_time

    low, high = (whole(end) for end in ends_bytes_per_s)
    if not np.array_equal(low.before_data_s + low.bubble_s, high.before_data_s + high.bubble_s):
        return lambda bytes_per_s: whole(bytes_per_s).total_s
    window = RankStep.of(x, job, ranks_looked_at(x, job).critical, PartWorks.of(x, job)).window
    factor = 1.0 if job.calibration is None else job.calibration.of("data_communication_s")

    def by_data(bytes_per_s: float) -> Floats:
        data_s = factor * data_communication_s(x, at_bandwidth(job, bytes_per_s), window)
        return total_s(low.before_data_s, data_s, low.bubble_s, low.optimizer_s)

    return by_data


def at_bandwidth(job: Job, bytes_per_s: float) -> Job:
    """The job on nodes that are joined by such ports."""
    link = job.cluster.inter_node_link.with_bandwidth(bytes_per_s)
    return replace(job, cluster=replace(job.cluster, inter_node_link=link))

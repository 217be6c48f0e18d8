"""How much of a layout's gradients begins to be reduced while backward passes still run."""

from __future__ import annotations

from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.layer.model_work import PartWorks
from autotuner.costmodel.pipeline.rank_load import critical_ranks
from autotuner.costmodel.step.data_parallel import early_share
from autotuner.costmodel.step.rank_step import RankStep


def overlapped_share(layout: Layout, job: Job) -> float | None:
    """Share of a rank's bytes of gradients whose reduction starts before the last backward pass ends, 0..1.

    Of the pipeline rank that is slowest. What starts early is not hidden for that: see ``communication.overlap``.

    Args:
        layout: Legal for the job.
        job: The job.

    Returns:
        None where one rank sees all tokens, so that nothing is reduced.
    """
    if layout.data_parallel_degree * layout.context_parallel_degree == 1:
        return None
    x = LayoutColumns.from_layouts([layout])
    window = RankStep.of(x, job, critical_ranks(x, job), PartWorks.of(x, job)).window
    return float(early_share(x, job, window)[0])

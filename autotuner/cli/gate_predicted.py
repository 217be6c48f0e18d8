"""A gate without a cluster: two layouts by prediction, and the memory of the new one by a dry run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotuner.core.errors import AutotunerError, InvalidInput

if TYPE_CHECKING:
    from autotuner.cli.said_layout import SaidLayout
    from autotuner.core.dry_run import DryRun
    from autotuner.core.job import Job
    from autotuner.core.layout import Layout
    from autotuner.search.upkeep.gate_prediction import PredictedGate


def predicted_job(model: str, cluster: str, global_batch: int, seq_len: int, stack: str) -> Job:
    """The job that both layouts are predicted for."""
    from autotuner.catalog.software import load_stack
    from autotuner.cli.inputs import read_cluster, read_model
    from autotuner.core.job import Job
    from autotuner.core.workload import Workload

    workload = Workload(seq_len=seq_len, global_batch_size=global_batch)
    return Job(model=read_model(model), cluster=read_cluster(cluster), workload=workload, stack=load_stack(stack))


def run_predicted_gate(
    job: Job,
    candidate: SaidLayout,
    reference: Layout | None,
    *,
    tolerance: float,
    counts_memory: bool,
) -> PredictedGate:
    """Judge the candidate; where its memory cannot be counted, that of the closed forms stands, and why is noted.

    Raises:
        InvalidInput: The reference breaks a rule, so that nothing can be held to it.
    """
    from autotuner.core.rules.legality import reasons
    from autotuner.search.upkeep.gate_prediction import predicted_gate

    if reference is not None and (broken := reasons(reference, job)):
        raise InvalidInput("--against", str(reference), f"cannot run: {broken[0].message}", broken[0].nearest)
    layout = candidate.layout
    counted, why = _counted(job, layout) if counts_memory else (None, ())
    notes = (*candidate.notes, *why)
    return predicted_gate(job, layout, reference, tolerance=tolerance, dry_run=counted, notes=notes)


def _counted(job: Job, layout: Layout) -> tuple[DryRun | None, tuple[str, ...]]:
    """The dry run of a layout, or why there is none."""
    from autotuner.cli.commands.dry_run import as_request
    from autotuner.cli.console import status
    from autotuner.core.rules.legality import reasons
    from autotuner.launch.this_machine import dry_run

    if reasons(layout, job):
        return None, ()
    try:
        request = as_request(job, layout, None, exact=False)
        with status("starting torch") as progress:
            return dry_run(request, progress), ()
    except AutotunerError as error:
        return None, (f"its memory was predicted, not counted in a dry run: {error}",)

"""A gate of a change: measured by a service, or predicted here."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console

from autotuner.cli.client import Client, connect, patiently
from autotuner.cli.console import PlainConsole
from autotuner.cli.follow import follow
from autotuner.cli.said_layout import is_configuration, ranks_of, said_layout
from autotuner.cli.signals import terminable
from autotuner.core import documents
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.sweep_requests import GateCreate

if TYPE_CHECKING:
    from autotuner.cli.said_layout import SaidLayout
    from autotuner.core.dry_run import DryRun
    from autotuner.core.job import Job
    from autotuner.core.layout import Layout
    from autotuner.core.upkeep import MfuGate
    from autotuner.search.upkeep.gate_prediction import PredictedGate


_POLL_S = 0.5


def run_gate(
    server: str | None, body: dict[str, Any], *, cluster: str, layout: str | None, quiet: bool
) -> tuple[MfuGate, str]:
    """Return the gate as it ended, and where its page is; empty where no browser reaches it.

    A CI system that cancels its job interrupts the command, and with it the gate: nobody waits for it any more.

    Args:
        server: URL of a service that runs already; None: one in this process measures.
        body: What is asked for, without the layout.
        cluster: As the caller named it.
        layout: As the caller wrote it; None: the best is searched.
        quiet: Whether nothing is said while it runs.
    """
    console = PlainConsole(stderr=True, quiet=quiet)
    with connect(server, num_workers=1) as service, terminable():
        asked = body | _layout(service, cluster, layout, console)
        gate = service.create_gate(documents.read(GateCreate, asked))
        try:
            if gate.outcome is None and gate.sweep_id is not None:
                follow(service, gate.sweep_id, console)
            return _finished(service, gate), service.url or ""
        except KeyboardInterrupt:
            service.cancel_gate(gate.id)
            raise


def _layout(service: Client, cluster: str, layout: str | None, console: Console) -> dict[str, Any]:
    """The layout as the service takes it; how many ranks there are is asked only where a configuration is read."""
    if layout is None:
        return {}
    num_ranks = ranks_of(service, cluster) if is_configuration(layout) else None
    said = said_layout(layout, num_ranks)
    for note in said.notes:
        console.print(note, highlight=False, soft_wrap=True)
    return {"layout": said.fields}


def _finished(service: Client, gate: MfuGate) -> MfuGate:
    """The gate once the service has concluded it, which is soon after its sweep has ended."""
    while gate.outcome is None:
        time.sleep(_POLL_S)
        gate = patiently(partial(service.read_gate, gate.id))
    return gate


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

"""A gate of a change: measured by a service, or predicted here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console

from autotuner.cli.client import Client, connect, patiently
from autotuner.cli.console import PlainConsole
from autotuner.cli.follow import follow
from autotuner.cli.said_layout import is_configuration, ranks_of, said_layout
from autotuner.cli.signals import terminable
from autotuner.core.errors import AutotunerError, InvalidInput

if TYPE_CHECKING:
    from autotuner.cli.said_layout import SaidLayout
    from autotuner.core.dry_run import DryRun
    from autotuner.core.job import Job
    from autotuner.core.layout import Layout
    from autotuner.search.upkeep.gate_prediction import PredictedGate


_POLL_S = 0.5


def run_gate(
    server: str | None, body: dict[str, Any], *, cluster: str, layout: str | None, quiet: bool
) -> dict[str, Any]:
    """The gate as it ended.

    A CI system that cancels its job interrupts the command, and with it the gate: nobody waits for it any more.

    Args:
        server: URL of a service that runs already; None: one in this process measures.
        body: What is asked for, without the layout.
        cluster: As the caller named it.
        layout: As the caller wrote it; None: the best is searched.
        quiet: Whether nothing is said while it runs.
    """
    console = PlainConsole(stderr=True, quiet=quiet)
    with connect(server, num_workers=1) as client, terminable():
        gate = client.post("/gates", body | _layout(client, cluster, layout, console))
        try:
            if gate["outcome"] is None:
                follow(client, gate["sweep_id"], console)
            return _finished(client, gate)
        except KeyboardInterrupt:
            client.post(f"/gates/{gate['id']}/cancel")
            raise


def _layout(client: Client, cluster: str, layout: str | None, console: Console) -> dict[str, Any]:
    """The layout as the service takes it; how many ranks there are is asked only where a configuration is read."""
    if layout is None:
        return {}
    num_ranks = ranks_of(client, cluster) if is_configuration(layout) else None
    said = said_layout(layout, num_ranks)
    for note in said.notes:
        console.print(note, highlight=False, soft_wrap=True)
    return {"layout": said.fields}


def _finished(client: Client, gate: dict[str, Any]) -> dict[str, Any]:
    """The gate once the service has concluded it, which is soon after its sweep has ended."""
    path = f"/gates/{gate['id']}"
    while gate["outcome"] is None:
        time.sleep(_POLL_S)
        gate = patiently(lambda: client.get(path))
    if client.url is not None:
        gate["report"]["notes"].append(f"its runs, and the trials that they are: {client.url}/gates/{gate['id']}")
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

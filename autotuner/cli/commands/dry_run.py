"""``autotuner dry-run``: what one rank of a layout holds and computes at full size, without a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import ClusterArgument, GlobalBatch, Json, LayoutText, Model, SeqLen
from autotuner.core.errors import InvalidInput

if TYPE_CHECKING:
    from autotuner.core.dry_run import DryRunRequest
    from autotuner.core.job import Job
    from autotuner.core.layout import Layout


def dry_run(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    layout: LayoutText,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="Rank to count. Default: the ranks that may use most memory.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Run all layers and micro-batches, which takes longer.")
    ] = False,
    as_json: Json = False,
) -> None:
    r"""Count the memory, FLOP and collectives of a rank at full size, without a GPU.

    It runs the training step of a trial on tensors without values.

    Example: autotuner dry-run --model llama-3-70b --cluster h100:64 \
        --global-batch 16 --seq-len 8k --layout 'fsdp2 tp8 pp4 1f1b mb1 sp'
    """
    from autotuner.cli.console import show, status
    from autotuner.cli.inputs import cluster_name, read_cluster, read_model
    from autotuner.cli.layout_text import read_layout
    from autotuner.core import documents
    from autotuner.core.job import Job
    from autotuner.core.layout import Layout
    from autotuner.core.model import ModelSize
    from autotuner.core.workload import Workload
    from autotuner.launch.this_machine import dry_run as run
    from autotuner.report.machine import dry_run_report
    from autotuner.report.words import job_in_words

    workload = Workload(seq_len=seq_len, global_batch_size=global_batch)
    job = Job(model=read_model(model), cluster=read_cluster(cluster), workload=workload)
    request = as_request(job, documents.read(Layout, read_layout(layout), "layout"), rank, exact=exact)
    with status("starting torch") as progress:
        answer = run(request, progress)
    title = job_in_words(
        ModelSize.of(job.model), cluster=cluster_name(cluster), global_batch=global_batch, seq_len=seq_len
    )
    show(answer, lambda found: dry_run_report(found, f"{title}: {request.spec.layout}"), as_json=as_json)


def as_request(job: Job, layout: Layout, rank: int | None, *, exact: bool) -> DryRunRequest:
    """What torch is asked for a layout; ``InvalidInput`` where trials cannot run it, or it has no such rank."""
    from autotuner.core.dry_run import DryRunRequest, telling_ranks
    from autotuner.core.rules.legality import RULES, require_legal
    from autotuner.core.rules.trial import TRIAL_RULES
    from autotuner.core.trial_spec import TrialSettings, TrialSpec

    require_legal(layout, job, (*RULES, *TRIAL_RULES))
    if rank is not None and rank >= layout.world_size:
        raise InvalidInput("--rank", rank, f"must be below the {layout.world_size} ranks", layout.world_size - 1)
    kind = job.cluster.accelerator.kind
    spec = TrialSpec(
        trial_id="dry-run",
        model=job.model,
        workload=job.workload,
        layout=layout,
        device="cpu" if kind == "cpu" else "cuda",
        settings=TrialSettings.default_for(layout),
    )
    return DryRunRequest(spec=spec, ranks=telling_ranks(layout) if rank is None else (rank,), exact=exact)

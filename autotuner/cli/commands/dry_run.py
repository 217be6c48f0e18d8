"""``autotuner dry-run``: what one rank of a layout holds and computes at full size, without a device."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.cli.console import console, plain_table, print_json
from autotuner.cli.options import ClusterArgument, GlobalBatch, Json, LayoutText, Model, SeqLen
from autotuner.domain.dry_run import DryRun, DryRunRequest, RankDryRun, telling_ranks
from autotuner.domain.layout import Layout
from autotuner.domain.legality import RULES, TRIAL_RULES, Job, reasons
from autotuner.domain.trial import TrialSpec
from autotuner.domain.wire import from_dict, to_dict
from autotuner.domain.workload import Workload
from autotuner.errors import InvalidInput
from autotuner.units import format_bytes, format_rate

__all__ = ["dry_run", "dry_run_view"]

_PARTS = ("parameters", "gathered", "gradients", "optimizer", "activations")


def dry_run(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    layout: LayoutText,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="Of the whole job; else those that may be the fullest.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Run every layer and micro-batch, however long it takes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a layout's own step at full size without values: bytes by part, FLOP and collectives of a rank."""
    from autotuner.cli.inputs import read_cluster, read_model
    from autotuner.cli.layout_text import read_layout
    from autotuner.launch.dry_run import dry_run as run

    workload = Workload(seq_len=seq_len, global_batch_size=global_batch)
    job = Job(model=read_model(model), cluster=read_cluster(cluster), workload=workload)
    answer = run(_request(job, from_dict(Layout, read_layout(layout), "layout"), rank, exact=exact))
    if as_json:
        return print_json({**to_dict(answer), "fullest_rank": answer.fullest.rank})
    console().print(dry_run_view(answer, title=f"{model} on {cluster}, {global_batch} sequences of {seq_len}"))
    return None


def dry_run_view(answer: DryRun, *, title: str) -> RenderableType:
    """A column per rank, the fullest marked; what was not run, below."""
    table = plain_table("part", *(_name(each, answer) for each in answer.ranks))
    for part in _PARTS:
        table.add_row(part, *(format_bytes(getattr(each.held, f"{part}_bytes")) for each in answer.ranks))
    table.add_row(
        "peak", *(format_bytes(each.held.peak_bytes) for each in answer.ranks), style="bold", end_section=True
    )
    table.add_row("computation", *(format_rate(each.counts.flop, "FLOP") for each in answer.ranks))
    table.add_row("memory traffic", *(format_bytes(each.counts.moved_bytes) for each in answer.ranks))
    table.add_row("operations", *(f"{each.counts.num_operations:,.0f}" for each in answer.ranks))
    for kind in _kinds(answer):
        table.add_row(kind.replace("_", "-"), *(_collective(each, kind) for each in answer.ranks))
    return Group(Text(title, style="bold"), table, *(Text(note, style="dim") for note in _notes(answer)))


def _request(job: Job, layout: Layout, rank: int | None, *, exact: bool) -> DryRunRequest:
    broken = reasons(layout, job, (*RULES, *TRIAL_RULES))
    if broken:
        first = broken[0]
        raise InvalidInput(f"layout.{first.field}", to_dict(layout)[first.field], first.message, first.nearest)
    if rank is not None and rank >= layout.world_size:
        raise InvalidInput("--rank", rank, f"must be below the {layout.world_size} ranks", layout.world_size - 1)
    kind = job.cluster.accelerator.kind
    spec = TrialSpec(
        trial_id="dry-run",
        model=job.model,
        workload=job.workload,
        layout=layout,
        device="cpu" if kind == "cpu" else "cuda",
    )
    return DryRunRequest(spec=spec, ranks=telling_ranks(layout) if rank is None else (rank,), exact=exact)


def _name(each: RankDryRun, answer: DryRun) -> str:
    is_fullest = len(answer.ranks) > 1 and each is answer.fullest
    return f"rank {each.rank}{', fullest' if is_fullest else ''}"


def _kinds(answer: DryRun) -> list[str]:
    return sorted({collective.kind for each in answer.ranks for collective in each.counts.collectives})


def _collective(each: RankDryRun, kind: str) -> str:
    found = next((c for c in each.counts.collectives if c.kind == kind), None)
    return "-" if found is None else f"{found.num_calls:,.0f} x, {format_bytes(found.num_bytes)}"


def _notes(answer: DryRun) -> list[str]:
    notes = ["Bytes of tensors at their peak, counted in a run without values; nothing was measured."]
    for what, sizes in (("layers per stage", answer.layers_run), ("micro-batches", answer.micro_batches_run)):
        if sizes:
            notes.append(f"Ran {sizes[0]} and {sizes[1]} {what} and went on in a straight line; --exact runs them all.")
    return notes + [f"{note[0].upper()}{note[1:]}." for note in answer.notes]

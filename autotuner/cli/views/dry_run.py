"""A dry run: bytes, FLOP and collectives of some ranks, side by side."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.core.dry_run import DryRun, RankDryRun
from autotuner.core.units import format_bytes, format_rate
from autotuner.report.terminal import plain_table
from autotuner.search.text.sentences import in_sentences

_PARTS = ("parameters", "gathered", "gradients", "optimizer", "activations")


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
    return notes + [in_sentences([note]) for note in answer.notes]

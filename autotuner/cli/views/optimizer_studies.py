"""Optimizer studies: candidates with what they took to the target, and the front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.core.units import format_seconds
from autotuner.report.terminal import plain_table

Document = Mapping[str, Any]


def study_table(studies: Sequence[Document]) -> RenderableType:
    """A line for each."""
    if not studies:
        return Text("no study is stored; `autotuner optimizer tune ...` starts one")
    table = plain_table("id", "name", "state", "job", "layout", "target loss")
    for one in studies:
        job = f"{one['model']} on {one['cluster']}"
        table.add_row(one["id"], one["name"], one["state"], job, one["label"], f"{one['target_loss']:g}")
    return table


def study_view(study: Document) -> RenderableType:
    """One study: those at the target, the fastest first, then the others, by number."""
    job = f"{study['model']} on {study['cluster']}, {study['label']}"
    head = f"{study['id']}: {job}, to a loss of {study['target_loss']:g}"
    state = f"{study['state']}: {study['detail']}" if study["detail"] else study["state"]
    trials = sorted(study["trials"], key=_fastest_first)
    table = plain_table("", "candidate", "state", "steps", "loss", "to the target", "accelerator-hours", "cost")
    for trial in trials:
        table.add_row(*_row(trial))
    said = [Text(f"not tried: {refusal}") for refusal in study["refusals"]]
    note = [Text("* none comes there both sooner and with fewer accelerator-hours")] if study["front"] else []
    return Group(Text(head), Text(state), *said, *([table] if trials else []), *note)


def trial_said(trial: Document) -> str:
    """A candidate that has ended, as a line: ``3: lamb, learning rate 0.01, ...: pruned, ...``."""
    return f"{trial['number']}: {trial['label']}: {trial['state']}, {trial['detail']}"


def _fastest_first(trial: Document) -> tuple[float, int]:
    reached = trial["reached"]
    return (reached["time_s"] if reached else float("inf"), trial["number"])


def _row(trial: Document) -> tuple[str, ...]:
    reached, losses = trial["reached"], trial["smoothed_losses"]
    return (
        f"{trial['number']}{'*' if trial['is_on_front'] else ''}",
        trial["label"],
        trial["state"],
        str(trial["num_steps"]),
        f"{losses[-1]:.4g}" if losses else "",
        format_seconds(reached["time_s"]) if reached else "",
        f"{reached['accelerator_hours']:.3g}" if reached else "",
        f"{reached['cost']:.3g}" if reached and reached["cost"] is not None else "",
    )

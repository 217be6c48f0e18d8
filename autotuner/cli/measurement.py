"""A measured trial for a terminal: its facts, and where its step went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.cli.render import plain_table
from autotuner.domain.trial import Measurement
from autotuner.domain.wire import from_dict
from autotuner.search.text.measured import certainty, facts, phases
from autotuner.search.text.sentences import expected_mfu, percent
from autotuner.units import format_seconds

__all__ = ["measurement_view"]


def measurement_view(document: Mapping[str, Any]) -> RenderableType:
    """The ``measured`` of a trial, as the service answers."""
    measured = from_dict(Measurement, dict(document))
    step, mfu = format_seconds(measured.step_time_s), expected_mfu(measured.mfu, None)
    numbers = f": step {step} {certainty(measured)}, MFU {mfu} of the {measured.peak_source}"
    head = Text.assemble(("measured", "bold"), numbers)
    lines = [Text(f"  {name}: {text}") for name, text in facts(measured).items()]
    breakdown = measured.breakdown
    if breakdown is None:
        return Group(head, *lines)
    table = plain_table("step", "share", "part")
    for phase in phases(breakdown):
        table.add_row(format_seconds(phase.seconds), percent(phase.share), phase.name)
    title = f"where the step of rank {breakdown.rank} went, {format_seconds(breakdown.step_s)} under the profiler"
    return Group(head, *lines, Text(title), table)

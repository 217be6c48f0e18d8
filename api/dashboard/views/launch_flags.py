"""The launch flags of a layout in one trainer's words, and where the others' stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from api.dashboard.views.looked_at import LookedAt
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.registry import TARGETS, export, refusals
from autotuner.export.target import Export

_FIRST = ExportFormat.TORCHTITAN
"""What is shown to who asked for no trainer's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsView:
    """Launch flags.

    Attributes:
        formats: All that there are, each with its address.
    """

    formats: tuple[tuple[ExportFormat, str], ...]
    export: Export

    @classmethod
    def of(cls, request: SweepRequest, layout: Layout, looked_at: LookedAt) -> Self | None:
        """In the words asked for, else in those of the sweep's own trainer.

        None where a rule that is younger than the layout forbids it.
        """
        own = request.trainer.format if request.trainer else _FIRST
        wanted = looked_at.format or own
        try:
            if refused := refusals(request.job, layout, wanted):
                usage = "No script is written: our trial would refuse this layout"
                made = Export(format=wanted, version=TARGETS[wanted].version, unsaid=refused, usage=usage)
            else:
                made = export(request.job, layout, wanted)
        except InvalidInput:
            return None
        formats = tuple((one, looked_at.format_at(one)) for one in ExportFormat if one in TARGETS)
        return cls(formats=formats, export=made)

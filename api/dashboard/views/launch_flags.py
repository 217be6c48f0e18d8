"""The launch flags of a layout in one trainer's words, and where the others' stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.sweep import SweepRequest
from autotuner.domain.runs.trainer import ExportFormat
from autotuner.errors import InvalidInput
from autotuner.export.registry import TARGETS, export
from autotuner.export.target import Export

__all__ = ["FlagsView"]

_FIRST = ExportFormat.TORCHTITAN
"""What is shown to who asked for no trainer's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsView:
    """Launch flags.

    Attributes:
        formats: All that there are.
        text: All of the export, to be pasted at once.
    """

    formats: tuple[ExportFormat, ...]
    export: Export
    text: str

    @classmethod
    def of(cls, request: SweepRequest, layout: Layout, wanted: ExportFormat | None) -> Self | None:
        """In the words asked for, else in those of the sweep's own trainer.

        None where a rule that is younger than the layout forbids it.
        """
        own = request.trainer.format if request.trainer else _FIRST
        try:
            made = export(request.job, layout, wanted or own)
        except InvalidInput:
            return None
        formats = tuple(one for one in ExportFormat if one in TARGETS)
        return cls(formats=formats, export=made, text=made.text)

"""The reports file: one JSON object per line, in the order things happened, whichever rank they happened on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from autotuner.core import codec
from autotuner.core.measurement import Breakdown, LinkEvent, Measurement, StepReport
from autotuner.core.profile import CollectivePoint, Measurements
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import FailureKind
from autotuner.core.trial_spec import TrialSpec


class Reporter:
    """Appends lines of a trial, from ``started`` to a ``measurement`` or a ``failure``.

    Benchmarks of nodes write ``collective`` and ``profile`` in their place. Rank 0 writes all but
    ``failure``, which is of any rank that dies. The others are the wire form of a dataclass beside ``type``. Each line
    is one write to a file opened for appending, so lines of several processes never mix, and what was written survives
    the writer.
    """

    def __init__(self, path: Path, *, rank: int) -> None:
        self._path = path
        self._rank = rank

    def started(self, spec: TrialSpec, *, world_size: int) -> None:
        """All ranks have met."""
        self._lead({"type": "started", "trial_id": spec.trial_id, "world_size": world_size, "layout": str(spec.layout)})

    def step(self, report: StepReport) -> None:
        """A step is done."""
        self._lead({"type": "step", **codec.to_plain(report)})

    def link_event(self, event: LinkEvent) -> None:
        """A pipeline found something out about a link or a rank, or does something about it."""
        self._lead({"type": "link_event", **codec.to_plain(event)})

    def measurement(self, measurement: Measurement) -> None:
        """The timed steps are complete: whatever becomes of the profiled ones, this stands."""
        self._lead({"type": "measurement", **codec.to_plain(measurement)})

    def timeline(self, timeline: StepTimeline) -> None:
        """A profiled step was recorded: belongs to the measurement before it, and comes before the breakdown."""
        self._lead({"type": "timeline", **codec.to_plain(timeline)})

    def breakdown(self, breakdown: Breakdown) -> None:
        """The profiled steps are complete as well: belongs to the measurement before it."""
        self._lead({"type": "breakdown", **codec.to_plain(breakdown)})

    def collective(self, point: CollectivePoint) -> None:
        """One collective was timed, at one size."""
        self._lead({"type": "collective", **codec.to_plain(point)})

    def profile(self, measurements: Measurements) -> None:
        """The benchmarks are complete."""
        self._lead({"type": "profile", **codec.to_plain(measurements)})

    def failure(self, kind: FailureKind, message: str, traceback: str) -> None:
        """This rank is about to die; of several such lines the first is the cause, the others its consequences."""
        line = {"type": "failure", "kind": kind.value, "rank": self._rank, "message": message, "traceback": traceback}
        self._append(line)

    def _lead(self, line: dict[str, Any]) -> None:
        if self._rank == 0:
            self._append(line)

    def _append(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

"""Outcomes of MFU gates as announcements."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.core.announcement import Announcement, AnnouncementKind
from autotuner.core.upkeep import MfuGate, MfuGateOutcome, MfuGateResult
from autotuner.search.upkeep.facts import measured_facts

_KINDS = {
    MfuGateOutcome.PASSED: AnnouncementKind.GATE_PASSED,
    MfuGateOutcome.FAILED: AnnouncementKind.GATE_FAILED,
    MfuGateOutcome.UNDECIDED: AnnouncementKind.GATE_UNDECIDED,
    MfuGateOutcome.NO_BASELINE: AnnouncementKind.GATE_NO_BASELINE,
    MfuGateOutcome.COULD_NOT_RUN: AnnouncementKind.GATE_COULD_NOT_RUN,
    MfuGateOutcome.CANCELLED: AnnouncementKind.GATE_CANCELLED,
}


def gate_told(gate: MfuGate, result: MfuGateResult, *, at: float) -> Announcement:
    """What the feed and the webhooks say of the gate; a gate has one announcement, which has its id."""
    job = gate.request.sweep.job
    outcome = result.outcome.value.replace("_", " ")
    return Announcement(
        id=f"an-{gate.id}",
        at=at,
        kind=_KINDS[result.outcome],
        title=f"MFU gate {gate.request.baseline}, {job.model.name} on {job.cluster.name}: {outcome}",
        text=result.detail,
        path=f"/gates/{gate.id}",
        subject_id=gate.id,
        facts=dict(_facts(gate, result)),
    )


def _facts(gate: MfuGate, result: MfuGateResult) -> Iterator[tuple[str, object]]:
    yield "gate", gate.id
    yield "sweep", gate.sweep_id
    yield "baseline", gate.request.baseline
    yield "outcome", result.outcome.value
    yield "software", gate.request.software
    yield "model", gate.request.sweep.job.model.name
    yield "cluster", gate.request.sweep.job.cluster.name
    found = result.findings
    if found is None:
        return
    yield from measured_facts(found)

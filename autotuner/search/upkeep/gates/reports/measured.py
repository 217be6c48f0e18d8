"""The report of a gate that was measured."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.core.comparison import RunGroup
from autotuner.core.units import format_rate
from autotuner.core.upkeep import MfuGate
from autotuner.search.upkeep.gates.measured import is_passed
from autotuner.search.upkeep.gates.reports.report import GateReport


def report_of(gate: MfuGate, *, now: float) -> GateReport:
    """What the gate found, or that it runs."""
    job, result = gate.request.sweep.job, gate.result
    runs = result.findings.runs if result and result.findings else None
    return GateReport(
        name=f"MFU of {job.model.name} on {job.cluster.name}",
        group=gate.request.baseline,
        outcome=None if result is None else result.outcome,
        is_passed=is_passed(gate),
        detail=f"sweep {gate.sweep_id} measures" if result is None else result.detail,
        badge=_badge(gate, runs),
        facts=tuple(_facts(gate, runs)),
        changes=() if result is None else tuple(map(str, result.changes)),
        notes=tuple(_notes(gate, runs)),
        elapsed_s=(gate.finished_at or now) - gate.created_at,
    )


def _badge(gate: MfuGate, runs: RunGroup | None) -> str:
    if gate.result is None:
        return "running"
    return f"{100 * runs.mfu:.1f} %" if runs else gate.result.outcome.value.replace("_", " ")


def _facts(gate: MfuGate, runs: RunGroup | None) -> Iterator[tuple[str, str]]:
    result, sequences = gate.result, gate.request.sweep.job.workload
    yield "job", f"{sequences.global_batch_size} sequences of {sequences.seq_len}"
    measured = result.findings.measured if result and result.findings else gate.request.layout
    yield "layout", "the best that a sweep finds" if measured is None else str(measured)
    if runs is not None:
        yield "now", _reached((runs,))
    if gate.baseline is not None:
        yield f"baseline {gate.baseline.name}", _reached(gate.baseline.runs)
        if measured is not None and gate.baseline.layout != measured:
            yield "the baseline's layout", str(gate.baseline.layout)
    against = result.findings.against_baseline if result and result.findings else None
    if against is not None:
        low, high = 100 * against.low, 100 * against.high
        yield "change of the rate", f"{100 * against.change:+.1f} % (95 % interval {low:+.1f} to {high:+.1f} %)"
        yield "noise from run to run", f"{100 * against.noise:.1f} %"
        yield "tolerated loss", f"{100 * gate.request.test.tolerance:g} %"
    if gate.request.software:
        yield "software", gate.request.software


def _reached(groups: tuple[RunGroup, ...]) -> str:
    """Mean over all runs, and how many they are."""
    rates = [rate for group in groups for rate in group.rates]
    mfu = sum(group.mfu * len(group.rates) for group in groups) / len(rates)
    runs = "1 run" if len(rates) == 1 else f"{len(rates)} runs"
    sittings = f" in {len(groups)} sittings" if len(groups) > 1 else ""
    rate = format_rate(sum(rates) / len(rates), "token/s")
    return f"{100 * mfu:.1f} % MFU, {rate}, {runs}{sittings}"


def _notes(gate: MfuGate, runs: RunGroup | None) -> Iterator[str]:
    if runs is not None and "simulated" in runs.environment:
        yield f"simulated: {runs.environment['simulated'].removeprefix('simulated: ')}"
    if gate.result is not None and gate.result.reused_from is not None:
        yield f"nothing was measured again: {gate.result.reused_from} measured the same layout with the same software"
    yield f"gate {gate.id}" + (f", sweep {gate.sweep_id}" if gate.sweep_id else "")

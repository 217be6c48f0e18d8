"""MFU gates, and the baselines that they hold changes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from autotuner.core.comparison import ChallengeFindings, EnvironmentChange, SequentialTest
from autotuner.core.documents import extended
from autotuner.core.layout import Layout
from autotuner.core.upkeep import Baseline, MfuGate, MfuGateOutcome
from autotuner.search.upkeep.gate import is_passed
from autotuner.search.upkeep.gate_reports import GateReport, report_of
from autotuner.service.build import App
from autotuner.store.options import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineView:
    """What changes are held to under a name, of one job."""

    name: str
    key: str
    """Of the job and what runs it."""
    model: str
    cluster: str
    label: str
    """The layout in short."""
    layout: Layout
    mfu: float
    """Mean of all runs."""
    tokens_per_s: float
    """Mean of all runs, whole job."""
    num_runs: int
    """How often it was measured, in all sittings."""
    num_sittings: int
    """Gates that measured it."""
    gate_id: str
    """The gate that set it."""
    at: float
    """When, epoch seconds."""
    environment: dict[str, str]
    """What the last of the runs ran on."""

    @classmethod
    def of(cls, baseline: Baseline, gate: MfuGate) -> Self:
        """The baseline, with the job of a gate that is held to it or set it."""
        rates = [rate for group in baseline.runs for rate in group.rates]
        job = gate.request.sweep.job
        return extended(
            cls,
            baseline,
            model=job.model.name,
            cluster=job.cluster.name,
            label=str(baseline.layout),
            mfu=sum(group.mfu * len(group.rates) for group in baseline.runs) / len(rates),
            tokens_per_s=sum(rates) / len(rates),
            num_runs=len(rates),
            num_sittings=len(baseline.runs),
            environment=dict(baseline.runs[-1].environment),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineList:
    """Every baseline, by name."""

    items: tuple[BaselineView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """An MFU gate: what was asked, and how it ended."""

    id: str
    outcome: MfuGateOutcome | None
    """Null until it is finished."""
    is_passed: bool
    """Whether the change may be merged."""
    detail: str
    """The outcome with its numbers, as a sentence without a full stop; empty until it is finished."""
    model: str
    """Its name."""
    cluster: str
    """Its name."""
    layout: Layout | None
    """What the change trains with; null: the best that its sweep finds."""
    label: str | None
    """That layout in short."""
    baseline: str
    """Name of what it is held to."""
    held_to: BaselineView | None
    """That baseline as it stood when the gate was asked for; null where there was none."""
    sets_baseline: bool
    """What is measured becomes the baseline, where the gate passes or there was none."""
    test: SequentialTest
    """How strictly rates are compared."""
    software: str
    """What the caller says is under test."""
    findings: ChallengeFindings | None
    """What was measured, and the comparison; null until it is finished."""
    changes: tuple[EnvironmentChange, ...]
    """How the environment differs from the baseline's."""
    reused_from: str | None
    """The gate whose runs these are; null where they were measured for this one."""
    sweep_id: str | None
    """The sweep that measures; null where an earlier gate's runs are taken."""
    key: str
    """Of the job and what runs it, as the baseline has one."""
    content: str
    """Of all that is measured: gates that share it measure the same."""
    created_at: float
    """Epoch seconds, as is the next."""
    finished_at: float | None
    report: GateReport
    """All of it in words, as JUnit XML, Markdown and the badge say it."""
    created_by: str = ""
    """Name of the caller who asked for it; empty where nobody was asked who they are."""

    @classmethod
    def of(cls, gate: MfuGate, now: float) -> Self:
        """What a caller may know of the gate."""
        request, result = gate.request, gate.result
        return extended(
            cls,
            gate,
            request,
            outcome=result.outcome if result else None,
            is_passed=is_passed(gate),
            detail=result.detail if result else "",
            model=request.sweep.job.model.name,
            cluster=request.sweep.job.cluster.name,
            label=None if request.layout is None else str(request.layout),
            held_to=None if gate.baseline is None else BaselineView.of(gate.baseline, gate),
            findings=result.findings if result else None,
            changes=result.changes if result else (),
            reused_from=result.reused_from if result else None,
            report=report_of(gate, now=now),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePage:
    """MFU gates, newest first."""

    items: tuple[GateView, ...]
    total: int
    """How many match, on all pages; no more than 10,000 are counted behind this one."""
    limit: int
    offset: int

    @classmethod
    def of(cls, app: App, baseline: str | None, page: Page) -> Self:
        """The gates of one page."""
        now = app.clock.now()
        gates, total = app.store.mfu_gates.list(baseline=baseline, page=page)
        items = tuple(GateView.of(gate, now) for gate in gates)
        return cls(items=items, total=total, limit=page.limit, offset=page.offset)

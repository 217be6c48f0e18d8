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
    """What changes are held to under a name, of one job.

    Attributes:
        key: Of the job and what runs it.
        label: The layout in short.
        mfu: Mean of all runs.
        tokens_per_s: Mean of all runs, whole job.
        num_runs: How often it was measured, in all sittings.
        num_sittings: Gates that measured it.
        gate_id: The gate that set it.
        at: When, epoch seconds.
        environment: What the last of the runs ran on.
    """

    name: str
    key: str
    model: str
    cluster: str
    label: str
    layout: Layout
    mfu: float
    tokens_per_s: float
    num_runs: int
    num_sittings: int
    gate_id: str
    at: float
    environment: dict[str, str]

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
    """An MFU gate: what was asked, and how it ended.

    Attributes:
        outcome: Null until it is finished.
        is_passed: Whether the change may be merged.
        detail: The outcome with its numbers, as a sentence without a full stop; empty until it is finished.
        model: Its name.
        cluster: Its name.
        layout: What the change trains with; null: the best that its sweep finds.
        label: That layout in short.
        baseline: Name of what it is held to.
        held_to: That baseline as it stood when the gate was asked for; null where there was none.
        sets_baseline: What is measured becomes the baseline, where the gate passes or there was none.
        test: How strictly rates are compared.
        software: What the caller says is under test.
        findings: What was measured, and the comparison; null until it is finished.
        changes: How the environment differs from the baseline's.
        reused_from: The gate whose runs these are; null where they were measured for this one.
        sweep_id: The sweep that measures; null where an earlier gate's runs are taken.
        key: Of the job and what runs it, as the baseline has one.
        content: Of all that is measured: gates that share it measure the same.
        created_at: Epoch seconds, as is the next.
        report: All of it in words, as JUnit XML, Markdown and the badge say it.
        created_by: Name of the caller who asked for it; empty where nobody was asked who they are.
    """

    id: str
    outcome: MfuGateOutcome | None
    is_passed: bool
    detail: str
    model: str
    cluster: str
    layout: Layout | None
    label: str | None
    baseline: str
    held_to: BaselineView | None
    sets_baseline: bool
    test: SequentialTest
    software: str
    findings: ChallengeFindings | None
    changes: tuple[EnvironmentChange, ...]
    reused_from: str | None
    sweep_id: str | None
    key: str
    content: str
    created_at: float
    finished_at: float | None
    report: GateReport
    created_by: str = ""

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
    """MFU gates, newest first.

    Attributes:
        total: How many match, on all pages; no more than 10,000 are counted behind this one.
    """

    items: tuple[GateView, ...]
    total: int
    limit: int
    offset: int

    @classmethod
    def of(cls, app: App, baseline: str | None, page: Page) -> Self:
        """The gates of one page."""
        now = app.clock.now()
        gates, total = app.store.mfu_gates.list(baseline=baseline, page=page)
        items = tuple(GateView.of(gate, now) for gate in gates)
        return cls(items=items, total=total, limit=page.limit, offset=page.offset)

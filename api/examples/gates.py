"""Examples of MFU gates and baselines."""

from __future__ import annotations

from typing import Any

from api.schemas import BaselineList, BaselineView, GatePage, GateView
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import ShardLevel
from autotuner.core.comparison import ChallengeFindings, Comparison, Decision, EnvironmentChange, RunGroup
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.upkeep import Baseline, MfuGate, MfuGateOutcome, MfuGateRequest, MfuGateResult, gate_key
from autotuner.core.wire import to_dict
from autotuner.core.workload import Workload
from autotuner.search.upkeep.gates.reports.badge import badge_svg
from autotuner.search.upkeep.gates.reports.junit import junit_xml
from autotuner.search.upkeep.gates.reports.markdown import markdown
from autotuner.search.upkeep.gates.reports.measured import report_of
from autotuner.search.upkeep.gates.reports.report import GateReport

_AT = 1_760_000_000.0
_WORKLOAD = Workload(seq_len=8192, global_batch_size=64)


def gate_bodies() -> dict[str, Any]:
    """Bodies of ``POST /gates``."""
    job = {"model": "llama-3-8b", "cluster": "h100:8", "workload": to_dict(_WORKLOAD)}
    layout = {"data_parallel_shard_degree": 8, "shard_level": "parameters", "recompute": "selective"}
    change = {**job, "layout": layout, "baseline": "main", "software": "commit 1f6c0de"}
    return {
        "a pull request": change,
        "the branch that sets the baseline": {**change, "sets_baseline": True},
        "the best of a small search": {**job, "baseline": "main", "budget": {"num_trials": 8}},
        "a stricter test": {**change, "test": {"tolerance": 0.01, "loss": 0.03, "max_runs": 80}},
    }


def gate_view() -> GateView:
    """A gate that failed because of a new torch."""
    return GateView.of(_gate(), _AT)


def gate_page() -> GatePage:
    """A page with one gate."""
    return GatePage(items=(gate_view(),), total=1, limit=50, offset=0)


def gate_junit() -> str:
    """A failed gate as JUnit XML."""
    return junit_xml(_report())


def gate_summary() -> str:
    """A failed gate in Markdown."""
    return markdown(_report())


def gate_badge() -> str:
    """A failed gate as a badge."""
    return badge_svg(_report())


def baseline_list() -> BaselineList:
    """A list with one baseline."""
    return BaselineList(items=(baseline_view(),))


def baseline_view() -> BaselineView:
    """The baseline that the failed gate was compared with."""
    gate = _gate()
    return BaselineView.of(_baseline(gate.key), gate)


def _report() -> GateReport:
    return report_of(_gate(), now=_AT)


def _layout() -> Layout:
    return Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS)


def _baseline(key: str) -> Baseline:
    runs = RunGroup(rates=(104e3, 103.6e3, 104.3e3), mfu=0.43, at=_AT - 86400, environment={"torch": "2.12.0"})
    return Baseline(name="main", key=key, layout=_layout(), runs=(runs,), gate_id="mg-9v3k2mxw7q", at=_AT - 86000)


def _gate() -> MfuGate:
    """A gate that failed because of a new torch."""
    job = Job(model=load_model("llama-3-8b"), cluster=load_cluster("h100:8"), workload=_WORKLOAD)
    request = MfuGateRequest(sweep=SweepRequest(job=job), layout=_layout(), baseline="main", software="commit 1f6c0de")
    key = gate_key(request.sweep)
    return MfuGate(
        id="mg-4kq2mxw7ab",
        request=request,
        key=key,
        content="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        baseline=_baseline(key),
        created_at=_AT,
        sweep_id="sw-k3v7q2mxn5",
        finished_at=_AT + 240,
        result=_result(),
    )


def _result() -> MfuGateResult:
    detail = "7.2 % slower (95 % interval 6.3 to 8.1 %), by 4 runs beside 3 that scatter by 0.4 %"
    against = Comparison(
        decision=Decision.SLOWER,
        change=-0.072,
        low=-0.081,
        high=-0.063,
        noise=0.004,
        num_reference=3,
        num_candidate=4,
        detail=detail,
    )
    runs = RunGroup(rates=(96.4e3, 96.9e3, 96.2e3, 96.6e3), mfu=0.399, at=_AT + 60, environment={"torch": "2.13.0"})
    change = EnvironmentChange(name="torch", then="2.12.0", now="2.13.0")
    return MfuGateResult(
        outcome=MfuGateOutcome.FAILED,
        detail=f"beside main it is {detail}; it reaches 96.5 ktoken/s (39.9 % MFU); what differs: {change}",
        findings=ChallengeFindings(measured=_layout(), runs=runs, against_baseline=against),
        changes=(change,),
    )

"""MFU gates for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotuner.core.upkeep import Baseline, MfuGate, MfuGateOutcome, MfuGateRequest, MfuGateResult
from tests.builders import sweep_request
from tests.unit.search.upkeep.builders import INCUMBENT, findings, runs


def baseline(**changes: Any) -> Baseline:
    value = Baseline(name="main", key="a-key", layout=INCUMBENT, runs=(runs(),), gate_id="ga-before", at=1.0)
    return replace(value, **changes)


def gate_request(**changes: Any) -> MfuGateRequest:
    return replace(MfuGateRequest(sweep=sweep_request(), layout=INCUMBENT, baseline="main"), **changes)


def gate(**changes: Any) -> MfuGate:
    """One that runs; changes are of the gate, or of its request."""
    asked = {name: changes.pop(name) for name in ("layout", "sets_baseline", "software", "test") if name in changes}
    value = MfuGate(
        id="ga-1",
        request=gate_request(**asked),
        key="a-key",
        content="a-content",
        baseline=baseline(),
        created_at=1000.0,
        sweep_id="sw-1",
    )
    return replace(value, **changes)


def measured(outcome: MfuGateOutcome = MfuGateOutcome.PASSED, **changes: Any) -> MfuGateResult:
    return replace(MfuGateResult(outcome=outcome, detail="not slower", findings=findings()), **changes)

"""The performance regression gate as a durable run: it waits for the sweep that measures, then decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.upkeep import (
    Baseline,
    GateRun,
    GateRunRequest,
    RegressionGateRequest,
    RegressionGateResult,
    gate_content,
    gate_key,
)
from autotuner.report.verdicts import gate_verdict
from autotuner.runs.challenge import findings
from autotuner.runs.kind import Kind, Work, already_ended
from autotuner.runs.lease import Hold
from autotuner.search.upkeep.gate import end_of, gate_result, gate_sweep, reused_result

if TYPE_CHECKING:
    from autotuner.store.sql import Store


def gate_kind(store: Store) -> Kind:
    """Return the kind of run that decides performance regression gates, for a worker.

    Such a gate decides whether a change made training slower than its baseline. No worker takes a gate before the sweep
    that measures for it has ended.
    """

    def begin(hold: Hold) -> Work:
        gate = hold.run
        assert gate.child_id is not None, "a gate without a sweep is stored as it ends"
        sweep = store.get_sweep(gate.child_id)
        trials = list(store.all_trials(sweep.id))
        result = gate_result(gate.request, sweep, findings(sweep.request, trials), trials)
        return already_ended(end_of(result, gate_verdict(gate.request, result, sweep, trials)))

    return Kind(name="gate", begin=begin, span="gate.conclude")


def ask_gate(
    store: Store,
    request: RegressionGateRequest,
    software: Mapping[str, str],
    *,
    now: float,
    caller: Caller = NOBODY_ASKED,
) -> GateRun:
    """Store a new performance regression gate and return it.

    The gate waits for its sweep. It ends at once if the result of an earlier gate with the same sweep, layout and
    software can be reused.

    Args:
        store: The store.
        request: The request for the gate.
        software: Versions of the software that would run, as far as they are known. The versions that a registered
            trainer uses are not known.
        now: Time of the request.
        caller: Owner of the gate.

    Raises:
        NotOwner: The gate would replace the baseline of another caller.
    """
    key, content = gate_key(request.sweep), gate_content(request, software)
    baseline = baseline_of(store, request, caller)
    asked = GateRunRequest(gate=request, key=key, content=content, baseline=baseline)
    found = _reused(store, asked) if _may_reuse(request) else None
    by = gate_sweep(request, baseline) if found is None else end_of(found, gate_verdict(asked, found))
    return store.regression_gates.create(asked, by=by, now=now, caller=caller)


def baseline_of(store: Store, request: RegressionGateRequest, caller: Caller) -> Baseline | None:
    """Return the stored baseline for a performance regression gate, or None if there is none yet.

    The gate compares its measurements with this baseline.

    Raises:
        NotOwner: The gate would replace the baseline of another caller.
    """
    baseline = store.regression_gates.get_baseline(request.baseline, gate_key(request.sweep))
    if baseline is not None and request.sets_baseline:
        caller.require_own("baseline", baseline.name, store.runs.get(GateRun, baseline.gate_id).created_by)
    return baseline


def _reused(store: Store, asked: GateRunRequest) -> RegressionGateResult | None:
    """Return the result that the newest earlier gate of the same content gives for this one; None if there is none."""
    earlier = store.regression_gates.find_reusable(asked.content)
    return None if earlier is None else reused_result(asked, earlier)


def _may_reuse(request: RegressionGateRequest) -> bool:
    """Return True if a request with the same content surely measures the same software.

    The code of a registered trainer is only identified by the ``software`` that the caller gives.
    """
    return request.reuses and (request.sweep.trainer is None or bool(request.software))

"""Concluding MFU gates whose sweeps are finished. Each is one transaction, which one process alone can win."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.core.sweep import Sweep
from autotuner.core.upkeep import MfuGate, MfuGateOutcome, MfuGateResult
from autotuner.ports import Store
from autotuner.search.sweeps.findings import findings
from autotuner.search.sweeps.history import all_trials
from autotuner.search.upkeep.gates.asking import finish_gate, reused
from autotuner.search.upkeep.gates.measured import gate_result

_GONE = MfuGateResult(
    outcome=MfuGateOutcome.COULD_NOT_RUN,
    detail="the earlier runs that it was asked for do not decide it any more; ask again",
)
"""Of a gate whose process died before it was finished, where a later gate measured the same in between."""


def conclude_gates(store: Store, *, now: float) -> Sequence[MfuGate]:
    """Finish every gate whose sweep is finished; of several processes that ask at once one finishes each."""
    ended = (_conclude(store, gate, sweep, now=now) for gate, sweep in store.mfu_gates.concludable())
    return [gate for gate in ended if gate is not None]


def _conclude(store: Store, gate: MfuGate, sweep: Sweep | None, *, now: float) -> MfuGate | None:
    if sweep is None:
        return finish_gate(store, gate, reused(store, gate) or _GONE, now=now)
    trials = list(all_trials(store, sweep.id))
    return finish_gate(store, gate, gate_result(gate, sweep, findings(sweep.request, trials), trials), now=now)

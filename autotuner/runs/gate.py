"""The MFU gate as a durable run: it awaits the sweep that measures, then says what that means."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.core.run import Finish
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.upkeep import MfuGate
from autotuner.ports import Store
from autotuner.runs.hold import Hold
from autotuner.runs.kind import Kind, Work
from autotuner.search.sweeps.findings import findings
from autotuner.search.sweeps.history import all_trials
from autotuner.search.upkeep.gates.measured import end_of, gate_result


class GateMachine:
    """Ends a gate by what its sweep measured. It performs nothing: no worker takes a gate before its sweep has ended.

    Args:
        gate: The gate.
        sweep: The sweep that measured for it.
        trials: Of the sweep.
    """

    def __init__(self, gate: MfuGate, sweep: Sweep, trials: Sequence[Trial]) -> None:
        self._gate = gate
        self._sweep = sweep
        self._trials = trials

    def next(self, now: float) -> Finish:  # noqa: ARG002
        """Return how the gate ends."""
        found = findings(self._sweep.request, self._trials)
        return end_of(gate_result(self._gate, self._sweep, found, self._trials))

    def tell(self, outcome: object) -> None:
        """Learn nothing: the machine begins no action."""


def gate_kind(store: Store) -> Kind:
    """Return the kind that compares a change with its baseline.

    Args:
        store: Of the gates, and of the sweeps that measure for them.
    """

    def begin(hold: Hold) -> Work:
        gate = store.mfu_gates.get(hold.run.id)
        assert gate.sweep_id is not None, "a gate without a sweep is stored as it ends"
        sweep = store.get_sweep(gate.sweep_id)
        machine = GateMachine(gate, sweep, list(all_trials(store, sweep.id)))
        return Work(machine=machine, perform=lambda _: None)

    return Kind(name="gate", begin=begin, span="gate.conclude")

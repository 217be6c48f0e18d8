"""The MFU gate as a durable run: it awaits the sweep that measures, then says what that means."""

from __future__ import annotations

from autotuner.ports import Store
from autotuner.runs.hold import Hold
from autotuner.runs.kind import Kind, Work, already_ended
from autotuner.search.sweeps.challenge import findings
from autotuner.search.sweeps.kept_trials import all_trials
from autotuner.search.upkeep.gate import end_of, gate_result


def gate_kind(store: Store) -> Kind:
    """Return the kind that compares a change with its baseline. No worker takes a gate before its sweep has ended.

    Args:
        store: Of the gates, and of the sweeps that measure for them.
    """

    def begin(hold: Hold) -> Work:
        gate = store.mfu_gates.get(hold.run.id)
        assert gate.sweep_id is not None, "a gate without a sweep is stored as it ends"
        sweep = store.get_sweep(gate.sweep_id)
        trials = list(all_trials(store, sweep.id))
        return already_ended(end_of(gate_result(gate, sweep, findings(sweep.request, trials), trials)))

    return Kind(name="gate", begin=begin, span="gate.conclude")

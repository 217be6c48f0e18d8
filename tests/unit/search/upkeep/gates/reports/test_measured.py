from __future__ import annotations

from dataclasses import replace

from autotuner.core.upkeep import MfuGateOutcome
from autotuner.search.upkeep.gates.reports.measured import report_of
from autotuner.search.upkeep.gates.told import gate_told
from tests.unit.search.upkeep.builders import SLOWER, runs
from tests.unit.search.upkeep.gates.builders import gate, measured

FAILED = measured(MfuGateOutcome.FAILED, detail="slower than main", findings=SLOWER)


def test_a_gate_that_runs_says_where() -> None:
    report = report_of(gate(), now=1010.0)
    assert (report.outcome, report.badge, report.elapsed_s) == (None, "running", 10.0)
    assert "sw-1" in report.detail


def test_a_gate_that_ended_is_told_with_both_sides_and_the_noise() -> None:
    report = report_of(gate(result=FAILED, finished_at=1060.0), now=5000.0)
    facts = dict(report.facts)
    assert facts["now"] == "25.0 % MFU, 930 token/s, 2 runs"
    assert facts["baseline main"] == "25.0 % MFU, 1 ktoken/s, 2 runs"
    assert facts["change of the rate"] == "-7.0 % (95 % interval -8.0 to -6.0 %)"
    assert facts["noise from run to run"] == "0.4 %"
    assert (report.badge, report.elapsed_s, report.is_passed) == ("25.0 %", 60.0, False)


def test_a_gate_without_runs_says_its_outcome_on_the_badge() -> None:
    nothing = measured(MfuGateOutcome.COULD_NOT_RUN, findings=None)
    assert report_of(gate(result=nothing), now=1010.0).badge == "could not run"


def test_runs_that_were_taken_again_are_said_to_be() -> None:
    again = gate(result=replace(FAILED, reused_from="ga-0"), sweep_id=None)
    assert "nothing was measured again: ga-0" in report_of(again, now=1010.0).notes[0]


def test_simulated_runs_are_called_that() -> None:
    pretended = replace(FAILED, findings=replace(SLOWER, runs=runs(environment={"simulated": "nothing ran"})))
    assert report_of(gate(result=pretended), now=1010.0).notes[0] == "simulated: nothing ran"


def test_a_gate_is_announced_once_with_its_numbers() -> None:
    told = gate_told(gate(software="commit 17"), FAILED, at=7.0)
    assert (told.id, told.kind.value, told.path, told.at) == ("an-ga-1", "gate.failed", "/gates/ga-1", 7.0)
    assert told.title == "MFU gate main, tiny on cpu:2: failed"
    assert (told.facts["change"], told.facts["software"], told.facts["tokens_per_s"]) == (-0.07, "commit 17", 930.0)

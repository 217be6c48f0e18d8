from __future__ import annotations

from dataclasses import replace

from autotuner.core.trial import Trial, TrialState
from autotuner.search.sweeps.challenge import run_group
from tests.builders import cpu_layout, measurement, prediction


def ran(others: float, **environment: str) -> Trial:
    reached = replace(measurement(), foreign_cpu_share=others, environment=environment)
    return Trial(
        id="t",
        sweep_id="s",
        number=0,
        state=TrialState.COMPLETE,
        layout=cpu_layout(),
        prediction=prediction(),
        measurement=reached,
        finished_at=1.0,
    )


def test_a_neighbour_that_came_after_the_first_run_is_part_of_what_the_runs_met() -> None:
    quiet, busy = ran(0.0, torch="2.13", foreign_cpu_share="0.00"), ran(0.5, torch="2.13", foreign_cpu_share="0.50")
    group = run_group([quiet, busy, busy, busy])
    assert group is not None
    assert group.environment == {"torch": "2.13", "foreign_cpu_share": "0.38"}


def test_what_nobody_recorded_of_neighbours_is_not_made_up() -> None:
    group = run_group([ran(0.5, torch="2.13")])
    assert group is not None
    assert group.environment == {"torch": "2.13"}

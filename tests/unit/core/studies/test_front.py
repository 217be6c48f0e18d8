from __future__ import annotations

from autotuner.core.studies.front import front
from tests.studies import reached_trial, study_trial


def test_the_front_has_what_none_beats_in_time_and_accelerator_hours_the_fastest_first() -> None:
    cheap, fast, beaten = reached_trial(0, 8.0, 1.0), reached_trial(1, 2.0, 3.0), reached_trial(2, 8.0, 3.0)
    missed = study_trial(3, 6.0, 6.0)
    assert [trial.number for trial in front([cheap, fast, beaten, missed])] == [1, 0]


def test_equals_share_the_front() -> None:
    assert [trial.number for trial in front([reached_trial(0, 1.0, 1.0), reached_trial(1, 1.0, 1.0)])] == [0, 1]

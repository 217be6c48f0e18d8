from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import optuna
from optuna.trial import TrialState

from api.openapi import examples
from autotuner.cli.optuna_study import write_study
from autotuner.core.codec import to_plain
from autotuner.core.measurement import RobustMeasurement
from autotuner.core.objective import Objective
from autotuner.store.sql import open_store
from tests.api.service import StoreDriver
from tests.builders import cpu_layout, failure, measurement
from tests.unit.cli.command_line import CommandLine


def stored(cli: CommandLine) -> str:
    """A sweep in the command line's database: two trials that were measured, one that failed, one under way."""
    driver = StoreDriver(store=open_store(f"sqlite:///{cli.directory}/autotuner.db"))
    sweep = driver.sweep()
    driver.ended(sweep, 0, measurement(mfu=0.25))
    driver.ended(sweep, 1, measurement(mfu=0.5), layout=cpu_layout(data_parallel_replicate_degree=2))
    driver.ended(sweep, 2, failure(), layout=cpu_layout(micro_batch_size=2, tensor_parallel_degree=2))
    driver.running(sweep, 3)
    return sweep.id


def test_a_sweep_is_a_study_that_optunas_tools_read(cli: CommandLine) -> None:
    sweep_id, file = stored(cli), cli.directory / "study.db"
    assert f"optuna-dashboard sqlite:///{file}" in cli.run("study", sweep_id, str(file))
    study = optuna.load_study(study_name=sweep_id, storage=f"sqlite:///{file}")
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL]
    assert study.best_value == 0.5
    assert study.best_params == {
        "data_parallel_replicate_degree": 2,
        "tensor_parallel_degree": 1,
        "micro_batch_size": 1,
    }
    assert study.trials[2].user_attrs["failure"] == "rank 1 ran out of memory"


def test_an_exported_study_names_its_metric_and_when_each_trial_ran(cli: CommandLine) -> None:
    sweep_id, file = stored(cli), cli.directory / "study.db"
    cli.run("study", sweep_id, str(file))
    study = optuna.load_study(study_name=sweep_id, storage=f"sqlite:///{file}")
    assert study.metric_names == ["MFU"]
    stored_trials, _ = open_store(f"sqlite:///{cli.directory}/autotuner.db").list_trials(sweep_id)
    for trial, there in zip(study.trials, stored_trials, strict=False):
        assert trial.datetime_start is not None
        assert trial.datetime_complete is not None
        assert trial.datetime_start.timestamp() == there.started_at
        assert trial.datetime_complete.timestamp() == there.finished_at


def test_an_exported_study_holds_what_its_sweep_compares(tmp_path: Path) -> None:
    sweep = examples()["read_sweep"]["answer"] | {"objective": to_plain(Objective(under_faults=True))}
    healthy = measurement(mfu=0.5)
    robust = RobustMeasurement(step_time_s=1.0, mfu=0.25, tokens_per_s=100.0, num_steps=20, stretches=())
    measured = {"measured": to_plain(replace(healthy, robust=robust)), "state": "complete"}
    trial = examples()["read_trial"]["answer"] | measured
    write_study(tmp_path / "study.db", sweep, [trial])
    study = optuna.load_study(study_name=sweep["id"], storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert (study.best_value, study.metric_names) == (0.25, ["robust MFU"])


def test_a_file_that_is_there_is_left_as_it_is(cli: CommandLine) -> None:
    sweep_id, file = stored(cli), cli.directory / "study.db"
    file.write_text("mine")
    cli.run("study", sweep_id, str(file), code=4)
    assert "name another file" in cli.error
    assert file.read_text() == "mine"

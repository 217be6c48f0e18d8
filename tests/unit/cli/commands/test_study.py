from __future__ import annotations

import optuna
from optuna.trial import TrialState

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


def test_a_file_that_is_there_is_left_as_it_is(cli: CommandLine) -> None:
    sweep_id, file = stored(cli), cli.directory / "study.db"
    file.write_text("mine")
    cli.run("study", sweep_id, str(file), code=4)
    assert "name another file" in cli.error
    assert file.read_text() == "mine"

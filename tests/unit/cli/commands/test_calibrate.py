from __future__ import annotations

from autotuner.costmodel.predict import predict_one
from autotuner.store.sql import open_store
from tests.api.service import StoreDriver
from tests.builders import cpu_layout, measurement, tiny_job
from tests.unit.cli.command_line import CommandLine

LAYOUT = cpu_layout(tensor_parallel_degree=2)


def slow_trials(cli: CommandLine) -> None:
    """Two trials that took twice as long as predicted, in the database of the command line."""
    store = open_store(f"sqlite:///{cli.directory}/autotuner.db")
    driver = StoreDriver(store=store)
    sweep = driver.sweep()
    for number in range(2):
        step_time_s = 2 * predict_one(LAYOUT, tiny_job()).step_time.total_s
        driver.ended(sweep, number, measurement(step_time_s=step_time_s), layout=LAYOUT)
    driver.finish(sweep)
    store.close()


def test_before_any_trial_it_says_that_nothing_was_learnt(cli: CommandLine) -> None:
    assert cli.run("calibrate").startswith("no trial was measured yet")


def test_what_trials_taught_is_a_row_for_each_platform(cli: CommandLine) -> None:
    cli.run("calibrate")
    slow_trials(cli)
    text = cli.run("calibrate")
    assert "cpu" in text
    assert "±" in text
    (item,) = cli.run_json("calibrate", "--on", "cpu:1x4")["items"]
    assert item["num_trials"] == 2
    assert cli.run_json("calibrate", "--on", "h100:64") == {"items": []}


def test_a_cluster_that_is_not_there_is_an_error(cli: CommandLine) -> None:
    assert "h1000" in cli.error_of("calibrate", "--on", "h1000:64", code=3)

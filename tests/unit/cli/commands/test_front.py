from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.measurement import Footprint, Measurement
from autotuner.store.sql import open_store
from tests.api.service import StoreDriver
from tests.builders import cpu_layout, measurement
from tests.unit.cli.command_line import JOB, CommandLine


def reached(mfu: float, complexity: float) -> Measurement:
    footprint = Footprint(power=None, price_per_hour=0.0, co2_kg_per_hour=0.0, complexity=complexity)
    return replace(measurement(mfu=mfu, step_time_s=0.1 / mfu), footprint=footprint)


@pytest.fixture
def stored(cli: CommandLine) -> str:
    """A sweep in the command line's database: a fast layout, a simple one, and one that both beat."""
    driver = StoreDriver(store=open_store(f"sqlite:///{cli.directory}/autotuner.db"))
    sweep = driver.sweep()
    driver.ended(sweep, 0, reached(0.5, 2.0))
    driver.ended(sweep, 1, reached(0.4, 0.0), layout=cpu_layout(data_parallel_replicate_degree=2))
    driver.ended(sweep, 2, reached(0.3, 2.0), layout=cpu_layout(micro_batch_size=2, tensor_parallel_degree=2))
    return sweep.id


def test_the_front_is_printed_with_why_each_is_on_it_and_what_is_behind(cli: CommandLine, stored: str) -> None:
    text = " ".join(cli.run("front", stored, "--metrics", "mfu,simplicity").split())
    assert "trial 0: the best of 3 in MFU; trial 1 has +200.0 % simplicity for −20.0 % MFU" in text
    assert "trial 2 is behind trial 1, which has +33.3 % MFU and +200.0 % simplicity" in text
    assert "* first by what the sweep ranks by" in text
    assert "MFU simplicity of the front" in text
    assert "50.0 % 0.33" in text  # the head says of what


def test_a_profile_marks_the_one_that_it_likes_best(cli: CommandLine, stored: str) -> None:
    answers = [
        cli.run_json("front", stored, "--metrics", "mfu,simplicity", "--profile", f"mfu=1,simplicity={weight}")
        for weight in (0.01, 1)
    ]
    first = [next(point["number"] for point in answer["points"] if point["is_first"]) for answer in answers]
    assert first == [0, 1]


def test_what_no_trial_tells_is_refused_or_said(cli: CommandLine, stored: str) -> None:
    assert "power_w" in cli.error_of("front", stored, "--metrics", "mfu,tokens_per_joule")
    assert "mfu=1" in cli.error_of("front", stored, "--profile", "mfu=much")


def test_a_sweep_is_asked_for_its_front(cli: CommandLine) -> None:
    created = cli.run_json("sweep", *JOB, "--no-wait", "--front", "mfu,tokens_per_joule,simplicity")
    assert created["objective"]["front"] == ["mfu", "tokens_per_joule", "simplicity"]
    assert "mfu" in cli.error_of("sweep", *JOB, "--no-wait", "--front", "speed,simplicity")

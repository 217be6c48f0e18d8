"""A trainer of one's own trains on the nodes of an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.choices import AttentionKernel
from autotuner.core.measurement import Measurement
from autotuner.core.trial import FailureKind
from autotuner.launch.trainers.registration import read_trainers
from tests.builders import cpu_cluster, cpu_layout
from tests.contracts.engine_contract import EngineSubject
from tests.contracts.held import PROCESSES
from tests.trainers.registered import by_trainer, registered
from tests.trials.launching import Watcher, failed, measured, spec

pytestmark = pytest.mark.engine

TRAINERS = read_trainers(Path(__file__).parents[3] / "examples/trainers.toml")


def test_the_loop_to_copy_trains_on_two_nodes_and_its_steps_arrive(tmp_path: Path) -> None:
    layout = cpu_layout(data_parallel_replicate_degree=2, attention_kernel=AttentionKernel.FLASH)
    engine, watcher = EngineSubject(replace(PROCESSES, trainers=TRAINERS), tmp_path), Watcher()
    trial = spec("trainer-pair", layout=layout, cluster=PROCESSES.cluster, trainer=TRAINERS["train"].trainer)
    outcome = measured(engine.run(trial, watcher))
    assert [step.step for step in watcher.steps] == [0, 1, 2]
    assert len(outcome.peak_bytes) == 2, "both nodes' ranks reported"


@pytest.mark.parametrize(("reports", "variables"), [("reporter", {}), ("printed", {"LOG": "1"})])
def test_a_trainer_that_starts_its_own_ranks_runs_on_one_node(
    tmp_path: Path, reports: str, variables: dict[str, str]
) -> None:
    loop = registered("loop", reports=reports, **variables)
    engine = EngineSubject(replace(PROCESSES, trainers={"loop": loop}), tmp_path)
    cluster = replace(cpu_cluster(), engine="held")
    trial, watcher = replace(by_trainer(spec("trainer-loop"), loop), cluster=cluster), Watcher()
    assert isinstance(engine.run(trial, watcher), Measurement)
    assert [step.step for step in watcher.steps] == [0, 1, 2]


def test_a_trainer_that_breaks_says_why_as_it_does_here(tmp_path: Path) -> None:
    loop = registered("loop")
    engine = EngineSubject(
        replace(PROCESSES, trainers={"loop": replace(loop, command=("{python}", "-c", "1 / 0"))}), tmp_path
    )
    trial = replace(by_trainer(spec("trainer-breaks"), loop), cluster=replace(cpu_cluster(), engine="held"))
    outcome = failed(engine.run(trial, Watcher()))
    assert outcome.kind == FailureKind.CRASH
    assert "ZeroDivisionError" in outcome.message

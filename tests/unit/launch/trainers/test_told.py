"""Where a trainer says that it runs: told by its ranks, and by the nodes that started it."""

from __future__ import annotations

import json
from pathlib import Path

from autotuner.core.measuring import Peak
from autotuner.launch.trainers.told import TrainerReports
from tests.trials.launching import SHORT, spec

TRIAL = spec("told", SHORT)


def reports(folder: Path) -> TrainerReports:
    peak = Peak(flop_per_s=1e12, source="said")
    return TrainerReports(TRIAL, peak, folder, None, {"trainer": "loop", "device": "h100-sxm"})


def append(folder: Path, name: str, *documents: dict[str, object]) -> None:
    with (folder / name).open("a") as file:
        file.writelines(json.dumps(document) + "\n" for document in documents)


def steps(rank: int, **first: object) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = [{"step": step, "rank": rank, "step_time_s": 0.1} for step in range(10)]
    return [lines[0] | first, *lines[1:]]


def environment(told: TrainerReports) -> dict[str, str]:
    told.new_steps(is_over=True)
    assert told.measurement is not None
    return told.measurement.environment


def test_ranks_tell_versions_and_nodes_the_rest(tmp_path: Path) -> None:
    append(tmp_path, "node-0.jsonl", {"environment": {"host": "a", "driver": "580.82"}})
    append(tmp_path, "node-1.jsonl", {"environment": {"host": "b", "driver": "570.1"}})
    for rank in range(TRIAL.layout.world_size):
        append(tmp_path, f"rank-{rank}.jsonl", *steps(rank, environment={"torch": "2.13"}))
    facts = environment(reports(tmp_path))
    assert (facts["trainer"], facts["torch"], facts["device"]) == ("loop", "2.13", "h100-sxm")
    assert (facts["host"], facts["driver"], facts["nodes"]) == ("a", "580.82", "a,b")


def test_what_is_no_object_of_strings_is_passed_over(tmp_path: Path) -> None:
    append(tmp_path, "node-0.jsonl", {"environment": "somewhere"}, {"environment": {"host": 3}})
    for rank in range(TRIAL.layout.world_size):
        append(tmp_path, f"rank-{rank}.jsonl", *steps(rank))
    assert "host" not in environment(reports(tmp_path))


def test_what_the_launcher_learns_later_is_said_too(tmp_path: Path) -> None:
    for rank in range(TRIAL.layout.world_size):
        append(tmp_path, f"rank-{rank}.jsonl", *steps(rank))
    told = reports(tmp_path)
    told.runs_on({"NCCL_ALGO": "Tree"})
    assert environment(told)["NCCL_ALGO"] == "Tree"

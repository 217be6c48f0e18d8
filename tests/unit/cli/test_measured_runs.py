from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotuner.cli.measured_runs import read_measured
from autotuner.core.errors import InvalidInput

WORKLOAD = {"seq_len": 4096, "global_batch_size": 64}


def test_without_a_file_a_request_carries_no_runs() -> None:
    assert read_measured(None, WORKLOAD) == {}


def test_a_csv_and_a_json_file_say_the_same(tmp_path: Path) -> None:
    table, document = tmp_path / "runs.csv", tmp_path / "runs.json"
    table.write_text("layout,step_time_s,tokens_per_s,model,cluster,seq_len,global_batch\ntp8 mb1,8.5,,,,8192,\n")
    document.write_text(json.dumps([{"layout": "tp8 mb1", "step_time_s": 8.5, "seq_len": 8192}]))
    (run,) = read_measured(str(table), WORKLOAD)["measured"]
    assert run == {
        "layout": {"tensor_parallel_degree": 8, "micro_batch_size": 1},
        "step_time_s": 8.5,
        "workload": {"seq_len": 8192, "global_batch_size": 64},
    }
    assert read_measured(str(document), WORKLOAD) == {"measured": [run]}


def test_a_run_may_name_its_own_model_and_cluster(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("layout,tokens_per_s,model,cluster\ntp8,1e5,llama-3-70b,h100:64\n")
    (run,) = read_measured(str(path), WORKLOAD)["measured"]
    assert (run["model"], run["cluster"], run["tokens_per_s"]) == ("llama-3-70b", "h100:64", 1e5)
    assert "workload" not in run


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("runs.csv", "layout,seconds\ntp8,1\n", "is no column"),
        ("runs.csv", "layout,step_time_s\ntp8,\n", "one of step_time_s"),
        ("runs.csv", "layout,step_time_s,tokens_per_s\ntp8,1,1\n", "one of step_time_s"),
        ("runs.csv", "layout,step_time_s\ntp8,fast\n", "must be a number"),
        ("runs.csv", "layout,step_time_s\ntq8,1\n", "no word of a layout"),
        ("runs.json", "{}", "JSON list"),
        ("runs.csv", "layout,step_time_s\ntp8,inf\n", "must be a number"),
        ("runs.csv", "layout,step_time_s,seq_len\ntp8,1,1e999\n", "must be a number"),
        ("runs.csv", "layout,step_time_s,model\ntp8,1," + "x" * 300 + ".json\n", "cannot be read"),
        ("runs.json", '[{"layout": [1], "step_time_s": 1}]', "must be text or an object"),
        ("runs.json", '[{"layout": "tp8", "step_time_s": 1, "model": 5}]', "must be text or an object"),
        ("runs.json", "[", "must be JSON"),
        ("runs.json", "[" * 5_000, "must be JSON"),
    ],
)
def test_a_file_that_says_no_runs_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=said):
        read_measured(str(tmp_path / name), WORKLOAD)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_measured("/nowhere.csv", WORKLOAD)


def test_a_name_that_is_longer_than_any_path_is_for_the_service_to_refuse(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("layout,step_time_s,model\ntp8,1," + "x" * 300 + "\n")
    (run,) = read_measured(str(tmp_path / "runs.csv"), WORKLOAD)["measured"]
    assert run["model"] == "x" * 300

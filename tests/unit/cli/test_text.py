from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotuner.catalog.named import load  # noqa: F401  # which has requests read the short forms of tariffs
from autotuner.cli.files import read_text
from autotuner.core import documents
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.requests import PredictionRequest
from autotuner.core.sweep_requests import SweepClone, SweepCreate
from autotuner.core.text import in_words_of, inputs_of, to_document


# ---------------------------------------------------------------- options of a request
def said(**texts: str) -> Any:
    """The document that options describe."""
    return to_document(inputs_of(PredictionRequest), texts, read_file=read_text)


def asked(**texts: str) -> PredictionRequest:
    job = {"model": "llama-3-8b", "cluster": "h100:8", "seq_len": "8k", "global_batch_size": "64"}
    return documents.read(PredictionRequest, said(**job, **texts))


def test_settings_of_trials_are_said_one_by_one_or_as_json_and_flags_win() -> None:
    texts = {"trial": '{"num_runs": 2, "warmup_steps": 9}', "warmup_steps": "4", "minutes": "1.5"}
    found = to_document(inputs_of(SweepCreate), texts)
    assert found == {"trial": {"num_runs": 2, "warmup_steps": 4}, "budget": {"wall_clock_s": 90.0}}


def test_a_clone_takes_fields_that_are_left_out_from_the_original_and_not_from_defaults() -> None:
    inputs = inputs_of(SweepClone)
    assert to_document(inputs, {"trials": "3", "gate_seeds": "4"}) == {
        "budget": {"num_trials": 3},
        "convergence_gate": {"num_seeds": 4},
    }
    assert {one.default for one in inputs} == {""}
    assert not any(one.is_required for one in inputs)


def test_a_value_that_is_missing_as_a_whole_is_described_by_the_flags_that_it_needs() -> None:
    error = in_words_of(inputs_of(SweepCreate), InvalidInput("workload", None, "is required"))
    assert [one.field for one in error.complaints] == ["--seq-len, --global-batch-size"]


def test_a_cluster_for_trials_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    file.write_text('{"accelerator": "h100"}')
    found = to_document(inputs_of(SweepCreate), {"on": str(file)}, read_file=read_text)
    assert found == {"trial_cluster": {"name": "small", "accelerator": "h100"}}


# ---------------------------------------------------------------- layout text
FIELDS = {"tensor_parallel_degree": 2, "recompute": "full"}


def test_a_layout_is_given_as_words_as_json_or_as_a_file_of_json(tmp_path: Path) -> None:
    file = tmp_path / "layout.json"
    file.write_text(json.dumps(FIELDS))
    for text in ("tp2 recompute-full", json.dumps(FIELDS), str(file)):
        assert asked(layout=text).layout == asked(layout="tp2 recompute-full").layout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "must be the short form of this field, or JSON"),
        ('{"a":' * 5_000, "must be the short form of this field, or JSON"),
        ("none.json", "cannot be read"),
    ],
)
def test_invalid_or_unreadable_json_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        said(layout=text)


def test_a_number_without_end_is_reported_with_a_line_of_it_and_a_file_that_is_no_text_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidInput) as caught:
        asked(layout="tp" + "9" * 5_000)
    assert len(str(caught.value)) < 500
    file = tmp_path / "layout.json"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="cannot be read"):
        said(layout=str(file))


# ---------------------------------------------------------------- measured runs
def runs_of(path: object) -> Any:
    return said(seq_len="4k", global_batch_size="64", measured=str(path))["measured"]


def test_a_file_of_runs_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        runs_of("/nowhere.csv")


def test_runs_are_a_csv_or_a_json_file_and_may_name_a_model_and_cluster_of_their_own(tmp_path: Path) -> None:
    table, document = tmp_path / "runs.csv", tmp_path / "runs.json"
    table.write_text("layout,step_time_s,tokens_per_s,model,cluster,seq_len,global_batch_size\ntp8 mb1,8.5,,,,8192,\n")
    document.write_text(json.dumps([{"layout": "tp8 mb1", "step_time_s": 8.5, "seq_len": 8192}]))
    (run,) = runs_of(table)
    assert run == {
        "layout": {"tensor_parallel_degree": 8, "micro_batch_size": 1},
        "step_time_s": 8.5,
        "workload": {"seq_len": 8192, "global_batch_size": 64},
    }
    assert runs_of(document) == [run]
    path = tmp_path / "runs.csv"
    path.write_text("layout,tokens_per_s,model,cluster\ntp8,1e5,llama-3-70b,h100:64\n")
    (run,) = runs_of(path)
    assert (run["model"], run["cluster"], run["tokens_per_s"]) == ("llama-3-70b", "h100:64", 1e5)
    assert "workload" not in run
    (tmp_path / "runs.csv").write_text("layout,step_time_s,model\ntp8,1," + "x" * 300 + "\n")
    (run,) = runs_of(tmp_path / "runs.csv")
    assert run["model"] == "x" * 300


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("runs.csv", "layout,seconds\ntp8,1\n", "is not a column"),
        ("runs.csv", "layout,step_time_s\ntp8,\n", "one of step_time_s"),
        ("runs.csv", "layout,step_time_s,tokens_per_s\ntp8,1,1\n", "one of step_time_s"),
        ("runs.csv", "layout,step_time_s\ntp8,fast\n", "must be a number"),
        ("runs.csv", "layout,step_time_s\ntq8,1\n", "not a word of a layout"),
        ("runs.json", "{}", "JSON list"),
        ("runs.csv", "layout,step_time_s\ntp8,inf\n", "must be a number"),
        ("runs.csv", "layout,step_time_s,seq_len\ntp8,1,1e999\n", "must be a number"),
        ("runs.csv", "layout,step_time_s,model\ntp8,1," + "x" * 300 + ".json\n", "cannot be read"),
        ("runs.json", '[{"layout": [1], "step_time_s": 1}]', "must be text or an object"),
        ("runs.json", '[{"layout": "tp8", "step_time_s": 1, "model": 5}]', "must be text or an object"),
        ("runs.json", "[", "or JSON"),
        ("runs.json", "[" * 5_000, "or JSON"),
    ],
)
def test_a_file_that_says_no_runs_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=told):
        runs_of(tmp_path / name)


# ---------------------------------------------------------------- money
def test_a_sweep_maximises_a_metric_or_a_profile_of_weights_which_are_one_where_none_stands() -> None:
    assert asked(objective="tokens_per_joule").objective == Objective(metric=Metric.TOKENS_PER_JOULE)
    weights = (Weight(metric=Metric.MFU, weight=2.0), Weight(metric=Metric.TOKENS_PER_DOLLAR, weight=1.0))
    assert asked(profile="mfu=2, tokens_per_dollar").objective == Objective(profile=weights)


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        ("mfo=1", "nearest legal value: mfu"),
        ("mfu=much", "mfu=1"),
        ("mfu=0", "above 0"),
        ("simplicity", "must also name a rate"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(profile: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        asked(profile=profile)


def test_a_tariff_names_a_region_or_says_its_fields_also_in_a_file(tmp_path: Path) -> None:
    assert asked(price="2.5", tariff="France").price_per_accelerator_hour == 2.5
    assert asked(tariff="france").tariff["co2_kg_per_kwh"] == 0.044
    changed = asked(tariff='{"base": "sweden", "energy_price_per_kwh": 0.2}').tariff
    assert (changed["co2_kg_per_kwh"], changed["energy_price_per_kwh"]) == (0.036, 0.2)
    file = tmp_path / "tariff.json"
    file.write_text('{"base": "france"}')
    assert asked(tariff=str(file)).tariff == asked(tariff="france").tariff
    with pytest.raises(NotFound, match="germany"):
        asked(tariff="germny")
    with pytest.raises(InvalidInput, match="energy_price_per_kwh"):
        asked(tariff='{"energy_price": 0.2}')
    with pytest.raises(InvalidInput, match="must be the short form of this field, or JSON"):
        said(tariff="{")

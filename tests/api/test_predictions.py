from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from autotuner.catalog.hardware import load_accelerator
from autotuner.core import documents
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.requests import PredictionRequest
from autotuner.core.sweep import SweepRequest
from autotuner.door import Autotuner
from autotuner.search.compute import Inline
from autotuner.search.preview import Previews
from tests.api.bodies import CPU, EIGHT
from tests.api.service import StoreDriver
from tests.builders import sweep_request

# ---------------------------------------------------------------- predictions


def test_a_table_without_fitting_layouts_states_the_missing_memory_and_remedies(
    client: httpx.Client,
) -> None:
    answer = client.post("/predictions", json=EIGHT | {"model": "llama-3-70b"}).json()
    assert (answer["items"], answer["num_fitting"]) == ([], 0)
    assert answer["num_legal"] > 0
    lacks = answer["shortfall"]
    memory_bytes = load_accelerator("h100").memory_bytes
    assert lacks["nearest"]["prediction"]["peak_bytes"] == pytest.approx(memory_bytes + lacks["missing_bytes"])
    assert lacks["remedies"]
    larger = lacks["larger"]
    job = EIGHT | {"model": "llama-3-70b", "cluster": f"h100:{larger['num_accelerators']}"}
    (row,) = client.post("/predictions", json=job | {"layout": larger["best"]["layout"]}).json()["items"]
    assert row["prediction"]["fits"]


def test_layouts_in_fp8_rank_beside_those_in_bf16_and_say_that_they_are_not_numerically_equivalent(
    client: httpx.Client,
) -> None:
    answer = client.post("/predictions", json=EIGHT | {"limit": 1000}).json()
    marked = {row["layout"]["precision"]: row["changes_mathematics"] for row in answer["items"]}
    assert marked == {"bf16": False, "fp8": True}
    assert answer["unchanged"] is None
    first = client.post("/predictions", json=EIGHT | {"limit": 1}).json()
    assert first["items"][0]["changes_mathematics"]
    best = next(row for row in answer["items"] if not row["changes_mathematics"])
    assert first["unchanged"] == best | {"rank": None}


def test_options_that_a_space_leaves_out_are_named_with_what_they_would_save(client: httpx.Client) -> None:
    answer = client.post("/predictions", json=EIGHT | {"space": {"compiled": [False]}}).json()
    change = {"field": "compiled", "before": False, "after": True}
    (compiled,) = (one for one in answer["not_searched"] if one["changes"] == [change])
    assert compiled["layout"]["compiled"]
    before, after = answer["items"][0]["prediction"], compiled["prediction"]
    assert compiled["saved_share"] == pytest.approx(1 - after["step_time_s"] / before["step_time_s"])


def test_an_answer_names_what_of_it_was_never_compared_with_a_measured_run(client: httpx.Client) -> None:
    layout = {"tensor_parallel_degree": 8, "offload_activations": True}
    answer = client.post("/predictions", json=EIGHT | {"layout": layout, "stack": "nemo"}).json()
    assert answer["items"][0]["prediction"]["never_compared"] == ["activations offloaded"]
    known = {one["kind"]: one for one in answer["caveats"]}
    compared = known["compared"]
    assert (compared["subjects"], compared["stack"], compared["device"]) == (["dense models"], "nemo", "h100-sxm")
    assert known["compared_nowhere"]["subjects"] == ["activations offloaded"]


TODAY = {"tensor_parallel_degree": 8, "sequence_parallel": True}


def test_one_layout_may_be_compared_with_what_runs_today(client: httpx.Client) -> None:
    body = EIGHT | {"layout": TODAY | {"compiled": True}, "current": TODAY}
    best = client.post("/predictions", json=body).json()["current"]["best"]
    assert best["changes"] == [{"field": "compiled", "before": False, "after": True}]


def test_options_of_the_layout_in_use_that_were_never_compared_are_named(client: httpx.Client) -> None:
    body = EIGHT | {"limit": 1, "current": TODAY | {"offload_activations": True}}
    answer = client.post("/predictions", json=body).json()
    assert any("activations offloaded" in one["subjects"] for one in answer["caveats"])


RUN: dict[str, Any] = {"layout": {"tensor_parallel_degree": 8}}


def test_measured_runs_shift_every_prediction_and_narrow_it_and_are_said(client: httpx.Client) -> None:
    before = client.post("/predictions", json=EIGHT | {"limit": 1}).json()["items"][0]["prediction"]
    run = RUN | {"step_time_s": 1.5 * _step_s(client, EIGHT | RUN)}
    answer = client.post("/predictions", json=EIGHT | {"limit": 1, "measured": [run, run]}).json()
    after = answer["items"][0]["prediction"]
    assert 1.0 < after["step_time_s"] / before["step_time_s"] < 1.5
    assert after["relative_error"] < before["relative_error"]
    (calibration,) = (one["calibration"] for one in answer["caveats"] if one["kind"] == "calibrated")
    assert (calibration["num_runs"], calibration["num_trials"]) == (2, 0)
    assert 1.0 < calibration["factor"] < 2.0


def test_a_measured_run_may_be_of_another_model_size_and_workload(client: httpx.Client) -> None:
    other = {"model": "llama-3-70b", "cluster": "h100:64", "workload": {"seq_len": 8192, "global_batch_size": 128}}
    run = {"layout": {"tensor_parallel_degree": 8, "data_parallel_replicate_degree": 8}}
    tokens_per_s = 8192 * 128 / (1.5 * _step_s(client, EIGHT | other | run))
    measured = run | other | {"tokens_per_s": tokens_per_s}
    answer = client.post("/predictions", json=EIGHT | RUN | {"measured": [measured]}).json()
    assert answer["items"][0]["prediction"]["step_time_s"] > _step_s(client, EIGHT | RUN)


def _step_s(client: httpx.Client, body: dict[str, Any]) -> float:
    (row,) = client.post("/predictions", json=body).json()["items"]
    return float(row["prediction"]["step_time_s"])


def test_a_prediction_stores_nothing(client: httpx.Client) -> None:
    client.post("/predictions", json=CPU)
    assert client.get("/sweeps").json()["total"] == 0


# ---------------------------------------------------------------- exports

LAYOUT = {"data_parallel_shard_degree": 8, "shard_level": "parameters", "recompute": "full"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"limt": 3},
        {"limit": 0},
        {"cluster": "h100:2097152"},
        {"model": {"base": "llama-3-8b", "num_layers": 0}},
        {"measured": [{"layout": {"tensor_parallel_degree": 7}, "step_time_s": 1.0}]},
        {"layout": {"pipeline_parallel_degree": 3}},
    ],
)
def test_a_bad_request_breaks_the_same_rule_by_rest_and_at_the_door(
    client: httpx.Client, wrong: dict[str, Any]
) -> None:
    body = EIGHT | wrong
    told = client.post("/predictions", json=body).json()
    with pytest.raises(InvalidInput) as refused:
        Autotuner().predict(documents.read(PredictionRequest, body))
    assert told["errors"] == [to_plain(documents.violation(one)) for one in refused.value.complaints]


def test_a_layout_may_be_sent_in_the_words_that_tables_print(client: httpx.Client) -> None:
    said = client.post("/exports", json=EIGHT | {"layout": "fsdp8 mb1 recompute-full", "format": "arguments"}).json()
    spelt = client.post("/exports", json=EIGHT | {"layout": LAYOUT, "format": "arguments"}).json()
    assert said == spelt


def test_a_layout_is_written_for_the_stack_of_its_format_unless_another_is_named(client: httpx.Client) -> None:
    body = EIGHT | {"layout": LAYOUT, "format": "megatron-lm"}
    assert client.post("/exports", json=body | {"stack": "megatron"}).status_code == 200
    refused = client.post("/exports", json=body | {"stack": "megatrn"})
    assert (refused.status_code, refused.json()["nearest"]) == (404, "megatron")


def test_a_trial_that_is_not_stored_or_a_format_that_is_none_is_refused(
    client: httpx.Client, driver: StoreDriver
) -> None:
    trial = driver.ended(driver.sweep(), 0)
    assert client.get("/trials/sw-none-0000/export", params={"format": "torchrun"}).status_code == 404
    assert client.get(f"/trials/{trial.id}/export", params={"format": "fortran"}).status_code == 422
    assert client.get(f"/trials/{trial.id}/export").status_code == 422


LAUNCHES = Path(__file__).parents[1] / "unit" / "exports" / "launches"

PUBLISHED = {
    "llama3_8b_fp8.sh": ("h100:8", "llama-3-8b", {}),
    "llama3_8b_megatron_fsdp.sh": ("h100:8", "llama-3-8b", {}),
    "mixtral_8x7b.sh": ("h100:64", "mixtral-8x7b", {}),
    "llama2_7b_chat.sh": ("a100:8", "llama-2-7b", {"global_batch_size": 32}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_launch_is_predicted_explained_and_compared_with_the_best_layout(
    client: httpx.Client, name: str
) -> None:
    cluster, model, said = PUBLISHED[name]
    num_ranks = int(cluster.partition(":")[2])
    read = client.post("/imports", json={"text": (LAUNCHES / name).read_text(), "num_ranks": num_ranks}).json()
    assert read["model"]["name"] == read["model_size"]["name"] == model
    workload = {"seq_len": read["seq_len"], "global_batch_size": read["global_batch_size"]} | said
    job = {"model": read["model"], "cluster": cluster, "workload": workload, "stack": read["stack"]}
    today = client.post("/predictions", json=job | {"layout": read["layout"]}).json()["items"][0]
    assert today["label"] == read["label"]
    explained = client.post("/explanations", json=job | {"layout": read["layout"]}).json()
    assert explained["prediction"]["step_time_s"] == today["prediction"]["step_time_s"]
    asked = {"current": read["layout"], "format": read["format"], "limit": 3}
    compared = client.post("/predictions", json=job | asked).json()
    assert compared["current"]["candidate"]["prediction"] == today["prediction"]
    assert compared["current"]["best"]["changes"]
    for item in compared["items"]:
        answer = client.post("/exports", json=job | {"layout": item["layout"], "format": read["format"]}).json()
        assert answer["unsupported"] == []


def test_a_trainer_gets_no_proposal_that_its_flags_cannot_express(client: httpx.Client) -> None:
    asked = EIGHT | {"format": "torchtitan", "limit": 200}
    levels = {item["layout"]["shard_level"] for item in client.post("/predictions", json=asked).json()["items"]}
    assert levels <= {"none", "parameters"}
    refused = client.post("/predictions", json=asked | {"space": {"shard_level": ["optimizer"]}})
    assert (refused.status_code, refused.json()["field"]) == (422, "space.shard_level")


def test_options_that_a_configuration_leaves_to_code_are_as_in_the_layout_in_use(client: httpx.Client) -> None:
    current = {"data_parallel_shard_degree": 8, "shard_level": "parameters", "compiled": True}
    asked = EIGHT | {"format": "deepspeed", "current": current, "limit": 5}
    items = client.post("/predictions", json=asked).json()["items"]
    assert items
    assert all(item["layout"]["compiled"] for item in items)


# ---------------------------------------------------------------- previews


def preview(client: httpx.Client, **changes: Any) -> dict[str, Any]:
    answer = client.post("/sweeps/preview", json=EIGHT | changes)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_preview_without_fitting_layouts_names_remedies(client: httpx.Client) -> None:
    found = preview(client, model="llama-3-70b", space={"precision": ["bf16"]})
    assert found["predicted"]["num_fitting"] == 0
    assert found["predicted"]["shortfall"]["larger"]["num_accelerators"] > 8


def test_the_memory_budget_of_trials_is_what_layouts_have_to_fit_in(client: httpx.Client) -> None:
    fitting = preview(client)["predicted"]["num_fitting"]
    assert preview(client, trial={"memory_budget_bytes": 40 * 10**9})["predicted"]["num_fitting"] < fitting


def test_trials_on_a_smaller_cluster_are_counted_with_what_they_cannot_stand_for(client: httpx.Client) -> None:
    small = preview(client, cluster="h100:16", trial_cluster="h100:8")["proxy_trials"]
    assert small["num_layouts"] > 0
    assert all(one["num_layouts"] > 0 and one["why"] for one in small["refused"])


def test_a_number_beyond_use_is_refused_however_often_such_a_sweep_was_previewed(client: httpx.Client) -> None:
    preview(client)
    answer = client.post("/sweeps/preview", json=EIGHT | {"trial": {"timeout_s": 1e9}})
    assert (answer.status_code, answer.json()["field"]) == (422, "trial.timeout_s")


class _Counting(Inline):
    """Computes on the spot, and counts how often."""

    num_searches = 0

    def search(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.num_searches += 1
        return function(*args, **kwargs)


def test_previews_of_equal_jobs_and_spaces_are_computed_once() -> None:
    counting, request = _Counting(), sweep_request()
    previews = Previews(counting, kept=1)

    def ask(**changes: Any) -> int:
        previews.of(SweepRequest(**{name: getattr(request, name) for name in ("job", "space")} | changes))
        return counting.num_searches

    assert [ask(name="one"), ask(name="two", seed=3), ask(uses_history=False)] == [1, 1, 1]
    assert ask(space=request.space.with_axes(micro_batch_size=(1,))) == 2
    assert ask(name="one") == 3  # the last one alone is kept
    for _ in range(2):
        with pytest.raises(InvalidInput, match="holds no layout"):
            ask(space=request.space.with_axes(micro_batch_size=(3,)))
    assert counting.num_searches == 4

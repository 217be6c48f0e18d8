from __future__ import annotations

import csv
import io

import httpx
import pytest

from tests.api.service import StoreDriver
from tests.builders import cpu_layout, measurement


@pytest.fixture
def sweep_id(driver: StoreDriver) -> str:
    sweep = driver.sweep()
    for number, mfu in enumerate((0.2, 0.4, 0.3)):
        layout = cpu_layout(tensor_parallel_degree=2, micro_batch_size=2**number)
        driver.ended(sweep, number, measurement(mfu=mfu, tokens_per_s=1000 * mfu), layout)
    return sweep.id


def test_a_table_has_the_rows_the_order_and_the_columns_that_are_asked_for(client: httpx.Client, sweep_id: str) -> None:
    query = {"where": "mfu>25 tp=2", "sort": "mb", "columns": "mb,mfu,rank"}
    answer = client.get(f"/sweeps/{sweep_id}/table", params=query).json()
    assert [column["name"] for column in answer["columns"]] == ["mb", "mfu", "rank"]
    assert [(row["values"]["mb"], row["values"]["mfu"], row["values"]["rank"]) for row in answer["items"]] == [
        (2, 0.4, 1),
        (4, 0.3, 2),
    ]
    assert answer["items"][0]["source"] == "measured"
    assert (answer["total"], answer["num_rows"]) == (2, 3)


def test_a_table_has_pages(client: httpx.Client, sweep_id: str) -> None:
    answer = client.get(f"/sweeps/{sweep_id}/table", params={"limit": 1, "offset": 2}).json()
    assert [row["values"]["rank"] for row in answer["items"]] == [3]
    assert answer["total"] == 3


def test_the_same_table_comes_as_csv_with_every_row(client: httpx.Client, sweep_id: str) -> None:
    answer = client.get(f"/sweeps/{sweep_id}/table.csv", params={"sort": "mfu", "columns": "trial,mfu"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert [row["trial"] for row in csv.DictReader(io.StringIO(answer.text))] == ["0", "2", "1"]


def test_untried_layouts_are_the_best_by_prediction_without_those_that_were_tried(
    client: httpx.Client, sweep_id: str
) -> None:
    answer = client.get(f"/sweeps/{sweep_id}/table", params={"rows": "untried", "limit": 1000}).json()
    tried = {item["label"] for item in client.get(f"/sweeps/{sweep_id}/table").json()["items"]}
    assert answer["items"]
    assert {item["source"] for item in answer["items"]} == {"predicted"}
    assert tried.isdisjoint(item["label"] for item in answer["items"])
    predicted = [item["values"]["predicted_mfu"] for item in answer["items"]]
    assert predicted == sorted(predicted, reverse=True)


def test_a_table_follows_its_sweep(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    assert client.get(f"/sweeps/{sweep.id}/table").json()["items"] == []
    driver.ended(sweep, 0)
    assert client.get(f"/sweeps/{sweep.id}/table").json()["total"] == 1


@pytest.mark.parametrize(
    ("query", "field"), [({"where": "tpp=4"}, "where"), ({"sort": "speed"}, "sort"), ({"columns": "x"}, "columns")]
)
def test_what_a_table_cannot_be_asked_for_is_refused(
    client: httpx.Client, sweep_id: str, query: dict[str, str], field: str
) -> None:
    refused = client.get(f"/sweeps/{sweep_id}/table", params=query)
    assert refused.status_code == 422
    assert refused.json()["field"] == field
    assert refused.json()["nearest"]

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from autotuner.core.choices import Recompute
from autotuner.core.sweep import Prospects, Sweep
from tests.api.service import StoreDriver
from tests.builders import cpu_layout, failure, measurement, prediction
from tests.contracts.acts import lease_of

PLAIN = cpu_layout(tensor_parallel_degree=2)
FULL = replace(PLAIN, recompute=Recompute.FULL)


@pytest.fixture
def sweep(driver: StoreDriver) -> Sweep:
    """Two layouts that were measured, and one that ran out of memory."""
    made = driver.sweep()
    driver.ended(made, 0, measurement(step_time_s=0.75, mfu=0.2, tokens_per_s=700.0), layout=FULL)
    driver.ended(made, 1, measurement(step_time_s=0.5, mfu=0.3, tokens_per_s=1000.0), layout=PLAIN)
    driver.ended(made, 2, failure(), layout=replace(PLAIN, micro_batch_size=4))
    return made


def test_a_sweep_without_a_rank_has_no_answer(client: httpx.Client, driver: StoreDriver) -> None:
    made = driver.sweep()
    assert client.get(f"/sweeps/{made.id}/answer").json() == {"answer": None, "prospects": None}
    assert client.get(f"/sweeps/{made.id}/failures").json() == {"items": []}
    assert client.get(f"/sweeps/{made.id}/accuracy").json()["trials"] == []
    assert client.get(f"/sweeps/{made.id}/choices").json()["grid"]["cells"] == []


def test_what_the_search_expects_stands_beside_the_answer_and_the_trial(
    client: httpx.Client, driver: StoreDriver
) -> None:
    made = driver.sweep()
    prospects = Prospects(num_candidates=12, num_fitting=9, expected_gain=0.25)
    trial = driver.store.add_trial(
        made.id,
        lease=lease_of(driver.store, made.id, driver.owner),
        number=0,
        layout=PLAIN,
        prediction=prediction(),
        prospects=prospects,
    )
    answer = client.get(f"/sweeps/{made.id}/answer").json()
    assert answer["prospects"] == {"num_candidates": 12, "num_fitting": 9, "expected_gain": 0.25}
    assert client.get(f"/trials/{trial.id}").json()["expected_gain"] == 0.25


def test_choices_show_the_two_that_were_asked_for(client: httpx.Client, sweep: Sweep) -> None:
    answer = client.get(f"/sweeps/{sweep.id}/choices", params={"rows": "mb", "columns": "recompute"}).json()
    assert answer["grid"]["columns"] == ["full", "none"]
    assert [[cell["number"] for cell in row] for row in answer["grid"]["cells"]] == [[0, 1], [None, 2]]
    assert answer["choices"]["effects"][0]["statement"].startswith("recompute full → none: +50.0 %")


def test_a_choice_that_there_is_none_of_is_refused(client: httpx.Client, sweep: Sweep) -> None:
    refused = client.get(f"/sweeps/{sweep.id}/choices", params={"rows": "zp"})
    assert refused.status_code == 422
    assert "must be one of tp" in refused.text


def test_the_front_holds_what_no_other_beats_and_says_what_beats_the_rest(client: httpx.Client, sweep: Sweep) -> None:
    front = client.get(f"/sweeps/{sweep.id}/front", params={"metrics": "mfu,tokens_per_s"}).json()
    assert front["metrics"] == ["mfu", "tokens_per_s"]
    (point,) = front["points"]
    assert (point["number"], point["best_in"], point["is_first"]) == (1, ["mfu", "tokens_per_s"], True)
    (behind,) = front["behind"]
    assert (behind["number"], behind["by"]) == (0, 1)


def test_the_front_of_a_sweep_that_asked_for_none_compares_what_its_cluster_tells(
    client: httpx.Client, sweep: Sweep
) -> None:
    front = client.get(f"/sweeps/{sweep.id}/front").json()
    assert front["metrics"] == ["mfu", "simplicity"]
    assert front["num_untold"] == 2  # the fake trials have no footprint


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"metrics": "mfu,tokens_per_joule"}, "power_w"),
        ({"metrics": "mfu"}, "must name two metrics or more"),
        ({"metrics": "mfu,speed"}, "must be one of mfu"),
        ({"profile": "mfu=fast"}, "must be a number above 0"),
    ],
)
def test_what_cannot_be_told_or_read_is_refused(
    client: httpx.Client, sweep: Sweep, asked: dict[str, str], told: str
) -> None:
    refused = client.get(f"/sweeps/{sweep.id}/front", params=asked)
    assert refused.status_code == 422
    assert told in refused.text

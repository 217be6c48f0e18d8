from __future__ import annotations

from typing import Any

import httpx
import pytest

from api.previews import Previews
from autotuner.core.errors import InvalidInput
from autotuner.core.sweep import SweepRequest
from autotuner.search.asides import Inline
from autotuner.store.sql import memory_store
from tests.api.service import app_on
from tests.builders import sweep_request

JOB: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "h100:8",
    "workload": {"seq_len": 4096, "global_batch_size": 64},
}


def preview(client: httpx.Client, **changes: Any) -> dict[str, Any]:
    answer = client.post("/sweeps/preview", json=JOB | changes)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_preview_says_what_a_sweep_would_search_and_starts_nothing(client: httpx.Client) -> None:
    found = preview(client)
    predicted = found["predicted"]
    assert found["num_candidates"] - sum(fall["num_layouts"] for fall in found["falls"]) == predicted["num_legal"]
    assert 0 < predicted["num_fitting"] < predicted["num_legal"]
    assert len(predicted["items"]) == 3
    assert found["space"]["recompute"] == ["none", "selective", "full"]
    assert (found["refusal"], found["small_trials"]) == (None, None)
    assert client.get("/sweeps").json()["total"] == 0


def test_where_nothing_fits_a_preview_says_what_would_help(client: httpx.Client) -> None:
    found = preview(client, model="llama-3-70b", space={"precision": ["bf16"]})
    assert found["predicted"]["num_fitting"] == 0
    assert found["predicted"]["shortfall"]["larger"]["num_accelerators"] > 8


def test_the_memory_budget_of_trials_is_what_layouts_have_to_fit_in(client: httpx.Client) -> None:
    fitting = preview(client)["predicted"]["num_fitting"]
    assert preview(client, trial={"memory_budget_bytes": 40 * 10**9})["predicted"]["num_fitting"] < fitting


def test_trials_on_a_smaller_cluster_are_counted_with_what_they_cannot_stand_for(client: httpx.Client) -> None:
    small = preview(client, cluster="h100:16", trial_cluster="h100:8")["small_trials"]
    assert small["num_layouts"] > 0
    assert all(one["num_layouts"] > 0 and one["why"] for one in small["refused"])


def test_a_space_without_a_legal_layout_is_refused_with_what_empties_it(client: httpx.Client) -> None:
    answer = client.post("/sweeps/preview", json=JOB | {"space": {"tensor_parallel_degree": [3]}})
    assert (answer.status_code, answer.json()["field"]) == (422, "space")


def test_a_number_beyond_use_is_refused_however_often_such_a_sweep_was_previewed(client: httpx.Client) -> None:
    preview(client)
    answer = client.post("/sweeps/preview", json=JOB | {"trial": {"timeout_s": 1e9}})
    assert (answer.status_code, answer.json()["field"]) == (422, "trial.timeout_s")


class _Counting(Inline):
    """Computes on the spot, and counts how often."""

    num_searches = 0

    def search(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.num_searches += 1
        return function(*args, **kwargs)


def test_previews_of_equal_jobs_and_spaces_are_computed_once() -> None:
    app, previews, request = app_on(memory_store()), Previews(kept=1), sweep_request()
    counting = _Counting()
    object.__setattr__(app, "asides", counting)

    def ask(**changes: Any) -> int:
        previews.preview(app, SweepRequest(**{name: getattr(request, name) for name in ("job", "space")} | changes))
        return counting.num_searches

    assert [ask(name="one"), ask(name="two", seed=3), ask(uses_history=False)] == [1, 1, 1]
    assert ask(space=request.space.with_axes(micro_batch_size=(1,))) == 2
    assert ask(name="one") == 3  # the last one alone is kept
    for _ in range(2):
        with pytest.raises(InvalidInput, match="holds no layout"):
            ask(space=request.space.with_axes(micro_batch_size=(3,)))
    assert counting.num_searches == 4

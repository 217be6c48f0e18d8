"""A sweep for four nodes whose trials are jobs on two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.codec import to_plain
from tests.builders import cpu_cluster, tiny_model
from tests.system.service import Service, until

pytestmark = pytest.mark.engine

FOUR_FOR_TWO = {
    "model": to_plain(tiny_model()),
    "cluster": to_plain(replace(cpu_cluster(num_nodes=4, accelerators_per_node=1), name="four")),
    "trial_cluster": to_plain(replace(cpu_cluster(num_nodes=2, accelerators_per_node=1), name="two", engine="pair")),
    "workload": {"seq_len": 64, "global_batch_size": 8},
    "budget": {"num_trials": 3, "prune_below": 0.0, "min_gain": 0.0},
    "trial": {
        "warmup_steps": 1,
        "max_warmup_steps": 1,
        "measured_steps": 3,
        "max_measured_steps": 3,
        "profiled_steps": 0,
        "max_repeats": 0,
    },
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service with two emulated nodes."""
    (tmp_path / "engines.toml").write_text(f'[pair]\nkind = "emulated"\nfolder = "{tmp_path}/jobs"\npoll_s = 0.2\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNER_ENGINES", str(tmp_path / "engines.toml"))
        yield Service(tmp_path)


def test_trials_on_two_nodes_stand_for_layouts_of_four_and_are_ranked_by_estimates(service: Service) -> None:
    with service:
        sweep_id = service.post("/sweeps", FOUR_FOR_TWO)["id"]
        until("the sweep ends", lambda: service.get(f"/sweeps/{sweep_id}")["state"] == "complete")
        sweep, ranking = service.get(f"/sweeps/{sweep_id}"), service.get(f"/sweeps/{sweep_id}/ranking")["items"]
    assert (sweep["trial_cluster"], sweep["best_measured_mfu"]) == ("two", None)
    assert sweep["best_estimated_mfu"] == ranking[0]["estimated"]["mfu"]
    assert len(ranking) == 3
    for trial in ranking:
        ran = trial["small"]["num_ranks"]
        assert trial["measured"] is None
        assert trial["small"]["measured"]["step_time_s"] > 0
        assert trial["estimated"]["said"] == f"estimated from a trial on {ran} of 4 ranks"
        assert {job["engine"] for job in trial["jobs"]} == {"pair"}

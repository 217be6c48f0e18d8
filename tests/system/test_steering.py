"""Sweeps of real trials that are paused, extended and run a trial again, with services that are killed in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.service import Service, until
from tests.system.test_crash import BODY, states, trials
from tests.trials.launching import left_over


def state(service: Service, sweep_id: str) -> str:
    return str(service.get(f"/sweeps/{sweep_id}")["state"])


@pytest.mark.oracle  # half a minute
def test_a_pause_an_extension_and_a_rerun_outlive_the_service_and_lose_nothing(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        sweep_id = service.post("/sweeps", {**BODY, "budget": {**BODY["budget"], "num_trials": 50}})["id"]
        until("a second trial", lambda: states(service, sweep_id)[:1] == ["complete"])
        service.post(f"/sweeps/{sweep_id}/pause", {})  # heard within seconds, in the middle of whichever trial
        until("the pause", lambda: state(service, sweep_id) == "paused")
        before = trials(service, sweep_id)
        number = len(before)
        assert states(service, sweep_id)[:-1] == ["complete"] * (number - 1)
        assert not left_over(before[-1]["id"])
        service.kill()
        with service:
            assert state(service, sweep_id) == "paused"
            service.post(f"/sweeps/{sweep_id}/budget", {"budget": {"num_trials": number}})
            service.post(f"/sweeps/{sweep_id}/resume", {})
            until("the end", lambda: state(service, sweep_id) == "complete")
            service.post(f"/sweeps/{sweep_id}/budget", {"budget": {"num_trials": number + 1}})
            service.kill()
            with service:
                until("the later end", lambda: states(service, sweep_id) == ["complete"] * (number + 1))
                until("the end of the sweep", lambda: state(service, sweep_id) == "complete")
                service.post(f"/trials/{before[0]['id']}/rerun", {})
                until("the repeat", lambda: states(service, sweep_id) == ["complete"] * (number + 2))
                until("the last end", lambda: state(service, sweep_id) == "complete")
                after = trials(service, sweep_id)
    assert after[0] == before[0]
    assert [trial["number"] for trial in after] == list(range(number + 2))
    assert [trial["repeats"] for trial in after] == [*[None] * (number + 1), 0]
    assert [trial["layout"] for trial in after[:number]] == [trial["layout"] for trial in before]

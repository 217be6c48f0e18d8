"""Checks of a cluster of two nodes that are processes over REST, while the service comes and goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.codec import to_plain
from tests.builders import cpu_cluster
from tests.system.service import Service, until
from tests.trials.launching import left_over

pytestmark = pytest.mark.engine

PAIR = to_plain(replace(cpu_cluster(1), name="pair", num_nodes=2, engine="pair"))


def begun(service: Service, **request: Any) -> str:
    """A check whose trial has its nodes."""
    service.put("/clusters/pair", PAIR)
    check_id: str = service.post("/clusters/pair/checks", {"quick": True, **request})["id"]
    until("the trial runs", lambda: "runs on 2 nodes of 1" in said(service, check_id))
    return check_id


def said(service: Service, check_id: str) -> str:
    return "\n".join(line["text"] for line in service.get(f"/runs/{check_id}")["progress"]["lines"])


def ended(service: Service, check_id: str) -> dict[str, Any]:
    def is_over() -> bool:
        return service.get(f"/runs/{check_id}")["state"] not in ("queued", "running")

    until("the check ends", is_over)
    check: dict[str, Any] = service.get(f"/runs/{check_id}")
    return check


def test_a_check_measures_the_links_and_goes_on_where_its_service_is_killed(service: Service) -> None:
    with service:
        check_id = begun(service)
        service.kill()
        with service:
            check = ended(service, check_id)
            assert check["state"] == "complete", said(service, check_id)
            assert len(check["progress"]["jobs"]) == 2, "the trial's job was found again"
            assert {job["phase"] for job in check["progress"]["jobs"]} == {"ended"}
            assert check["progress"]["trial"]["num_steps"] == 3
            links = service.get("/clusters/pair/links")
            assert [bool(link["measured"]) for link in links["items"]] == [False, True]  # a node of one rank has none
            assert service.get("/clusters/pair")["inter_node_link"]["source"].startswith("2 nodes")
            assert [pair["ends"] for pair in links["one_by_one"]] == [[0, 1]]
    assert not left_over(f"t-{check_id}")


def test_a_check_that_is_cancelled_leaves_no_job(service: Service) -> None:
    with service:
        check_id = begun(service)
        service.post(f"/runs/{check_id}/cancel", {})
        assert ended(service, check_id)["state"] == "cancelled"
        assert not left_over(f"t-{check_id}")

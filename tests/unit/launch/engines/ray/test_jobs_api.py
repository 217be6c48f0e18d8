from __future__ import annotations

import httpx
import pytest

from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable
from autotuner.launch.engines.ray.jobs_api import JobsApi, JobState
from autotuner.launch.engines.ray.settings import RaySettings
from tests.unit.launch.engines.ray.scripted import NAME, Job, ScriptedRay

VERSION = "GET /api/version"


@pytest.fixture
def ray() -> ScriptedRay:
    return ScriptedRay()


def test_a_check_names_the_version_and_the_address(ray: ScriptedRay) -> None:
    assert ray.engine().check() == "Ray 2.60.0 at http://head:8265"


def test_a_check_names_a_queue_that_has_no_resources_where_others_have(ray: ScriptedRay) -> None:
    engine = ray.engine(queue_resources={"a100": {"a100": 1.0}, "h100": {"h100": 1.0}})
    assert engine.check(("a100", "h100"))
    with pytest.raises(EngineRefused, match="for the queue h10; the nearest is h100"):
        engine.check(("a100", "h10"))


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (httpx.ConnectError("connection refused"), "does not answer: connection refused"),
        (httpx.ReadTimeout(""), "does not answer: ReadTimeout"),
        (httpx.Response(200, text="<html>a proxy's page"), "is not Ray's Jobs API"),
        (httpx.Response(200, json=["version"]), "is not Ray's Jobs API"),
        (httpx.Response(502, text="no  upstream\n"), "could not answer: 502 no upstream"),
        (httpx.Response(401), "does not accept the token of token_variable, which is not set"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_answer_as_ray_does_is_unavailable(
    ray: ScriptedRay, failure: httpx.Response | Exception, said: str
) -> None:
    ray.failing[VERSION] = failure
    with pytest.raises(EngineUnavailable, match=said):
        ray.engine().check()


def test_a_server_that_accepts_and_never_answers_is_unavailable_after_the_timeout() -> None:
    import socket  # noqa: PLC0415

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        api = JobsApi(RaySettings(address=address, request_timeout_s=0.2))
        with pytest.raises(EngineUnavailable, match="does not answer"):
            api.version()
        api.close()


def test_every_request_bears_the_token_that_the_operators_variable_holds_then(
    ray: ScriptedRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ray.engine(token_variable="OUR_RAY_TOKEN")
    with pytest.raises(EngineUnavailable, match="the variable OUR_RAY_TOKEN"):
        engine.check()
    for token in ("old", "new"):
        monkeypatch.setenv("OUR_RAY_TOKEN", token)
        engine.check()
    assert ray.tokens == ["Bearer old", "Bearer new"]


def test_a_state_that_ray_may_get_some_day_is_no_answer(ray: ScriptedRay) -> None:
    ray.jobs[NAME] = Job({"metadata": {}}, status="SUSPENDED")
    with pytest.raises(EngineUnavailable, match="SUSPENDED"):
        ray.engine().find(NAME)


def test_only_jobs_that_wait_or_run_have_a_driver() -> None:
    assert [state for state in JobState if not state.is_terminal] == [JobState.PENDING, JobState.RUNNING]

from __future__ import annotations

import json
import time
from dataclasses import replace
from random import Random
from typing import Any

import httpx
import pytest

from autotuner.core import codec
from autotuner.core.errors import InvalidInput
from autotuner.core.trial import EngineJobPhase
from autotuner.core.trial_spec import NodeTask
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobStatus
from autotuner.launch.engines.ray_api import JobLog, JobsApi, JobState, RaySettings
from tests.builders import cpu_cluster, h100_cluster
from tests.unit.launch.engines.ray.scripted import NAME, Job, ScriptedRay, order


# ---------------------------------------------------------------- job log
def line(mark: str = "5f3c", **document: object) -> str:
    return f"#{mark} {json.dumps(document)}\n"


def test_lines_that_are_unfinished_cut_off_or_not_of_this_job_say_nothing() -> None:
    log = JobLog("5f3c")
    log.take("Runtime env is setting up.\n")
    assert log.status is None
    assert not log.has_begun
    begun = JobLog("5f3c")
    begun.take(line("older", phase="lost", detail="") + "(raylet) warning" + line(phase="running", detail=""))
    assert begun.status == JobStatus(phase=EngineJobPhase.RUNNING)
    assert begun.has_begun
    ended = JobLog("5f3c")
    others = (
        '#5f3c 1\n#5f3c "node"\n#5f3c {"node": null, "text": 1}\n#5f3c {"node": 1e999}\n#5f3c ' + "[" * 5_000 + "\n"
    )
    ended.take(line(phase="running", detail="")[:-4] + "\n" + line(node=0) + others + line(phase="ended", detail=""))
    assert ended.status == JobStatus(phase=EngineJobPhase.ENDED)
    unfinished, whole = JobLog("5f3c"), line(phase="queued", detail="no room")
    unfinished.take(whole[:-1])
    assert unfinished.status is None
    unfinished.take(whole)
    assert unfinished.status == JobStatus(phase=EngineJobPhase.QUEUED, detail="no room")


def test_output_of_nodes_is_joined_byte_by_byte_from_any_pieces() -> None:
    log, printed = JobLog("5f3c"), '#autotuner {"text": "größer"}\n'.encode()
    whole = "".join(line(node=1, text=printed[at : at + 3].decode("latin-1")) for at in range(0, len(printed), 3))
    for length in range(0, len(whole) + 1, 7):
        log.take(whole[:length])
    log.take(whole)
    assert log.printed(1, 0) == printed
    assert log.printed(1, 5) == printed[5:]
    assert log.printed(1, len(printed)) == b""
    assert log.printed(0, 0) == b""


# ---------------------------------------------------------------- jobs api
VERSION = "GET /api/version"


@pytest.fixture
def ray() -> ScriptedRay:
    return ScriptedRay()


def test_a_check_names_the_version_the_address_and_a_queue_that_has_no_resources_where_others_have(
    ray: ScriptedRay,
) -> None:
    assert ray.engine().check() == "Ray 2.60.0 at http://head:8265"
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
        (httpx.Response(401), "does not accept the token in token_variable, which is not set,"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_server_that_does_not_answer_like_ray_is_unavailable(
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
    with pytest.raises(EngineUnavailable, match="the environment variable OUR_RAY_TOKEN"):
        engine.check()
    for token in ("old", "new"):
        monkeypatch.setenv("OUR_RAY_TOKEN", token)
        engine.check()
    assert ray.tokens == ["Bearer old", "Bearer new"]


def test_a_state_that_ray_may_get_some_day_is_no_answer_and_only_jobs_that_wait_or_run_have_a_driver(
    ray: ScriptedRay,
) -> None:
    ray.jobs[NAME] = Job({"metadata": {}}, status="SUSPENDED")
    with pytest.raises(EngineUnavailable, match="SUSPENDED"):
        ray.engine().find(NAME)
    assert [state for state in JobState if not state.is_terminal] == [JobState.PENDING, JobState.RUNNING]


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"address": "ray://head:8265"}, "address"),
        ({"request_timeout_s": 0.0}, "request_timeout_s"),
        ({"resources": {"GPU": 8.0}}, "resources.GPU"),
        ({"queue_resources": {"a100": {"a100": 0.0}}}, "queue_resources.a100.a100"),
        ({"runtime_env": {"env_vars": {"AUTOTUNER_TASK": "mine"}}}, "runtime_env.env_vars.AUTOTUNER_TASK"),
        ({"runtime_env": {"env_vars": {"DEBUG": 1}}}, "runtime_env.env_vars.DEBUG"),
        ({"runtime_env": {"env_vars": "DEBUG=1"}}, "runtime_env.env_vars"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_meaningless_value_is_refused_by_name(said: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        RaySettings(**{"address": "http://head:8265", **said})
    assert refused.value.field == field
    assert field != "address" or refused.value.nearest == "http://head:8265", "where its dashboard is"


# ---------------------------------------------------------------- engine
SUBMIT = "POST /api/jobs/"
LOGS = f"GET /api/jobs/{NAME}/logs"


def test_a_job_is_a_driver_that_gets_nodes_and_task_outside_the_shell_command(
    ray: ScriptedRay,
) -> None:
    runtime_env = {"working_dir": "s3://trials.zip", "env_vars": {"A": "b"}}
    cluster = cpu_cluster(num_nodes=2, accelerators_per_node=1, name="$(reboot)", queue="; reboot")
    wanted = order(cluster=cluster, command=("`reboot`",))
    ray.engine(python="/opt/my python", runtime_env=runtime_env).submit(wanted)
    assert ray.job.wish["entrypoint"] == "exec '/opt/my python' -m autotuner.trials.process.ray_driver"
    assert ray.job.wish["runtime_env"]["working_dir"] == "s3://trials.zip"
    assert ray.job.wish["runtime_env"]["env_vars"]["A"] == "b"
    assert (ray.job.order["num_nodes"], ray.job.order["bundle"]) == (2, {"CPU": 1.0})
    assert codec.loads(NodeTask, ray.job.order["task"]) == wanted.task


def test_nodes_give_accelerators_cores_and_the_features_of_their_queue(ray: ScriptedRay) -> None:
    cluster = replace(h100_cluster(num_nodes=2, accelerators_per_node=8), queue="fast")
    said: dict[str, Any] = {"cpus_per_accelerator": 6, "resources": {"scratch": 1.0}}
    ray.engine(**said, queue_resources={"fast": {"ib": 1.0}, "slow": {}}).submit(order(cluster=cluster))
    assert ray.job.order["bundle"] == {"CPU": 48.0, "GPU": 8.0, "scratch": 1.0, "ib": 1.0}


def test_a_queue_without_resources_of_its_own_is_refused_where_others_have_some(ray: ScriptedRay) -> None:
    cluster = replace(h100_cluster(), queue="quick")
    assert ray.engine().refuses(cluster) is None
    refusal = ray.engine(queue_resources={"fast": {"ib": 1.0}}).refuses(cluster)
    assert refusal is not None
    assert "quick" in refusal


def test_a_job_is_found_and_not_started_twice_also_where_nobody_answered_its_submission(ray: ScriptedRay) -> None:
    handle = ray.engine().submit(order())
    another = ray.engine()
    assert another.find(NAME) == handle
    assert another.submit(order()) == handle
    assert another.find("t-18-0-0") is None
    engine = ray.engine()
    handle = engine.submit(order())
    ray.failing[SUBMIT] = httpx.ReadTimeout("no answer")
    assert engine.submit(order()) == handle
    with pytest.raises(EngineUnavailable, match="no answer"):
        engine.submit(order("t-18-0-0"))


def test_a_job_that_ray_or_no_variable_takes_is_refused(ray: ScriptedRay) -> None:
    ray.failing[SUBMIT] = httpx.Response(400, text="ValueError: unknown field of runtime_env: pipp")
    with pytest.raises(EngineRefused, match="pipp"):
        ray.engine().submit(order())
    noise = Random(0).randbytes(100_000).hex()  # nothing makes it shorter than its bytes
    with pytest.raises(EngineRefused, match="bytes"):
        ray.engine().submit(order(files={"noise": noise}))


def test_somebody_elses_job_of_that_name_is_left_alone(ray: ScriptedRay) -> None:
    ray.jobs[NAME] = Job({"metadata": {}})
    assert ray.engine().find(NAME) is None
    with pytest.raises(EngineRefused, match="the autotuner did not make"):
        ray.engine().submit(order())


def test_a_job_that_ray_still_lists_after_its_deletion_makes_room(ray: ScriptedRay) -> None:
    """Its monitor notes the end of a job that was deleted meanwhile as the failure of a new one, without metadata."""
    ray.jobs[NAME] = Job({"metadata": None}, status="FAILED")
    ray.engine().submit(order())
    assert ray.job.status == "RUNNING"


@pytest.mark.parametrize(
    ("told", "status", "phase", "detail"),
    [
        ((), "RUNNING", EngineJobPhase.QUEUED, "what Ray says"),
        ((("queued", "no 2 nodes"),), "RUNNING", EngineJobPhase.QUEUED, "no 2 nodes"),
        ((("queued", "no 2 nodes"), ("running", "")), "RUNNING", EngineJobPhase.RUNNING, ""),
        ((("running", ""), ("ended", "node 1 left")), "RUNNING", EngineJobPhase.ENDED, "node 1 left"),
        ((("running", ""), ("lost", "node 1 is gone")), "RUNNING", EngineJobPhase.LOST, "node 1 is gone"),
        ((), "FAILED", EngineJobPhase.LOST, "what Ray says"),  # a driver that could not be started
        (
            (("running", ""),),
            "FAILED",
            EngineJobPhase.RUNNING,
            "Ray is ending the nodes of the job, whose driver has ended",
        ),
    ],
)
def test_a_job_stands_as_its_driver_says_and_as_ray_does_where_there_is_none(
    ray: ScriptedRay, told: tuple[tuple[str, str], ...], status: str, phase: EngineJobPhase, detail: str
) -> None:
    engine = ray.engine()
    handle = engine.submit(order())
    for said, why in told:
        ray.job.says(phase=said, detail=why)
    ray.job.status, ray.job.message = status, "what Ray says"
    assert engine.look(handle) == JobStatus(phase=phase, detail=detail)


@pytest.mark.parametrize("has_run", [False, True], ids=["before its nodes ran", "while they ran"])
def test_a_job_that_was_stopped_is_lost_unless_we_cancelled_it(ray: ScriptedRay, has_run: bool) -> None:
    engine, why = ray.engine(), "Job was intentionally stopped."
    handle = engine.submit(order())
    if has_run:
        why = "the job was stopped on Ray, but not by the autotuner"
        ray.job.says(phase="running", detail="")
        ray.job.says(phase="ended", detail="node 0 ended with exit code 1", was_stopped=True)
    else:
        ray.job.status, ray.job.message = "STOPPED", why
    assert engine.look(handle) == JobStatus(phase=EngineJobPhase.LOST, detail=why)
    engine.cancel(handle)
    assert engine.look(handle).phase is EngineJobPhase.ENDED


def test_a_job_that_ray_has_forgotten_is_lost_unless_its_driver_had_said_how_it_ended(ray: ScriptedRay) -> None:
    engine = ray.engine()
    handle = engine.submit(order())
    job = ray.jobs.pop(NAME)
    assert engine.look(handle).phase is EngineJobPhase.LOST
    ray.jobs[NAME] = job
    job.says(phase="ended", detail="")
    another = ray.engine()
    another.look(handle)
    del ray.jobs[NAME]
    assert another.look(handle).phase is EngineJobPhase.ENDED


def test_a_job_of_that_name_that_somebody_started_since_is_another(ray: ScriptedRay) -> None:
    handle = ray.engine().submit(order())
    ray.job.wish["metadata"] = {"autotuner_mark": "another"}
    assert ray.engine().look(handle).phase is EngineJobPhase.LOST


def test_a_log_that_cannot_be_had_matters_only_while_the_job_runs(ray: ScriptedRay) -> None:
    handle = ray.engine().submit(order())
    ray.failing[LOGS] = httpx.Response(500, text="the agent of the driver's node is gone")
    with pytest.raises(EngineUnavailable, match="the agent"):
        ray.engine().look(handle)
    ray.job.status = "FAILED"
    assert ray.engine().look(handle).phase is EngineJobPhase.LOST


def test_a_log_is_read_once_for_all_nodes(ray: ScriptedRay) -> None:
    engine = ray.engine()
    handle = engine.submit(order())
    ray.job.says(node=0, text="zero\n")
    ray.job.says(node=1, text="one\n")
    assert [engine.read(handle, node, 0) for node in (0, 1)] == [b"zero\n", b"one\n"]
    assert ray.num_logs_read == 1


def test_a_cancelled_job_is_gone_when_its_driver_says_so(ray: ScriptedRay) -> None:
    engine = ray.engine(cancel_s=0.1)
    handle = engine.submit(order())
    ray.job.says(phase="running", detail="")
    assert not engine.cancel(handle), "nobody has said that its nodes are gone"
    ray.job.says(phase="ended", detail="")
    assert ray.engine().cancel(handle)
    assert set(ray.stopped) == {NAME}


def test_the_end_of_a_job_is_requested_until_it_ends(ray: ScriptedRay) -> None:
    """Ray tells nothing to a driver that it is only about to start."""
    assert ray.engine().cancel(f"{NAME}:5f3c"), "of a job that nobody knows"
    assert ray.stopped == []
    handle = ray.engine().submit(order())
    ray.at_stop = lambda: setattr(ray.job, "status", "STOPPED" if len(ray.stopped) == 3 else "RUNNING")
    assert ray.engine().cancel(handle)
    assert ray.stopped == [NAME] * 3


def test_a_ray_that_does_not_answer_is_asked_again_while_a_job_is_cancelled(ray: ScriptedRay) -> None:
    handle = ray.engine().submit(order())
    ray.failing[f"POST /api/jobs/{NAME}/stop"] = httpx.ConnectError("refused")
    with pytest.raises(EngineUnavailable, match="refused"):
        ray.engine(cancel_s=0.1).cancel(handle)


def test_a_forgotten_job_that_cannot_be_deleted_disturbs_no_other(ray: ScriptedRay) -> None:
    engine = ray.engine()
    forgotten, other = engine.submit(order()), engine.submit(order("t-18-0-0"))
    ray.job.status = "SUCCEEDED"
    ray.failing[f"DELETE /api/jobs/{NAME}"] = httpx.Response(500, text="RuntimeError")
    engine.forget(forgotten)
    time.sleep(0.3)
    assert engine.look(other).phase is EngineJobPhase.QUEUED
    engine.close()


def test_a_forgotten_job_is_found_no_more_and_deleted_when_its_monitor_has_heard_of_its_end(ray: ScriptedRay) -> None:
    engine = ray.engine()
    handle = engine.submit(order())
    ray.job.status = "SUCCEEDED"
    engine.forget(handle)
    engine.forget(handle)
    assert engine.find(NAME) is None
    assert NAME in ray.jobs
    engine.close()
    assert ray.jobs == {}

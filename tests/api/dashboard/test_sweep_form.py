"""The form of a new sweep."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import httpx
import pytest

from autotuner.api.dashboard.forms import errors_of
from autotuner.api.dashboard.sweep_form import AXES, INPUTS, OWN, Form
from autotuner.core import documents
from autotuner.core.access import Caller, Quota, Scope
from autotuner.core.choices import Precision, Recompute
from autotuner.core.cluster import SIMULATED
from autotuner.core.convergence_gate import ConvergenceGate
from autotuner.core.errors import AutotunerError
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.lines import read_links
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.run import RunState
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.text import Input, to_document, to_text
from autotuner.core.trial_spec import TrialSettings
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.sql import Store, memory_store
from tests.api.access import People, bearing
from tests.api.service import NOW, StoreDriver, app_on, serve
from tests.api.test_login import csrf_on, logged_in
from tests.builders import big_job, cpu_cluster, sweep_request, tiny_job, tiny_space
from tests.cases import each
from tests.patience import PATIENCE_S

# ---------------------------------------------------------------- body

APP = app_on(memory_store())

JOB = [
    ("model.from", "name"),
    ("model", "llama-3-8b"),
    ("cluster.from", "catalog"),
    ("cluster.accelerator", "h100-sxm"),
    ("cluster.count", "8"),
    ("seq_len", "4096"),
    ("global_batch_size", "64"),
]


def form(*more: tuple[str, str]) -> Form:
    said = {name for name, _ in more}
    return Form.of_pairs([*(pair for pair in JOB if pair[0] not in said), *more])


def asked(given: Form) -> SweepRequest:
    return APP.sweep(documents.read(SweepCreate, given.document()))


def errors(given: Form) -> Mapping[str, str]:
    """What is wrong with a form, which something is."""
    with pytest.raises(AutotunerError) as refused:
        asked(given)
    return errors_of(INPUTS, refused.value, others=OWN)


def test_a_form_asks_for_what_differs_from_what_nobody_said() -> None:
    given = form(("trials", "20"), ("minutes", "30"), ("seed", "0"), ("name", " nightly "))
    assert given.document() == {
        "model": "llama-3-8b",
        "cluster": "h100-sxm:8",
        "workload": {"seq_len": 4096, "global_batch_size": 64},
        "budget": {"wall_clock_s": 1800.0},
        "name": "nightly",
    }


def test_an_axis_takes_what_suits_or_everything_or_what_was_chosen() -> None:
    given = form(
        ("space.recompute", "chosen"),
        ("space.recompute.values", "none"),
        ("space.recompute.values", "full"),
        ("space.tensor_parallel_degree", "chosen"),
        ("space.tensor_parallel_degree.values", "1, 2 8"),
        ("space.pipeline_parallel_degree", "all"),
        ("space.compiled", "all"),
        ("space.precision", "suits"),
        ("space.precision.values", "fp8"),
    )
    assert given.document()["space"] == {
        "recompute": ["none", "full"],
        "tensor_parallel_degree": [1, 2, 8],
        "pipeline_parallel_degree": None,
        "compiled": [False, True],
    }


@pytest.mark.parametrize(
    ("given", "cluster"),
    [
        ([("cluster.from", "local")], "local"),
        ([("cluster.from", "stored"), ("cluster.stored", "lab")], "lab"),
        ([("cluster.from", "described"), ("cluster.document", '{"base": "h100:8"}')], {"base": "h100:8"}),
        (
            [("cluster.engine", "simulated/flaky")],
            {"base": "h100-sxm:8", "name": "h100-sxm:8", "engine": "simulated", "queue": "flaky"},
        ),
    ],
)
def test_a_cluster_comes_from_wherever_the_form_says(given: list[tuple[str, str]], cluster: object) -> None:
    assert form(*given).document()["cluster"] == cluster


def test_trials_of_a_catalog_cluster_run_on_the_engine_that_was_picked() -> None:
    cluster = asked(form(("cluster.engine", "simulated/plain"))).job.cluster
    assert (cluster.engine, cluster.queue) == (SIMULATED, "plain")


@pytest.mark.parametrize("document", ["", "{", "[]", "llama"])
def test_a_description_that_is_none_is_refused_by_its_field(document: str) -> None:
    assert list(errors(form(("model.from", "described"), ("model.document", document)))) == ["model"]


REQUESTS = {
    "plain": sweep_request(),
    "a large job": SweepRequest(job=big_job(), space=tiny_space(precision=(Precision.BF16,), compiled=(True,))),
    "everything said": sweep_request(
        budget=Budget(
            num_trials=7, wall_clock_s=90.0, accelerator_hours=0.5, patience=3, prune_below=0.0, min_gain=0.025
        ),
        trial=TrialSettings(measured_steps=3, target_interval=0.0, memory_budget_bytes=10**9, max_gradient_norm=1.0),
        convergence_gate=ConvergenceGate(enabled=False, num_steps=5),
        objective=Objective(metric=Metric.TOKENS_PER_S),
        space=tiny_space(recompute=tuple(Recompute), tensor_parallel_degree=(1, 2), gradient_bucket_bytes=(1024, 2048)),
        trial_cluster=cpu_cluster(1),
        seed=5,
        name="ñightly",
        max_parallel_trials=2,
        uses_history=False,
    ),
    "slow links": SweepRequest(
        job=replace(
            big_job(),
            cluster=replace(
                APP.cluster("h100-sxm:64"), link_health=read_links("2_3; 0.06; 200mbit\ninter_node; 0.001")
            ),
        ),
        space=tiny_space(precision=(Precision.BF16,)),
    ),
    "a fault trace": sweep_request(
        job=tiny_job(4),
        fault_trace=FaultTrace.parse("7;2_3;0.06\n30;2_3;0", num_steps=45),
        objective=Objective(under_faults=True),
    ),
    "a front": SweepRequest(
        job=big_job(),
        space=tiny_space(precision=(Precision.BF16,)),
        objective=Objective(
            profile=(Weight(metric=Metric.MFU, weight=2.0), Weight(metric=Metric.SIMPLICITY, weight=0.5)),
            front=(Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY),
        ),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_cloned_form_asks_for_the_sweep_that_it_was_filled_in_from(name: str) -> None:
    assert asked(Form.of_request(REQUESTS[name], APP)) == REQUESTS[name]


def test_links_of_a_named_cluster_are_said_beside_its_name() -> None:
    body = form(("link_health", "2_3; 0.06|intra_node; dead")).document()
    assert body["cluster"] == "h100-sxm:8"
    assert body["link_health"] == [{"ends": [2, 3], "delay_s": 0.06}, {"link_class": "intra_node", "is_dead": True}]


def test_a_trace_is_its_lines_and_an_object_where_it_lasts_longer_than_they_say() -> None:
    lines = ("fault_trace", "7;2_3;0.06")
    assert form(lines).document()["fault_trace"] == "7;2_3;0.06"
    assert form(lines, ("fault_steps", "20")).document()["fault_trace"]["num_steps"] == 20


@pytest.mark.parametrize(
    ("name", "text", "at"),
    [
        ("link_health", "2_3", "link_health"),
        ("link_health", "2_9; 0.1", "link_health"),
        ("link_health", '[{"ends": [2, 3], "delay": 1}]', "link_health"),
        ("fault_trace", "7;2_3", "fault_trace"),
        ("fault_trace", "7;2_9;0.1", "fault_trace"),
        ("fault_steps", "5", "fault_steps"),
        ("fault_steps", "0", "fault_steps"),
        ("front", "mfu,speed", "front"),
        ("profile", "mfu=much", "profile"),
    ],
)
def test_an_error_in_a_line_stands_beside_the_input(name: str, text: str, at: str) -> None:
    given = [(name, text)] if name != "fault_steps" else [("fault_trace", "7;2_3;0.06"), (name, text)]
    ((place, said),) = errors(form(*given)).items()
    assert place == at
    assert any(hint in said for hint in ("; nearest: ", ", for example ", "must be one of ", "did you mean"))


@each("axis", AXES)
def test_values_of_an_axis_are_read_back_from_the_form(axis: str) -> None:
    one = AXES[axis]
    values = one.option.values[:1] or (1, 2)
    texts = one.texts(values, None)
    plain = [one.option.to_plain(value) for value in values]
    assert texts[one.path] == ("chosen",)
    assert one.read("chosen", texts[f"{one.path}.values"]) == plain


def test_an_address_of_a_layout_opens_a_space_that_holds_it() -> None:
    given = Form.of_query([("model", "llama-3-8b"), ("cluster", "h100:8"), ("global_batch_size", "64")], APP)
    space = asked(given).space
    held = asked(given.holding("fsdp8 mb1 recompute-full every2 math bf16", space)).space
    assert held.values("recompute_every") == (1, 2)
    assert held.values("attention_kernel") != space.values("attention_kernel")
    assert held.values("recompute") == space.values("recompute")


# ---------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    ("name", "text", "path", "in_body"),
    [
        ("minutes", "30", "budget.wall_clock_s", 1800.0),
        ("min_gain", "2.5 %", "budget.min_gain", 0.025),
        ("min_gain", "0.025", "budget.min_gain", 0.025),
        ("seq_len", "8,192", "workload.seq_len", 8192),
        ("memory_budget_bytes", "40", "trial.memory_budget_bytes", 40_000_000_000),
        ("proxy_layers_per_stage", "1, 2", "trial.proxy_layers_per_stage", [1, 2]),
        ("convergence_gate", "no", "convergence_gate.enabled", False),
        ("name", "30", "name", "30"),
    ],
)
def test_typed_text_is_converted_to_the_units_of_the_body(name: str, text: str, path: str, in_body: object) -> None:
    found: Any = form((name, text)).document()
    for part in path.split("."):
        found = found[part]
    assert found == in_body


@pytest.mark.parametrize(
    ("group", "cls"), [("budget", Budget), ("trial", TrialSettings), ("convergence_gate", ConvergenceGate)]
)
def test_every_setting_has_an_input_that_shows_its_default(group: str, cls: type[Any]) -> None:
    texts = Form.of_query((), APP).texts
    shown = {one.path[1]: texts[one.name] for one in INPUTS if one.path[0] == group}
    assert shown == {each.name: to_text(getattr(cls(), each.name), input_of(group, each.name)) for each in fields(cls)}
    document = to_document(INPUTS, {input_of(group, name).name: text for name, text in shown.items()})
    assert documents.read(cls, document[group]) == cls()


def input_of(*path: str) -> Input:
    return next(one for one in INPUTS if one.path == path)


# ---------------------------------------------------------------- new sweep

FORM: dict[str, Any] = {
    "model.from": "name",
    "model": "llama-3-8b",
    "cluster.from": "catalog",
    "cluster.accelerator": "h100-sxm",
    "cluster.count": "8",
    "seq_len": "4096",
    "global_batch_size": "64",
    "convergence_gate": "yes",
    "history": "yes",
    "once": "a form",
}


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def test_a_check_starts_nothing_and_keeps_what_was_typed(browser: httpx.Client, store: Store) -> None:
    page = browser.post("/new/check", data=FORM | {"name": "<ours>", "trials": "many"})
    assert page.status_code == 200
    assert 'value="&lt;ours&gt;"' in page.text
    assert 'value="many"' in page.text
    assert re.search(r'id="wrong-trials">[^<]*many[^<]*: must be a number[^<]*<', page.text)
    assert "predicted to fit in" in text_of(page.text)  # what is wrong changes nothing of what is searched
    assert store.runs.list("sweep")[1] == 0


@pytest.mark.parametrize(
    ("typed", "at", "why"),
    [
        ({"seq_len": ""}, "seq_len", "is required"),
        ({"minutes": "-1"}, "minutes", "must be above 0"),
        ({"timeout": "1e9"}, "timeout", "must be 604800 or less"),
        ({"model": "lama-3-8b"}, "model", "did you mean &#39;llama-3-8b&#39;?"),
        ({"cluster.accelerator": "h1000"}, "cluster", "no accelerator"),
        ({"cluster.from": "stored", "cluster.stored": "lap"}, "cluster", "lap"),
        ({"cluster.count": "12"}, "cluster", "must be a multiple or a divisor of 8"),
        ({"trainer": "nobody"}, "trainer", "no trainer"),
        ({"space.tensor_parallel_degree": "chosen"}, "space.tensor_parallel_degree", "must name at least one value"),
        ({"on": "h100:16"}, "on", "must have fewer accelerators"),
        ({"model.from": "described", "model.document": '{"model_type": "llama"}'}, "model", "hidden_size"),
    ],
)
def test_an_error_stands_beside_its_input(browser: httpx.Client, typed: Any, at: str, why: str) -> None:
    page = browser.post("/new/check", data=FORM | typed)
    beside = re.search(rf'id="wrong-{re.escape(at)}">([^<]*)<', page.text)
    assert beside is not None
    assert why in beside[1]
    assert ">None<" not in page.text


def test_remedies_come_after_the_answer_that_nothing_fits(browser: httpx.Client) -> None:
    wanted = FORM | {"model": "llama-3-70b", "space.precision": "chosen", "space.precision.values": "bf16"}
    at_once = browser.post("/new/check?part=answer", data=wanted).text
    later = browser.post("/new/check?part=remedies", data=wanted).text
    assert ("data-more" in at_once, "data-more" in later) == (True, False)
    assert "No layout is predicted to fit: the smallest needs" in text_of(at_once)
    assert re.search(r"\d+ accelerators on \d+ nodes: fits", text_of(later))


def test_a_started_sweep_is_what_the_form_asks_for_and_is_shown(browser: httpx.Client, store: Store) -> None:
    answer = browser.post("/new", data=FORM | {"name": "nightly", "trials": "3"})
    assert answer.status_code == 303
    sweep = store.get_sweep(answer.headers["location"].rpartition("/")[2])
    assert (sweep.request.name, sweep.request.budget.num_trials) == ("nightly", 3)
    assert sweep.request.job.model.name == "llama-3-8b"


def test_a_form_that_is_sent_twice_starts_one_sweep_and_a_changed_one_another(browser: httpx.Client) -> None:
    first, again = (browser.post("/new", data=FORM).headers["location"] for _ in range(2))
    other = browser.post("/new", data=FORM | {"seed": "1"}).headers["location"]
    assert first == again != other


def test_a_sweep_that_cannot_be_started_is_refused_on_the_form(browser: httpx.Client, store: Store) -> None:
    page = browser.post(
        "/new", data=FORM | {"space.tensor_parallel_degree": "chosen", "space.tensor_parallel_degree.values": "3"}
    )
    assert page.status_code == 422
    assert "Nothing was started" in text_of(page.text)
    assert "accelerators of the cluster, 8, but it is 6" in text_of(page.text)
    assert store.runs.list("sweep")[1] == 0


def test_a_clone_of_nothing_says_so_and_shows_a_form(browser: httpx.Client) -> None:
    page = browser.get("/new", params={"clone": "sw-nothing"})
    assert page.status_code == 200
    assert "no sweep" in text_of(page.text)


def test_an_explored_layout_fills_the_form(browser: httpx.Client, driver: StoreDriver) -> None:
    driver.store.descriptions.save(cpu_cluster(name="lab"))
    query = {
        "model": "llama-demo",
        "cluster": "lab",
        "seq_len": "64",
        "global_batch_size": "8",
        "layout": "dp2 mb2 math fp32",
    }
    page = browser.get("/new", params=query)
    assert "<option selected>lab</option>" in page.text
    assert 'name="seq_len" value="64"' in page.text
    assert "The space holds the layout you come from, dp2 mb2 math fp32." in page.text


def test_a_layout_that_no_trial_can_run_is_said_to_be_one(browser: httpx.Client) -> None:
    job = {"model": "llama-3-8b", "cluster": "h100:16", "seq_len": "4096", "global_batch_size": "64"}
    page = browser.get("/new", params=job | {"layout": "tp16 mb1 flash bf16"})
    said = (
        "No trial can run the layout you come from, tp16 mb1 flash bf16: 8 kv heads do not split over 16 tensor ranks"
    )
    assert said in page.text


def test_software_that_trials_do_not_run_is_not_taken_over_in_silence(browser: httpx.Client) -> None:
    page = browser.get("/new", params={"stack": "megatron-core"})
    assert "Trials run PyTorch itself, or a trainer that is picked here, not megatron-core." in page.text


def test_a_job_of_a_sweep_whose_parts_have_no_names_is_described_in_the_form(
    browser: httpx.Client, driver: StoreDriver
) -> None:
    sweep = driver.sweep()
    job = {"model": f"sweep:{sweep.id}", "cluster": f"sweep:{sweep.id}", "seq_len": "64", "global_batch_size": "8"}
    page = browser.get("/new", params=job)
    assert page.text.count('value="described" checked') == 2
    assert sweep.request.job.model.name in page.text
    assert "predicted to fit in" in text_of(page.text)


def test_a_word_that_no_layout_has_is_said_on_the_form(browser: httpx.Client) -> None:
    page = browser.get("/new", params={"layout": "tq4"})
    assert page.status_code == 200
    assert "tq4" in text_of(page.text)


def test_a_sweep_that_this_machine_cannot_run_is_refused_before_it_starts(store: Store) -> None:
    with serve(build(Settings(num_workers=1), store=store)) as address:
        page = httpx.post(f"{address}/new/check", data=FORM | {"cluster.count": "64"}, timeout=60)
    assert re.search(r'id="wrong-cluster">[^<]*: cannot run trials here: h100-sxm:64 has 64 GPUs', page.text)
    assert "Choose an engine or a simulation under “Trials run on”" in page.text
    assert "predicted to fit in" in text_of(page.text)


def test_a_form_that_nobody_touched_can_be_started_and_says_that_its_trials_are_simulated(store: Store) -> None:
    with serve(build(Settings(num_workers=1), store=store)) as address:
        first = httpx.get(f"{address}/new", headers={"Accept": "text/html"}, timeout=60)
        chosen = httpx.get(
            f"{address}/new", params={"cluster.engine": "local"}, headers={"Accept": "text/html"}, timeout=60
        )
    assert 'role="alert"' not in first.text
    assert '<option value="simulated/plain" selected>' in first.text
    assert "To run real trials, choose an engine under “Trials run on”" in first.text
    assert re.search('id="wrong-cluster">[^<]*: cannot run trials here', chosen.text)  # what somebody chose is refused


# ---------------------------------------------------------------------- who may


def test_readers_may_check_a_sweep_and_see_why_there_is_no_start_button(people: People) -> None:
    with people.stranger(**bearing(people.token(Scope.READ)), Accept="text/html") as client:
        page = client.post("/new/check", data=FORM)
        assert (page.status_code, client.post("/new", data=FORM).status_code) == (200, 403)
    assert "Your token may only read" in page.text
    assert "Start sweep" not in page.text


def test_a_browsers_session_starts_a_sweep_from_our_form_alone(people: People) -> None:
    with people.stranger(Accept="text/html") as client:
        logged_in(client, people.token())
        csrf = csrf_on(client.get("/new"))
        statuses = [client.post("/new", data=FORM | more).status_code for more in ({}, {"csrf": "x"}, {"csrf": csrf})]
        checks = [client.post("/new/check", data=FORM | more).status_code for more in ({}, {"csrf": csrf})]
    assert (statuses, checks) == ([403, 403, 303], [403, 200])


def test_a_quota_that_is_used_up_is_said_on_the_form_with_everything_that_was_typed(people: People) -> None:
    eve = people.token(name="eve", quota=Quota(unfinished_sweeps=1))
    with people.stranger(**bearing(eve), Accept="text/html") as client:
        assert client.post("/new", data=FORM).status_code == 303
        page = client.post("/new", data=FORM | {"name": "the second"})
    assert page.status_code == 429
    assert "you have 1 unfinished sweeps, and your quota allows at most 1" in text_of(page.text)
    assert 'value="the second"' in page.text


def test_more_hours_than_a_quota_ever_has_are_refused_beside_the_budget(people: People) -> None:
    bob = people.token(name="bob", quota=Quota(accelerator_hours_per_day=2.0))
    with people.stranger(**bearing(bob), Accept="text/html") as client:
        page = client.post("/new", data=FORM | {"accelerator_hours": "5"})
    assert page.status_code == 422
    assert re.search(r'id="wrong-accelerator_hours">[^<]*: must be at most 2, the accelerator-hours', page.text)


# ---------------------------------------------------------------- sweep actions

PAGE = {"Accept": "text/html"}


def asked_by(people: People, name: str) -> str:
    """Id of a queued sweep of that caller."""
    caller = Caller(name=name, scope=Scope.RUN)
    return people.app.store.create_sweep(sweep_request(), now=NOW, caller=caller)[0].id


def post(people: People, path: str, *, name: str, scope: Scope = Scope.RUN) -> httpx.Response:
    headers = bearing(people.token(scope, name)) | PAGE
    return httpx.post(f"{people.address}{path}", headers=headers, data={"num_trials": "7"}, timeout=60)


@pytest.mark.parametrize(
    ("action", "state"),
    [("pause", RunState.PAUSED), ("resume", RunState.QUEUED), ("cancel", RunState.CANCELLED)],
)
def test_a_form_changes_a_sweep_and_leads_back_to_it(people: People, action: str, state: RunState) -> None:
    sweep_id = asked_by(people, "ada")
    answer = post(people, f"/sweeps/{sweep_id}/{action}", name="ada")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/sweeps/{sweep_id}")
    assert people.app.store.get_sweep(sweep_id).state is state


def test_the_page_names_an_impossible_request(people: People) -> None:
    sweep_id = asked_by(people, "ada")
    people.app.store.request_cancel(sweep_id, now=NOW)
    answer = post(people, f"/sweeps/{sweep_id}/pause", name="ada")
    assert answer.status_code == 409
    assert 'role="alert"' in answer.text


@pytest.mark.parametrize("action", ["pause", "resume", "cancel", "budget"])
@pytest.mark.parametrize(("name", "scope"), [("bob", Scope.RUN), ("ada", Scope.READ)])
def test_nobody_but_its_owner_and_admins_changes_a_sweep(people: People, action: str, name: str, scope: Scope) -> None:
    sweep_id = asked_by(people, "ada")
    assert post(people, f"/sweeps/{sweep_id}/{action}", name=name, scope=scope).status_code == 403
    assert people.app.store.get_sweep(sweep_id).state is RunState.QUEUED


def test_callers_without_rights_see_who_may_change_the_sweep_and_no_buttons(people: People) -> None:
    sweep_id = asked_by(people, "ada")
    pages = {
        name: httpx.get(
            f"{people.address}/sweeps/{sweep_id}", headers=bearing(people.token(scope, name)) | PAGE, timeout=PATIENCE_S
        ).text
        for name, scope in (("ada", Scope.RUN), ("bob", Scope.RUN))
    }
    assert f'action="/sweeps/{sweep_id}/pause"' in pages["ada"]
    assert re.findall(rf'action="/sweeps/{sweep_id}/(\w+)"', pages["bob"]) == ["comments"]
    assert "Ada, who asked for it, and admins may" in pages["bob"]

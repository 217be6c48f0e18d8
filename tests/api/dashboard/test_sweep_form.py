from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from api.dashboard.forms import errors_of
from api.dashboard.sweep_form import AXES, INPUTS, OWN, Form
from autotuner.core import documents
from autotuner.core.choices import Precision, Recompute
from autotuner.core.cluster import SIMULATED
from autotuner.core.convergence_gate import LossGate
from autotuner.core.errors import AutotunerError
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.lines import read_links
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.text import Input, to_document, to_text
from autotuner.core.trial_spec import TrialSettings
from autotuner.store.sql import memory_store
from tests.api.service import app_on
from tests.builders import big_job, cpu_cluster, sweep_request, tiny_job, tiny_space

# ---------------------------------------------------------------- body

APP = app_on(memory_store())

JOB = [
    ("model.from", "name"),
    ("model", "llama-3-8b"),
    ("cluster.from", "catalog"),
    ("cluster.accelerator", "h100-sxm"),
    ("cluster.count", "8"),
    ("seq_len", "4096"),
    ("global_batch", "64"),
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
        loss_gate=LossGate(enabled=False, num_steps=5),
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
def test_what_is_wrong_with_a_line_is_said_beside_it(name: str, text: str, at: str) -> None:
    given = [(name, text)] if name != "fault_steps" else [("fault_trace", "7;2_3;0.06"), (name, text)]
    ((place, said),) = errors(form(*given)).items()
    assert place == at
    assert "; nearest: " in said or "LinkHealth" in said


@pytest.mark.parametrize("axis", AXES)
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
        ("loss_gate", "no", "loss_gate.enabled", False),
        ("name", "30", "name", "30"),
    ],
)
def test_what_is_typed_is_read_in_the_units_of_the_body(name: str, text: str, path: str, in_body: object) -> None:
    found: Any = form((name, text)).document()
    for part in path.split("."):
        found = found[part]
    assert found == in_body


@pytest.mark.parametrize(("group", "cls"), [("budget", Budget), ("trial", TrialSettings), ("loss_gate", LossGate)])
def test_every_setting_has_an_input_that_shows_its_default(group: str, cls: type[Any]) -> None:
    texts = Form.of_query((), APP).texts
    shown = {one.path[1]: texts[one.name] for one in INPUTS if one.path[0] == group}
    assert shown == {each.name: to_text(getattr(cls(), each.name), input_of(group, each.name)) for each in fields(cls)}
    document = to_document(INPUTS, {input_of(group, name).name: text for name, text in shown.items()})
    assert documents.read(cls, document[group]) == cls()


def input_of(*path: str) -> Input:
    return next(one for one in INPUTS if one.path == path)

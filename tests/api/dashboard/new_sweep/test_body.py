from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import pytest

from api.dashboard.new_sweep.checked import read
from api.dashboard.new_sweep.given import Given, body_of
from api.dashboard.new_sweep.inputs import AXES, INPUTS, axis_values
from autotuner.core.choices import Precision, Recompute
from autotuner.core.cluster import SIMULATED
from autotuner.core.convergence_gate import LossGate
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.lines import read_links
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.sweep import Budget, SweepRequest
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
    ("workload.seq_len", "4096"),
    ("workload.global_batch_size", "64"),
    ("loss_gate.enabled", "on"),
    ("uses_history", "on"),
]


def form(*more: tuple[str, str], without: Iterable[str] = ()) -> Given:
    left_out = {name for name, _ in more} | set(without)
    return Given.of_pairs([*(pair for pair in JOB if pair[0] not in left_out), *more], is_form=True)


def test_a_form_asks_for_what_differs_from_what_nobody_said() -> None:
    given = form(("budget.num_trials", "20"), ("budget.wall_clock_s", "30"), ("seed", "0"), ("name", " nightly "))
    assert body_of(given) == {
        "model": "llama-3-8b",
        "cluster": "h100-sxm:8",
        "workload": {"seq_len": 4096, "global_batch_size": 64},
        "budget": {"wall_clock_s": 1800.0},
        "name": "nightly",
    }


def test_a_cleared_switch_is_off_in_a_form_and_as_usual_in_an_address() -> None:
    assert body_of(form(without=["uses_history"]))["uses_history"] is False
    assert "uses_history" not in body_of(Given.of_query([], APP))


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
    assert body_of(given)["space"] == {
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
    assert body_of(form(*given))["cluster"] == cluster


def test_trials_of_a_catalog_cluster_run_on_the_engine_that_was_picked() -> None:
    found = read(form(("cluster.engine", "simulated/plain")), APP)
    assert found.request is not None
    assert (found.request.job.cluster.engine, found.request.job.cluster.queue) == (SIMULATED, "plain")


@pytest.mark.parametrize("document", ["", "{", "[]", "llama"])
def test_a_description_that_is_none_is_refused_by_its_field(document: str) -> None:
    with pytest.raises(InvalidInput, match=r"^model = "):
        body_of(form(("model.from", "described"), ("model.document", document)))


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
    found = read(Given.of_request(REQUESTS[name], APP), APP)
    assert found.complaints == ()
    assert found.request == REQUESTS[name]


def test_links_of_a_named_cluster_are_said_beside_its_name() -> None:
    body = body_of(form(("link_health", "2_3; 0.06|intra_node; dead")))
    assert body["cluster"] == "h100-sxm:8"
    assert body["link_health"] == [{"ends": [2, 3], "delay_s": 0.06}, {"link_class": "intra_node", "is_dead": True}]


def test_a_trace_is_its_lines_and_an_object_where_it_lasts_longer_than_they_say() -> None:
    lines = ("fault_trace", "7;2_3;0.06")
    assert body_of(form(lines))["fault_trace"] == "7;2_3;0.06"
    assert body_of(form(lines, ("fault_trace.num_steps", "20")))["fault_trace"]["num_steps"] == 20


@pytest.mark.parametrize(
    ("name", "text", "at"),
    [
        ("link_health", "2_3", "link_health"),
        ("link_health", "2_9; 0.1", "link_health"),
        ("link_health", '[{"ends": [2, 3], "delay": 1}]', "link_health"),
        ("fault_trace", "7;2_3", "fault_trace"),
        ("fault_trace", "7;2_9;0.1", "fault_trace"),
        ("fault_trace.num_steps", "5", "fault_trace.num_steps"),
        ("objective.front", "mfu,speed", "objective.front"),
        ("objective.profile", "mfu=much", "objective.profile"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_beside_it(name: str, text: str, at: str) -> None:
    given = [(name, text)] if name != "fault_trace.num_steps" else [("fault_trace", "7;2_3;0.06"), (name, text)]
    (complaint,) = read(form(*given), APP).complaints
    assert complaint.at == at
    assert "legal value" in complaint.text or "LinkHealth" in complaint.text


@pytest.mark.parametrize("axis", AXES)
def test_values_of_an_axis_are_read_back_from_the_form(axis: str) -> None:
    one = AXES[axis]
    values = one.option.values[:1] or (1, 2)
    how, said = axis_values(one, values, None)
    plain = [one.option.to_plain(value) for value in values]
    assert (how, one.read(how, said)) == ("chosen", plain)


def test_an_address_of_a_layout_opens_a_space_that_holds_it() -> None:
    given = Given.of_query([("model", "llama-3-8b"), ("cluster", "h100:8"), ("global_batch_size", "64")], APP)
    found = read(given, APP)
    assert found.request is not None
    held = read(given.holding("fsdp8 mb1 recompute-full every2 math bf16", found.request.space), APP).request
    assert held is not None
    assert held.space.values("recompute_every") == (1, 2)
    assert held.space.values("attention_kernel") != found.request.space.values("attention_kernel")
    assert held.space.values("recompute") == found.request.space.values("recompute")


# ---------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    ("path", "typed", "in_body"),
    [
        ("budget.wall_clock_s", "30", 1800.0),
        ("budget.min_gain", "2.5", 0.025),
        ("workload.seq_len", "8,192", 8192),
        ("trial.memory_budget_bytes", "40", 40_000_000_000),
        ("trial.proxy_layers_per_stage", "1, 2", [1, 2]),
        ("loss_gate.enabled", "on", True),
        ("name", "30", "30"),
    ],
)
def test_what_is_typed_is_read_in_the_units_of_the_body_and_shown_again(path: str, typed: str, in_body: object) -> None:
    one = INPUTS[path]
    assert one.read(typed) == in_body
    assert one.read(one.shown(in_body)) == in_body


@pytest.mark.parametrize("text", ["many", "1.5.2", "1e", "½"])
def test_what_is_no_number_stays_as_it_was_typed(text: str) -> None:
    assert [INPUTS[path].read(text) for path in ("budget.num_trials", "budget.wall_clock_s")] == [text, text]


@pytest.mark.parametrize(("prefix", "cls"), [("budget", Budget), ("trial", TrialSettings), ("loss_gate", LossGate)])
def test_every_setting_has_an_input_that_shows_its_default(prefix: str, cls: type[object]) -> None:
    for each in fields(cls):  # type: ignore[arg-type]  # each of these is a dataclass
        one = INPUTS[f"{prefix}.{each.name}"]
        assert one.default == each.default
        if one.shown_default:
            assert one.read(one.shown_default) == each.default

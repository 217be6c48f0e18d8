"""Requests that cannot be, by what they ask for: each is refused where it stands, with the nearest that can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from autotuner.core.codec import to_plain
from tests.api.bodies import CPU, DEMO, EIGHT, GATE, LARGE, NIGHTLY, PLAN, STUDY, SWEEP_OF_NIGHT, WEBHOOK
from tests.builders import cpu_cluster, cpu_layout, tiny_model

Case = tuple[dict[str, Any], int, dict[str, object], str]
"""What is changed of a body that can be, the status, what the problem tells, and what else stands in it."""

TP3 = {"tensor_parallel_degree": 3}
RUN: dict[str, Any] = {"layout": {"tensor_parallel_degree": 8}, "step_time_s": 1.0}


def field(name: str, nearest: object = None, says: str = "", /, **changes: Any) -> Case:
    """A case that the rule of one field refuses."""
    return changes, 422, {"field": name} | ({} if nearest is None else {"nearest": nearest}), says


def missing(nearest: object, says: str = "", /, **changes: Any) -> Case:
    """A case with a name that nobody knows."""
    return changes, 404, {} if nearest is None else {"nearest": nearest}, says


def said(says: str, /, **changes: Any) -> Case:
    """A case whose problem has these words."""
    return changes, 422, {}, says


REFUSED: dict[str, tuple[dict[str, Any], Sequence[Case]]] = {
    "/plans": (
        PLAN,
        [
            said("num_tokens", goal={"num_tokens": 0}),
            said("deadline_s", goal={"num_tokens": 1e11, "deadline_s": -1}),
            said("prices.h100", prices={"h100": 0}),
            said("network_factors", network_factors=[0]),
            field("sizes", sizes=[12]),
            missing(None, "h100", accelerators=["h10"]),
        ],
    ),
    "/retunes": (
        NIGHTLY,
        [
            field("cron", cron="0 25 * * *"),
            field("time_zone", time_zone="Europe/Berlni"),
            missing(None, sweep=SWEEP_OF_NIGHT | {"cluster": "h1000:2"}),
            said('"field":"sweep.space', sweep=SWEEP_OF_NIGHT | {"space": {"tensor_parallel_degree": [64]}}),
            said('"field":"sweep.trial_cluster', sweep=SWEEP_OF_NIGHT | {"cluster": "cpu:4", "trial_cluster": "cpu:2"}),
            said('"field":"incumbent.data_parallel', incumbent=NIGHTLY["incumbent"] | TP3),
            field("searches", incumbent=None, searches=False),
            field("test.tolerance", test={"tolerance": 0.1}),
            said("nmae", nmae="x"),
        ],
    ),
    "/gates": (
        GATE,
        [
            said('"field":"layout.tensor_parallel_degree"', layout=to_plain(cpu_layout(**TP3))),
            field("space", space={"recompute": ["none"]}),
            field("test.tolerance", test={"tolerance": 0.1}),
            field("baseline", baseline="two words"),
            field("trial_cluster", trial_cluster=to_plain(cpu_cluster(1))),
            field("sofware", sofware="a"),
        ],
    ),
    "/optimizer-studies": (
        STUDY,
        [
            said("target_loss", target_loss=0),
            said("space", space={"global_batch_sizes": [7]}),
            said("optimizers", space={"optimizers": ["sgd"]}),
            missing(None, "nowhere", cluster="nowhere"),
        ],
    ),
    "/webhooks": (
        WEBHOOK,
        [
            *(
                field("url", url=url)
                for url in (
                    "https://169.254.169.254/latest",
                    "http://hooks.example.com/",
                    "https://a:b@hooks.example.com/",
                    "https://x\ny/",
                )
            ),
            field("secret", secret="guess me"),
            field("kinds.0", kinds=["gate.faild"]),
            field("name", name="a/b"),
            field("format", format="teams"),
        ],
    ),
    "/comparisons": (
        {},
        [
            said("of", of=[]),
            said("tp2", of=["tp2"]),
            missing(None, of=["sw-missing-0001", "sw-missing-0002"]),
            said("explore", of=["/explore?model=llama-3-8b", "tp2"]),
        ],
    ),
    "/sweeps": (
        CPU,
        [
            field("model.num_kv_heads", 2, "must divide num_heads (4)", model=CPU["model"] | {"num_kv_heads": 3}),
            field("bugdet", None, bugdet={}),
            missing("llama-3-8b", model="lama-3-8b"),
            field("space.tensor_degree", space={"tensor_degree": [2]}),
            field("budget.min_gain", 1.0, budget={"min_gain": 1.5}),
            field(
                "max_parallel_trials",
                None,
                "convergence_gate.num_seeds",
                convergence_gate={"num_seeds": 1},
                max_parallel_trials=0,
            ),
            said("30;0_1;late", fault_trace="7;0_1;0.06\n30;0_1;late"),
            said("9;2_3;0.06", fault_trace="7;0_1;0.06\n9;2_3;0.06"),
            said("10000", fault_trace={"faults": [], "num_steps": 100_000}),
            said(
                "must have fewer accelerators than the cluster that the sweep is for, which has 64",
                **LARGE,
                trial_cluster="h100:64",
            ),
            said(
                "must have the same accelerators as the cluster that the sweep is for",
                **LARGE,
                trial_cluster="a100-80gb:8",
            ),
            said(
                "8 tensor ranks do not divide the 4 accelerators of a node",
                **LARGE,
                trial_cluster="h100:4",
                space={"tensor_parallel_degree": [8]},
            ),
        ],
    ),
    "/sweeps/preview": (EIGHT, [field("space", space={"tensor_parallel_degree": [3]})]),
    "/predictions": (
        EIGHT,
        [
            field(
                "space",
                None,
                "the product of the data, context, tensor and pipeline degrees must be the number of accelerators of "
                "the cluster, 8, but it is 6",
                space={"tensor_parallel_degree": [3]},
            ),
            field("limit", 1, limit=0),
            field("limit", 1000, limit=1001),
            field("space", layout={}, space={"tensor_parallel_degree": [4]}),
            field("format", layout=RUN["layout"], format="deepspeed"),
            field("space.shard_level", format="torchtitan", space={"shard_level": ["optimizer"]}),
            missing("megatron", layout=RUN["layout"], stack="megatrn"),
            said("measured.0", measured=[{"layout": RUN["layout"]}]),
            said("measured.0", measured=[RUN | {"tokens_per_s": 1.0}]),
            said("measured.0.step_time_s", measured=[RUN | {"step_time_s": 0.0}]),
            said("measured.0.layout", measured=[RUN | {"layout": TP3}]),
            said("measured.0.cluster", measured=[RUN | {"cluster": "a100:8"}]),
            missing("h100", **DEMO, cluster={"accelerator": "h10", "num_nodes": 4}),
            field("cluster.num_nods", None, **DEMO, cluster={"accelerator": "h100", "num_nods": 4}),
            field("cluster.num_nodes", **DEMO, cluster={"accelerator": "h100", "num_nodes": "4"}),
            field(
                "cluster.accelerator.memory_bytes",
                1,
                **DEMO,
                cluster={"accelerator": {"base": "h100", "memory_bytes": -1}},
            ),
            field("model.base", model={"base": 7}),
            field("model.model_type", model={"model_type": "lama"}),
        ],
    ),
    "/explanations": (
        EIGHT,
        [
            field("layout"),
            said('"field":"layout.tensor_parallel_degree"', layout=TP3 | {"virtual_stages_per_rank": 2}),
            said('"field":"layout.virtual_stages_per_rank"', layout=TP3 | {"virtual_stages_per_rank": 2}),
            missing("megatron", layout=RUN["layout"], stack="megatrn"),
        ],
    ),
    "/exports": (
        EIGHT | {"format": "arguments"},
        [
            said('"field":"layout.tensor_parallel_degree"', layout=TP3),
            field("layout", "fsdp8", '"value":"fspd8"', layout="fspd8 mb1"),
            field("layout", layout="mb1 " * 1000),
            missing("megatron", layout=RUN["layout"], format="megatron-lm", stack="megatrn"),
        ],
    ),
    "/imports": (
        {},
        [
            said("is not recognised as a configuration of a known format", text="once upon a time"),
            said("1000000", text="x" * 1_000_001),
            said("must be one of", text="--bf16", format="fortran"),
            said("must be 1 or more", text="--bf16", num_ranks=0),
            said("config", text="[" * 100_000),
            said("is required"),
        ],
    ),
}
"""By path: a body that can be, and what is wrong with it in turn."""


@pytest.mark.parametrize("path", REFUSED)
def test_an_illegal_value_is_refused_at_its_place_and_starts_nothing(client: httpx.Client, path: str) -> None:
    body, cases = REFUSED[path]
    for changes, status, told, says in cases:
        answer = client.post(path, json=body | changes)
        case = f"{str(changes)[:200]}: {answer.status_code} {answer.text[:1000]}"
        assert answer.status_code == status, case
        assert told.items() <= answer.json().items(), case
        assert says in answer.text, case
    for stored in ("/sweeps", "/retunes", "/runs", "/webhooks"):
        assert client.get(stored).json()["items"] == []


STORED = (
    ("/models/other", {"model_type": "perceiver"}, field("model_type")),
    ("/models/other", to_plain(tiny_model()), field("name", "other")),
    ("/clusters/local", to_plain(replace(cpu_cluster(), name="local")), field("name")),
    ("/clusters/profile:mine", to_plain(replace(cpu_cluster(), name="profile:mine")), field("name")),
)


def test_a_description_that_cannot_be_stored_under_its_name_is_refused(client: httpx.Client) -> None:
    for path, document, (_, status, told, _) in STORED:
        answer = client.put(path, json=document)
        assert answer.status_code == status, (path, answer.text)
        assert told.items() <= answer.json().items(), (path, answer.text)


ABSENT = (
    *("/gates/mg-none/junit.xml", "/gates/mg-none/badge.svg", "/badges/main"),
    *("/sweeps/sw-none", "/sweeps/sw-none/trials", "/runs/sw-none", "/runs/sw-none/events", "/sweeps/sw-none/rules"),
    *("/trials/t", "/trials/sw-none-0000/explanation", "/trials/sw-none-0000/export?format=torchrun"),
    *("/clusters/h100:8/links", "/calibrations?cluster=h1000:64"),
)


def test_a_missing_resource_is_a_problem_that_names_it(client: httpx.Client) -> None:
    for path in ABSENT:
        answer = client.get(path)
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:autotuner:problem:not-found"), path

"""What REST answers: every operation at least once, with sweeps, gates, studies, checks and retunes that ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from autotuner.api.openapi import examples
from autotuner.core.codec import to_plain
from tests.announcements import receiver
from tests.api.service import openapi_document
from tests.builders import cpu_cluster, tiny_model
from tests.golden.examples import write_examples
from tests.golden.golden import Golden
from tests.golden.normal import Normal
from tests.golden.story import Story, told_story

WORKLOAD = {"seq_len": 8192, "global_batch_size": 64}
SHARDED = {"data_parallel_shard_degree": 8, "shard_level": "parameters", "recompute": "full", "micro_batch_size": 1}
TENSOR = {"tensor_parallel_degree": 8, "sequence_parallel": True, "recompute": "full"}
CATALOG_JOB = {"model": "llama-3-8b", "cluster": "h100:8", "workload": WORKLOAD}
JOB = {"model": "llama-3-8b", "cluster": "pretended", "workload": WORKLOAD}
SPACE = {
    "tensor_parallel_degree": [1, 2, 4],
    "micro_batch_size": [1, 2],
    "shard_level": ["parameters"],
    "recompute": ["selective", "full"],
    "precision": ["bf16"],
}
SWEEP = JOB | {"space": SPACE, "budget": {"num_trials": 5, "min_gain": 0.0}, "seed": 1}
CORES = {
    "model": to_plain(tiny_model()),
    "cluster": to_plain(cpu_cluster(2)),
    "workload": {"seq_len": 64, "global_batch_size": 16},
}
SWITCHES = (
    "SwitchName=leaf1 Nodes=node[01-04]\nSwitchName=leaf2 Nodes=node[05-08]\nSwitchName=spine Switches=leaf[1-2]\n"
)
CHAPTERS = (
    "around",
    "catalog",
    "checks",
    "comments",
    "descriptions",
    "events",
    "explanations",
    "exports",
    "gate-cancelled",
    "gate-could-not-run",
    "gate-fails",
    "gate-passes",
    "gate-sets-baseline",
    "gates",
    "lists",
    "phases",
    "plans",
    "predictions",
    "refused",
    "retunes",
    "steered",
    "studies",
    "sweeps",
    "sweeps-cores",
    "sweeps-flaky",
    "sweeps-front",
    "sweeps-large",
    "sweeps-patient",
    "trials",
    "webhooks",
)

RELATIVE = 1e-6
"""Simulated jobs tell their times as seconds since 1970, which leave seven digits of an hour."""


def is_over(found: Any) -> bool:
    return bool(found["state"] in ("complete", "cancelled", "failed"))


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with told_story() as story:
        describe(story)
        answer_questions(story)
        run_sweeps(story)
        read_trials(story)
        run_gates(story)
        run_retunes(story)
        run_studies_and_checks(story)
        announce(story)
        look_around(story)
        comment(story)
        refuse(story)
        query = {"model": "llama-3-8b", "accelerator": "h100", "stack": "nemo"}
        story.ask("catalog", "GET", "/support", query=query)  # last: each question moves the clock of retunes
        yield story


def describe(story: Story) -> None:
    """Models, clusters and what the catalog has."""
    ask = story.ask
    for path in ("/catalog/accelerators", "/catalog/models", "/catalog/networks", "/catalog/stacks", "/stacks"):
        ask("catalog", "GET", path)
    ask("catalog", "GET", "/catalog/accelerators/{name}", name="h100-sxm")
    ask("catalog", "GET", "/calibrations")
    ask("catalog", "GET", "/trainers")
    small = {"base": "llama-3-8b", "name": "my-llama", "num_layers": 16}
    ask("descriptions", "PUT", "/models/{name}", small, name="my-llama")
    ask("descriptions", "GET", "/models/{name}", name="my-llama")
    ask("descriptions", "GET", "/models")
    pretended = {"name": "pretended", "accelerator": "h100", "num_nodes": 1, "engine": "simulated"}
    ask("descriptions", "PUT", "/clusters/{name}", pretended, name="pretended")
    flaky = pretended | {"name": "flaky", "num_nodes": 2, "queue": "flaky"}
    ask("descriptions", "PUT", "/clusters/{name}", flaky, name="flaky")
    ask("descriptions", "PUT", "/clusters/{name}", {"name": "other", "accelerator": "a100-80gb"}, name="other")
    ask("descriptions", "GET", "/clusters/{name}", name="pretended")
    ask("descriptions", "GET", "/clusters")
    ask("descriptions", "GET", "/clusters/{name}/links", name="pretended")
    ask("descriptions", "POST", "/topologies", {"files": [SWITCHES]})
    ask("descriptions", "DELETE", "/models/{name}", name="my-llama")
    ask("descriptions", "DELETE", "/clusters/{name}", name="other")


def answer_questions(story: Story) -> None:
    """What is computed and not stored."""
    ask = story.ask
    best = CATALOG_JOB | {"limit": 5}
    ask("predictions", "POST", "/predictions", best)
    ask("predictions", "POST", "/predictions", CATALOG_JOB | {"limit": 3, "stack": "megatron", "format": "megatron-lm"})
    ask("predictions", "POST", "/predictions", CATALOG_JOB | {"layout": TENSOR})
    ask("predictions", "POST", "/predictions", CATALOG_JOB | {"limit": 1, "current": SHARDED})
    ask("predictions", "POST", "/predictions", best | {"measured": [{"layout": SHARDED, "step_time_s": 8.9}]})
    ask("explanations", "POST", "/explanations", CATALOG_JOB | {"layout": TENSOR})
    ask("explanations", "POST", "/bandwidth-curves", CATALOG_JOB | {"layout": TENSOR})
    ask("explanations", "POST", "/layer-reports", CATALOG_JOB | {"cluster": "h100:16"})
    warm_up = {"name": "batch warm-up", "token_share": 0.05, "global_batch_size": 16}
    phases = {"num_tokens": 1e11, "phases": [warm_up, {"name": "main", "token_share": 0.95}]}
    ask("phases", "POST", "/job-phases", CATALOG_JOB | phases)
    ask("exports", "GET", "/exports/formats")
    for name in ("megatron-lm", "torchtitan", "deepspeed"):
        ask("exports", "POST", "/exports", CATALOG_JOB | {"layout": SHARDED, "format": name})
    flags = "--tensor-model-parallel-size 4 --sequence-parallel --micro-batch-size 1 --bf16 --use-distributed-optimizer"
    ask("exports", "POST", "/imports", {"text": flags, "num_ranks": 16})
    goal = {"num_tokens": 1e11, "deadline_s": 604800}
    plan = {"model": "llama-3-8b", "workload": {"seq_len": 8192, "global_batch_size": 512}, "goal": goal}
    asked = ask("asked", "POST", "/plans", plan | {"accelerators": ["h100", "b200"], "sizes": [64]})
    story.chapters.pop("asked")  # how far it is by then depends on the machine
    story.work(f"/runs/{asked['id']}", is_over)
    ask("plans", "GET", "/runs/{run_id}", run_id=asked["id"])


def run_sweeps(story: Story) -> None:
    """Sweeps of every ending."""
    ask = story.ask
    ask("sweeps", "POST", "/sweeps/preview", SWEEP)
    first = ask("sweeps", "POST", "/sweeps", SWEEP | {"name": "first"})["id"]
    story.work(f"/sweeps/{first}", is_over)
    for path in ("", "/trials", "/ranking", "/table", "/table.csv", "/answer", "/choices", "/failures", "/front"):
        ask("sweeps", "GET", "/sweeps/{sweep_id}" + path, sweep_id=first)
    for path in ("/accuracy", "/rules", "/layers"):
        ask("sweeps", "GET", "/sweeps/{sweep_id}" + path, sweep_id=first)
    story.events("events", "/runs/{run_id}/events", run_id=first)
    ask("steered", "POST", "/sweeps/{sweep_id}/budget", {"budget": {"num_trials": 6}}, sweep_id=first)
    story.work(f"/sweeps/{first}", is_over)
    ask("steered", "GET", "/sweeps/{sweep_id}", sweep_id=first)
    ask("steered", "POST", "/trials/{trial_id}/rerun", trial_id=f"{first}-0000")
    story.work(f"/sweeps/{first}", is_over)
    ask("steered", "GET", "/sweeps/{sweep_id}/trials", sweep_id=first)
    second = ask("steered", "POST", "/sweeps/{sweep_id}/clone", {"name": "second", "seed": 2}, sweep_id=first)["id"]
    ask("steered", "POST", "/runs/{run_id}/pause", run_id=second)
    ask("steered", "POST", "/runs/{run_id}/resume", run_id=second)
    ask("steered", "POST", "/runs/{run_id}/cancel", run_id=second)
    ask("steered", "GET", "/sweeps/{sweep_id}", sweep_id=second)
    ask("steered", "POST", "/comparisons", {"of": [first, f"{first}-0001"]})
    ask("steered", "POST", "/comparisons", {"of": [first, "fsdp8 mb1 flash bf16"]})
    front = SWEEP | {"name": "front", "seed": 3, "objective": {"front": ["mfu", "tokens_per_joule"]}}
    flaky = SWEEP | {"name": "flaky", "seed": 5, "cluster": "flaky", "budget": {"num_trials": 8, "min_gain": 0.0}}
    large = JOB | {
        "name": "large",
        "model": "llama-3-70b",
        "space": {"shard_level": ["none"]},
        "budget": {"num_trials": 3},
    }
    patient = SWEEP | {"name": "patient", "seed": 4, "budget": {"num_trials": 12, "patience": 2}}
    cores = CORES | {"name": "cores", "space": {"micro_batch_size": [1, 2, 4, 8]}, "budget": {"num_trials": 12}}
    kinds = {"front": front, "flaky": flaky, "patient": patient, "large": large, "cores": cores}
    for chapter, body in kinds.items():
        asked = ask(f"sweeps-{chapter}", "POST", "/sweeps", body)
        if "id" in asked:
            story.work(f"/sweeps/{asked['id']}", is_over)
            for path in ("", "/ranking", "/answer", "/failures", "/front"):
                ask(f"sweeps-{chapter}", "GET", "/sweeps/{sweep_id}" + path, sweep_id=asked["id"])
    ask("lists", "GET", "/sweeps")
    ask("lists", "GET", "/sweeps", query={"state": "cancelled", "sort": "name"})
    ask("lists", "GET", "/ranking", query={"limit": 5})


def read_trials(story: Story) -> None:
    """All that is said of one trial."""
    trial = story.ask("trials", "GET", "/ranking", query={"limit": 1})["items"][0]["id"]
    for path in ("", "/explanation", "/parts", "/timeline", "/link-timelines", "/bandwidth-curve"):
        story.ask("trials", "GET", "/trials/{trial_id}" + path, trial_id=trial)
    story.ask("trials", "GET", "/trials/{trial_id}/export", query={"format": "megatron-lm"}, trial_id=trial)


def run_gates(story: Story) -> None:
    """Gates that pass, fail, find no baseline, cannot run, and are cancelled."""
    ask = story.ask
    gate = JOB | {"layout": SHARDED, "baseline": "main", "software": "commit 1"}
    endings = {
        "sets-baseline": gate | {"sets_baseline": True},
        "passes": gate | {"software": "commit 2"},
        "fails": gate | {"software": "commit 3", "layout": SHARDED | {"micro_batch_size": 2, "recompute": "full"}},
        "could-not-run": gate | {"cluster": "flaky", "layout": SHARDED | {"data_parallel_shard_degree": 16}},
    }
    for name, body in endings.items():
        asked = ask(f"gate-{name}", "POST", "/gates", body)
        if "id" in asked:
            story.work(f"/runs/{asked['id']}", is_over)
            ask(f"gate-{name}", "GET", "/runs/{run_id}", run_id=asked["id"])
            for path in ("/summary.md", "/junit.xml", "/badge.svg"):
                ask(f"gate-{name}", "GET", "/gates/{gate_id}" + path, gate_id=asked["id"])
    asked = ask("gate-cancelled", "POST", "/gates", gate | {"software": "commit 4"})
    ask("gate-cancelled", "POST", "/runs/{run_id}/cancel", run_id=asked["id"])
    ask("gate-cancelled", "GET", "/runs/{run_id}", run_id=asked["id"])
    ask("gates", "GET", "/runs", query={"kind": "gate"})
    key = ask("gates", "GET", "/baselines")["items"][0]["key"]
    ask("gates", "GET", "/badges/{name}", name="main")
    ask("gates", "DELETE", "/baselines/{name}/{key}", name="main", key=key)


def run_retunes(story: Story) -> None:
    """A retune that searches, finds something better, is adopted, watched, paused and removed."""
    ask = story.ask
    nightly = {"name": "nightly", "cron": "0 2 * * *", "time_zone": "Europe/Berlin", "sweep": SWEEP}
    ask("retunes", "POST", "/retunes", nightly)
    watch = nightly | {"name": "watch", "incumbent": SHARDED, "searches": False}
    ask("retunes", "POST", "/retunes", watch)
    ask("retunes", "POST", "/retunes", nightly | {"name": "flaky", "sweep": SWEEP | {"cluster": "flaky"}})
    for name in ("nightly", "watch", "watch", "flaky"):
        run = ask("retunes", "POST", "/retunes/{name}/runs", name=name)["id"]
        story.work(f"/runs/{run}", is_over)
        ask("retunes", "GET", "/runs/{run_id}", run_id=run)
    ask("retunes", "POST", "/retunes/{name}/adopt", {}, name="nightly")
    ask("retunes", "POST", "/retunes/{name}/adopt", {"layout": SHARDED}, name="watch")
    for path in ("", "/trend"):
        ask("retunes", "GET", "/retunes/{name}" + path, name="watch")
    ask("retunes", "GET", "/runs", query={"kind": "retune", "subject": "watch"})
    ask("retunes", "POST", "/retunes/{name}/pause", name="watch")
    ask("retunes", "POST", "/retunes/{name}/resume", name="watch")
    ask("retunes", "GET", "/retunes")
    ask("retunes", "DELETE", "/retunes/{name}", name="watch")


def run_studies_and_checks(story: Story) -> None:
    """Optimizer studies and checks; a check measures machines, so none runs here."""
    ask = story.ask
    layout = {
        "data_parallel_replicate_degree": 2,
        "micro_batch_size": 1,
        "precision": "fp32",
        "attention_kernel": "math",
    }
    budget = {"num_trials": 6, "max_samples": 640}
    study = CORES | {"layout": layout, "target_loss": 5.0, "window_sequences": 32, "budget": budget}
    asked = ask("studies", "POST", "/optimizer-studies", study)
    story.work(f"/runs/{asked['id']}", is_over)
    ask("studies", "GET", "/runs/{run_id}", run_id=asked["id"])
    asked = ask("studies", "POST", "/optimizer-studies", study | {"target_loss": 4.0})
    ask("studies", "POST", "/runs/{run_id}/cancel", run_id=asked["id"])
    ask("studies", "GET", "/runs", query={"kind": "study"})
    node = {"name": "nodes", "accelerator": "h100", "num_nodes": 2, "engine": "slurm-a"}
    ask("checks", "PUT", "/clusters/{name}", node, name="nodes")
    asked = ask("checks", "POST", "/clusters/{name}/checks", {"quick": True}, name="nodes")
    ask("checks", "POST", "/runs/{run_id}/cancel", run_id=asked["id"])
    ask("checks", "GET", "/runs/{run_id}", run_id=asked["id"])
    asked = ask("checks", "POST", "/clusters/{name}/checks", {"links": True}, name="nodes")
    story.work(f"/runs/{asked['id']}", is_over)
    ask("checks", "GET", "/runs/{run_id}", run_id=asked["id"])
    ask("checks", "GET", "/runs", query={"kind": "check", "subject": "nodes"})


def is_delivered(deliveries: Any) -> bool:
    """Whether the one delivery of the one webhook has arrived."""
    return [one["state"] for one in deliveries["items"]] == ["delivered"]


def announce(story: Story) -> None:
    """Webhooks of every format, what they were posted, and the feeds."""
    ask = story.ask
    with receiver() as there:
        for name in ("json", "slack"):
            url = f"http://127.0.0.1:{there.port}/{name}"
            body = {"name": name, "url": url, "format": name, "kinds": ["sweep.finished", "gate.failed"]}
            ask("webhooks", "POST", "/webhooks", body)
            ask("webhooks", "POST", "/webhooks/{name}/test", name=name)
            ask("webhooks", "GET", "/webhooks/{name}", name=name)
            ask("webhooks", "POST", "/sweeps", SWEEP | {"name": f"told to {name}", "budget": {"num_trials": 1}})
            story.work("/deliveries", is_delivered)
            ask("webhooks", "GET", "/deliveries")
            ask("webhooks", "GET", "/webhooks")
            if name == "json":
                ask("webhooks", "DELETE", "/webhooks/{name}", name=name)
        story.keep("webhooks", "posted", [json.loads(one.body) for one in there.received])
        story.keep("webhooks", "posted to", [one.path for one in there.received])
    delivery = ask("webhooks", "GET", "/deliveries")["items"][0]["id"]
    ask("webhooks", "POST", "/deliveries/{delivery_id}/send-again", delivery_id=delivery)
    ask("webhooks", "GET", "/feed.json")
    ask("webhooks", "GET", "/feed.atom")


def look_around(story: Story) -> None:
    """Who calls, what needs attention, and what operators read."""
    ask = story.ask
    for path in ("/attention", "/caller", "/audit", "/health", "/ready", "/engines", "/tokens"):
        ask("around", "GET", path)
    token = ask("around", "POST", "/tokens", {"name": "ada", "scope": "run", "quota": {"unfinished_sweeps": 2}})
    ask("around", "POST", "/tokens/{token_id}/revoke", token_id=token["token"]["id"])
    ask("around", "GET", "/workers")
    story.metrics("around")


def comment(story: Story) -> None:
    """What people write on a sweep and on a trial."""
    ask = story.ask
    (sweep,) = ask("found", "GET", "/sweeps", query={"q": "patient"})["items"]
    story.chapters.pop("found")
    of_trial = {"text": "slower than last week:\nthe link of node 3 was bad", "tags": ["links"], "trial_number": 0}
    ask("comments", "POST", "/sweeps/{sweep_id}/comments", of_trial, sweep_id=sweep["id"])
    note = {"text": "tried with NCCL 2.28", "tags": ["baseline", "paper"]}
    written = ask("comments", "POST", "/sweeps/{sweep_id}/comments", note, sweep_id=sweep["id"])["id"]
    ask("comments", "GET", "/sweeps/{sweep_id}/comments", sweep_id=sweep["id"])
    ask("comments", "GET", "/sweeps", query={"tag": "Paper"})
    ask("comments", "DELETE", "/comments/{comment_id}", comment_id=written)


def refuse(story: Story) -> None:
    """Bad input: what is named, and what is offered."""
    ask = story.ask
    for body in (
        {},
        CATALOG_JOB | {"model": "llama-3-9b"},
        CATALOG_JOB | {"cluster": "h1000:8"},
        CATALOG_JOB | {"workload": {"seq_len": 0, "global_batch_size": 64}},
        CATALOG_JOB | {"layout": {"tensor_paralel_degree": 8}},
        CATALOG_JOB | {"layout": {"tensor_parallel_degree": 3}},
        CATALOG_JOB | {"limit": "many"},
    ):
        ask("refused", "POST", "/predictions", body)
    ask("refused", "POST", "/sweeps", SWEEP | {"budget": {"num_trials": 0}})
    ask("refused", "POST", "/sweeps", SWEEP | {"objective": "fastest"})
    ask("refused", "GET", "/sweeps/{sweep_id}", sweep_id="sw-none")
    ask("refused", "GET", "/trials/{trial_id}", trial_id="sw-none-0000")
    ask("refused", "GET", "/sweeps", query={"state": "over"})
    ask("refused", "POST", "/retunes", {"name": "a b", "cron": "0 25 * * *", "sweep": SWEEP})
    ask("refused", "POST", "/webhooks", {"name": "ours", "url": "http://169.254.169.254/"})
    ask("refused", "POST", "/exports", CATALOG_JOB | {"layout": TENSOR, "format": "megatron"})
    ask("refused", "POST", "/imports", {"text": "--tensor-model-parallel-size many"})
    ask("refused", "PUT", "/models/{name}", {"base": "llama-3-8b", "num_layers": -1}, name="mine")


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_answers_are_those_that_were_recorded(chapter: str, story: Story, golden: Golden) -> None:
    golden.check(f"rest/{chapter}", story.chapters[chapter], relative=RELATIVE)


def test_every_operation_is_asked_and_every_chapter_compared(story: Story) -> None:
    paths = openapi_document()["paths"]
    assert story.asked == {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert set(story.chapters) == set(CHAPTERS)


def test_examples_of_openapi_are_answers_of_this_story(story: Story, golden: Golden) -> None:
    by_operation = {
        operation["operationId"]: story.examples[method.upper(), path]
        for path, operations in openapi_document()["paths"].items()
        for method, operation in operations.items()
    }
    if golden.records:
        write_examples(by_operation)
        return
    assert examples().keys() == by_operation.keys()
    for name, example in by_operation.items():
        recorded, sent = (Normal().document(one.get("body")) for one in (examples()[name], example))
        assert recorded == sent, name

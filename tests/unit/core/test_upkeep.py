from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.trial_spec import TrialSettings
from autotuner.core.upkeep import MfuGateRequest, gate_content, gate_key
from autotuner.core.workload import Workload
from tests.builders import cpu_cluster, cpu_layout, sweep_request, tiny_job, tiny_model

SOFTWARE = {"torch": "2.13.0"}


def gate_request(**changes: Any) -> MfuGateRequest:
    return replace(MfuGateRequest(sweep=sweep_request(), layout=cpu_layout(), baseline="main"), **changes)


def content(versions: dict[str, str] | None = None, **changes: Any) -> str:
    return gate_content(gate_request(**changes), SOFTWARE if versions is None else versions)


@pytest.mark.parametrize(
    "job",
    [
        tiny_job(model=tiny_model(ffn_size=256)),
        tiny_job(workload=Workload(seq_len=64, global_batch_size=16)),
        tiny_job(cluster=cpu_cluster(4)),
        tiny_job(cluster=cpu_cluster(2, name="another")),
    ],
    ids=["model", "workload", "number of cores", "cluster"],
)
def test_runs_of_another_job_are_not_compared(job: Any) -> None:
    assert gate_key(sweep_request(job=job)) != gate_key(sweep_request())


def test_a_model_under_another_name_and_a_peak_measured_again_are_the_same_job() -> None:
    cluster = cpu_cluster()
    measured = replace(cluster.accelerator, fp32_flop_per_s=97e9, peak_is_measured=True)
    again = tiny_job(model=tiny_model(name="renamed"), cluster=replace(cluster, accelerator=measured))
    assert gate_key(sweep_request(job=again)) == gate_key(sweep_request())


def test_a_layout_and_how_it_is_judged_are_no_part_of_the_job() -> None:
    longer = sweep_request(trial=TrialSettings(measured_steps=9))
    assert gate_key(longer) == gate_key(sweep_request())


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": cpu_layout(micro_batch_size=2)},
        {"layout": None},
        {"software": "commit 17"},
        {"sweep": sweep_request(trial=TrialSettings(measured_steps=9))},
    ],
    ids=["layout", "search", "software", "settings"],
)
def test_what_is_measured_is_part_of_the_content(changes: dict[str, Any]) -> None:
    assert content(**changes) != content()


def test_versions_of_this_machine_are_part_of_the_content() -> None:
    assert content({"torch": "2.14.0"}) != content()


def test_the_baseline_is_no_part_of_what_is_measured() -> None:
    assert content(baseline="release", sets_baseline=True) == content()

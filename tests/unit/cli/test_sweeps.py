"""Commands about sweeps and gates."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import optuna
import pytest
from optuna.trial import TrialState

from autotuner.api.openapi import examples
from autotuner.cli.console import open_service
from autotuner.cli.optuna_study import write_study
from autotuner.core import documents
from autotuner.core.codec import to_plain
from autotuner.core.measurement import Measurement, ResourceCost, RobustMeasurement
from autotuner.core.objective import Objective
from autotuner.core.sweep import SweepStanding
from autotuner.core.sweep_requests import GateCreate
from autotuner.core.upkeep import GateRun, RegressionGateOutcome
from autotuner.remote import Remote
from autotuner.search.results.reached import RankedTrial
from autotuner.store.sql import open_store
from tests.api.service import StoreDriver
from tests.builders import cpu_layout, failure, measurement, tiny_model
from tests.system.service import measuring, until
from tests.unit.cli.command_line import CommandLine, simulated_cluster, simulated_sweep


# ---------------------------------------------------------------- sweep
def tiny_sweep(directory: Path, *more: str, **settings: int) -> list[str]:
    """A sweep of the tiny model on two cores, whose trials measure one step."""
    model = directory / "tiny.json"
    model.write_text(json.dumps(to_plain(tiny_model())))
    job = ["--model", str(model), "--cluster", "cpu:2", "--global-batch-size", "8", "--seq-len", "64"]
    trial = measuring(1, warmup_steps=0, max_warmup_steps=0, **settings)
    return ["sweep", *job, "--trials", "1", "--trial", json.dumps(trial), *more]


def test_a_sweep_is_asked_for_with_its_objective_gain_parallel_trials_and_convergence_gate(cli: CommandLine) -> None:
    more = ["--objective", "tokens_per_s", "--parallel", "4", "--no-convergence-gate", "--gate-tolerance", "0.1"]
    created = cli.run_json(*tiny_sweep(cli.directory, "--no-wait", *more, "--min-gain", "0.05"))
    request = created["request"]
    assert created["budget"]["min_gain"] == 0.05
    assert request["objective"] == {"metric": "tokens_per_s", "under_faults": False, "profile": [], "front": []}
    assert request["max_parallel_trials"] == 4
    gate = {"num_steps": 20, "num_lossy_steps": 192, "num_seeds": 3, "tolerance": 0.1}
    assert request["convergence_gate"] == {"enabled": False, **gate}


@pytest.mark.oracle  # a real sweep; the one below runs always
def test_the_notes_of_a_trial_are_reported_while_its_sweep_is_followed(cli: CommandLine) -> None:
    cli.run(*tiny_sweep(cli.directory, num_runs=2))
    assert "trial  1/1           run 2 of 2, to measure how much repeated runs differ" in cli.error
    assert re.search(r"trial  1/1 complete  MFU .* measured", cli.error)


def test_a_sweep_that_is_waited_for_runs_its_trials_and_prints_their_ranking(cli: CommandLine) -> None:
    answer = cli.run_json(*tiny_sweep(cli.directory))
    assert answer["sweep"]["state"] == "complete"
    assert [item["rank"] for item in answer["ranking"]["items"]] == [1]
    assert answer["ranking"]["items"][0]["measurement"]["mfu"] > 0
    assert "what limits it" in cli.run("explain", answer["trials"]["items"][0]["id"])


def test_a_sweep_on_a_simulated_cluster_runs_at_any_size_and_says_that_nothing_was_measured(cli: CommandLine) -> None:
    text = cli.run(*simulated_sweep(cli.directory))
    assert "on dream simulated: complete" in text
    assert "Ranking by simulated MFU" in text
    assert "nothing ran" in text
    assert "measured" not in re.sub("never compared with a measured run|not validated", "", text)
    assert re.search(r"trial  1/2           simulated job \d+ waits\n", cli.error)
    assert re.search(r"trial  1/2 complete  MFU .* simulated, .* predicted", cli.error)


def test_a_fault_trace_is_lines_or_the_file_that_holds_them(cli: CommandLine, tmp_path: Path) -> None:
    written = tmp_path / "trace.txt"
    written.write_text("# congestion on one link\n7;0_1;0.06\n30;0_1;0\n")
    of_file = cli.run_json(*tiny_sweep(cli.directory, "--no-wait", "--fault-trace", str(written)))["request"]
    lines = ("--fault-trace", "7;0_1;0.06|30;0_1;0", "--fault-steps", "40")
    said = cli.run_json(*tiny_sweep(cli.directory, "--no-wait", *lines))["request"]
    assert of_file["objective"]["under_faults"]
    assert of_file["fault_trace"]["faults"] == said["fault_trace"]["faults"]
    assert (of_file["fault_trace"]["num_steps"], said["fault_trace"]["num_steps"]) == (60, 40)


def test_a_sweep_as_json_that_is_terminated_prints_how_far_it_came(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("autotuner.cli.follow.follow", terminated)
    simulated = cli.directory / "simulated.json"
    simulated.write_text('{"name": "far", "accelerator": "h100", "num_nodes": 1, "engine": "simulated"}')
    job = ("--model", "gpt-3-125m", "--cluster", str(simulated), "--global-batch-size", "8", "--seq-len", "256")
    found = json.loads(cli.run("sweep", *job, "--trials", "1", "--json", code=130))
    assert found["sweep"]["id"].startswith("sw-")
    assert "trials" in found


# ---------------------------------------------------------------- front
def reached(mfu: float, complexity: float) -> Measurement:
    resource_cost = ResourceCost(power=None, price_per_hour=0.0, co2_kg_per_hour=0.0, complexity=complexity)
    return replace(measurement(mfu=mfu, step_time_s=0.1 / mfu), resource_cost=resource_cost)


@pytest.fixture
def stored(cli: CommandLine) -> str:
    """A sweep in the command line's database: a fast layout, a simple one, and one that both beat."""
    driver = StoreDriver(store=open_store(f"sqlite:///{cli.directory}/autotuner.db"))
    sweep = driver.sweep()
    driver.ended(sweep, 0, reached(0.5, 2.0))
    driver.ended(sweep, 1, reached(0.4, 0.0), layout=cpu_layout(data_parallel_replicate_degree=2))
    driver.ended(sweep, 2, reached(0.3, 2.0), layout=cpu_layout(micro_batch_size=2, tensor_parallel_degree=2))
    return sweep.id


def test_the_front_gives_its_reasons_a_profile_marks_its_first_and_unmeasured_metrics_are_refused(
    cli: CommandLine, stored: str
) -> None:
    text = " ".join(cli.run("front", stored, "--metrics", "mfu,simplicity").split())
    assert "The best of 3 in MFU; trial 1 has +200.0 % simplicity for −20.0 % MFU" in text
    assert "Trial 2 is behind trial 1, which has +33.3 % MFU and +200.0 % simplicity" in text
    assert "First by the objective of the sweep" in text
    assert "MFU simplicity of the front" in text
    assert "50.0 % 0.333" in text  # the head says of what
    answers = [
        cli.run_json("front", stored, "--metrics", "mfu,simplicity", "--profile", f"mfu=1,simplicity={weight}")
        for weight in (0.01, 1)
    ]
    first = [next(point["trial"] for point in answer["points"] if point["is_first"]) for answer in answers]
    assert first == [0, 1]
    assert "power_w" in cli.error_of("front", stored, "--metrics", "mfu,tokens_per_joule")
    assert "mfu=1" in cli.error_of("front", stored, "--profile", "mfu=much")


# ---------------------------------------------------------------- study
def test_a_sweep_is_a_study_that_optunas_tools_read_with_its_metric_and_when_each_trial_ran(cli: CommandLine) -> None:
    driver = StoreDriver(store=open_store(f"sqlite:///{cli.directory}/autotuner.db"))
    sweep = driver.sweep()
    driver.ended(sweep, 0, measurement(mfu=0.25))
    driver.ended(sweep, 1, measurement(mfu=0.5), layout=cpu_layout(data_parallel_replicate_degree=2))
    driver.ended(sweep, 2, failure(), layout=cpu_layout(micro_batch_size=2, tensor_parallel_degree=2))
    driver.running(sweep, 3)
    sweep_id, file = sweep.id, cli.directory / "study.db"
    assert f"optuna-dashboard sqlite:///{file}" in cli.run("study", sweep_id, str(file))
    study = optuna.load_study(study_name=sweep_id, storage=f"sqlite:///{file}")
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL]
    assert study.best_value == 0.5
    assert study.best_params == {
        "data_parallel_replicate_degree": 2,
        "tensor_parallel_degree": 1,
        "micro_batch_size": 1,
    }
    assert study.trials[2].user_attrs["failure"] == "rank 1 ran out of memory"
    assert study.metric_names == ["MFU"]
    stored_trials, _ = open_store(f"sqlite:///{cli.directory}/autotuner.db").list_trials(sweep_id)
    for trial, there in zip(study.trials, stored_trials, strict=False):
        times = [when and when.timestamp() for when in (trial.datetime_start, trial.datetime_complete)]
        assert times == [there.started_at, there.finished_at]


def test_an_exported_study_holds_what_its_sweep_compares(tmp_path: Path) -> None:
    told = examples()["read_sweep"]["answer"] | {"objective": to_plain(Objective(under_faults=True))}
    sweep = documents.restore(SweepStanding, told)
    healthy = measurement(mfu=0.5)
    robust = RobustMeasurement(step_time_s=1.0, mfu=0.25, tokens_per_s=100.0, num_steps=20, stretches=())
    measured = {"measurement": to_plain(replace(healthy, robust=robust)), "state": "complete"}
    trial = documents.restore(RankedTrial, examples()["read_trial"]["answer"] | measured)
    write_study(tmp_path / "study.db", sweep, [trial])
    study = optuna.load_study(study_name=sweep.id, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert (study.best_value, study.metric_names) == (0.25, ["robust MFU"])


def queued(cli: CommandLine) -> str:
    return str(cli.run_json(*tiny_sweep(cli.directory, "--no-wait"))["id"])


def test_a_comment_is_written_shown_with_its_sweep_and_removed(cli: CommandLine) -> None:
    sweep_id = queued(cli)
    written = cli.run_json("comment", sweep_id, "{NCCL 2.28}", "--tag", "baseline", "--tag", "paper")
    assert (written["text"], written["tags"]) == ("{NCCL 2.28}", ["baseline", "paper"])
    assert "{NCCL 2.28}, #baseline, #paper" in cli.run("show", sweep_id)
    assert cli.run_json("show", sweep_id)["comments"]["items"] == [written]
    assert "--tag 0 = 'a b'" in cli.error_of("comment", sweep_id, "--tag", "a b")
    assert cli.run_json("comments", sweep_id, "--remove", written["id"]) == written
    assert "None yet." in cli.run("comments", sweep_id)


def test_sweeps_are_listed_with_their_ids_and_tags_and_found_by_tag_state_and_words(cli: CommandLine) -> None:
    first, second = (cli.run_json(*tiny_sweep(cli.directory, "--no-wait", "--name", name))["id"] for name in "ab")
    cli.run("comment", first, "--tag", "paper")
    told = cli.run("list")
    assert told.index(second) < told.index(first)
    assert "#paper" in told
    assert "2 of 2 sweeps" in told
    for filters in (["--tag", "Paper"], [first], ["a", "--state", "queued", "--tag", "paper"]):
        assert [one["id"] for one in cli.run_json("list", *filters)["items"]] == [first]
    assert "No sweep matches." in cli.run("list", "--state", "failed")


def test_a_paused_sweep_is_followed_no_further_than_to_its_pause(cli: CommandLine) -> None:
    sweep = queued(cli)
    cli.run("pause", sweep)
    assert "paused" in cli.run("extend", sweep, "--trials", "9")


@pytest.mark.oracle  # real sweeps
def test_a_finished_sweep_is_extended_and_runs_a_trial_again_with_real_trials(cli: CommandLine) -> None:
    before = cli.run_json(*tiny_sweep(cli.directory, "--min-gain", "0"))
    sweep, trial = before["sweep"]["id"], before["trials"]["items"][0]["id"]
    cli.error_of("extend", sweep, "--trials", "1")
    longer = cli.run_json("extend", sweep, "--trials", "2")
    assert (longer["sweep"]["state"], longer["trials"]["total"]) == ("complete", 2)
    again = cli.run_json("rerun", trial)
    assert [one["repeats"] for one in again["trials"]["items"]] == [None, None, 0]
    assert "trial 0 again: MFU" in cli.run("show", sweep)


# ---------------------------------------------------------------- gate
@pytest.fixture
def gate_job(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A job on a cluster on which nothing runs."""
    monkeypatch.setenv("AUTOTUNER_POLL_S", "0.05")
    cluster = simulated_cluster(cli.directory, "h100:8")
    return ["gate", "--model", "llama-3-8b", "--cluster", cluster, "--global-batch-size", "64", "--seq-len", "8192"]


def test_a_gate_is_cancelled_by_an_interrupt_that_arrives_while_it_is_started(
    cli: CommandLine, gate_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Remote.create_gate

    def interrupted(service: Remote, body: GateCreate) -> GateRun:
        gate = create(service, body)
        signal.raise_signal(signal.SIGTERM)
        return gate

    monkeypatch.setattr(Remote, "create_gate", interrupted)
    slow = cli.directory / "dream.json"  # each of its jobs waits for seconds, so that none ends before the cancel
    slow.write_text(json.dumps(json.loads(slow.read_text()) | {"queue": "watched"}))
    cli.run(*gate_job, "--layout", "fsdp8 mb1 recompute-selective", code=130)
    with open_service(None, num_workers=1) as service:
        [gate] = service.list_runs(GateRun).items
        outcome = until("its end", lambda: service.read_run(GateRun, gate.id).outcome)
    assert outcome is RegressionGateOutcome.CANCELLED


def test_without_a_layout_the_best_that_is_found_is_judged(cli: CommandLine, gate_job: list[str]) -> None:
    axes = '{"recompute": ["selective", "full"], "precision": ["bf16"], "tensor_parallel_degree": [1]}'
    search = [*gate_job, "--space", axes, "--trials", "3"]
    found = cli.run_json(*search, "--set-baseline")
    assert (found["outcome"], found["request"]["gate"]["layout"]) == ("no_baseline", None)
    assert found["result"]["findings"]["measured"]["recompute"] == "selective"


GATE_JOB = ["--model", "llama-3-70b", "--cluster", "h100:64x8", "--global-batch-size", "1024", "--seq-len", "8192"]
TODAY = "fsdp16 tp8 pp4 1f1b mb1 sp"
PREDICT = ["gate", "--predict", "--no-dry-run", *GATE_JOB, "--against", TODAY]


def test_without_a_baseline_the_report_shows_how_to_store_one(cli: CommandLine) -> None:
    assert "no baseline is stored; `autotuner gate --set-baseline` stores one" in cli.run("baselines")


def test_files_for_ci_are_written_where_it_failed_too(cli: CommandLine) -> None:
    junit, summary, badge = (cli.directory / "of-ci" / name for name in ("junit.xml", "summary.md", "badge.svg"))
    files = ["--junit", str(junit), "--summary", str(summary), "--badge", str(badge)]
    cli.run(*PREDICT, "--layout", "fsdp16 tp8 pp4 gpipe mb1 sp", *files, code=8)
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
    assert summary.read_text().startswith("## ❌ llama-3-70b on h100:64x8, predicted: failed")
    assert ElementTree.parse(badge).getroot().get("aria-label", "").startswith("MFU: ")


def test_a_configuration_of_a_trainer_is_read_as_a_layout(cli: CommandLine) -> None:
    config = cli.directory / "train.toml"
    degrees = "data_parallel_shard_degree = 16\ntensor_parallel_degree = 8\npipeline_parallel_degree = 4"
    schedule = 'pipeline_parallel_schedule = "1F1B"\npipeline_parallel_microbatch_size = 1'
    config.write_text(f"[training]\nlocal_batch_size = 64\nseq_len = 8192\n[parallelism]\n{degrees}\n{schedule}\n")
    found = cli.run_json("gate", "--predict", "--no-dry-run", *GATE_JOB, "--layout", str(config))
    assert found["candidate"]["tensor_parallel_degree"] == 8
    assert found["candidate"]["pipeline_parallel_degree"] == 4


@pytest.mark.oracle
def test_memory_is_counted_in_a_dry_run(cli: CommandLine) -> None:
    gate_job = ["--model", "llama-demo", "--cluster", "cpu:2", "--global-batch-size", "2", "--seq-len", "32"]
    found = cli.run_json("gate", "--predict", *gate_job, "--layout", "zero2 mb1 fp32")
    assert found["peak"]["is_counted"]


def test_the_prediction_and_a_reason_stand_in_for_a_dry_run_that_cannot_count(cli: CommandLine) -> None:
    refused = ["gate", "--predict", *GATE_JOB, "--layout", f"{TODAY} fp8 delayed"]
    assert "The memory was predicted, not counted in a dry run: " in cli.run(*refused)

"""A sweep in MLflow and W&B: what each of them has is read back from its own store."""

from __future__ import annotations

import doctest
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotuner import trackers
from autotuner.cli.sweeps import _start
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.trial import TrialState
from autotuner.remote import Remote
from autotuner.store.sql import memory_store
from autotuner.trackers import Record, Target, TrackerUnavailable
from autotuner.tracking import Tracked, record_of_trial, track, tracked
from tests.api.service import StoreDriver, app_on, serve
from tests.builders import cpu_layout, estimate, failure, measurement, proxy_trial, step_report, sweep_request, trial
from tests.unit.cli.command_line import CommandLine

FAST, BIG = cpu_layout(tensor_parallel_degree=2), cpu_layout(data_parallel_shard_degree=2)


@dataclass
class Sweeping:
    """A sweep of two trials, of which one ran out of memory, at a service."""

    client: Remote
    address: str
    sweep_id: str
    _driver: StoreDriver
    _sweep: Any

    def end(self) -> None:
        """The second trial fails, and the sweep ends."""
        self._driver.ended(self._sweep, 1, failure(), BIG)
        self._driver.finish(self._sweep)


@pytest.fixture
def sweeping() -> Iterator[Sweeping]:
    store = memory_store()
    driver = StoreDriver(store=store)
    sweep = driver.sweep(sweep_request(name="nightly"))
    driver.ended(sweep, 0, measurement(), FAST)
    with serve(app_on(store)) as address, Remote(address) as client:
        yield Sweeping(client, address, sweep.id, driver, sweep)


def _no_error(heard: object) -> None:
    pytest.fail(str(heard))


def sent_so_far(sweeping: Sweeping, to: trackers.Tracker) -> Tracked:
    """What a tracker has got when it is interrupted after the first look at the sweep."""
    stop = threading.Event()
    stop.set()
    return track(sweeping.client, sweeping.sweep_id, to, _no_error, stop=stop)


# ---------------------------------------------------------------- the stores of both
def test_mlflow_has_a_run_for_each_trial_and_one_with_the_ranking(
    sweeping: Sweeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = Target.read("mlflow:sqlite:///mlflow.db", "--to")
    assert sent_so_far(sweeping, target.open()).num_sent == 1
    sweeping.end()
    assert track(sweeping.client, sweeping.sweep_id, target.open(), _no_error).num_sent == 2
    assert track(sweeping.client, sweeping.sweep_id, target.open(), _no_error).num_sent == 0, "nothing is new"

    from mlflow import MlflowClient  # noqa: PLC0415  # not for the workers that run other tests

    client = MlflowClient("sqlite:///mlflow.db")
    (experiment,) = client.search_experiments(filter_string=f"name = '{sweeping.sweep_id}'")
    runs = {run.data.tags["autotuner.id"]: run for run in client.search_runs([experiment.experiment_id])}
    fast, big, whole = (runs[name] for name in sorted(runs, key=lambda name: (name == sweeping.sweep_id, name)))
    assert [run.info.status for run in (fast, big, whole)] == ["FINISHED", "FAILED", "FINISHED"]
    assert fast.data.params.items() >= {"tensor_parallel_degree": "2", "model": "tiny", "seed": "0"}.items()
    assert fast.data.metrics.items() >= {"mfu": 0.25, "step_time_s": 0.5, "peak_bytes": 10_000_000.0}.items()
    assert [one.value for one in client.get_metric_history(fast.info.run_id, "step/loss")] == [5.5]
    assert big.data.tags.items() >= {"status": "failed", "failure": "oom", "trial": f"{sweeping.sweep_id}-0001"}.items()
    ranking = client.download_artifacts(whole.info.run_id, "ranking.csv", str(tmp_path))
    header, *rows = Path(ranking).read_text().splitlines()
    assert header.startswith("rank,trial,")
    assert [row.rpartition(",")[2] for row in rows] == [str(FAST)]


def test_wandb_has_a_run_for_each_trial_and_one_with_the_ranking(
    sweeping: Sweeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    target = Target.read("wandb:layouts", "--to")
    assert sent_so_far(sweeping, target.open()).num_sent == 1
    sweeping.end()
    assert track(sweeping.client, sweeping.sweep_id, target.open(), _no_error).num_sent == 2
    assert track(sweeping.client, sweeping.sweep_id, target.open(), _no_error).num_sent == 0, "nothing is new"

    import wandb  # noqa: PLC0415  # not for the workers that run other tests

    wandb.teardown()
    fast, big, whole = (Logged.read(file) for file in sorted(tmp_path.glob("wandb/offline-*/*.wandb"), key=_run_id))
    assert {one.run["run_group"] for one in (fast, big, whole)} == {sweeping.sweep_id}
    assert [one.exit_code for one in (fast, big, whole)] == [0, 1, 0]
    assert fast.run["config"]["update"].items() >= {"tensor_parallel_degree": 2, "model": "tiny", "seed": 0}.items()
    assert fast.summary.items() >= {"mfu": 0.25, "step_time_s": 0.5, "peak_bytes": 10_000_000}.items()
    assert [one["step/loss"] for one in fast.history] == [5.5]
    assert big.run["tags"] == ["failed", "oom"]
    assert big.run["notes"] == "oom: rank 1 ran out of memory"
    (ranking,) = tmp_path.glob("wandb/offline-*/files/media/table/ranking*.json")
    table = json.loads(ranking.read_text())
    assert [dict(zip(table["columns"], row, strict=True))["layout"] for row in table["data"]] == [str(FAST)]


def _run_id(file: Path) -> tuple[bool, str]:
    """Sort trials by number, and their sweep last."""
    return file.stem.count("-") == 2, file.stem


@dataclass
class Logged:
    """The file that W&B wrote of one run, read by its own reader."""

    run: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int = -1

    @classmethod
    def read(cls, file: Path) -> Logged:
        import wandb  # noqa: PLC0415

        reader = [str(Path(wandb.__file__).parent / "bin" / "wandb-core"), "leet", "inspect", "--no-observability"]
        call = [*reader, "--json", "--run-file", str(file), str(file.parent.parent)]
        found = cls()
        for line in subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines():
            match json.loads(line):
                case {"run": dict() as run}:
                    found.run = run
                case {"history": {"item": dict() as item}}:
                    found.history.append(item)
                case {"summary": {"update": dict() as update}}:
                    found.summary |= update
                case {"exit": exit_}:
                    found.exit_code = exit_.get("exit_code", 0)
        return found


# ---------------------------------------------------------------- records
def test_a_record_has_the_measurement_beside_the_prediction() -> None:
    steps = (step_report(0, loss=5.5), step_report(1, loss=5.4))
    record = record_of_trial(trial(FAST, measurement=measurement(), steps=steps), sweep_request())
    assert {"mfu", "predicted_mfu", "step_time_s_error", "predicted_step_time_s_error"} <= record.metrics.keys()
    assert {"peak_bytes", "predicted_peak_bytes"} <= record.metrics.keys()
    assert record.metrics["tokens_per_s_per_device"] == 1024.0 / 2
    assert record.tags["source"] == "measured"
    assert [step["step/loss"] for step in record.steps] == [5.5, 5.4]


def test_the_record_of_a_trial_without_a_result_has_predicted_metrics_alone() -> None:
    record = record_of_trial(trial(BIG, state=TrialState.FAILED, failure=failure()), sweep_request())
    assert record.ended == "failed"
    assert "predicted_mfu" in record.metrics
    assert not {"mfu", "step_time_s", "tokens_per_s", "peak_bytes"} & record.metrics.keys()


def test_the_record_of_a_proxy_trial_says_that_its_figures_are_estimated() -> None:
    layout = Layout(tensor_parallel_degree=2, data_parallel_replicate_degree=4)
    record = record_of_trial(trial(layout, proxy=proxy_trial(), estimate=estimate()), sweep_request())
    assert record.tags["source"] == "estimated"
    assert record.tags["proxy_layout"] == str(proxy_trial().layout)


# ---------------------------------------------------------------- a tracker that fails
@dataclass
class Failing:
    """A tracker that refuses the first records."""

    num_failures: int
    got: list[Record] = field(default_factory=list)
    place: str = "a tracker"
    target: str = "mlflow:http://nowhere"

    def begin(self, sweep_id: str, about: str) -> Mapping[str, str]:
        del sweep_id, about
        return {}

    def send(self, record: Record) -> None:
        if self.num_failures:
            self.num_failures -= 1
            raise TrackerUnavailable("it is full")
        self.got.append(record)


def test_a_tracker_that_failed_gets_every_trial_when_it_answers_again(sweeping: Sweeping) -> None:
    sweeping.end()
    failing = Failing(1)
    assert track(sweeping.client, sweeping.sweep_id, failing, _no_error).num_sent == 3
    assert [one.kind for one in failing.got] == ["trial", "trial", "sweep"]


def test_a_sweep_whose_tracker_fails_to_its_end_says_how_the_rest_is_sent(sweeping: Sweeping) -> None:
    sweeping.end()
    heard: list[object] = []
    with tracked(sweeping.client, sweeping.sweep_id, [Failing(99)], heard.append):
        pass
    (error,) = heard
    assert isinstance(error, AutotunerError)
    assert f"`autotuner track {sweeping.sweep_id} --to mlflow:http://nowhere` sends the rest" in str(error)


def test_a_command_that_prints_json_still_prints_the_error_of_a_tracker(
    sweeping: Sweeping, capsys: pytest.CaptureFixture[str]
) -> None:
    sweeping.end()
    server, trackers = sweeping.address, [Failing(99)]
    _start(
        lambda client: client.read_sweep(sweeping.sweep_id), wait=True, server=server, as_json=True, trackers=trackers
    )
    printed = capsys.readouterr()
    assert json.loads(printed.out)["sweep"]["id"] == sweeping.sweep_id
    assert "\nerror: it is full" in printed.err


def test_an_mlflow_that_does_not_answer_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = Target.read("mlflow:http://me:secret@127.0.0.1:9", "--to").open()
    with pytest.raises(TrackerUnavailable, match=r"MLflow at http://127\.0\.0\.1:9 does not take the runs") as refused:
        tracker.begin("sw-1", "a sweep")
    assert "secret" not in str(refused.value) + tracker.target


# ---------------------------------------------------------------- targets
@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("mlflo:http://here", "mlflow:http://here"),
        ("http://here:5000", "mlflow:http://here:5000"),
        ("mlflow:runs.db", "mlflow:sqlite:///runs.db"),
        ("mlflow:file:///runs", "mlflow:sqlite:///runs"),
        ("mlflow", "mlflow:sqlite:///mlflow.db"),
        ("wandb:", "wandb:autotuner"),
        ("wandb:team/project/run", "wandb:team/project"),
        ("wandb:a b#c", "wandb:a b-c"),
        ("", "mlflow:sqlite:///mlflow.db"),
    ],
)
def test_a_target_that_is_none_is_refused_with_the_nearest_one(given: str, nearest: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Target.read(given, "--to")
    assert refused.value.nearest == nearest
    assert str(Target.read(nearest, "--to")) == nearest


def test_the_examples_of_trackers_run() -> None:
    assert doctest.testmod(trackers, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_a_missing_package_names_the_extra_that_installs_it(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    said = cli.error_of("track", "sw-k3v7q2mxn5", "--to", "wandb:layouts")
    assert "needs wandb, which is not installed: pip install 'parallelism-autotuner[wandb]'" in said

"""Measures every legal layout of the demonstration's job repeatedly on this machine's cores, and predicts it.

``python -m research.cpu_sweep --cores 4 --seconds 240`` continues where an earlier call stopped. Layouts with the
fewest undisturbed runs come first, in an order that is shuffled once; layouts with recomputation follow two rounds
later. Each run is stored in ``research/data/cpu_sweep_4.json`` with device, versions and date. ``--profile`` takes the
profile first and stores it in ``research/data/cpu_profile_4.json``. Without either option, the command compares the
stored runs with the predictions of the stored profile and of the catalog, so that laws can be changed and judged
without measuring.

Disturbances only make a run slower. Therefore a layout counts with its fastest run, among runs in which other processes
used little of the machine or only idle cores. The noise floor is the same figure from two halves of a layout's runs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import Recompute
from autotuner.core.codec import dumps, loads
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.profile import DeviceProfile, profiled
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.space import default_trial_space
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict
from autotuner.launch.devices import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.launch.this_machine import profile_of
from autotuner.search.space.legal import legal_layouts
from research import say
from research.noise import Patient

_DATA = Path(__file__).parent / "data"
_WORKLOAD = Workload(seq_len=128, global_batch_size=16)
_UNDISTURBED = 0.05
"""Share of the machine that other processes may have used: less than one of four cores for a fifth of the time."""
_SETTINGS = TrialSettings(
    warmup_steps=1,
    max_warmup_steps=1,
    measured_steps=3,
    max_measured_steps=3,
    measuring_budget_s=0.8,
    profiled_steps=0,
    max_repeats=0,
    timeout_s=60.0,
)

KEPT_CORES = (2, 4)
"""Numbers of cores whose runs are stored in ``research/data``."""

Runs = Mapping[str, Sequence[float]]
"""Step times of each layout's undisturbed runs, by the text of the layout."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure layouts on this machine's CPU cores, then print how well predictions agree with all stored runs.

    Args:
        arguments: Options such as ``--cores 4 --seconds 240 --profile``; None: the options of this process. Without
            ``--seconds``, nothing is measured.
    """
    parser = argparse.ArgumentParser(
        prog="python -m research.cpu_sweep", description="Measure every layout of the demo."
    )
    parser.add_argument("--cores", type=int, default=4, help="ranks, each on a core of its own")
    parser.add_argument("--seconds", type=float, default=0.0, help="when no further run starts")
    parser.add_argument("--profile", action="store_true", help="take the profile of these cores first")
    parser.add_argument(
        "--first",
        action="store_true",
        help="the scheduler lets these runs go first, so others only use what they leave",
    )
    given = parser.parse_args(arguments)
    end_s = time.monotonic() + given.seconds
    job = _job(given.cores)
    kept, profile = (_DATA / f"cpu_{kind}_{given.cores}.json" for kind in ("sweep", "profile"))
    if given.profile or given.seconds:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    if given.profile:
        taken = profile_of(job.cluster, name="local", measured_at=time.time())
        profile.write_text(dumps(taken) + "\n")
    if given.seconds:
        _measure(job, kept, end_s, goes_first=given.first)
    for name, judgement in judgements(given.cores):
        say(f"{name}: {judgement}")


def _job(num_cores: int) -> Job:
    return Job(model=load_model("llama-demo"), cluster=load_cluster(f"cpu:1x{num_cores}"), workload=_WORKLOAD)


def _layouts(job: Job) -> LayoutColumns:
    """Return the layouts that a sweep of the demonstration's job may try."""
    return legal_layouts(job, default_trial_space(job), (*RULES, *TRIAL_RULES))


# ---------------------------------------------------------------- measuring
def _measure(job: Job, kept: Path, end_s: float, *, goes_first: bool) -> None:
    document = json.loads(kept.read_text()) if kept.exists() else {"runs": []}
    counts = {text: len(runs) for text, runs in undisturbed(document["runs"]).items()}
    layouts = list(_rows(_layouts(job)))
    random.Random(0).shuffle(layouts)  # the seed is fixed: it sets an order and is no secret
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(LocalLauncher(Path(folder), devices=DevicePool.of_this_machine())) as launcher,
    ):
        while time.monotonic() < end_s:
            layout = min(layouts, key=lambda one: counts.get(str(one), 0) + 2 * (one.recompute != Recompute.NONE))
            counts[str(layout)] = counts.get(str(layout), 0) + 1
            document |= _run(launcher, job, layout, document["runs"], goes_first=goes_first)
            _keep(document, kept)


def _run(
    launcher: LocalLauncher, job: Job, layout: Layout, runs: list[dict[str, Any]], *, goes_first: bool
) -> dict[str, Any]:
    """Measure a layout once more; return the new list of runs and the environment, or nothing if the trial failed."""
    spec = TrialSpec(
        trial_id="cpu-sweep",
        model=job.model,
        workload=job.workload,
        layout=layout,
        device="cpu",
        settings=_SETTINGS,
        reference_flop_per_s=1e11,
    )
    outcome = launcher.run(spec, Patient())
    if not isinstance(outcome, Measurement):
        say(f"{layout}: {outcome}")
        return {}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    run = {"layout": str(layout), "at": now, "step_s": round(outcome.step_time_s, 5)}
    runs.append(run | {"foreign": round(outcome.foreign_cpu_share, 3), "first": goes_first})
    facts = {name: outcome.environment[name] for name in ("device", "torch", "python") if name in outcome.environment}
    return {"environment": facts, "runs": runs}


def _keep(document: Mapping[str, Any], kept: Path) -> None:
    """Write one line per run, so that differences between two versions of the file can be read."""
    kept.parent.mkdir(exist_ok=True)
    runs = ",\n".join(json.dumps(run) for run in document["runs"])
    kept.write_text(f'{{"environment": {json.dumps(document.get("environment", {}))}, "runs": [\n{runs}\n]}}\n')


# ---------------------------------------------------------------- judging
@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The accuracy of predicted step times: their median error, and how well they rank the layouts."""

    num_layouts: int
    median_error: float
    spearman: float
    behind: float
    """Share by which the layout that is predicted fastest is slower than the fastest measured one."""

    def __str__(self) -> str:
        return (
            f"{self.num_layouts} layouts, median error {self.median_error:.1%}, Spearman {self.spearman:.3f}, "
            f"first choice {self.behind:.1%} behind the best"
        )


def judged(predicted: Floats, measured: Floats) -> Judgement:
    """Compare the predicted and measured step times of the same layouts, and return the accuracy of the predictions."""
    return Judgement(
        num_layouts=len(measured),
        median_error=float(np.median(np.abs(predicted / measured - 1))),
        spearman=_spearman(predicted, measured),
        behind=float(measured[predicted.argmin()] / measured.min() - 1),
    )


def noise_floor(runs: Runs) -> Judgement | None:
    """Return how well measured step times predict other measured step times of the same layouts.

    Runs 1, 3, 5, ... of each layout predict runs 2, 4, 6, ...; of each half, the shortest step time counts. No
    prediction can be shown to be more accurate than that. The result is None if fewer than three layouts ran twice.
    """
    twice = [times for times in runs.values() if len(times) > 1]
    if len(twice) < 3:
        return None
    return judged(np.array([min(times[::2]) for times in twice]), np.array([min(times[1::2]) for times in twice]))


def undisturbed(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the step times in seconds of the runs that other processes hardly disturbed, by text of the layout.

    A run also counts if the scheduler gave it priority over other processes (``--first``).
    """
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.get("first") or run["foreign"] <= _UNDISTURBED:
            found.setdefault(run["layout"], []).append(run["step_s"])
    return found


def _spearman(one: Floats, other: Floats) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def kept_layouts(num_cores: int) -> tuple[Job, LayoutColumns]:
    """Return the job and the layouts whose runs on ``num_cores`` CPU cores are stored in ``research/data``."""
    job, runs = _job(num_cores), _kept_runs(num_cores)
    layouts = _layouts(job)
    return job, layouts.take(np.array([number for number, row in enumerate(_rows(layouts)) if str(row) in runs]))


def catalog_errors(num_cores: int) -> Floats:
    """Return abs(predicted / measured - 1) of each layout of ``kept_layouts``, with the constants of the catalog."""
    job, layouts = kept_layouts(num_cores)
    measured = _fastest_s(num_cores, layouts)
    errors: Floats = np.abs(predict(layouts, job).step_time.total_s / measured - 1)
    return errors


def judgements(num_cores: int) -> Iterator[tuple[str, Judgement | None]]:
    """Yield the accuracy of step times on ``num_cores`` CPU cores, each with a name, for the stored runs.

    The first entry is the noise floor (see ``noise_floor``). The next ones judge predictions with the catalog's
    constants and with the constants of the stored profile of this machine.
    """
    runs = _kept_runs(num_cores)
    job, layouts = kept_layouts(num_cores)
    measured = _fastest_s(num_cores, layouts)
    again = np.array([len(runs[str(row)]) > 1 for row in _rows(layouts)])
    yield "noise floor", noise_floor(runs)
    for name, one in _jobs(job, _DATA / f"cpu_profile_{num_cores}.json"):
        predicted = predict(layouts, one).step_time.total_s
        yield name, judged(predicted, measured)
        if again.any():
            yield f"{name}, of those that ran twice or more", judged(predicted[again], measured[again])


def _fastest_s(num_cores: int, layouts: LayoutColumns) -> Floats:
    """Return the step time of the fastest run of each layout."""
    runs = _kept_runs(num_cores)
    return np.array([min(runs[str(row)]) for row in _rows(layouts)])


def _kept_runs(num_cores: int) -> dict[str, list[float]]:
    return undisturbed(json.loads((_DATA / f"cpu_sweep_{num_cores}.json").read_text())["runs"])


def _jobs(job: Job, profile: Path) -> Iterator[tuple[str, Job]]:
    """Yield the job on the cores of the catalog and on those of the profile."""
    yield "catalog", job
    if profile.exists():
        cluster = profiled(job.cluster, loads(DeviceProfile, profile.read_text()))
        yield "profile", Job(model=job.model, cluster=cluster, workload=job.workload)


def _rows(layouts: LayoutColumns) -> Iterator[Layout]:
    return (layouts.row(number) for number in range(len(layouts)))


if __name__ == "__main__":
    main()

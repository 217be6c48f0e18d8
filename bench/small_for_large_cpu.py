"""Whether trials on half the cores foretell steps on all of them: real trials of both sizes on this machine.

``python -m bench.small_for_large_cpu --seconds 240`` measures layouts of the demonstration's job on 4 cores, and beside
each the trial on 2 cores that stands for it, one after the other, so that both meet the same machine; it goes on where
an earlier call stopped and keeps what it measures in ``bench/data/small_for_large_4_on_2.json``. Every rank has a core
of its own in both, which is what makes the small one the same hardware. Without ``--seconds`` it prints what the kept
runs say: how far the full-size step time is off by prediction alone, and by what each layout's own proxy trial, all
proxy trials, or those of the other layouts alone tell; and how often the truth lies in the 80 % interval.

What disturbs a run only adds to it, so that each layout and each proxy trial counts as its fastest run.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.prediction import FullSizeEstimate
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.trial import TRIAL_RULES
from autotuner.core.space import default_trial_space
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.search.sampler.full_size import FullSize, ProxyTrial
from autotuner.search.sampler.proxies import ProxyTrials, proxy_trials
from autotuner.search.sampler.transfer import StandIn
from autotuner.search.space.legal import legal_layouts
from bench.patient import Patient

_KEPT = Path(__file__).parent / "data" / "small_for_large_4_on_2.json"
_TRIED = (*RULES, *TRIAL_RULES)
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
_UNDISTURBED = 0.1
"""Share of the machine that others may have used while either of both ran, unless these went first."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure for a while, and print what the kept runs say."""
    parser = argparse.ArgumentParser(prog="python -m bench.small_for_large_cpu", description="2 cores stand for 4.")
    parser.add_argument("--seconds", type=float, default=0.0, help="when no further pair of runs starts")
    parser.add_argument("--layouts", type=int, default=24, help="different layouts, each with a proxy trial of its own")
    parser.add_argument(
        "--first",
        action="store_true",
        help="the scheduler lets these runs go first (chrt), so others only use what they leave",
    )
    given = parser.parse_args(arguments)
    if given.seconds:
        _measure(time.monotonic() + given.seconds, given.layouts, goes_first=given.first)
    _say(str(figures(kept_pairs())))


def _job() -> Job:
    workload = Workload(seq_len=128, global_batch_size=16)
    return Job(model=load_model("llama-demo"), cluster=load_cluster("cpu:1x4"), workload=workload)


def _small_cluster() -> Cluster:
    return load_cluster("cpu:1x2")


def _trials(job: Job) -> ProxyTrials:
    return proxy_trials(job, legal_layouts(job, default_trial_space(job), _TRIED), _small_cluster(), _TRIED)


# ---------------------------------------------------------------- measuring
def _measure(end_s: float, num_layouts: int, *, goes_first: bool) -> None:
    document: dict[str, Any] = json.loads(_KEPT.read_text()) if _KEPT.exists() else {"runs": []}
    job = _job()
    trials = _trials(job)
    layouts = list(_one_for_each_trial(trials))[:num_layouts]
    counts = {str(layout): sum(run["layout"] == str(layout) for run in document["runs"]) for layout in layouts}
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(LocalLauncher(Path(folder), devices=DevicePool.of_this_machine())) as launcher,
    ):
        while time.monotonic() < end_s:
            layout = min(layouts, key=lambda one: counts[str(one)])
            counts[str(layout)] += 1
            scaled = trials.trial_of(layout)
            whole = _run(launcher, job, layout)
            few = _run(launcher, scaled.job(job, _small_cluster()), scaled.layout)
            if whole is not None and few is not None:
                document |= _kept(layout, whole, few, document["runs"], goes_first=goes_first)


def _one_for_each_trial(trials: ProxyTrials) -> Iterator[Layout]:
    """Layouts in a shuffled order, of those that share a trial one."""
    rows = np.unique(trials.which, return_index=True)[1].tolist()
    random.Random(0).shuffle(rows)  # an order, no secret
    yield from (trials.layouts.row(row) for row in rows)


def _run(launcher: LocalLauncher, job: Job, layout: Layout) -> Measurement | None:
    spec = TrialSpec(
        trial_id="small-for-large",
        model=job.model,
        workload=job.workload,
        layout=layout,
        device="cpu",
        settings=_SETTINGS,
        reference_flop_per_s=1e11,
    )
    outcome = launcher.run(spec, Patient())
    if isinstance(outcome, Measurement):
        return outcome
    _say(f"{layout}: {outcome}")
    return None


def _kept(
    layout: Layout, whole: Measurement, few: Measurement, runs: list[dict[str, Any]], *, goes_first: bool
) -> dict[str, Any]:
    """The document with one more pair of runs; a line for each, so that a difference of versions can be read."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    foreign = round(max(whole.foreign_cpu_share, few.foreign_cpu_share), 3)
    times = {"whole_s": round(whole.step_time_s, 5), "few_s": round(few.step_time_s, 5)}
    runs.append({"layout": str(layout), "at": now, **times, "foreign": foreign, "first": goes_first})
    facts = {name: whole.environment[name] for name in ("device", "torch", "python") if name in whole.environment}
    lines = ",\n".join(json.dumps(run) for run in runs)
    _KEPT.parent.mkdir(exist_ok=True)
    _KEPT.write_text(f'{{"environment": {json.dumps(facts)}, "runs": [\n{lines}\n]}}\n')
    return {"environment": facts, "runs": runs}


# ---------------------------------------------------------------- judging
@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A layout that was measured, and the proxy trial that stands for it."""

    layout: Layout
    whole_s: float
    """Its step time."""
    few_s: float
    """That of the proxy trial."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """How far full-size step times are off, by one way to tell them."""

    told_s: Sequence[float]
    true_s: Sequence[float]
    in_interval: Sequence[bool] = ()

    @cached_property
    def errors(self) -> Sequence[float]:
        """Of each layout, as a share."""
        return [abs(told / true - 1) for told, true in zip(self.told_s, self.true_s, strict=True)]

    def __str__(self) -> str:
        best = self.true_s[int(np.argmin(self.told_s))] / min(self.true_s) - 1
        covered = f", {np.mean(self.in_interval):.0%} in the 80 % interval" if self.in_interval else ""
        return f"median error {np.median(self.errors):.1%}, first choice {best:.1%} behind the best{covered}"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Every way to tell the step times of the same layouts, by its name."""

    num_layouts: int
    told: dict[str, Told]

    def __str__(self) -> str:
        lines = [f"{self.num_layouts} layouts on 4 cores, each with a trial on 2"]
        return "\n".join([*lines, *(f"  {name}: {told}" for name, told in self.told.items())])


def kept_pairs() -> list[Pair]:
    """The fastest of each layout's undisturbed runs, and of its proxy trial's."""
    runs = [run for run in json.loads(_KEPT.read_text())["runs"] if run["first"] or run["foreign"] <= _UNDISTURBED]
    return [
        Pair(
            layout=Layout.parse(text),
            whole_s=min(run["whole_s"] for run in runs if run["layout"] == text),
            few_s=min(run["few_s"] for run in runs if run["layout"] == text),
        )
        for text in dict.fromkeys(run["layout"] for run in runs)
    ]


def figures(pairs: Sequence[Pair]) -> Figures:
    """What predictions and proxy trials say of the pairs' layouts."""
    job = _job()
    trials, full_size = _trials(job), FullSize(job)
    told = [_proxy_trial(pair, trials, job) for pair in pairs]

    def estimated(shown: Callable[[int], Sequence[ProxyTrial]]) -> Told:
        found = [full_size.estimates([pair.layout], shown(i))[0] for i, pair in enumerate(pairs)]
        return Told(
            told_s=[one.step_time_s for one in found],
            true_s=[pair.whole_s for pair in pairs],
            in_interval=[_holds(one, pair.whole_s) for one, pair in zip(found, pairs, strict=True)],
        )

    growth = [_growth(pair, trials, job) for pair in pairs]
    return Figures(
        num_layouts=len(pairs),
        told={
            "prediction alone": estimated(lambda i: []),
            "proxy trial's time times predicted growth": Told(
                told_s=[pair.few_s * times for pair, times in zip(pairs, growth, strict=True)],
                true_s=[pair.whole_s for pair in pairs],
            ),
            "own proxy trial": estimated(lambda i: [told[i]]),
            "proxy trials of the others": estimated(lambda i: told[:i] + told[i + 1 :]),
            "all proxy trials": estimated(lambda i: told),
        },
    )


def _proxy_trial(pair: Pair, trials: ProxyTrials, job: Job) -> ProxyTrial:
    scaled = trials.trial_of(pair.layout)
    return ProxyTrial(
        stands_for=pair.layout,
        stand_in=StandIn(job=scaled.job(job, _small_cluster()), layout=scaled.layout),
        step_time_s=pair.few_s,
        fits=True,
        measured_parts=scaled.measured_parts,
    )


def _growth(pair: Pair, trials: ProxyTrials, job: Job) -> float:
    """How many times as long the layout's step is predicted to take as its proxy trial's."""
    scaled = trials.trial_of(pair.layout)
    few = predict_one(scaled.layout, scaled.job(job, _small_cluster()))
    return predict_one(pair.layout, job).step_time.total_s / few.step_time.total_s


def _holds(estimate: FullSizeEstimate, true_s: float) -> bool:
    low, high = estimate.interval_80_s
    return low <= true_s <= high


def _say(text: str) -> None:
    print(text)  # noqa: T201  # what the command is for


if __name__ == "__main__":
    main()

"""Examples of retunes, their runs and their trend."""

from __future__ import annotations

from typing import Any

from api.documents import extended
from api.schemas import RetuneDetail, RetuneList, RetuneRunPage, RetuneRunView, RetuneTrend, RetuneView
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import ShardLevel
from autotuner.core.comparison import ChallengeFindings, Comparison, Decision, EnvironmentChange, RunGroup
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.space import default_trial_space
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.upkeep import Retune, RetuneOutcome, RetuneRequest, RetuneRun, RetuneState, Trigger, Verdict
from autotuner.core.workload import Workload
from autotuner.search.upkeep.retunes.trend import trend

_AT = 1_760_148_000.0
_NIGHT_S = 86_400.0


def retune_bodies() -> dict[str, Any]:
    """Bodies of ``POST /retunes``."""
    sweep = {
        "model": "llama-3-8b",
        "cluster": "h100:8",
        "workload": {"seq_len": 8192, "global_batch_size": 128},
        "budget": {"num_trials": 12, "accelerator_hours": 8.0},
    }
    nightly = {"name": "nightly-8b", "cron": "0 2 * * *", "time_zone": "Europe/Berlin", "sweep": sweep}
    in_use = {"data_parallel_shard_degree": 8, "shard_level": "parameters", "micro_batch_size": 1}
    only_measured = nightly | {"name": "watch-8b", "cron": "0 * * * *", "incumbent": in_use, "searches": False}
    return {"every night": nightly, "only measured, every hour": only_measured}


def adoption_bodies() -> dict[str, Any]:
    """Bodies of ``POST /retunes/{name}/adopt``."""
    return {"what the last run found": {}, "this layout": {"layout": {"data_parallel_shard_degree": 8}}}


def retune_detail() -> RetuneDetail:
    """The retune with all that was asked of it."""
    retune = _retune()
    return extended(RetuneDetail, RetuneView.of(retune, _run()), request=retune.request)


def retune_list() -> RetuneList:
    """The retune as a line of a list."""
    return RetuneList(items=(RetuneView.of(_retune(), _run()),))


def retune_run() -> RetuneRunView:
    """Its last run, which found a regression."""
    return RetuneRunView.of(_run())


def retune_run_page() -> RetuneRunPage:
    """A page with that run."""
    return RetuneRunPage(items=(retune_run(),), total=1, limit=50, offset=0)


def retune_trend() -> RetuneTrend:
    """The point of that run."""
    return RetuneTrend(items=trend([_run()]))


def _layout() -> Layout:
    return Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS)


def _runs(*rates: float, mfu: float, at: float, torch: str) -> RunGroup:
    return RunGroup(rates=rates, mfu=mfu, at=at, environment={"torch": torch, "nccl": "2.27.3"})


def _good() -> RunGroup:
    return _runs(104_100.0, 103_800.0, 104_000.0, mfu=0.412, at=_AT - _NIGHT_S, torch="2.12.1")


def _retune() -> Retune:
    workload = Workload(seq_len=8192, global_batch_size=128)
    job = Job(model=load_model("llama-3-8b"), cluster=load_cluster("h100:8"), workload=workload)
    template = SweepRequest(job=job, space=default_trial_space(job), budget=Budget(num_trials=12))
    request = RetuneRequest(name="nightly-8b", cron="0 2 * * *", time_zone="Europe/Berlin", template=template)
    return Retune(
        request=request,
        created_at=_AT - 2 * _NIGHT_S,
        incumbent=_layout(),
        baseline=(_good(),),
        next_due_at=_AT + _NIGHT_S,
    )


def _run() -> RetuneRun:
    return RetuneRun(
        id="rt-3v7q2mxn5k",
        retune="nightly-8b",
        due_at=_AT,
        trigger=Trigger.CRON,
        state=RetuneState.FINISHED,
        started_at=_AT + 1,
        finished_at=_AT + 2400,
        sweep_id="sw-k3v7q2mxn5",
        outcome=_outcome(),
    )


def _outcome() -> RetuneOutcome:
    slow = _runs(96_400.0, 96_700.0, 96_500.0, mfu=0.382, at=_AT + 300, torch="2.13.0")
    slower = Comparison(
        decision=Decision.SLOWER,
        change=-0.072,
        low=-0.083,
        high=-0.061,
        noise=0.002,
        num_reference=3,
        num_candidate=3,
        detail="slower by 7.2 %",
    )
    return RetuneOutcome(
        verdict=Verdict.REGRESSION,
        detail="the incumbent lost 7.2 % ± 1.1 since 2025-10-10 04:00 CEST: 96.5 ktoken/s instead of 104 ktoken/s, "
        "3 measurements beside 3 of the run before, which scatter by 0.2 %; "
        "what differs: torch was 2.12.1 and is 2.13.0",
        findings=ChallengeFindings(measured=_layout(), runs=slow, against_baseline=slower),
        since=_good().at,
        changes=(EnvironmentChange(name="torch", then="2.12.1", now="2.13.0"),),
    )

"""Examples of plans."""

from __future__ import annotations

from typing import Any

from api.examples.predictions import prediction
from api.schemas import ContenderView, MarginalView, PlanAnswer, PlanView
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.search.planning.goal import Failures, Goal
from autotuner.search.planning.marginal import Marginal
from autotuner.search.planning.outcome import Outcome, outcome_of
from autotuner.search.planning.plan import Contender
from autotuner.search.planning.request import ChangePrices, PlanRequest
from autotuner.search.planning.whole_clusters import Offer, prices_of
from autotuner.search.ranking import PredictedLayout

_WORKLOAD = Workload(seq_len=8192, global_batch_size=512)


def plan_bodies() -> dict[str, Any]:
    """Bodies of ``POST /plans``."""
    run = {
        "model": "llama-3-8b",
        "workload": {"seq_len": 8192, "global_batch_size": 512},
        "goal": {"num_tokens": 1e11, "deadline_s": 604_800},
        "accelerators": ["h100", "b200"],
        "sizes": [64],
    }
    own = {"prices": {"h100": 2.1}, "tariff": {"energy_price_per_kwh": 0.12, "power_usage_effectiveness": 1.2}}
    return {
        "two accelerators, a week": run,
        "at own prices": {**run, **own},
        "a faster network or more memory": {
            **run,
            "network_factors": [1, 2],
            "extra_memory_bytes": [0, 40_000_000_000],
        },
    }


def plan_view() -> PlanView:
    """A plan of one cluster."""
    request = PlanRequest(model=load_model("llama-3-8b"), workload=_WORKLOAD, goal=Goal(num_tokens=1e12))
    outcome = _outcome(request)
    contender = Contender(outcome=outcome, is_on_front=True, is_thorough=True, chance_kept=1.0, chance_best=0.8)
    answer = PlanAnswer(
        contenders=(ContenderView.of(contender),),
        num_compared=1,
        prices=prices_of(request, [Offer(cluster=outcome.cluster)]),
        regret=4200.0,
        marginals=(MarginalView.of(Marginal(change="1 more node", outcome=None)),),
        proofs=(),
        caveats=(),
    )
    return PlanView(
        id="5f2b9c1d7e3a4860",
        computed_at=1_760_000_000.0,
        num_done=9,
        num_known=9,
        goal=request.goal,
        workload=request.workload,
        failures=Failures(),
        change_prices=ChangePrices(),
        answer=answer,
    )


def _outcome(request: PlanRequest) -> Outcome:
    job = Job(model=request.model, cluster=load_cluster("h100:64"), workload=request.workload)
    layout = Layout(data_parallel_replicate_degree=64)
    return outcome_of(job, PredictedLayout(layout=layout, prediction=prediction()), request.goal, request.failures)

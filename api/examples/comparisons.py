"""Examples of layouts side by side."""

from __future__ import annotations

from typing import Any

from api.examples.catalog import cluster, model
from api.examples.trials import SWEEP_ID, trial
from api.schemas import LayoutComparison
from autotuner.core.job import Job
from autotuner.core.workload import Workload
from autotuner.search.results.side_by_side import Contender, side_by_side


def comparison_bodies() -> dict[str, Any]:
    """Bodies of ``POST /comparisons``."""
    return {
        "the best of a sweep and a trial": {"of": [SWEEP_ID, f"{SWEEP_ID}-0003"]},
        "the best of a sweep and a layout in words": {"of": [SWEEP_ID, "fsdp8 mb1 flash bf16"]},
        "the best of a sweep and what runs today": {
            "of": [SWEEP_ID],
            "flags": "--tensor-model-parallel-size 8 --micro-batch-size 1 --bf16",
        },
    }


def comparison() -> LayoutComparison:
    """A trial beside its own prediction."""
    job = Job(model=model(), cluster=cluster(), workload=Workload(seq_len=8192, global_batch_size=64))
    ran = trial()
    contenders = [
        Contender(layout=ran.layout, job=job, prediction=ran.prediction, trial=ran),
        Contender(layout=ran.layout, job=job, prediction=ran.prediction),
    ]
    return LayoutComparison.of(side_by_side(contenders), contenders, (ran.id, str(ran.layout)), ((), ()))

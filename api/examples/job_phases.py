"""Examples of jobs of phases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from api.examples.predictions import job_body
from api.schemas import PhasesPlan
from autotuner.core.choices import ShardLevel
from autotuner.core.job import SwitchCost
from autotuner.core.layout import Layout
from autotuner.search.job_phases.plan import Course, PhaseChoice


def phases_bodies() -> dict[str, Any]:
    """Bodies of ``POST /job-phases``."""
    job = job_body()
    main = {"name": "main", "token_share": 0.95}
    thin = {"name": "another job shares the network", "token_share": 0.05, "bandwidth_bytes_per_s": 1.25e9}
    short = {"name": "batch warm-up", "token_share": 0.05, "global_batch_size": 16}
    return {
        "a thinner network": job | {"num_tokens": 1e12, "phases": [main, thin]},
        "a batch warm-up, with a switch as it was measured": job
        | {"num_tokens": 1e11, "phases": [short, main], "switch": {"restart_s": 240, "storage_bytes_per_s": 4e9}},
    }


def phases_plan() -> PhasesPlan:
    """Two phases with a layout each, beside one that stays."""
    sharded = Layout(data_parallel_shard_degree=32, shard_level=ShardLevel.PARAMETERS)
    piped = replace(sharded, data_parallel_shard_degree=16, pipeline_parallel_degree=2)
    main = PhaseChoice(
        phase="main",
        layout=sharded,
        label=str(sharded),
        num_steps=226_497.0,
        step_s=10.1,
        relative_error=0.27,
        expected_s=2_287_620.0,
        switch_s=0.0,
        fastest=str(sharded),
        fastest_s=2_287_620.0,
    )
    thin = replace(main, phase="another job shares the network", layout=piped, label=str(piped), num_steps=11_921.0)
    thin = replace(thin, step_s=12.2, expected_s=145_436.0, switch_s=102.0, fastest=str(piped), fastest_s=145_436.0)
    stays = replace(thin, layout=sharded, label=str(sharded), step_s=31.0, expected_s=369_551.0, switch_s=0.0)
    best = Course(choices=(main, thin), num_switches=1, total_s=2_433_158.0)
    return PhasesPlan(
        best=best,
        statics=(Course(choices=(main, stays), num_switches=0, total_s=2_657_171.0),),
        greedy=best,
        switch_s=102.0,
        switch=SwitchCost(restart_s=30.0, storage_bytes_per_s=2.67e9),
        checkpoint_bytes=96.4e9,
        sentences=(
            "a switch takes 1 min 42 s: the ranks start anew, and a checkpoint of 96.4 GB is written and read",
            "switch before another job shares the network: pipeline 1 → 2, shard 32 → 16",
            f"this takes 28.2 days, 2.59 days (8 %) less than the best that stays throughout, {sharded}",
        ),
        caveats=("dense models on torch with h100-sxm were never compared with a measured run",),
    )

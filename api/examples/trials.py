"""Examples of trials and their ranking."""

from __future__ import annotations

from api.examples.predictions import layout, prediction
from api.schemas import RankingPage, TrialDetail, TrialPage
from autotuner.core.measurement import Breakdown, Measurement, PhaseTimes, StepReport
from autotuner.core.trial import EngineJob, EngineJobPhase, Trial, TrialState
from autotuner.ports import Page
from autotuner.search.standings import Standing

SWEEP_ID = "sw-k3v7q2mxn5"
CREATED_AT = 1_760_000_000.0


def trial_detail() -> TrialDetail:
    """A complete trial with one step."""
    return TrialDetail.of(trial())


def trial_page() -> TrialPage:
    """A page with one trial."""
    return TrialPage.of([trial()], 1, Page())


def ranking_page() -> RankingPage:
    """A page with the best trial."""
    alone = Standing(probability_best=1.0, tied_with_best=True, step_time_s=5.0, value=0.2, relative_error=0.02)
    return RankingPage.of([trial()], 1, Page(), {trial().id: alone})


def trial() -> Trial:
    """A complete trial, measured by a Slurm cluster."""
    step = StepReport(step=2, is_warmup=False, step_time_s=5.0, loss=8.1, tokens_per_s=104e3, mfu=0.43)
    measurement = Measurement(
        step_time_s=5.0,
        step_time_spread_s=0.04,
        step_time_interval_s=0.03,
        num_steps=7,
        num_warmup_steps=4,
        tokens_per_s=104e3,
        model_flop_per_s=3.4e15,
        mfu=0.43,
        hfu=0.43,
        peak_flop_per_s=7.9e15,
        peak_source="data sheet",
        peak_bytes=(39_000_000_000,) * 8,
        reserved_bytes=(42_000_000_000,) * 8,
        phases=PhaseTimes(forward_backward_s=4.9, gradient_sync_s=0.0, optimizer_s=0.1),
        losses=(11.8, 9.6, 8.1),
        foreign_cpu_share=0.01,
        environment={"torch": "2.13.0", "nccl": "2.27.5", "host": "5891b5b522d5", "NCCL_ALGO": "Ring"},
        breakdown=_breakdown(),
        power_w=612.0,
        noise_floor=0.004,
    )
    return Trial(
        id=f"{SWEEP_ID}-0000",
        sweep_id=SWEEP_ID,
        number=0,
        state=TrialState.COMPLETE,
        layout=layout(),
        prediction=prediction(),
        attempts=1,
        started_at=CREATED_AT + 2,
        finished_at=CREATED_AT + 56,
        steps=(step,),
        measurement=measurement,
        jobs=(_job(),),
    )


def _breakdown() -> Breakdown:
    return Breakdown(
        rank=3,
        forward_s=1.4,
        backward_s=2.9,
        all_reduce_s=0.01,
        all_gather_s=0.3,
        reduce_scatter_s=0.3,
        all_to_all_s=0.0,
        send_receive_s=0.0,
        pipeline_idle_s=0.0,
        optimizer_s=0.1,
        other_s=0.05,
    )


def _job() -> EngineJob:
    return EngineJob(
        engine="slurm",
        name=f"t-{SWEEP_ID}-0000-0-0",
        handle="4711",
        phase=EngineJobPhase.ENDED,
        submitted_at=CREATED_AT + 2,
        started_at=CREATED_AT + 12,
        ended_at=CREATED_AT + 55,
    )

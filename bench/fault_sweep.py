"""Two sweeps of one job on this machine's cores: ranked on healthy links, and under a fault trace on the link 2_3.

``python -m bench.fault_sweep`` measures both with real trials of our own decoder, four replicas or four pipeline ranks
whose stages take 20 ms and more per forward, and prints both rankings, robust MFU beside healthy MFU. ``--simulated``
asks the simulated launcher instead, which takes seconds. ``--delay`` is the delay of the link in seconds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import optuna
import structlog

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import AttentionKernel, P2PTransport, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.cluster import SIMULATED
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import Job
from autotuner.core.model import TransformerSpec
from autotuner.core.objective import Objective
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import Trial
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import Workload
from autotuner.launch.contract import Launcher
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.launch.repeating import RepeatingLauncher
from autotuner.launch.simulated import SimulatedLauncher
from autotuner.report.links import trace_in_words
from autotuner.runs.clock import SystemClock
from autotuner.store.sql import memory_store
from bench.sweeping import sweep_worker

_NUM_RANKS = 4
_NUM_MICRO_BATCHES = 12
_SETTINGS = TrialSettings(
    warmup_steps=2,
    max_warmup_steps=2,
    measured_steps=4,
    max_measured_steps=4,
    profiled_steps=0,
    max_repeats=0,
    timeout_s=120.0,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both sweeps and print their rankings."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.fault_sweep", description="Rank layouts under a fault trace."
    )
    parser.add_argument("--delay", type=float, default=0.06, help="seconds that the link 2_3 is late by")
    parser.add_argument("--steps", type=int, default=12, help="of the trace; the first quarter is healthy")
    parser.add_argument("--simulated", action="store_true", help="simulate the trials")
    given = parser.parse_args(arguments)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # what happens on the way is not asked for
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trace = FaultTrace.parse(f"{given.steps // 4};2_3;{given.delay}", num_steps=given.steps)
    for one in (None, trace):
        request = sweep_request(one, is_simulated=given.simulated)
        with tempfile.TemporaryDirectory() as folder, closing(_launcher(Path(folder), given.simulated)) as launcher:
            _say("", "on healthy links" if one is None else f"under {trace_in_words(one)}")
            _say(*_ranking(*tried(request, launcher)))


def sweep_request(trace: FaultTrace | None, *, is_simulated: bool = False) -> SweepRequest:
    """Four replicas without a pipeline, and pipelines of four ranks: who sends, and in which order passes run."""
    cluster = load_cluster(f"cpu:1x{_NUM_RANKS}")
    job = Job(
        model=_model(),
        cluster=replace(cluster, engine=SIMULATED) if is_simulated else cluster,
        workload=Workload(seq_len=256, global_batch_size=_NUM_MICRO_BATCHES),
    )
    return SweepRequest(
        job=job,
        space=SearchSpace(
            pipeline_parallel_degree=(1, _NUM_RANKS),
            tensor_parallel_degree=(1,),
            shard_level=(ShardLevel.NONE,),
            micro_batch_size=(1,),
            first_stage_less_layers=(0,),
            last_stage_less_layers=(0,),
            pipeline_schedule=(
                PipelineSchedule.ONE_F_ONE_B,
                PipelineSchedule.ZERO_BUBBLE,
                PipelineSchedule.ADAPTIVE,
            ),
            p2p_transport=(P2PTransport.INLINE, P2PTransport.DELEGATED),
            num_delegates=(3,),
            precision=(Precision.FP32,),
            attention_kernel=(AttentionKernel.FLASH,),
            recompute=(Recompute.NONE,),
        ),
        budget=Budget(num_trials=12, min_gain=0.0, prune_below=0.0),
        trial=_SETTINGS,
        objective=Objective(under_faults=trace is not None),
        fault_trace=trace,
        uses_history=False,
    )


def tried(request: SweepRequest, launcher: Launcher) -> tuple[list[Trial], list[Trial]]:
    """The trials of a sweep that have a rank, the best first, and the others."""
    store, clock = memory_store(), SystemClock()
    sweep, _ = store.create_sweep(request, now=clock.now())
    sweep_worker(store, launcher, clock, owner="bench", lease_s=600.0).run_once()
    trials = store.all_trials(sweep.id)
    return request.objective.ranked(trials), [trial for trial in trials if not trial.is_ranked]


def _ranking(ranked: Sequence[Trial], others: Sequence[Trial]) -> list[str]:
    return [
        *(f"{rank}. {_line(trial)}" for rank, trial in enumerate(ranked, 1)),
        *(f"-. {_line(trial)}" for trial in others),
    ]


def _line(trial: Trial) -> str:
    measured = trial.measurement
    if measured is None:
        return f"{trial.layout}: {trial.failure.message if trial.failure else trial.state}"
    predicted = trial.prediction
    said = (
        f"{trial.layout}: healthy {1e3 * measured.step_time_s:.0f} ms ({1e3 * predicted.step_time.total_s:.0f} "
        f"predicted), {100 * measured.mfu:.1f} % MFU"
    )
    if (robust := measured.robust) is None or predicted.robust_step_s is None:
        return said
    stretches = ", ".join(
        f"{1e3 * sum(one.step_times_s) / len(one.step_times_s):.0f} ms x {len(one.step_times_s)}"
        for one in robust.stretches
    )
    return (
        f"{said}; robust {1e3 * robust.step_time_s:.0f} ms ({1e3 * predicted.robust_step_s:.0f} predicted), "
        f"{100 * robust.mfu:.1f} % robust MFU ({stretches})"
    )


def _model() -> TransformerSpec:
    """Two layers per stage, about a GFLOP per forward of a micro-batch: 20 ms at what a core multiplies."""
    return TransformerSpec(
        name="eight layers",
        num_layers=8,
        hidden_size=256,
        num_heads=8,
        num_kv_heads=4,
        head_dim=32,
        ffn_size=1024,
        vocab_size=512,
    )


def _launcher(folder: Path, is_simulated: bool) -> Launcher:
    if is_simulated:
        return SimulatedLauncher()
    return RepeatingLauncher(LocalLauncher(folder, devices=DevicePool.of_this_machine()))


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

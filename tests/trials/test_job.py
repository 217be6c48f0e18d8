from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from autotuner.core import codec
from autotuner.core.blocks import LatentAttention
from autotuner.core.choices import (
    AttentionKernel,
    CollectiveAlgorithm,
    CollectiveHierarchy,
    CollectiveProtocol,
    GradientClip,
    P2PTransport,
    PipelineSchedule,
    Precision,
    RankPlacement,
    Recompute,
    ShardLevel,
)
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import Layout
from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.units import MIB
from autotuner.core.workload import Workload
from autotuner.host.machine_facts import settings_of_libraries
from autotuner.launch.forks import Forks
from autotuner.launch.local import LocalLauncher
from autotuner.trials.job.attempt import EXIT_FAILED, EXIT_MEASURED, EXIT_REFUSED, admit, attempt
from autotuner.trials.job.steered import powers
from autotuner.trials.process.fork_server import fork_rank
from autotuner.trials.process.task import TaskContext
from autotuner.trials.rank import RankInfo, Reporter
from tests.builders import cpu_cluster, cpu_layout, tiny_model
from tests.patience import PATIENCE_S
from tests.trials.fork_server import ForkServer, Once, Run
from tests.trials.launching import Watcher, measured, spec
from tests.trials.specs import (
    FIVE_STEPS,
    ONE_STEP,
    PIPELINE,
    THREE_STEPS,
    ZBV,
    ddp,
    fsdp,
    hsdp,
    trial_spec,
    zero,
)

# ---------------------------------------------------------------- admission
LATENT = LatentAttention(query_rank=8, key_value_rank=8, rope_head_dim=8, value_head_dim=16)

ZERO_BUBBLE: dict[str, Any] = {"pipeline_parallel_degree": 2, "pipeline_schedule": PipelineSchedule.ZERO_BUBBLE}

REFUSED: tuple[tuple[str, TrialSpec], ...] = (
    ("pipeline_schedule", trial_spec(cpu_layout(pipeline_schedule=PipelineSchedule.ZERO_BUBBLE))),
    ("recompute", trial_spec(cpu_layout(recompute=Recompute.SELECTIVE, **ZERO_BUBBLE))),
    ("compiled", trial_spec(cpu_layout(compiled=True, **ZERO_BUBBLE))),
    ("offload_activations", trial_spec(cpu_layout(offload_activations=True))),
    ("collective_algorithm", trial_spec(ddp(2, collective_algorithm=CollectiveAlgorithm.NVLS))),
    ("collective_algorithm", trial_spec(zero(2, collective_algorithm=CollectiveAlgorithm.TREE))),
    ("collective_hierarchy", trial_spec(ddp(4, collective_hierarchy=CollectiveHierarchy.TWO_LEVEL))),
    ("rank_placement", trial_spec(ddp(4, rank_placement=RankPlacement.CYCLIC))),
    ("collective_protocol", trial_spec(ddp(2, collective_protocol=CollectiveProtocol.SIMPLE))),
    ("collective_channels", trial_spec(ddp(2, collective_channels=4))),
    ("precision", trial_spec(cpu_layout(precision=Precision.FP8))),
    ("attention_kernel", trial_spec(cpu_layout(attention_kernel=AttentionKernel.EFFICIENT))),
    ("attention_kernel", trial_spec(cpu_layout(attention_kernel=AttentionKernel.FLEX))),
    ("attention_kernel", trial_spec(cpu_layout(attention_kernel=AttentionKernel.FLASH_3), device="cuda")),
    ("tensor_parallel_degree", trial_spec(cpu_layout(tensor_parallel_degree=3))),
    ("micro_batch_size", trial_spec(cpu_layout(micro_batch_size=3))),
    ("shard_level", trial_spec(zero(2, shard_level=ShardLevel.GRADIENTS, pipeline_parallel_degree=2))),
    ("reshard_after_forward", trial_spec(zero(2, reshard_after_forward=True))),
    ("model.latent_attention", trial_spec(model=tiny_model(latent_attention=LATENT))),
    ("attention_kernel", trial_spec(cpu_layout(attention_kernel=AttentionKernel.EFFICIENT), device="cuda")),
    (
        "workload.optimizer_state_precision",
        trial_spec(workload=Workload(seq_len=32, global_batch_size=8, optimizer_state_precision="bf16")),
    ),
    ("workload.seq_len", trial_spec(model=tiny_model(num_learned_positions=31))),
)


def rank_info(world_size: int, local_world_size: int | None = None) -> RankInfo:
    return RankInfo(world_size=world_size, local_world_size=local_world_size or world_size)


@pytest.mark.parametrize(("field", "spec"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_spec_that_cannot_run_is_refused_by_the_field_to_change(field: str, spec: TrialSpec) -> None:
    with pytest.raises(InvalidInput) as refusal:
        admit(spec, rank_info(spec.layout.world_size))
    assert refusal.value.field.endswith(field)


@pytest.mark.parametrize(
    ("layout", "where"),
    [
        (cpu_layout(), rank_info(1)),
        (cpu_layout(precision=Precision.FP8_EMULATED, compiled=True, fused_norm=False), rank_info(1)),
        (cpu_layout(tensor_parallel_degree=2, pipeline_parallel_degree=2), rank_info(4)),
        (hsdp(2, 2, tensor_parallel_degree=2), rank_info(8, local_world_size=4)),
    ],
)
def test_a_legal_layout_on_its_number_of_ranks_is_admitted(layout: Any, where: RankInfo) -> None:
    admit(trial_spec(layout), where)


def test_a_gpu_is_given_what_only_gpus_can() -> None:
    layout = cpu_layout(
        precision=Precision.FP8, attention_kernel=AttentionKernel.FLEX, compiled=True, offload_activations=True
    )
    admit(trial_spec(layout, device="cuda"), rank_info(1))


# ---------------------------------------------------------------- attempt
DDP = ddp(2, micro_batch_size=4)


def kinds(run: Run) -> set[str]:
    return {failure["kind"] for failure in run.failures}


GIVEN = trial_spec(
    DDP,
    settings=TrialSettings(
        warmup_steps=2, max_warmup_steps=2, measured_steps=3, max_measured_steps=3, profiled_steps=1
    ),
    reference_flop_per_s=1e11,
)
ASKED = trial_spec(
    DDP,
    settings=TrialSettings(max_warmup_steps=8, max_measured_steps=12, target_interval=0.05),
    reference_flop_per_s=None,
)
"""The ranks find out the number of steps, and the peak of their cores."""
ROOMY = trial_spec(settings=replace(FIVE_STEPS, memory_budget_bytes=1024 * MIB))


def test_a_trial_reports_its_start_every_step_and_then_the_measurement(once: Once) -> None:
    run = once(GIVEN)
    assert run.exit_codes == (EXIT_MEASURED, EXIT_MEASURED)
    kinds_told = [line["type"] for line in run.lines]
    assert kinds_told == ["started", *["step"] * 5, "measurement", "timeline", "breakdown"]
    assert run.lines[0] == {"type": "started", "trial_id": "trial", "world_size": 2, "layout": str(DDP)}
    assert [step.is_warmup for step in run.steps] == [True, True, False, False, False]
    assert run.measurement.num_steps == 3
    assert run.measurement.losses == tuple(step.loss for step in run.steps)
    assert len(run.measurement.peak_bytes) == 2
    assert set(run.logs) == {""}  # it prints nothing


def test_the_phases_follow_each_other_inside_the_step(once: Once) -> None:
    run = once(ROOMY)
    phases = run.measurement.phases
    assert phases is not None
    parts_s = (phases.forward_backward_s, phases.gradient_sync_s, phases.optimizer_s)
    assert min(parts_s) > 0.0
    assert sum(parts_s) < fmean(step.step_time_s for step in run.steps if not step.is_warmup)


def test_a_trial_without_warm_up_measures_every_step(fork_server: ForkServer, tmp_path: Path) -> None:
    settings = replace(FIVE_STEPS, warmup_steps=0, max_warmup_steps=0, measured_steps=2, max_measured_steps=2)
    run = fork_server.run(trial_spec(settings=settings), tmp_path)
    assert run.measurement.num_steps == len(run.steps) == 2
    assert run.measurement.num_warmup_steps == 0
    assert run.measurement.peak_bytes[0] > 0


def test_ranks_agree_on_how_long_to_warm_up_and_to_measure(once: Once) -> None:
    run = once(ASKED)
    assert run.exit_codes == (EXIT_MEASURED, EXIT_MEASURED)  # a rank with one step more would wait for ever
    assert run.measurement.num_warmup_steps is not None
    assert 2 <= run.measurement.num_warmup_steps <= 8
    assert 5 <= run.measurement.num_steps <= 12
    assert [step.is_warmup for step in run.steps].index(False) == run.measurement.num_warmup_steps


def test_the_process_grows_by_what_its_tensors_hold_at_least(fork_server: ForkServer, tmp_path: Path) -> None:
    model = tiny_model(hidden_size=512, ffn_size=1024, num_heads=4, head_dim=128, num_layers=2)
    result = fork_server.run(trial_spec(model=model), tmp_path).measurement
    assert len(result.reserved_bytes) == 1
    assert result.reserved_bytes[0] > 12 * model.num_parameters  # fp32 parameters and two moments never leave


def test_without_a_given_peak_the_cores_are_measured(once: Once) -> None:
    given, found = once(GIVEN).measurement, once(ASKED).measurement
    assert given.peak_flop_per_s == 2e11
    assert found.peak_source.startswith("measured GEMM rate of ")
    assert found.peak_flop_per_s > 1e9  # a core multiplies faster than 1 GFLOP/s
    assert found.mfu == pytest.approx(found.model_flop_per_s / found.peak_flop_per_s)


def test_ranks_hold_their_parameters_gradients_and_optimizer_state_at_least(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    """Four fp32 values per parameter: itself, its gradient and two moments."""
    whole = 16 * tiny_model().num_parameters
    assert peak(fork_server, cpu_layout(micro_batch_size=1), tmp_path / "single") > whole
    sharded = peak(fork_server, fsdp(2, micro_batch_size=1), tmp_path / "fsdp")
    assert sharded > whole / 2
    assert sharded < peak(fork_server, replace(DDP, micro_batch_size=1), tmp_path / "ddp")


def test_full_recomputation_lowers_the_peak_by_most_of_the_layers_activations(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    """A layer without recomputation keeps its norms, projections and feed-forward for the backward pass."""
    layout = cpu_layout(micro_batch_size=8)
    kept = peak(fork_server, layout, tmp_path / "none")
    recomputed = peak(fork_server, replace(layout, recompute=Recompute.FULL), tmp_path / "full")
    model = tiny_model()
    floats_per_token = 2 * model.hidden_size + 3 * model.ffn_size  # two norms, three halves of the feed-forward
    not_kept = (model.num_layers - 1) * 8 * 32 * floats_per_token * 4
    assert kept - recomputed > not_kept


def peak(fork_server: ForkServer, layout: Layout, folder: Path) -> int:
    return max(fork_server.run(trial_spec(layout, settings=ONE_STEP), folder).measurement.peak_bytes)


def test_a_budget_that_suffices_changes_nothing(once: Once) -> None:
    assert once(ROOMY).exit_codes == (EXIT_MEASURED,)


@pytest.mark.parametrize(
    "layout",
    [cpu_layout(), cpu_layout(pipeline_parallel_degree=2), pytest.param(DDP, marks=pytest.mark.oracle)],
    ids=str,
)
def test_a_loss_that_is_no_number_is_a_numerics_failure_on_every_rank(
    layout: Layout, fork_server: ForkServer, tmp_path: Path
) -> None:
    run = fork_server.run(trial_spec(layout, settings=replace(FIVE_STEPS, learning_rate=1e30)), tmp_path)
    assert set(run.exit_codes) == {EXIT_FAILED}
    assert kinds(run) == {"numerics"}
    assert len(run.failures) == layout.world_size
    assert not any(line["type"] == "measurement" for line in run.lines)


def test_a_rank_whose_peer_vanishes_reports_a_communication_failure(fork_server: ForkServer, tmp_path: Path) -> None:
    run = fork_server.run(trial_spec(DDP), tmp_path, task="deserter")
    assert run.exit_codes == (EXIT_FAILED, 0)
    assert kinds(run) == {"communication"}
    assert run.failures[0]["rank"] == 0


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tensor_parallel_degree": 2}, "accelerators of the cluster, 1, but it is 2"),
        ({"precision": Precision.FP8}, "not in fp8; nearest legal value: "),
    ],
)
def test_a_refused_spec_names_value_and_rule(
    change: dict[str, Any], rule: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    run = fork_server.run(trial_spec(cpu_layout(**change)), tmp_path, world_size=1)
    assert run.exit_codes == (EXIT_REFUSED,)
    assert [failure["kind"] for failure in run.failures] == ["crash"]
    assert rule in run.failures[0]["message"]


# ---------------------------------------------------------------- collective environment
def test_a_rank_has_the_variables_before_its_process_group_starts_and_reports_them(
    tmp_path: Path,
) -> None:
    asked = Layout(
        data_parallel_replicate_degree=2,
        collective_algorithm=CollectiveAlgorithm.RING,
        collective_protocol=CollectiveProtocol.LL128,
        collective_channels=16,
    )
    pid = fork_rank(partial(_fail_to_meet, asked), tmp_path, RankInfo(world_size=2, local_world_size=2), {})
    os.waitpid(pid, 0)
    told = json.loads((tmp_path / "told.json").read_text())
    assert {name: told[name] for name in collective_environment(asked)} == {
        "NCCL_ALGO": "allreduce:ring",
        "NCCL_PROTO": "ll128",
        "NCCL_MIN_NCHANNELS": "16",
        "NCCL_MAX_NCHANNELS": "16",
    }


def _fail_to_meet(layout: Layout, context: TaskContext) -> int:
    """A trial on GPUs whose process group cannot start: nobody gave it an address, and there may be no GPU."""
    spec = codec.dumps(trial_spec(layout, device="cuda"))
    code = attempt(spec, Reporter(context.folder / "reports.jsonl", rank=0), context.rank_info)
    assert code == EXIT_FAILED
    (context.folder / "told.json").write_text(json.dumps(settings_of_libraries(os.environ)))
    return 0


# ---------------------------------------------------------------- overlap
SMALL: dict[str, Any] = {"gradient_bucket_bytes": 2**14}
"""Some 40 buckets of the tiny model."""
PRE: dict[str, Any] = {"gradient_clip": GradientClip.PRE}
BUCKET: dict[str, Any] = {"gradient_clip": GradientClip.BUCKET}


def share(layout: Layout, fork_server: ForkServer, folder: Path) -> float | None:
    spec = trial_spec(layout, settings=replace(THREE_STEPS, max_gradient_norm=1.0))
    return fork_server.run(spec, folder).measurement.overlapped_share


OVERLAPS = (
    # small buckets are mostly reduced under the backward pass
    (ddp(2, **SMALL, micro_batch_size=2), 0.5, 0.999),
    (ddp(2, **SMALL, **BUCKET, micro_batch_size=2), 0.5, 0.999),
    # what waits for the last gradient is reduced behind it
    (ddp(2, **SMALL, **PRE, micro_batch_size=2), 0.0, 0.0),
)
MORE_OVERLAPS = (
    (zero(2, **SMALL, micro_batch_size=2), 0.5, 0.999),
    (zero(2, **SMALL, **BUCKET, micro_batch_size=2), 0.5, 0.999),
    (ddp(2, **SMALL, **PIPELINE, micro_batch_size=2), 0.5, 0.999),
    (ddp(2, **SMALL, **BUCKET, **PIPELINE, micro_batch_size=2), 0.5, 0.999),
    # the first of the V's stages of a rank is done while the second still computes, or the other way round
    (ddp(2, **ZBV, **BUCKET, micro_batch_size=2), 0.2, 0.8),
    (ddp(2, micro_batch_size=2), 0.0, 0.0),  # one bucket
    (zero(2, **SMALL, **PRE, **ZBV, micro_batch_size=2), 0.0, 0.0),
)


@pytest.mark.parametrize(
    ("layout", "least", "most"),
    [*OVERLAPS, *(pytest.param(*case, marks=pytest.mark.oracle) for case in MORE_OVERLAPS)],
    ids=str,
)
def test_buckets_are_reduced_under_the_backward_pass_unless_they_wait_for_the_last_gradient(
    layout: Layout, least: float, most: float, fork_server: ForkServer, tmp_path: Path
) -> None:
    found = share(layout, fork_server, tmp_path)
    assert found is not None
    assert least <= found <= most


@pytest.mark.oracle
@pytest.mark.parametrize("layout", [fsdp(2, micro_batch_size=2), ddp(1, micro_batch_size=8)], ids=str)
def test_reductions_without_a_hook_are_not_reported(layout: Layout, fork_server: ForkServer, tmp_path: Path) -> None:
    assert share(layout, fork_server, tmp_path) is None


# ---------------------------------------------------------------- steered
LATE_S = 0.4
"""Far longer than a pass, however busy the machine is: half of it was never seen without the late link."""

SETTINGS = TrialSettings(
    warmup_steps=1, max_warmup_steps=1, measured_steps=6, max_measured_steps=6, profiled_steps=0, max_foreign_share=1.0
)


def events(folder: Path, forks: Forks, *, late_s: float = LATE_S, **layout: Any) -> tuple[LinkEvent, ...]:
    """Of two stages whose link is late for four steps, as the measurement has them and the watcher heard them."""
    watcher = Watcher()
    asked = spec(
        "steered",
        SETTINGS,
        cluster=cpu_cluster(2),
        fault_trace=FaultTrace.parse(f"0;0_1;{late_s}\n4;0_1;0", num_steps=8),
        layout=cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2, **layout),
    )
    outcome = measured(LocalLauncher(folder, forks).run(asked, watcher))
    assert tuple(watcher.link_events) == outcome.link_events
    return outcome.link_events


def test_an_adaptive_pipeline_is_planned_around_a_slow_link_and_back_again(tmp_path: Path, forks: Forks) -> None:
    planned = {"pipeline_schedule": PipelineSchedule.ADAPTIVE, "p2p_transport": P2PTransport.DELEGATED}
    for late_s in (LATE_S, 4 * LATE_S, 16 * LATE_S):  # beside long passes a short delay is not worth another plan
        found = events(tmp_path / str(late_s), forks, late_s=late_s, **planned, num_delegates=4)
        replans = [event.delegated for event in found if event.kind is LinkEventKind.REPLANNED]
        if any(replans):
            break
    slow = next(event for event in found if event.kind is LinkEventKind.LINK_SLOW and event.delay_s > late_s / 2)
    assert slow.stages == (0, 1)
    assert slow.step in range(8, 11)  # seven steps go before the trace, whose link is late in the next four
    assert (any(replans), replans[-1:]) == (True, [False])
    assert any(event.kind is LinkEventKind.LINK_RECOVERED and event.step > slow.step for event in found)


@pytest.mark.oracle  # a second real trial; what a controller may do is held below
def test_a_fixed_schedule_under_a_trace_is_watched_and_left_alone(tmp_path: Path, forks: Forks) -> None:
    found = events(tmp_path, forks, pipeline_schedule=PipelineSchedule.ONE_F_ONE_B)
    assert any(event.kind is LinkEventKind.LINK_SLOW and event.delay_s > LATE_S / 2 for event in found)
    assert not any(event.kind is LinkEventKind.REPLANNED for event in found)


@pytest.mark.parametrize(
    ("layout", "may"),
    [
        ({"pipeline_schedule": PipelineSchedule.ADAPTIVE}, (True, False, False)),
        (
            {"pipeline_schedule": PipelineSchedule.ADAPTIVE, "p2p_transport": P2PTransport.DELEGATED},
            (True, True, False),
        ),
        ({"p2p_transport": P2PTransport.DELEGATED}, (False, False, True)),
        ({}, (False, False, False)),
    ],
)
def test_a_layout_says_what_may_be_done_to_its_pipeline(layout: dict[str, Any], may: tuple[bool, bool, bool]) -> None:
    found = powers(cpu_layout(pipeline_parallel_degree=2, **layout))
    assert (found.may_replan, found.may_delegate, found.is_always_delegated) == may


# ---------------------------------------------------------------- planned pipelines
def delegates_left(folder: Path) -> list[int]:
    """Processes that share slots and write to a rank's log under this folder, which the rank's delegates inherit."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _is_delegate(process, folder):
            found.append(int(process.name))
    return found


def _is_delegate(process: Path, folder: Path) -> bool:
    try:
        opened = [str(link.readlink()) for link in (process / "fd").iterdir()]
    except OSError:  # it is gone, or not ours to look at
        return False
    return any("memfd:slots" in name for name in opened) and any(name.startswith(str(folder)) for name in opened)


PLANNED: dict[str, Any] = {
    "pipeline_parallel_degree": 2,
    "pipeline_schedule": PipelineSchedule.ADAPTIVE,
    "p2p_transport": P2PTransport.DELEGATED,
    "micro_batch_size": 1,
}


def test_a_trial_plans_its_pipeline_from_the_passes_that_it_measured(fork_server: ForkServer, tmp_path: Path) -> None:
    settings = replace(FIVE_STEPS, profiled_steps=1)
    run = fork_server.run(trial_spec(cpu_layout(**PLANNED, stage_rotation=1), settings=settings), tmp_path)
    assert run.exit_codes == (0, 0), run.logs
    timeline = run.measurement.timeline
    assert timeline is not None
    assert [lane.pipeline_rank for lane in timeline.ranks] == [1, 0]
    assert any("I" in word for lane in timeline.ranks for word in lane.actions)
    deadline = time.monotonic() + PATIENCE_S
    while delegates_left(tmp_path):  # the kernel kills them when their rank has ended, which can be a moment later
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("num_delegates", [1, 4])
@pytest.mark.oracle
def test_a_trial_under_a_limit_of_memory_runs_no_further_ahead_than_it_allows(
    num_delegates: int, fork_server: ForkServer, tmp_path: Path
) -> None:
    settings = replace(FIVE_STEPS, memory_budget_bytes=400 * 2**20)
    run = fork_server.run(trial_spec(cpu_layout(**PLANNED, num_delegates=num_delegates), settings=settings), tmp_path)
    assert run.exit_codes == (0, 0), run.logs

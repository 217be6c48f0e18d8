"""Runs a trial on every rank, from the first collective to the measurement."""

from __future__ import annotations

import os
import traceback
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core import codec
from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import AttentionKernel, Fp8Recipe, RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.link import Link, LinkHealth
from autotuner.core.measuring import Peak
from autotuner.core.network import Network
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.rules.legality import RULES, require_legal
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.trial_spec import OptimizerName, TrialSpec
from autotuner.core.units import MIB
from autotuner.trials.benchmarks import gemm
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.distributed.pipeline import start_standby
from autotuner.trials.job.steps import run_steps
from autotuner.trials.measurement.environment import num_cores_used, own_core, pin
from autotuner.trials.measurement.memory import lift_limit, limit
from autotuner.trials.rank import RankInfo, Reporter, barrier, device_of, join_process_group

# Checks that a trial can run where it was started, before anything is built.

_UNEQUAL = (LinkHealth(ends=(0, 1), delay_s=1.0),)
"""A slow link, given to a check for which the assignment of stages to links must matter."""


def admit(spec: TrialSpec, rank_info: RankInfo) -> None:
    """Raise an error unless the layout is legal for the model, the workload and the number of ranks.

    Raises:
        InvalidInput: The layout breaks a rule. The error names the first broken rule and the nearest legal value.
    """
    require_legal(spec.layout, _job(spec, rank_info), (*RULES, *TRIAL_RULES))
    if spec.optimizer is not None and (refusal := spec.optimizer.refuses(spec.layout)):
        raise InvalidInput("optimizer", spec.optimizer.name.value, refusal, OptimizerName.ADAMW.value)


def _job(spec: TrialSpec, rank_info: RankInfo) -> Job:
    """Return the job with this trial's ranks as its cluster.

    The device's rates are 1, since no rule compares them and 0 would mean that it lacks the precision. The layout was
    chosen for a known GPU and known links, so here they support everything.
    """
    kernels = (AttentionKernel.MATH, AttentionKernel.FLASH)
    accelerator = Accelerator(
        name=spec.device,
        kind=spec.device,
        memory_bytes=1,
        memory_bandwidth_bytes_per_s=1.0,
        fp32_flop_per_s=1.0,
        bf16_flop_per_s=1.0,
        fp8_flop_per_s=0.0 if spec.device == "cpu" else 1.0,
        fp4_flop_per_s=0.0 if spec.device == "cpu" else 1.0,
        peak_source="",
        power_w=0.0,
        attention_kernels=kernels if spec.device == "cpu" else tuple(AttentionKernel),
        fp8_recipes=tuple(Fp8Recipe),
    )
    nodes = rank_info.nodes(RankPlacement.BLOCK)
    link = Link(name="any", bandwidth_bytes_per_s=1e12, latency_s=0.0, multicast_efficiency=1.0)
    cluster = Cluster(
        name="ranks of this trial",
        accelerator=accelerator,
        num_nodes=nodes.num_nodes,
        accelerators_per_node=nodes.ranks_per_node,
        intra_node_link=link,
        inter_node_link=link,
        link_health=_UNEQUAL if rank_info.world_size > 1 else (),
        network=Network(name="any", num_rails=nodes.ranks_per_node, adds=True),
    )
    return Job(model=spec.model, cluster=cluster, workload=spec.workload)


EXIT_MEASURED = 0
"""Exit code: the reports end with a measurement, or with its breakdown."""
EXIT_FAILED = 1
"""Exit code: the trial or its profiled steps failed; the reports say why."""
EXIT_REFUSED = 2
"""Exit code: the spec cannot run on these ranks, or cannot be read; the reports say why if they could be written."""

_RESERVE_BYTES = 4 * MIB
"""Memory that is freed when a rank fails, because reporting a lack of memory takes some: Python allocates 1 MiB at a
time."""


def attempt(spec_text: str, reporter: Reporter, rank_info: RankInfo, *, store: Store | None = None) -> int:
    """Run a trial as one of its ranks, and return the exit code of the process. The reports contain any failure.

    A process cannot run a second trial, because it stays bound to a core and its process groups stay open until it
    ends.

    Args:
        spec_text: The specification of the trial as JSON.
        reporter: Writes the reports of this rank.
        rank_info: The place of this rank in the job.
        store: The store through which the ranks find each other; None: torchrun's variables name the address.
    """
    reserve = mmap(-1, _RESERVE_BYTES, flags=MAP_PRIVATE | MAP_ANONYMOUS)  # counts against a limit, untouched
    try:
        spec = codec.loads(TrialSpec, spec_text)
        rank_info = rank_info.playing(spec.cluster)
        admit(spec, rank_info)
        _run(spec, reporter, rank_info.placed(spec.layout.rank_placement), store)
    except InvalidInput as error:
        reporter.failure(error)
        return EXIT_REFUSED
    except Exception as error:
        reserve.close()
        reporter.failure(error, memory_was_limited=lift_limit())
        traceback.print_exc()
        return EXIT_FAILED
    return EXIT_MEASURED


def _run(spec: TrialSpec, reporter: Reporter, rank_info: RankInfo, store: Store | None) -> None:
    device = device_of(spec.device, rank_info)
    num_cores = num_cores_used(rank_info)
    standby = start_standby(spec, rank_info.rank, device, store)
    if device.type == "cpu":
        pin(own_core(rank_info))
        torch.set_num_threads(1)
    os.environ.update(collective_environment(spec.layout))
    join_process_group(device, rank_info, timeout_s=spec.settings.timeout_s, store=store, compiles=spec.layout.compiled)
    reporter.started(spec, world_size=rank_info.world_size)
    grid = Grid(spec.layout, device, rank_info.nodes(spec.layout.rank_placement))
    peak = _peak(spec, device, rank_info, num_cores)
    if spec.settings.memory_budget_bytes is not None:
        limit(device, spec.settings.memory_budget_bytes)
    run_steps(spec, reporter, device, grid, peak, standby)


def _peak(spec: TrialSpec, device: torch.device, rank_info: RankInfo, num_cores: int) -> Peak:
    """Return the summed reference peak of all ranks: the given one, or one that is measured on all of them at once.

    Ranks that share a core share its rate. Data sheets give no peak for a core, so a given peak was measured as well.
    """
    num_nodes = rank_info.world_size // rank_info.local_world_size
    measured = f"measured GEMM rate of {num_cores * num_nodes} cores"
    if spec.reference_flop_per_s is not None:
        return Peak(
            flop_per_s=spec.reference_flop_per_s * rank_info.world_size,
            source=measured if device.type == "cpu" else "data sheet",
            precision_flop_per_s=spec.precision_flop_per_s and spec.precision_flop_per_s * rank_info.world_size,
        )
    barrier(device)
    rate = gemm.flop_per_s(device, torch.float32 if device.type == "cpu" else torch.bfloat16)
    if device.type == "cpu":
        rate *= num_cores / rank_info.local_world_size
    total = torch.tensor(rate, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    if device.type == "cuda":
        measured = f"measured GEMM rate of {rank_info.world_size} devices"
    return Peak(flop_per_s=total.item(), source=measured)

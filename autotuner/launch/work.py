"""The kinds of work of an attempt: our own decoder, a registered trainer, or a check's benchmarks and proxy trial."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.choices import AttentionKernel, Precision, ShardLevel
from autotuner.core.cluster_check import ClusterCheck
from autotuner.core.codec import dumps
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import LinkEvent, Measurement, StepReport
from autotuner.core.measuring import Peak
from autotuner.core.node_line import NodeLine
from autotuner.core.profile import Measurements, ProfileRequest, Wanted
from autotuner.core.trial import EngineJob, TrialFailure
from autotuner.core.trial_spec import NodeTask, TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from autotuner.exports.formats import export
from autotuner.exports.shared.target import Export
from autotuner.launch.contract import AttemptEnd, CannotRun, Place, Work
from autotuner.launch.follow import verdict
from autotuner.launch.lines import RankReports
from autotuner.launch.trainer_reports import TrainerReports, trainer_verdict
from autotuner.launch.trainers.registration import RegisteredTrainer, knows_nodes, refuses_trainer, rendered

_FOLDER = Path("{folder}")
"""Placeholder for the folder of the task's files, whose path only the node knows."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._:+-]")


class DecoderWork:
    """The work of a trial that trains the built-in transformer decoder, on all ranks."""

    def __init__(self, spec: TrialSpec) -> None:
        self._spec = spec
        self._reports = RankReports()

    def task(self, name: str, place: Place) -> NodeTask:
        """Return the task that runs the trial on every rank."""
        variables = dict(place.variables)
        if place.devices is not None and self._spec.device == "cuda":
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(place.devices)
        return _task(self._spec, name, place, variables)

    def take(self, lines: Sequence[NodeLine]) -> Sequence[StepReport | LinkEvent]:
        """Read output lines of the ranks, and return the reports of steps and of slow or dead links in them."""
        return self._reports.take(lines)

    def is_complete(self) -> bool:
        """Return True once there is a measurement, and also a breakdown if the trial profiles steps."""
        measured = self._reports.measurement
        return measured is not None and (measured.breakdown is not None or not self._spec.settings.profiled_steps)

    def has_failed(self) -> bool:
        """Return False, because no report alone ends the trial.

        If one rank reports that it lost its peers, another rank may still report the cause.
        """
        return False

    def judge(self, end: AttemptEnd) -> Measurement | TrialFailure:
        """Return the measurement or the failure, judged by the ranks' reports and by how the processes ended."""
        return verdict(self._spec, self._reports, end)


class BenchmarkWork:
    """The work of a cluster check that measures devices and links, on all ranks of a job.

    Args:
        spec: Id, cluster, device and limits of the job.
        quick: True to measure only tiny sizes.
        wanted: What to measure: devices, links or both.
    """

    def __init__(self, spec: TrialSpec, *, quick: bool, wanted: Wanted) -> None:
        self._spec = spec
        self._quick = quick
        self._wanted = wanted
        self.reports = RankReports()

    def task(self, name: str, place: Place) -> NodeTask:
        """Return the task that runs the benchmarks on every rank of every node."""
        request = ProfileRequest(
            device=self._spec.device,
            num_ranks=place.num_nodes * place.ranks_per_node,
            quick=self._quick,
            wanted=self._wanted,
        )
        task = _task(self._spec, name, place, place.variables)
        return replace(task, spec=None, module="autotuner.trials.benchmarks.profile", request=dumps(request))

    def take(self, lines: Sequence[NodeLine]) -> Sequence[StepReport | LinkEvent]:
        """Read output lines about timed collectives. The result is empty, because benchmarks have no training steps."""
        return self.reports.take(lines)

    def is_complete(self) -> bool:
        """Return True once all benchmark results have arrived."""
        return self.reports.benchmarks is not None

    def has_failed(self) -> bool:
        """Return False, because no report ends the benchmarks; only the death of a rank ends them."""
        return False

    def judge(self, end: AttemptEnd) -> Measurements | TrialFailure:
        """Return the benchmark results, or the failure that ended the benchmarks."""
        if self.reports.benchmarks is not None:
            return self.reports.benchmarks
        ended = verdict(self._spec, self.reports, end)
        assert isinstance(ended, TrialFailure)  # nobody measures steps here
        return ended


class TrainerWork:
    """The work of a trial that runs a registered trainer, which is a training program of the operator.

    Args:
        registration: The trainer as it is registered.
        spec: The trial.
        peak: The peak FLOP/s by which MFU is computed.
        num_nodes: Number of nodes that the trainer runs on.
    """

    def __init__(self, registration: RegisteredTrainer, spec: TrialSpec, peak: Peak, *, num_nodes: int = 1) -> None:
        self._registration = registration
        self._spec = spec
        facts = {  # the trainer reports the versions of its libraries, and the node reports the rest
            "trainer": registration.trainer.name,
            "format": registration.trainer.format.value,
            "reports": registration.reports,
            "device": spec.cluster.accelerator.name if spec.cluster else "",
        }
        self._reports = TrainerReports(spec, peak, registration.new_reader(spec), facts, num_nodes=num_nodes)

    def task(self, name: str, place: Place) -> NodeTask:
        """Return the task that runs the registered command on every node, with the files of the exported layout.

        Raises:
            InvalidInput: The command does not contain the number of its node, so that each of several nodes would train
                alone.
            CannotRun: The trainer's working directory is not on this machine.
        """
        registered, spec = self._registration, self._spec
        if place.num_nodes > 1 and not knows_nodes(registered.command):
            rule = (
                "must contain the placeholder {torchrun} or {node_rank}, because the trial runs on more than one node"
            )
            raise InvalidInput(f"{registered.trainer.name}.command", list(registered.command), rule)
        if place.devices is not None and not registered.working_directory.is_dir():
            raise CannotRun(
                f"the folder {registered.working_directory} of the trainer {registered.trainer.name} does not "
                "exist on this machine; create it, or correct the trainer's working_directory"
            )
        exported = _exported(spec)
        names = [file.name for file in exported.files]
        command = rendered(
            registered.command,
            spec,
            arguments=[str(_FOLDER / word) if word in names else word for word in exported.arguments],
            file=_FOLDER / names[0] if names else None,
            spec_file=_FOLDER / "spec.json",
        )
        variables = {**place.variables, **exported.environment, **registered.variables, **self._devices(place)}
        return replace(
            _task(spec, name, place, variables),
            command=tuple(command),
            working_directory=str(registered.working_directory),
            passed=registered.environment,
            files={file.name: file.text for file in exported.files},
        )

    def take(self, lines: Sequence[NodeLine]) -> Sequence[StepReport | LinkEvent]:
        """Read output lines of the ranks, and return the training steps in them, from reports or from the log."""
        return self._reports.take(lines)

    def is_complete(self) -> bool:
        """Return True once enough steps were measured. The steps of a trainer are not profiled."""
        return self._reports.measurement is not None

    def has_failed(self) -> bool:
        """Return True once the trainer has reported a failure that ends the trial."""
        return self._reports.failure is not None

    def judge(self, end: AttemptEnd) -> Measurement | TrialFailure:
        """Return the measurement or the failure, judged by the trainer's reports, its exit code and its output."""
        return trainer_verdict(self._spec, self._reports, end)

    def _devices(self, place: Place) -> dict[str, str]:
        """Return the variables that select the devices of this machine and limit the allocator to the memory budget.

        Source: c10/cuda/CUDAAllocatorConfig.h of torch 2.13, ``per_process_memory_fraction``.
        """
        if place.devices is None:
            return {}
        if self._spec.device == "cpu":
            return {"CUDA_VISIBLE_DEVICES": ""}
        variables = {"CUDA_VISIBLE_DEVICES": ",".join(place.devices)}
        budget, memory = self._spec.settings.memory_budget_bytes, self._spec.memory_bytes
        if budget is not None and memory is not None:
            name = "PYTORCH_CUDA_ALLOC_CONF"
            own = f"per_process_memory_fraction:{min(1.0, budget / memory):.4f}"
            variables[name] = ",".join(filter(None, (self._registration.variables.get(name, ""), own)))
        return variables


def work_of(
    spec: TrialSpec, trainers: Mapping[str, RegisteredTrainer], peak: Callable[[], Peak], *, num_nodes: int = 1
) -> Work[Measurement]:
    """Return the work of a trial: the product's own decoder, or a registered trainer.

    Args:
        spec: The trial.
        trainers: The registered trainers by name.
        peak: Function that returns the peak FLOP/s by which the MFU of a registered trainer is computed.
        num_nodes: Number of nodes that a registered trainer runs on.

    Raises:
        CannotRun: The trainer is not registered here, or is registered differently.
    """
    if spec.trainer is None:
        return DecoderWork(spec)
    if refusal := refuses_trainer(trainers, spec.trainer):
        raise CannotRun(refusal)
    return TrainerWork(trainers[spec.trainer.name], spec, peak(), num_nodes=num_nodes)


def _task(spec: TrialSpec, name: str, place: Place, variables: Mapping[str, str]) -> NodeTask:
    return NodeTask(
        job_name=name,
        num_nodes=place.num_nodes,
        ranks_per_node=place.ranks_per_node,
        time_limit_s=spec.settings.timeout_s,
        spec=replace(spec, jobs=()),
        variables=dict(variables),
    )


def _exported(spec: TrialSpec) -> Export:
    """Export the layout for the trainer, with names that hold no character with a special meaning to any program."""
    assert spec.trainer is not None  # a trial of a trainer has both
    assert spec.cluster is not None
    model = replace(spec.model, name=_UNSAFE.sub("-", spec.model.name))
    cluster = replace(spec.cluster, name=_UNSAFE.sub("-", spec.cluster.name))
    job = Job(model=model, cluster=cluster, workload=spec.workload, stack=load_stack(spec.trainer.stack))
    return export(job, spec.layout, spec.trainer.format)


def known_peak(spec: TrialSpec, *, core_flop_per_s: float | None = None, num_cores: int | None = None) -> Peak:
    """Return the peak FLOP/s of all ranks together, by which the MFU of a registered trainer's trial is computed.

    Args:
        spec: The trial.
        core_flop_per_s: Measured GEMM rate of a core of this machine. It is used if the trial has no reference peak.
        num_cores: Number of cores of this machine that the ranks share; None on an engine.

    Raises:
        InvalidInput: The peak is not known.
    """
    num_ranks, reference = spec.layout.world_size, spec.reference_flop_per_s
    of_cores = "" if num_cores is None else f" of {num_cores} cores"
    if reference is not None:
        flop_per_s = reference * num_ranks
    elif core_flop_per_s is not None and num_cores is not None:
        flop_per_s = core_flop_per_s * num_cores
    else:
        name = spec.cluster.name if spec.cluster else ""
        raise InvalidInput(
            "cluster",
            name,
            "has no measured peak rate of matrix products, which the MFU needs; measure it with `autotuner "
            "cluster check`",
        )
    return Peak(
        flop_per_s=flop_per_s,
        source=f"measured GEMM rate{of_cores}" if spec.device == "cpu" else "data sheet",
        precision_flop_per_s=spec.precision_flop_per_s and spec.precision_flop_per_s * num_ranks,
    )


# The trial of a check: a small decoder on all ranks of the nodes, so that it needs whatever a real one needs.

_MODEL = "llama-demo"
_SEQ_LEN = 256

_FULL = TrialSettings(
    measured_steps=20, max_measured_steps=200, measuring_budget_s=30.0, profiled_steps=0, max_repeats=0, timeout_s=180.0
)
"""Settings of a check's trial: about one minute, including torch's import on nodes that have not imported it yet."""

_QUICK = TrialSettings(
    warmup_steps=1,
    max_warmup_steps=1,
    measured_steps=3,
    max_measured_steps=3,
    profiled_steps=0,
    max_repeats=0,
    timeout_s=120.0,
)

_BENCHMARK_S = 900.0
"""Time limit of the benchmarks of products, attention, memory and collectives: they take two minutes on a good network,
and much longer on a slow one."""


def small_trial(check_id: str, check: ClusterCheck, jobs: tuple[EngineJob, ...]) -> TrialSpec:
    """Return the small training trial that a cluster check runs to see whether jobs work on all nodes.

    Each rank has one sequence, and the parameters are sharded over all ranks, so that each step sends data across
    nodes. The peak of a CPU core is measured; the peak of a GPU is in its data sheet.
    """
    cluster = check.nodes
    accelerator, on_cpu = cluster.accelerator, cluster.accelerator.kind == "cpu"
    return TrialSpec(
        trial_id=f"{check_id}-trial",
        model=load_model(_MODEL),
        workload=Workload(seq_len=_SEQ_LEN, global_batch_size=cluster.world_size),
        layout=Layout(
            data_parallel_shard_degree=cluster.world_size,
            shard_level=ShardLevel.PARAMETERS if cluster.world_size > 1 else ShardLevel.NONE,
            precision=accelerator.reference_precision,
            attention_kernel=AttentionKernel.MATH,
        ),
        device="cpu" if on_cpu else "cuda",
        settings=_QUICK if check.request.quick else _FULL,
        reference_flop_per_s=None if on_cpu else accelerator.reference_flop_per_s,
        precision_flop_per_s=None if on_cpu else accelerator.peak_flop_per_s(Precision.BF16),
        cluster=cluster,
        jobs=jobs,
    )


def benchmark_spec(check_id: str, check: ClusterCheck, jobs: tuple[EngineJob, ...]) -> TrialSpec:
    """Return the specification of the benchmark job of a cluster check: its id, its nodes and its time limit."""
    trial = small_trial(check_id, check, jobs)
    return replace(trial, trial_id=f"{check_id}-links", settings=TrialSettings(timeout_s=_BENCHMARK_S))

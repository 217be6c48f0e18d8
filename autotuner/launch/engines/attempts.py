"""One attempt at a trial as a job of an engine: what its nodes are to run, what they tell, and how that is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.measuring import Peak
from autotuner.core.trial import TrialFailure
from autotuner.core.trial_spec import NodeTask, TrialSpec
from autotuner.launch.attempts import verdict
from autotuner.launch.engines.ranks import EngineRanks
from autotuner.launch.reports import Reports, TrialFiles, TrialReports
from autotuner.launch.trainers.attempt import described, exported_for, placed
from autotuner.launch.trainers.registration import ON_A_NODE, Registration, knows_nodes, rendered
from autotuner.launch.trainers.told import TrainerReports
from autotuner.launch.trainers.verdict import trainer_verdict

_FOLDER = Path("{folder}")
"""Of the task's files, which only the node can name."""


Result_co = TypeVar("Result_co", covariant=True)


class TrialJob(Protocol[Result_co]):
    """What is particular of our own decoder, of a trainer or of a benchmark in a job."""

    @property
    def reports(self) -> TrialReports:
        """What its ranks tell, as far as it has arrived."""
        ...

    def heard(self, line: str, at: float) -> None:
        """One line that the nodes' command printed, and the node's clock then."""
        ...

    def task(self, job_name: str, cluster: Cluster, variables: Mapping[str, str]) -> NodeTask:
        """What each node runs.

        Raises:
            InvalidInput: It cannot run on these nodes.
        """
        ...

    def last_steps(self, ranks: EngineRanks) -> Sequence[StepReport]:
        """The steps that were told since the last look; nothing runs any more."""
        ...

    def judge(self, ranks: EngineRanks, *, timed_out: bool) -> Result_co | TrialFailure:
        """How the attempt ended."""
        ...


class DecoderJob:
    """Runs our own decoder."""

    def __init__(self, spec: TrialSpec, files: TrialFiles) -> None:
        self._spec = spec
        self._files = files
        self._reports = Reports(files.reports)

    @property
    def reports(self) -> Reports:
        """What its ranks write."""
        return self._reports

    def heard(self, line: str, at: float) -> None:
        """Torchrun's own words: kept with the output, and no news."""

    def task(self, job_name: str, cluster: Cluster, variables: Mapping[str, str]) -> NodeTask:
        """Torchrun on every node."""
        return NodeTask(
            job_name=job_name,
            num_nodes=cluster.num_nodes,
            ranks_per_node=cluster.accelerators_per_node,
            time_limit_s=self._spec.settings.timeout_s,
            spec=replace(self._spec, jobs=()),
            variables=dict(variables),
        )

    def last_steps(self, ranks: EngineRanks) -> Sequence[StepReport]:
        """What arrived since."""
        del ranks
        return self._reports.new_steps()

    def judge(self, ranks: EngineRanks, *, timed_out: bool) -> Measurement | TrialFailure:
        """By what the ranks reported, and what their agents saw."""
        return verdict(
            self._spec,
            self._reports,
            ranks,
            rank_logs=self._files.read_rank_logs(),
            timed_out=timed_out or ranks.timed_out,
            oom_killed=ranks.oom_killed,
        )


class TrainerJob:
    """Runs a registered trainer.

    Raises:
        InvalidInput: Nobody knows what its MFU would be a share of.
    """

    def __init__(self, registration: Registration, spec: TrialSpec, files: TrialFiles) -> None:
        self._registration = registration
        self._spec = spec
        reader = registration.new_reader(spec)
        self._reports = TrainerReports(spec, _peak(spec), files.trainer_reports, reader, described(registration, spec))

    @property
    def reports(self) -> TrainerReports:
        """What it tells of its steps."""
        return self._reports

    def heard(self, line: str, at: float) -> None:
        """A line of its log, timed where it was printed."""
        self._reports.heard(line, at)

    def task(self, job_name: str, cluster: Cluster, variables: Mapping[str, str]) -> NodeTask:
        """The registered command on every node, with the layout's files beside it."""
        registered, spec = self._registration, self._spec
        if cluster.num_nodes > 1 and not knows_nodes(registered.command):
            rule = "must hold {torchrun} or {node_rank} to run on more than one node"
            raise InvalidInput(f"{registered.trainer.name}.command", list(registered.command), rule, "{torchrun}")
        exported = exported_for(spec)
        command = rendered(
            registered.command,
            spec,
            ON_A_NODE,
            arguments=placed(exported, _FOLDER),
            file=_FOLDER / exported.files[0].name if exported.files else None,
            spec_file=_FOLDER / "spec.json",
        )
        return NodeTask(
            job_name=job_name,
            num_nodes=cluster.num_nodes,
            ranks_per_node=cluster.accelerators_per_node,
            time_limit_s=spec.settings.timeout_s,
            spec=replace(spec, jobs=()),
            command=tuple(command),
            working_directory=str(registered.working_directory),
            passed=registered.environment,
            variables={**variables, **exported.environment, **registered.variables},
            files={file.name: file.text for file in exported.files},
        )

    def last_steps(self, ranks: EngineRanks) -> Sequence[StepReport]:
        """Every step that was told; of a death the last one only where no rank is missing in it."""
        return self._reports.new_steps(is_over=ranks.exit_code == 0)

    def judge(self, ranks: EngineRanks, *, timed_out: bool) -> Measurement | TrialFailure:
        """By what it told, how it left and what it printed."""
        return trainer_verdict(
            self._spec,
            self._reports,
            ranks,
            timed_out=timed_out or ranks.timed_out,
            oom_killed=ranks.oom_killed,
        )


def _peak(spec: TrialSpec) -> Peak:
    """What MFU of a trainer's trial is a share of: measured with the cluster, or its data sheet's."""
    num_ranks, reference = spec.layout.world_size, spec.reference_flop_per_s
    if reference is None:
        name = spec.cluster.name if spec.cluster else ""
        raise InvalidInput("cluster", name, "has no measured peak, which MFU is a share of", "autotuner cluster check")
    precision = spec.precision_flop_per_s and spec.precision_flop_per_s * num_ranks
    source = "measured GEMM rate" if spec.device == "cpu" else "data sheet"
    return Peak(flop_per_s=reference * num_ranks, source=source, precision_flop_per_s=precision)

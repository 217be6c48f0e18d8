"""The job of a check that measures: ``trials.benchmarks.links`` on every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotuner.core.cluster import Cluster
from autotuner.core.codec import dumps
from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.profile import Measurements, ProfileRequest, Wanted
from autotuner.core.trial import TrialFailure
from autotuner.core.trial_spec import NodeTask, TrialSpec
from autotuner.launch.engines.ranks import EngineRanks
from autotuner.launch.reports import Reports, TrialFiles
from autotuner.launch.verdict import verdict

_MODULE = "trials.benchmarks.links"


class BenchmarkJob:
    """Runs the benchmarks of devices and links on all ranks of a job.

    Args:
        spec: What it has of a trial.
        files: Of this attempt.
        quick: Tiny sizes.
        wanted: What is measured.
    """

    def __init__(self, spec: TrialSpec, files: TrialFiles, *, quick: bool, wanted: Wanted) -> None:
        self._spec = spec
        self._files = files
        self._quick = quick
        self._wanted = wanted
        self._reports = Reports(files.reports)

    @property
    def reports(self) -> Reports:
        """What its ranks write."""
        return self._reports

    def heard(self, line: str, at: float) -> None:
        """Torchrun's own words: kept with the output, and no news."""

    def task(self, job_name: str, cluster: Cluster, variables: Mapping[str, str]) -> NodeTask:
        """The module on every rank of every node."""
        request = ProfileRequest(
            device=self._spec.device, num_ranks=cluster.world_size, quick=self._quick, wanted=self._wanted
        )
        return NodeTask(
            job_name=job_name,
            num_nodes=cluster.num_nodes,
            ranks_per_node=cluster.accelerators_per_node,
            time_limit_s=self._spec.settings.timeout_s,
            module=_MODULE,
            request=dumps(request),
            variables=dict(variables),
        )

    def last_steps(self, ranks: EngineRanks) -> Sequence[StepReport]:
        """No steps; what arrived last is read."""
        del ranks
        return self._reports.new_steps()

    def judge(self, ranks: EngineRanks, *, timed_out: bool) -> Measurements | TrialFailure:
        """What was measured, or by what the ranks reported and their agents saw."""
        if self._reports.benchmarks is not None:
            return self._reports.benchmarks
        ended = verdict(
            self._spec,
            self._reports,
            ranks,
            rank_logs=self._files.read_rank_logs(),
            timed_out=timed_out or ranks.timed_out,
            oom_killed=ranks.oom_killed,
        )
        assert not isinstance(ended, Measurement)  # nobody measures steps here
        return ended

"""SmallScale: a sweep whose trials run on fewer ranks than its job has: what each runs, and what that tells."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from functools import cached_property

from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout
from autotuner.core.prediction import FullSizeEstimate, TrialEstimate
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import FailureKind, ScaledTrial, Trial, TrialState
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.resource_cost import footprint_of
from autotuner.search.sampler.full_size import FullSize, ProxyTrial
from autotuner.search.sampler.proxies import ProxyTrials, proxy_trials
from autotuner.search.sampler.transfer import StandIn
from autotuner.search.space.trainers import trial_rules


class SmallScale:
    """What a plan knows of proxy trials.

    Args:
        request: With a cluster for its trials.
        cluster: That cluster, with the memory that a rank may use.
        layouts: Every legal one of the job.
    """

    def __init__(self, request: SweepRequest, cluster: Cluster, layouts: LayoutColumns) -> None:
        self._job = request.trial_job
        self._cluster = cluster
        self._trials = proxy_trials(
            self._job,
            layouts,
            cluster,
            trial_rules(request.trainer),
            whole_model=request.trainer is not None,  # which trains the model that it was given
        )
        self._full_size = FullSize(self._job)
        self._scaled: dict[Layout, ScaledTrial] = {}
        self._growth: dict[Layout, float] = {}

    @property
    def trials(self) -> ProxyTrials:
        """Layouts that a trial stands for, and which."""
        return self._trials

    @cached_property
    def left_out(self) -> str:
        """How many legal layouts no trial stands for, and why most do not; empty where one stands for each."""
        if not self._trials.refused:
            return ""
        number, (why, _) = self._trials.num_refused, self._trials.refused[0]
        return (
            f"; for {number} more no trial stands on {self._cluster.world_size} ranks, for most of them because {why}"
        )

    def scaled(self, layout: Layout) -> ScaledTrial:
        """What runs in the place of a layout."""
        if layout not in self._scaled:
            self._scaled[layout] = self._trials.trial_of(layout)
        return self._scaled[layout]

    def stand_in(self, layout: Layout) -> StandIn:
        """The same, with the job that it is."""
        scaled = self.scaled(layout)
        return StandIn(job=scaled.job(self._job, self._cluster), layout=scaled.layout)

    def growth(self, layout: Layout) -> float:
        """How many times as long a step of the layout is predicted to take as one of its proxy trial."""
        if layout not in self._growth:
            small = self.stand_in(layout)
            few_s = predict_one(small.layout, small.job).step_time.total_s
            self._growth[layout] = predict_one(layout, self._job).step_time.total_s / few_s
        return self._growth[layout]

    def estimates(self, trials: Iterable[Trial], reference_flop_per_s: float) -> Mapping[str, TrialEstimate]:
        """What is estimated of each trial that was measured, by its id, after what all of them told.

        Args:
            trials: Of the sweep.
            reference_flop_per_s: Peak of one rank that MFU is a share of.
        """
        told = [trial for trial in trials if trial.scaled is not None and trial.state.finished]
        measured = [trial for trial in told if trial.ran_measurement is not None]
        found = self._full_size.estimates([trial.layout for trial in measured], map(self._told, told))
        return {
            trial.id: self._estimate(trial, full_size, reference_flop_per_s)
            for trial, full_size in zip(measured, found, strict=True)
        }

    def _told(self, trial: Trial) -> ProxyTrial:
        is_process = self._trials.whole_model and self._cluster.accelerator.kind == "cpu"
        peaks = trial.ran_measurement.peak_bytes if trial.ran_measurement and not is_process else ()
        return ProxyTrial(
            stands_for=trial.layout,
            stand_in=self.stand_in(trial.layout),
            step_time_s=_step_time_s(trial),
            fits=_fits(trial),
            peak_bytes=max(peaks, default=None),
            measured_parts=self.scaled(trial.layout).measured_parts,
        )

    def _estimate(self, trial: Trial, full_size: FullSizeEstimate, reference_flop_per_s: float) -> TrialEstimate:
        job, step_s = self._job, full_size.step_time_s
        model_flop = job.model.model_flop_per_step(job.workload)
        # An accelerator computes about as busily in the whole job.
        power_w = None if trial.ran_measurement is None else trial.ran_measurement.power_w
        return TrialEstimate(
            full_size=full_size,
            tokens_per_s=job.workload.tokens_per_step / step_s,
            mfu=model_flop / (reference_flop_per_s * job.cluster.world_size * step_s),
            num_trial_ranks=trial.ran.world_size,
            num_ranks=job.cluster.world_size,
            is_simulated=trial.ran_measurement is not None and trial.ran_measurement.is_simulated,
            footprint=footprint_of(trial.layout, job, trial.prediction, power_w=power_w),
        )


def _step_time_s(trial: Trial) -> float | None:
    """Of the proxy trial: measured, or the median of the steps before it was pruned."""
    if trial.ran_measurement is not None:
        return trial.ran_measurement.step_time_s
    steps = [step.step_time_s for step in trial.steps if step.is_measured]
    return statistics.median(steps) if steps and trial.state is TrialState.PRUNED else None


def _fits(trial: Trial) -> bool | None:
    """Whether the proxy trial fitted in memory, where it came far enough to tell."""
    if trial.failure is not None:
        return False if trial.failure.kind is FailureKind.OOM else None
    return True if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) else None

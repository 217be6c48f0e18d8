"""StudyPlan: an optimizer study as a state machine without I/O: trials go in, what to do next comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autotuner.core.run import Finish, RunState
from autotuner.core.study import (
    LossCurve,
    OptimizerCandidate,
    OptimizerStudyRequest,
    OptimizerTrial,
    TargetReached,
    front,
)
from autotuner.core.trial import TrialFailure, TrialState
from autotuner.core.trial_spec import TrialSpec
from autotuner.search.studies.proposing import propose
from autotuner.search.studies.pruning import Pruning
from autotuner.search.studies.starts import starts_of


class StudyPlan:
    """Decides what a study does next.

    Args:
        study_id: Of the study.
        request: What was asked for.
        trials: Every trial stored so far, by number.
    """

    def __init__(self, study_id: str, request: OptimizerStudyRequest, trials: Sequence[OptimizerTrial]) -> None:
        self._id = study_id
        self._request = request
        self._trials = {trial.number: trial for trial in trials}
        self._starts = starts_of(request)
        self._pruning: Pruning | None = None

    def next(self) -> OptimizerTrial | Finish:
        """The trial to run, an interrupted one before a new one; or the end."""
        ended = [trial for trial in self._trials.values() if trial.state.finished]
        interrupted = [trial for trial in self._trials.values() if not trial.state.finished]
        budget, hours = self._request.budget, sum(trial.accelerator_hours for trial in ended)
        if budget.accelerator_hours is not None and hours >= budget.accelerator_hours:
            return self._end(f"{hours:.3g} of {budget.accelerator_hours:g} accelerator-hours are spent")
        if not interrupted and len(ended) >= budget.num_trials:
            return self._end(f"{len(ended)} candidates were tried")
        self._pruning = Pruning(self._request, ended) if self._request.prunes else None
        return interrupted[0] if interrupted else self._new(propose(self._request, self._starts, ended))

    def tell(self, trial: OptimizerTrial) -> None:
        """Learn how a trial stands that was run."""
        self._trials[trial.number] = trial

    def spec(self, trial: OptimizerTrial) -> TrialSpec:
        """What a launcher runs for the trial: as many steps as its samples last."""
        request, candidate = self._request, trial.candidate
        job = request.job_of(candidate)
        accelerator = job.cluster.accelerator
        on_cpu = accelerator.kind == "cpu"
        return TrialSpec(
            trial_id=trial.id,
            model=job.model,
            workload=job.workload,
            layout=request.layout_of(candidate.data_parallel_degree),
            device="cpu" if on_cpu else "cuda",
            settings=request.trial.just_steps(self._most_steps(candidate)),
            seed=request.seed,
            reference_flop_per_s=accelerator.reference_flop_per_s,  # no MFU is told, so none is measured
            memory_bytes=None if on_cpu else accelerator.memory_bytes,
            cluster=job.cluster,
            jobs=trial.jobs,
            optimizer=candidate.optimizer,
        )

    def reached(self, trial: OptimizerTrial) -> TargetReached | None:
        """What the trial took to the target; None where it is not there."""
        curve = trial.curve
        num_steps = curve.steps_to(self._request.target_loss, self._request.window_sequences)
        if num_steps is None:
            return None
        time_s = num_steps * curve.step_time_s
        hours = time_s * trial.world_size / 3600
        price = self._request.job.cluster.price_per_accelerator_hour
        return TargetReached(
            num_steps=num_steps,
            num_samples=num_steps * curve.global_batch_size,
            step_time_s=curve.step_time_s,
            time_s=time_s,
            accelerator_hours=hours,
            cost=hours * price if price else None,
        )

    def loses(self, trial: OptimizerTrial) -> str | None:
        """Why the running trial should end before its target."""
        return None if self._pruning is None else self._pruning.verdict(trial)

    def ended(self, trial: OptimizerTrial, *, pruned: str | None, failure: TrialFailure | None) -> OptimizerTrial:
        """The trial as its end is stored: at the target, pruned, failed, or with its samples used up."""
        reached = self.reached(trial)
        if reached is not None:
            detail = f"at the target after {reached.num_steps} steps"
            ended = replace(trial, state=TrialState.COMPLETE, reached=reached, detail=detail)
        elif pruned is not None:
            ended = replace(trial, state=TrialState.PRUNED, detail=pruned)
        elif failure is not None:
            ended = replace(trial, state=TrialState.FAILED, detail=f"{failure.kind}: {failure.message}")
        else:
            detail = f"not at the target after {trial.curve.num_samples} sequences"
            ended = replace(trial, state=TrialState.COMPLETE, detail=detail)
        self._trials[ended.number] = ended
        return ended

    def _most_steps(self, candidate: OptimizerCandidate) -> int:
        return math.ceil(self._request.budget.max_samples / candidate.global_batch_size)

    def _new(self, candidate: OptimizerCandidate) -> OptimizerTrial:

        number = len(self._trials)
        return OptimizerTrial(
            id=f"{self._id}-{number:04d}",
            study_id=self._id,
            number=number,
            candidate=candidate,
            world_size=self._request.layout_of(candidate.data_parallel_degree).world_size,
            curve=LossCurve(global_batch_size=candidate.global_batch_size),
        )

    def _end(self, why: str) -> Finish:
        best = front(self._trials.values())
        if not best:
            return Finish(state=RunState.FAILED, detail=f"{why}, and none came to the target")
        reached = sum(trial.reached is not None for trial in self._trials.values())
        return Finish(state=RunState.COMPLETE, detail=f"{why}, and {reached} came to the target")

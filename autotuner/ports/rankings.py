"""What a list of trials is asked for, and what its order rests on."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.trial import TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFilter:
    """Which trials to list; None lets all pass."""

    state: TrialState | None = None
    tensor_parallel_degree: int | None = None
    pipeline_parallel_degree: int | None = None
    micro_batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTime:
    """What a ranked trial says of the order: its step time, measured or estimated, and how well that is known.

    Attributes:
        step_time_interval_s: Half the 95 % interval of the step time, from the quartiles where steps were few; None
            where it is not known.
        noise_floor: Relative difference of equal runs; None where the trial ran once.
        repeated_s: Step times of the trials that repeat it.
        worth_per_step: What divided by the step time is the value that trials are ordered by; the same for all of them
            where speed alone counts.
    """

    trial_id: str
    step_time_s: float
    step_time_interval_s: float | None
    noise_floor: float | None
    repeated_s: tuple[float, ...] = ()
    worth_per_step: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsVersion:
    """Changes with whatever the trials of a sweep tell but for their steps.

    Attributes:
        last_event: Sequence of the last event that tells of more than a step; 0 without one.
        num_trials: How many there are.
    """

    last_event: int
    num_trials: int

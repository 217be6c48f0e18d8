"""Trials that somebody wants to run again: which is next, and which of those that run is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotuner.core.layout import Layout
from autotuner.core.sweep import Rerun
from autotuner.core.trial import Trial
from autotuner.search.sweeps.challenge_runs import first_measured
from autotuner.search.sweeps.instructions import Repeat


def next_rerun(reruns: Sequence[Rerun], trials: Mapping[int, Trial]) -> Repeat | None:
    """The layout to run again, as a repeat of its first trial that was measured; None where all have run."""
    for wanted in reruns:
        layout = trials[wanted.number].layout
        runs = [trial for _, trial in sorted(trials.items()) if trial.layout == layout]
        if sum(trial.state.finished for trial in runs) < wanted.num_runs:
            first = first_measured(runs)
            return Repeat(layout=layout, repeats=None if first is None else first.number)
    return None


def is_rerun(number: int, layout: Layout, reruns: Sequence[Rerun], trials: Mapping[int, Trial]) -> bool:
    """Whether the trial of that number and layout runs since somebody wants it to, and so to its end."""
    return any(number > wanted.number and trials[wanted.number].layout == layout for wanted in reruns)

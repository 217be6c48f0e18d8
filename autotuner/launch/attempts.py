"""One attempt at a trial, whatever runs as it: started once, followed, ended and judged."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.trial import TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.following import GRACE_S, Ending
from autotuner.launch.processes import ATTEMPT_ID, ask_for_stacks
from autotuner.launch.ranks import Ranks, Starter
from autotuner.launch.reports import Reports, TrialFiles, TrialReports
from autotuner.launch.verdict import verdict

_STACKS_S = 0.5
"""What ranks get to write their stacks when a trial has run out of time."""

OVERTIME_S = 1.0
"""What they get to leave after that: a trial must not outlive its limit by more than five seconds, and a hung rank will
not leave anyway."""


class Attempt(Protocol):
    """One attempt at a trial on this machine."""

    @property
    def reports(self) -> TrialReports:
        """What its ranks tell."""
        ...

    @property
    def peers_s(self) -> float:
        """What ranks get to say what they saw of a peer's death."""
        ...

    def start(self) -> Ranks:
        """Start the ranks; returns before they run. An ``OSError`` is the launcher's own trouble."""
        ...

    def grace_s(self, ending: Ending) -> float:
        """Seconds that the ranks get to leave; whatever they can say before is asked for here."""
        ...

    def last_steps(self) -> Sequence[StepReport]:
        """The steps that were told since the last look; no rank is left."""
        ...

    def judge(self, *, timed_out: bool, oom_killed: bool) -> Measurement | TrialFailure:
        """How the attempt ended; no rank is left."""
        ...


class DecoderAttempt:
    """Runs our own decoder."""

    def __init__(self, spec: TrialSpec, files: TrialFiles, starter: Starter, variables: Mapping[str, str]) -> None:
        self._spec = spec
        self._files = files
        self._starter = starter
        self._variables = variables
        self._reports = Reports(files.reports)
        self._ranks: Ranks | None = None

    @property
    def reports(self) -> Reports:
        """What its ranks write."""
        return self._reports

    @property
    def peers_s(self) -> float:
        """The others may tell of another cause than a lost connection."""
        return GRACE_S

    def start(self) -> Ranks:
        """Start ranks that read the trial's files."""
        self._ranks = self._starter.start(self._spec, self._files, self._variables)
        return self._ranks

    def grace_s(self, ending: Ending) -> float:
        """Ranks that have run out of time say before where they are."""
        match ending:
            case "measured":
                return 0.0  # the ranks have nothing left to say
            case "timeout":
                ask_for_stacks(self._variables[ATTEMPT_ID])
                time.sleep(_STACKS_S)
                return OVERTIME_S
            case _:
                return GRACE_S

    def last_steps(self) -> Sequence[StepReport]:
        """What was written since."""
        return self._reports.new_steps()

    def judge(self, *, timed_out: bool, oom_killed: bool) -> Measurement | TrialFailure:
        """By what the ranks reported, and what whoever started them saw."""
        assert self._ranks is not None  # it was started
        return verdict(
            self._spec,
            self._reports,
            self._ranks,
            rank_logs=self._files.read_rank_logs(),
            timed_out=timed_out,
            oom_killed=oom_killed,
        )

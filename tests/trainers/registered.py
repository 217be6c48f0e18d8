"""Registrations of the small trainer, and trials that it runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotuner.core.choices import ExportFormat
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.launch.trainers.progress import Reported, ReportedStep
from autotuner.launch.trainers.registration import RegisteredTrainer
from tests.builders import cpu_cluster

LOOP = Path(__file__).with_name("loop.py")

_COMMAND = (
    "{python}",
    "-S",
    str(LOOP),
    "--ranks={world_size}",
    "--steps={steps}",
    "--spec={spec}",
    "{arguments}",
)


class PrintedSteps:
    """Reads what the small trainer prints, which says no times."""

    _line = re.compile(r"step (\d+) loss (\S+) bytes (\d+)")

    def read(self, line: str) -> Reported | None:
        if (found := self._line.match(line)) is None:
            return None
        step, loss, peak_bytes = found.groups()
        return ReportedStep(step=int(step), loss=float(loss), peak_bytes=int(peak_bytes))


def registered(name: str = "loop", *, reports: str = "reporter", **variables: str) -> RegisteredTrainer:
    """The small trainer, with what its variables have it do."""
    return RegisteredTrainer(
        trainer=Trainer(name=name, format=ExportFormat.ARGUMENTS, fixed={"precision": "fp32"}),
        command=_COMMAND,
        working_directory=LOOP.parent,
        variables=variables,
        reports=reports,
        readers={"printed": lambda trial: PrintedSteps()},
    )


def by_trainer(trial: TrialSpec, registration: RegisteredTrainer, **changes: Any) -> TrialSpec:
    """The trial, to be run by a trainer."""
    return replace(trial, trainer=registration.trainer, cluster=cpu_cluster(), **changes)

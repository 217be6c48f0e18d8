"""One attempt at a trial by a registered trainer."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autotuner.catalog.software import load_stack
from autotuner.core.codec import dumps
from autotuner.core.job import Job
from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.measuring import Peak
from autotuner.core.trial import TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.export.formats import export
from autotuner.export.target import Export
from autotuner.host.machine import hardware_facts, settings_of_libraries, system_facts
from autotuner.launch.attempts import GRACE_S, OVERTIME_S, Ending
from autotuner.launch.ranks import ATTEMPT_ID, CannotRun, Ranks
from autotuner.launch.reports import TrialFiles
from autotuner.launch.trainers.processes import TrainerProcesses
from autotuner.launch.trainers.registration import Registration, on_this_machine, rendered
from autotuner.launch.trainers.told import CoreWatch, TrainerReports
from autotuner.launch.trainers.verdict import trainer_verdict

REPORT_DIR = "AUTOTUNER_REPORT_DIR"
"""Variable that names the folder of a reporter's files."""

SPEC = "AUTOTUNER_SPEC"
"""Variable that holds the trial as JSON."""

_NEEDED_BY_ANY = ("PATH", "HOME", "LANG", "TMPDIR")
"""Variables that a trainer gets beside those that its operator named."""

_LEAVING_S = 1.0
"""What a trainer that was measured gets to remove what it shares beyond its life (segments of shared memory)."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._:+-]")


class TrainerAttempt:
    """Renders the layout in the trainer's words, starts it, and judges how it ended.

    Args:
        registration: How it is started here.
        spec: The trial.
        files: Where the trial's files lie.
        attempt_id: What its processes carry in their environment.
        devices: Names of those it may use.
        peak: What MFU is a share of.
    """

    def __init__(
        self,
        registration: Registration,
        spec: TrialSpec,
        files: TrialFiles,
        *,
        attempt_id: str,
        devices: Sequence[str],
        peak: Peak,
    ) -> None:
        self._registration = registration
        self._spec = spec
        self._files = files
        self._attempt_id = attempt_id
        self._devices = devices
        self._reports = TrainerReports(
            spec,
            peak,
            files.trainer_reports,
            registration.new_reader(spec),
            described(registration, spec) | system_facts() | hardware_facts(),
        )
        self._ranks: TrainerProcesses | None = None

    @property
    def reports(self) -> TrainerReports:
        """What it tells of its steps."""
        return self._reports

    @property
    def peers_s(self) -> float:
        """Nothing that it says later would change what it reported."""
        return 0.0

    def start(self) -> Ranks:
        """Write the layout's files and start the command.

        Raises:
            CannotRun: The registered folder is not there.
        """
        if not self._registration.working_directory.is_dir():
            name = self._registration.trainer.name
            raise CannotRun(f"the trainer {name} has no folder {self._registration.working_directory}")
        self._files.trainer_reports.mkdir()
        exported = exported_for(self._spec)
        variables = trainer_environment(
            self._registration, self._spec, exported, self._files, self._attempt_id, self._devices
        )
        self._reports.runs_on(settings_of_libraries(variables))
        command = rendered(
            self._registration.command,
            self._spec,
            on_this_machine(self._spec.layout.world_size),
            arguments=placed(exported, self._files.exported),
            file=_written(exported, self._files.exported),
            spec_file=self._files.spec,
        )
        self._ranks = TrainerProcesses(
            command,
            directory=self._registration.working_directory,
            environment=variables,
            limit_bytes=self._spec.settings.memory_budget_bytes if self._spec.device == "cpu" else None,
            heard=self._reports.heard,
        )
        self._reports.watch_cores(CoreWatch(self._ranks.living))
        return self._ranks

    def grace_s(self, ending: Ending) -> float:
        """It is asked for nothing: a trainer that knows no signal would die of it."""
        match ending:
            case "measured":
                return _LEAVING_S
            case "timeout":
                return OVERTIME_S
            case _:
                return GRACE_S

    def last_steps(self) -> Sequence[StepReport]:
        """Every step that was told; of a death the last one only where no rank is missing in it."""
        ended_well = self._ranks is not None and self._ranks.exit_code == 0
        return self._reports.new_steps(is_over=ended_well)

    def judge(self, *, timed_out: bool, oom_killed: bool) -> Measurement | TrialFailure:
        """By what it told, how it left and what it printed."""
        assert self._ranks is not None  # it was started
        return trainer_verdict(self._spec, self._reports, self._ranks, timed_out=timed_out, oom_killed=oom_killed)


def trainer_environment(
    registration: Registration,
    spec: TrialSpec,
    exported: Export,
    files: TrialFiles,
    attempt_id: str,
    devices: Sequence[str],
) -> dict[str, str]:
    """All variables of a trainer: what any program needs, what its operator allows and sets, the launcher's own."""
    allowed = (*_NEEDED_BY_ANY, *registration.environment)
    return {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        **({"GLOO_SOCKET_IFNAME": "lo"} if spec.device == "cpu" else {}),
        **{name: os.environ[name] for name in allowed if name in os.environ},
        **exported.environment,
        **_with_memory(registration.variables, spec),
        "CUDA_VISIBLE_DEVICES": ",".join(devices) if spec.device == "cuda" else "",
        ATTEMPT_ID: attempt_id,
        REPORT_DIR: str(files.trainer_reports),
        SPEC: dumps(spec),
    }


def _with_memory(variables: Mapping[str, str], spec: TrialSpec) -> dict[str, str]:
    """With the share of a GPU's memory that torch's allocator may take, where the trial has a budget.

    Source: c10/cuda/CUDAAllocatorConfig.h of torch 2.13, ``per_process_memory_fraction``.
    """
    budget, memory = spec.settings.memory_budget_bytes, spec.memory_bytes
    if spec.device != "cuda" or budget is None or memory is None:
        return dict(variables)
    name = "PYTORCH_CUDA_ALLOC_CONF"
    own = f"per_process_memory_fraction:{min(1.0, budget / memory):.4f}"
    return {**variables, name: ",".join(filter(None, (variables.get(name, ""), own)))}


def exported_for(spec: TrialSpec) -> Export:
    """The layout in the trainer's words; names that a caller gave are made harmless, whatever reads the words."""
    assert spec.trainer is not None  # a trainer's trial says both
    assert spec.cluster is not None
    model = replace(spec.model, name=_UNSAFE.sub("-", spec.model.name))
    cluster = replace(spec.cluster, name=_UNSAFE.sub("-", spec.cluster.name))
    job = Job(model=model, cluster=cluster, workload=spec.workload, stack=load_stack(spec.trainer.stack))
    return export(job, spec.layout, spec.trainer.format)


def placed(exported: Export, folder: Path) -> list[str]:
    """The arguments, with the place of each file that they name."""
    names = {file.name for file in exported.files}
    return [str(folder / argument) if argument in names else argument for argument in exported.arguments]


def _written(exported: Export, folder: Path) -> Path | None:
    """The files of the layout, in a folder of the trial; the path of the first."""
    folder.mkdir()
    for file in exported.files:
        assert Path(file.name).name == file.name  # a target names files, not places
        (folder / file.name).write_text(file.text)
    return folder / exported.files[0].name if exported.files else None


def described(registration: Registration, spec: TrialSpec) -> dict[str, str]:
    """What a measurement says of what ran; versions of its libraries are the trainer's own to tell."""
    return {
        "trainer": registration.trainer.name,
        "format": registration.trainer.format.value,
        "reports": registration.reports,
        "device": spec.cluster.accelerator.name if spec.cluster else "",
    }

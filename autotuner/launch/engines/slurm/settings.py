"""What an operator says of a Slurm cluster, beside what every engine is told."""

from __future__ import annotations

from pathlib import Path

from autotuner.core.errors import InvalidInput
from autotuner.core.value import CountFromZero, Positive, value

_PATTERN_LETTERS = "%\\"
"""Slurm reads them in a path of an output file."""


@value
class SlurmSettings:
    """How jobs are asked for.

    Attributes:
        shared: Folder that the service and all nodes see under this path; each job has a folder in it while it is
            known.
        python: Interpreter on the nodes (in the container, where there is one), which has torch and our package.
        account: Charged with the jobs; empty: Slurm's default.
        qos: Empty: Slurm's default.
        constraint: Features that nodes must have, such as ``h100&ib``.
        gres: What an accelerator is to Slurm, such as ``gpu`` or ``gpu:h100``; each job asks for as many per node as
            its cluster has. Empty: nothing is asked for.
        cpus_per_accelerator: Cores per rank; 0: as Slurm gives them, and one where accelerators are cores.
        container_image: Image that nodes run the job in, by pyxis and enroot; empty: none.
        container_mounts: Folders of the nodes that the container sees, as pyxis writes them; ``shared`` is one anyway.
        sbatch_lines: Options of each job as they stand after ``#SBATCH``: ``--exclusive``, ``--mem=0``.
        srun_arguments: Options of the step that starts a process on each node.
        setup: Lines of bash that run on a job's first node before: ``module load cuda``, ``export PYTHONPATH=/opt/a``.
            What they export the ranks get.
        slurm_conf: Configuration that the commands read (``SLURM_CONF``); empty: Slurm's default.
        command_timeout_s: A command of Slurm that has not answered by then is ended.
        cancel_s: How long a cancelled job may take to end; Slurm itself waits ``KillWait``, 30 seconds by default.
    """

    shared: str
    python: str = "python3"
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = ""
    cpus_per_accelerator: CountFromZero = 0
    container_image: str = ""
    container_mounts: tuple[str, ...] = ()
    sbatch_lines: tuple[str, ...] = ()
    srun_arguments: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    slurm_conf: str = ""
    command_timeout_s: Positive = 30.0
    cancel_s: Positive = 60.0

    def __post_init__(self) -> None:
        if not Path(self.shared).is_absolute():
            raise InvalidInput("shared", self.shared, "must be an absolute path", Path(self.shared).absolute())
        if any(letter in self.shared for letter in _PATTERN_LETTERS):
            raise InvalidInput("shared", self.shared, "must hold no % and no backslash, which Slurm reads as patterns")
        for index, line in enumerate(self.sbatch_lines):
            _require_option(f"sbatch_lines.{index}", line)
        for index, argument in enumerate(self.srun_arguments):
            _require_option(f"srun_arguments.{index}", argument)
        if self.container_mounts and not self.container_image:
            rule = "must be empty where no container_image is named"
            raise InvalidInput("container_mounts", self.container_mounts, rule)


def _require_option(field: str, text: str) -> None:
    """``text`` is one option on one line."""
    if not text.startswith("-") or "\n" in text:
        nearest = f"--{text.removeprefix('#SBATCH').strip().lstrip('-').splitlines()[0]}" if text.strip() else None
        raise InvalidInput(field, text, "must be one option that begins with -", nearest)

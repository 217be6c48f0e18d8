"""Slurm's commands: run without a shell, with little of the service's environment, and ended where they hang."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from autotuner.core.errors import AutotunerError
from autotuner.launch.engines.engine import EngineUnavailable

Command = Callable[..., str]
"""Runs a program with arguments and returns what it printed; raises ``CommandFailed`` or ``EngineUnavailable``."""

_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ")
"""Variables that commands get, and with them the jobs: a database's URL or a token of the service's is none of them."""

_AWAY = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted or received",
    "Transport endpoint is not connected",
    "Connection refused",
    "Connection timed out",
    "Connection reset by peer",
    "Insane message length",
    "in standby mode",
    "temporarily unable",
    "Resource temporarily unavailable",
    "Slurm controller not responding",
    "Unable to establish controller machine",
    "fetch_config",
    "Munge",
    "MUNGE",
    "munge",
    "authentication",
    "MaxSubmitJob",
    "job submit limit",
    "Unable to open connection",
)
"""Parts of what commands say where the controller, or what vouches for us to it, is away or has too much to do now."""


class CommandFailed(AutotunerError):
    """Slurm answered, and the answer was no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCommands:
    """Slurm's own programs on this machine.

    Attributes:
        timeout_s: What a command may take.
        slurm_conf: What ``SLURM_CONF`` names; empty: nothing.
    """

    timeout_s: float
    slurm_conf: str = ""

    def __call__(self, program: str, *arguments: str) -> str:
        """What the program printed.

        Raises:
            CommandFailed: It ended with an error that will not go away.
            EngineUnavailable: It is missing, hangs, or reached no controller.
        """
        try:
            done = subprocess.run(
                (program, *arguments),
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=self.timeout_s,
            )
        except OSError as error:
            raise EngineUnavailable(f"cannot run {program}: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise EngineUnavailable(f"{program} has not answered for {self.timeout_s:g} s") from error
        if done.returncode == 0:
            return done.stdout
        said = _said(done.stderr) or f"it left with code {done.returncode}"
        if any(word in said for word in _AWAY):
            raise EngineUnavailable(f"{program}: {said}")
        raise CommandFailed(f"{program}: {said}")

    def _variables(self) -> dict[str, str]:
        passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
        conf = self.slurm_conf or os.environ.get("SLURM_CONF", "")
        return passed | ({"SLURM_CONF": conf} if conf else {})


def _said(errors: str) -> str:
    """The last lines on standard error as one."""
    return "; ".join(line.strip() for line in errors.splitlines()[-4:] if line.strip())

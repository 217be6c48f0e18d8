"""Ranks under torchrun: a fresh interpreter for each, which imports torch for seconds and shares nothing.

Who died comes from torchrun's own ``ChildFailedError``, which our agent writes down. Its error files
(``TORCHELASTIC_ERROR_FILE``) would not do: a rank writes its own, so one that was killed has none.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.ranks import ATTEMPT_ID, Death, Ranks, end_all
from autotuner.launch.reports import TrialFiles


class Torchrun:
    """Starts an agent per trial, which starts and watches the ranks."""

    def start(self, spec: TrialSpec, files: TrialFiles, environment: Mapping[str, str]) -> Ranks:
        """Start ranks as ``Starter`` says."""
        with files.agent_log.open("wb") as log:
            agent = subprocess.Popen(
                _command(spec, files),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return _AgentRanks(agent, files, environment[ATTEMPT_ID])

    def close(self) -> None:
        """Release nothing: nothing is kept."""


class _AgentRanks:
    """The ranks of one agent, which ends the others when one dies, and then itself."""

    def __init__(self, agent: subprocess.Popen[bytes], files: TrialFiles, attempt_id: str) -> None:
        self._agent = agent
        self._files = files
        self._attempt_id = attempt_id

    def ended(self) -> bool:
        return self._agent.poll() is not None

    def deaths(self) -> Sequence[Death]:
        return dead_ranks(self._files.deaths)

    def log(self) -> str:
        return self._files.agent_log.read_text(errors="replace")

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        stuck = end_all(self._attempt_id, grace_s=grace_s)
        if self._agent.pid not in stuck:
            self._wait_for_agent(grace_s)
        return stuck

    def _wait_for_agent(self, grace_s: float) -> None:
        """Take the agent's exit status; once seen on a busy machine, its first thread had ended and others had not."""
        try:
            self._agent.wait(max(grace_s, 1.0))
        except subprocess.TimeoutExpired:
            self._agent.kill()
            self._agent.wait()


def dead_ranks(path: Path) -> Sequence[Death]:
    """The ranks that an agent found dead, in its order, without those that it then ended itself; none until it ends."""
    if not path.exists():
        return ()
    found = [Death(rank=rank, exit_code=code) for rank, code in json.loads(path.read_text())]
    return [death for death in found if death.exit_code != -signal.SIGTERM]


def _command(spec: TrialSpec, files: TrialFiles) -> list[str]:
    return [
        *(sys.executable, "-m", "trials.process.torchrun_agent", str(os.getpid()), str(files.deaths)),
        *("--standalone", "--nproc-per-node", str(spec.layout.world_size), "--max-restarts", "0"),
        *("--redirects", "3", "--log-dir", str(files.rank_logs)),
        *("-m", "trials", "--spec", str(files.spec), "--reports", str(files.reports)),
    ]

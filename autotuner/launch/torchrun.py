"""Ranks under torchrun: a fresh interpreter for each, which imports torch for seconds and shares nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

from autotuner.domain.trial import TrialSpec
from autotuner.launch.files import TrialFiles
from autotuner.launch.processes import end_all
from autotuner.launch.ranks import Death, Ranks, environment

__all__ = ["Torchrun", "dead_ranks"]

_DEAD_RANK = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
"""How torchrun's agent logs the first rank it found dead."""

_ALSO_DEAD = re.compile(r"^ *rank +: (\d+) \(local_rank: \d+\)\n *exitcode +: (-?\d+)", re.MULTILINE)
"""How its closing summary lists every rank it found dead at once: a rank that was killed may stand behind a peer that
wrote why it failed, since only that one knows when."""


class Torchrun:
    """Starts an agent per trial, which starts and watches the ranks."""

    def start(self, spec: TrialSpec, files: TrialFiles, mark: str) -> Ranks:
        """See ``Starter``."""
        with files.agent_log.open("wb") as log:
            agent = subprocess.Popen(
                _command(spec, files),
                env=environment(spec, mark),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return _AgentRanks(agent, files, mark)

    def close(self) -> None:
        """Nothing is kept."""


class _AgentRanks:
    """The ranks of one agent, which ends the others when one dies, and then itself."""

    def __init__(self, agent: subprocess.Popen[bytes], files: TrialFiles, mark: str) -> None:
        self._agent = agent
        self._files = files
        self._mark = mark

    def ended(self) -> bool:
        return self._agent.poll() is not None

    def deaths(self) -> Sequence[Death]:
        return dead_ranks(self.log())

    def log(self) -> str:
        return self._files.agent_log.read_text(errors="replace")

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        stuck = end_all(self._mark, grace_s=grace_s)
        if self._agent.pid not in stuck:
            self._agent.wait()
        return stuck


def dead_ranks(log: str) -> Sequence[Death]:
    """The ranks that an agent found dead, the first it noticed in front, without those that it then ended itself."""
    first = [Death(rank=int(rank), exit_code=int(code)) for code, rank in _DEAD_RANK.findall(log)]
    listed = [Death(rank=int(rank), exit_code=int(code)) for rank, code in _ALSO_DEAD.findall(log)]
    return first + [death for death in listed if death.exit_code != -signal.SIGTERM]


def _command(spec: TrialSpec, files: TrialFiles) -> list[str]:
    return [
        *(sys.executable, "-m", "trials.process.torchrun_agent", str(os.getpid())),
        *("--standalone", "--nproc-per-node", str(spec.layout.world_size), "--max-restarts", "0"),
        *("--redirects", "3", "--log-dir", str(files.rank_logs)),
        *("-m", "trials", "--spec", str(files.spec), "--reports", str(files.reports)),
    ]

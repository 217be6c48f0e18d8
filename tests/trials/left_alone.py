"""`python -m tests.trials.left_alone FOLDER STARTER`: a launcher with an endless trial, for a test to kill.

It says ``running`` at the trial's first step, and how the trial ended if that came before the kill.
"""

from __future__ import annotations

import sys
from pathlib import Path

from autotuner.core.codec import loads
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.forks import Forks
from autotuner.launch.local import LocalLauncher
from autotuner.launch.node_processes import NodeProcesses
from tests.trials.launching import Watcher


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    spec = loads(TrialSpec, (folder / "spec.json").read_text())
    starter = {"forked": Forks, "torchrun": NodeProcesses}[sys.argv[2]]()
    watcher = Watcher(at_first_step=lambda: _say("running"))
    _say(str(LocalLauncher(folder / "work", starter).run(spec, watcher)))

"""A torchrun that dies with its parent process, and records which ranks died.

A launcher that is killed with SIGKILL cannot clean up. Therefore this program asks the kernel for a SIGTERM when the
thread that started it ends, and only then becomes torchrun, which ends its ranks on SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from autotuner.trials.processes import die_with_parent


def main() -> None:
    """Run torchrun with the arguments of this process, except for the first two.

    The first argument is the pid of the launcher, with which this process ends; 0: there is none. The second is a file.
    If ranks die, it gets ``[[rank, exit code], ...]`` in the order in which torchrun saw their deaths. An exit code
    below zero is the number of the signal that ended the rank.
    """
    launcher_pid, deaths = int(sys.argv.pop(1)), Path(sys.argv.pop(1))
    die_with_parent(signal.SIGTERM)
    if launcher_pid and os.getppid() != launcher_pid:
        sys.exit("the launcher has ended")  # it died before the request to the kernel

    # importing torch takes a second, and the launcher may be gone by then
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    from torch.distributed.run import main as torchrun  # noqa: PLC0415

    try:
        torchrun(sys.argv[1:])
    except ChildFailedError as error:
        deaths.write_text(json.dumps([(rank, failure.exitcode) for rank, failure in error.failures.items()]))
        raise


if __name__ == "__main__":
    main()

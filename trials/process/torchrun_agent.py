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
    """Run torchrun with the arguments of this process after the first two.

    The first argument is the pid of the launcher; this process ends when the launcher ends. 0 means that there is no
    launcher. The second argument is the path of a file. If ranks die, ``[[rank, exit code], ...]`` is written to the
    file, in the order in which torchrun noticed the deaths. A negative exit code is the number of the signal that ended
    the rank.
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

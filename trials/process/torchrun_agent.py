"""torchrun that dies with whoever started it.

A launcher killed with SIGKILL cannot clean up. So the agent asks the kernel for a SIGTERM when the thread that
started it ends, and only then becomes torchrun, which ends its ranks on SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys

from trials.runtime.parent_death import die_with_parent

__all__ = ["main"]


def main() -> None:
    """Run torchrun with this process's arguments; the first is the pid of the launcher."""
    launcher_pid = int(sys.argv.pop(1))
    die_with_parent(signal.SIGTERM)
    if os.getppid() != launcher_pid:
        sys.exit("the launcher is gone")  # it died before the kernel was asked to tell

    from torch.distributed.run import main as torchrun  # noqa: PLC0415  # torch takes a second, and nobody may be left to serve

    torchrun(sys.argv[1:])


if __name__ == "__main__":
    main()

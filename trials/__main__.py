"""``python -m autotuner.trials --spec SPEC.json --reports REPORTS.jsonl``: one rank of a trial, alone or in torchrun.

Exit codes: 0, the reports end with a measurement; 1, the trial failed and the reports say why; 2, the spec cannot be
read or cannot run on these ranks (torchrun itself exits with 1 whenever a rank exits with another code than 0).
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from autotuner.trials.processes import die_with_parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank of a trial, as torchrun starts it, and return its exit code.

    Args:
        arguments: The command-line arguments after the program's name; None: the arguments of this process.
    """
    die_with_parent(signal.SIGKILL)  # torchrun's ranks have sessions of their own, so killing its group spares them
    faulthandler.enable()  # a crash in native code leaves a stack
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # a launcher that gives up asks where this rank hangs
    parser = argparse.ArgumentParser(prog="python -m autotuner.trials", description="Run one rank of a trial.")
    parser.add_argument("--spec", type=Path, required=True, help="a TrialSpec as JSON")
    parser.add_argument("--reports", type=Path, required=True, help="file to append JSON lines to")
    paths = parser.parse_args(arguments)
    try:
        spec_text = paths.spec.read_text()
    except OSError as error:
        parser.error(f"cannot read the spec: {error}")  # exits with code 2
    os.environ["OMP_NUM_THREADS"] = "1"  # one thread per rank: OpenMP barriers among threads that share cores cost most
    return _attempt(spec_text, paths.reports)


def _attempt(spec_text: str, reports_path: Path) -> int:
    # importing torch takes a second or two; a parent that ends meanwhile takes this process along already
    from autotuner.trials.job.attempt import attempt  # noqa: PLC0415
    from autotuner.trials.rank import RankInfo, Reporter  # noqa: PLC0415

    rank_info = RankInfo.from_environment(os.environ)
    return attempt(spec_text, Reporter(reports_path, rank=rank_info.rank), rank_info)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # torch's own clean-up takes a second and has nothing left to do

"""``python -m tests.chaos``: faults strike a real service and a worker, and what is stored must not show it.

Each fault strikes one sweep, at a random moment. Afterwards the sweep ends, no completed trial is lost or counted
twice, the ranking is the undisturbed one, no process is left without its parent, and no work folder. Everything random
but how processes meet follows from the seed and the number of the fault: ``--only`` repeats one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autotuner.service.observing import configure_logs, silence_optuna
from tests.chaos.arena import Arena, Struck, arena
from tests.chaos.databases import StoreName
from tests.chaos.faults import FAULTS
from tests.chaos.jobs import BRIEF, Job

_FILL_DISKS = ("fill_disk", "fill_trials_disk", "start_too_early")
_STORES: tuple[StoreName, ...] = ("sqlite", "postgresql")


def main() -> None:
    """Print every fault and what came of it, and end with 1 if one was not survived."""
    given = _parser().parse_args()
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves every block: no server and no mount stays
    configure_logs("error")
    silence_optuna()
    numbers = given.only or list(range(given.faults))
    num_failed = 0
    for store in given.store or _STORES:
        folder = given.folder or _new_folder(store)
        num_survived = survived(
            store, given.seed, numbers, folder, kinds=given.kind, jobs=[BRIEF] if given.brief else []
        )
        num_failed += len(numbers) - num_survived
        _say(f"{store}, seed {given.seed}: survived {num_survived} of {len(numbers)}")
        if num_survived < len(numbers):
            _say(f"logs: {folder}")
        elif given.folder is None:
            shutil.rmtree(folder.parent)
    raise SystemExit(num_failed > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Faults, and what they leave.")
    parser.add_argument("--faults", type=int, default=50, help="for each database")
    parser.add_argument("--store", choices=_STORES, action="append", help="both, unless one is named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, action="append", metavar="NUMBER", help="faults of these numbers alone")
    parser.add_argument("--kind", action="append", choices=[fault.name for fault in FAULTS], help="of these alone")
    parser.add_argument("--brief", action="store_true", help="strike sweeps of three trials")
    parser.add_argument("--folder", type=Path, help="made for logs and databases, of one store; else a temporary one")
    return parser


def _new_folder(store: StoreName) -> Path:
    """It stays where a fault was not survived."""
    folder = Path(tempfile.mkdtemp(prefix=f"autotuner-chaos-{store}-"))
    folder.chmod(0o755)  # PostgreSQL gives up root, and must get through
    return folder / "all"


def survived(
    store: StoreName,
    seed: int,
    numbers: Sequence[int],
    folder: Path,
    *,
    kinds: Sequence[str] | None = None,
    jobs: Sequence[Job] = (),
) -> int:
    """How many of the faults of those numbers a service and a worker survive, on an empty database.

    Args:
        folder: Made for their files, and left.
        kinds: Names of the faults that strike in turn; all, unless some are named.
        jobs: What they strike, in the place of what each fault says.
    """
    faults = [fault for fault in FAULTS if store in fault.stores and (kinds is None or fault.name in kinds)]
    with arena(store, seed, folder) as there:
        if not there.database.disk.is_own:
            faults = [fault for fault in faults if fault.name not in _FILL_DISKS]
            _say(f"{store}: no disk can be mounted, none is filled")
        return sum(_is_survived(there, number, there.struck(number, faults, jobs)) for number in numbers)


def _is_survived(there: Arena, number: int, struck: Struck) -> bool:
    came = "FAILED" if struck.problems else "ok"
    _say(f"{there.store_name} {number:3}: {struck.said}: {came}, {struck.took_s:.1f} s")
    for problem in struck.problems:
        _say(f"    {problem}")
    return not struck.problems


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""``python -m tests.chaos``: faults strike a real service and a worker, and what is stored must not show it.

Each fault strikes one sweep, at a random moment. Afterwards the sweep ends, no completed trial is lost or counted
twice, the ranking is the undisturbed one, no process is left without its parent, and no work folder. Everything random
but how processes meet follows from the seed and the number of the fault: ``--only`` repeats one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.arena import Arena, arena
from tests.chaos.databases import StoreName
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.jobs import JOBS

__all__ = ["main", "survived"]

_STORES: tuple[StoreName, ...] = ("sqlite", "postgresql")


def main() -> None:
    """Print every fault and what came of it, and end with 1 if one was not survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Faults, and what they leave.")
    parser.add_argument("--faults", type=int, default=50, help="for each database")
    parser.add_argument("--store", choices=_STORES, action="append", help="both, unless one is named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, action="append", metavar="NUMBER", help="faults of these numbers alone")
    parser.add_argument("--kind", action="append", choices=[fault.name for fault in FAULTS], help="of these alone")
    parser.add_argument("--keep", action="store_true", help="the logs of services and workers")
    given = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    num_failed = 0
    for store in given.store or _STORES:
        numbers = given.only or list(range(given.faults))
        folder = Path(tempfile.mkdtemp(prefix=f"autotuner-chaos-{store}-"))
        folder.chmod(0o755)  # PostgreSQL gives up root, and must get through
        num_survived = survived(store, given.seed, numbers, folder / "all", kinds=given.kind)
        num_failed += len(numbers) - num_survived
        _say(f"{store}, seed {given.seed}: survived {num_survived} of {len(numbers)}")
        if given.keep or num_survived < len(numbers):
            _say(f"logs: {folder}")
    raise SystemExit(num_failed > 0)


def survived(
    store: StoreName, seed: int, numbers: Sequence[int], folder: Path, *, kinds: Sequence[str] | None = None
) -> int:
    """How many of the faults of those numbers a service and a worker survive, on an empty database."""
    faults = [fault for fault in FAULTS if store in fault.stores and (kinds is None or fault.name in kinds)]
    with arena(store, seed, folder) as there:
        if not there.database.disk.is_own:
            faults = [fault for fault in faults if fault.name != "fill_disk"]
            _say(f"{store}: no disk can be mounted, none is filled")
        names = {job.name for number in numbers for job in faults[number % len(faults)].jobs}
        there.calm([job for job in JOBS if job.name in names])
        return sum(_is_survived(there, number, faults) for number in numbers)


def _is_survived(there: Arena, number: int, faults: Sequence[Fault]) -> bool:
    struck = there.struck(number, faults)
    _say(
        f"{there.store_name} {number:3}: {struck.said}: {'FAILED' if struck.problems else 'ok'}, {struck.took_s:.1f} s"
    )
    for problem in struck.problems:
        _say(f"    {problem}")
    return not struck.problems


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

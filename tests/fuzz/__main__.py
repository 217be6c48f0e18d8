"""``python -m tests.fuzz``: every parser of the project, fed with what coverage and a corpus of real examples lead to.

Each target runs in a process of its own (``tests.fuzz.process``) for so many seconds. It fails where something is
raised that is no refusal, a property does not hold, or a parser takes a second of a core or a gibibyte for 10 kB; the
input is kept. A counterexample is mended, and becomes an example beside the parser's tests.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.target import names

_KEPT = Path("var/fuzz")
"""Where inputs that failed are kept, in the folder that it was started in."""

_START_S = 300
"""What a process may take beyond its seconds: imports are instrumented, on a machine that may be busy."""

_TOLD_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """What became of a target."""

    name: str
    executions: int
    """How often it was fed."""
    per_s: int
    """Executions per second."""
    edges: int
    """Of the product's code, that were reached."""
    corpus: int
    """Inputs that reach something that no other does."""
    failure: str
    """Its traceback, and where the input is; empty where it did not fail."""

    def __str__(self) -> str:
        figures = f"{self.executions:>9} executions {self.per_s:>6}/s {self.edges:>6} edges {self.corpus:>5} inputs"
        return f"{self.name:<28} {figures}  {'FAILED' if self.failure else 'ok'}"


def main() -> int:
    """Run those that were asked for; 1 where one fails."""
    given = _parser().parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1, 2**31)
    wanted = [name for name in names() if not given.only or any(name.startswith(one) for one in given.only)]
    if not wanted:
        _say(f"no target begins with {', '.join(given.only)}; there are {', '.join(names())}")
        return 1
    with ThreadPoolExecutor(given.cores) as threads:
        runs = []
        for run in threads.map(lambda name: fed(name, given.seconds, seed), wanted):
            _say(str(run) + (f"\n{run.failure}" if run.failure else ""))
            runs.append(run)
    failed = [run.name for run in runs if run.failure]
    executions = sum(run.executions for run in runs)
    _say(f"{len(runs)} targets, {executions} executions, seed {seed}: {len(failed)} failed {' '.join(failed)}".rstrip())
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Parsers, fed with anything.")
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("FUZZ_SECONDS", "5")), help="for each target")
    parser.add_argument("--only", action="append", metavar="NAME", help="targets whose names begin so")
    parser.add_argument("--cores", type=int, default=min(2, os.cpu_count() or 1), help="targets at once")
    parser.add_argument("--seed", type=int, help="random, unless it is said; it is printed")
    return parser


def fed(name: str, seconds: int, seed: int, kept: Path = _KEPT) -> Fed:
    """Feed one target in a process of its own; an input that fails is copied to ``kept``."""
    with tempfile.TemporaryDirectory(prefix="autotuner-fuzz-") as folder:
        command = (sys.executable, "-m", "tests.fuzz.process", name, folder, str(seconds), str(seed))
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False, timeout=seconds + _START_S
            )
            told, code = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired as error:
            told, code = f"it did not end in time\n{error.stderr!r}", 1
        failure = f"{_told(Path(folder), told)}\n{_keep(name, Path(folder), kept)}" if code else ""
    last = re.findall(r"cov: (\d+).*?corp: (\d+)", told)
    edges, corpus = map(int, last[-1]) if last else (0, 0)
    return Fed(
        name=name,
        executions=_stat(told, "number_of_executed_units"),
        per_s=_stat(told, "average_exec_per_sec"),
        edges=edges,
        corpus=corpus,
        failure=failure,
    )


def _stat(told: str, name: str) -> int:
    found = re.search(rf"stat::{name}:\s*(\d+)", told)
    return int(found[1]) if found else 0


def _told(folder: Path, printed: str) -> str:
    """The end of the traceback of what was raised; without one, the last words."""
    path = folder / "traceback"
    lines = (path.read_text() if path.exists() else printed).splitlines()
    return "\n".join(f"    {line[:300]}" for line in lines[-_TOLD_LINES:])


def _keep(name: str, folder: Path, kept: Path) -> str:
    """Where the input that failed is now."""
    lines = []
    for path in (*folder.glob("crash-*"), *folder.glob("timeout-*"), *folder.glob("oom-*")):
        kept.mkdir(parents=True, exist_ok=True)
        copy = shutil.copy(path, kept / f"{name}-{path.name}")
        lines.append(f"    {copy}: {path.read_bytes()[:200]!r}")
    return "\n".join(lines)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""Files that only an operator writes: trainers and engines, in TOML."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from autotuner.launch.engines.registration import read_engines
from autotuner.launch.trainers.registration import read_trainers
from tests.fuzz.target import Target

_ROOT = Path(__file__).parents[2]


def file_reader(read: Callable[[Path], object], suffix: str) -> Callable[[bytes], object]:
    """Reads bytes as the parser of a file does."""

    def check(data: bytes) -> object:
        path = _folder() / f"fuzzed{suffix}"
        path.write_bytes(data)
        return read(path)

    return check


@functools.cache
def _folder() -> Path:
    return Path(_made().name)


@functools.cache
def _made() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="autotuner-fuzz-")


def _blocks(*guides: str) -> tuple[bytes, ...]:
    """Return the TOML files that how-to guides show."""
    return tuple(
        block.encode()
        for name in guides
        for block in re.findall(
            r"^```toml\n(.*?)^```", (_ROOT / f"docs/how-to/{name}.md").read_text(), re.DOTALL | re.MULTILINE
        )
    )


TARGETS = (
    Target(
        name="trainers",
        check=file_reader(read_trainers, ".toml"),
        seeds=(
            (_ROOT / "examples/trainers.toml").read_bytes(),
            *_blocks("run-a-sweep-with-your-own-trainer", "import-from-your-own-loop"),
        ),
        words=(
            *("{arguments}", "{torchrun}", "{file}", "{seed!r}", "{seed.real}", "reports = ", "format = ", "[["),
            "'''",
        ),
    ),
    Target(
        name="engines",
        check=file_reader(read_engines, ".toml"),
        seeds=_blocks(
            *("register-an-engine", "run-a-sweep-on-slurm", "run-a-sweep-on-ray", "run-a-sweep-on-kubernetes"),
        ),
        words=("kind = ", '"slurm"', '"ray"', '"kubernetes"', '"processes"', "queues = [", "inf", "nan", "[[", "'''"),
    ),
)

"""``python -m tests.engines.overhead [REPETITIONS]``: what a trial costs on the engines that these tests start."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import engine_overhead
from tests.engines.ray.cluster import running_cluster
from tests.engines.ray.held import held_ray


def main() -> None:
    """Start the engines, measure, end them."""
    with ExitStack() as started:
        folder = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="engines-")))
        tables = {"ray": held_ray(started.enter_context(running_cluster())).registered(folder)}
        file = folder / "engines.toml"
        file.write_text("\n".join(f"[{name}]\n{table}\n" for name, table in tables.items()))
        engine_overhead.main([*(sys.argv[1:] or ["5"]), str(file)])


if __name__ == "__main__":
    main()

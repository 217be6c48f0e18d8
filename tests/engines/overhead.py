"""``python -m tests.engines.overhead [REPETITIONS]``: what a trial costs on the engines that these tests start.

Those that cannot be had here (Ray and Slurm are installed by ``make engines``) are left out, and named.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from bench import engine_overhead
from tests.engines.ray.cluster import running_cluster
from tests.engines.ray.held import held_ray
from tests.engines.slurm.cluster import slurm_cluster
from tests.kubernetes.cluster import FakeCluster
from tests.kubernetes.registered import table

__all__ = ["main"]


@contextmanager
def _ray(folder: Path) -> Iterator[str]:
    with running_cluster() as cluster:
        yield held_ray(cluster).registered(folder)


@contextmanager
def _slurm(folder: Path) -> Iterator[str]:
    short = Path(tempfile.mkdtemp(prefix="slurm-"))  # sockets lie in it
    with slurm_cluster(short) as cluster:
        yield f"""
            kind = "slurm"
            shared = "{cluster.shared}"
            slurm_conf = "{cluster.conf}"
            python = "{sys.executable}"
            setup = ["export PYTHONPATH={os.environ.get("PYTHONPATH", os.getcwd())}"]
            sbatch_lines = ["--exclusive"]
            poll_s = 0.2
        """
    shutil.rmtree(short, ignore_errors=True)
    del folder


@contextmanager
def _kubernetes(folder: Path) -> Iterator[str]:
    with FakeCluster(folder) as cluster:
        yield table(cluster)


_ENGINES: Mapping[str, tuple[bool, Callable[[Path], AbstractContextManager[str]]]] = {
    "slurm": (shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin") is not None, _slurm),
    "kubernetes-fake": (find_spec("kubernetes") is not None, _kubernetes),
    "ray": (find_spec("ray") is not None, _ray),
}


def main() -> None:
    """Start the engines, measure, end them, also where somebody has had enough (SIGTERM)."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as started:
        folder = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="engines-")))
        file = folder / "engines.toml"
        for name, (is_there, start) in _ENGINES.items():
            if is_there:
                with file.open("a") as tables:
                    tables.write(f"[{name}]\n{started.enter_context(start(folder))}\n")
            else:
                sys.stderr.write(f"{name} is not installed, and not measured\n")
        engine_overhead.main([*(sys.argv[1:] or ["5"]), str(file)])


if __name__ == "__main__":
    main()

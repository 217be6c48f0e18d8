"""Launchers, the trainings that others are compared with, a group of one rank, and one thread for torch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.launch.forks import Forks
from autotuner.launch.local import LocalLauncher
from autotuner.launch.node_processes import NodeProcesses
from tests.trials.agreement import Trainer
from tests.trials.fork_server import ForkServer, Once

torch.set_num_threads(1)  # as in a rank: models this small are slower on several, much slower on cores that are shared


@pytest.fixture(params=["fork", pytest.param("torchrun", marks=pytest.mark.oracle)])
def launcher(request: pytest.FixtureRequest, forks: Forks, tmp_path: Path) -> LocalLauncher:
    """A launcher with each way to start ranks; its files lie in ``tmp_path / "work"``."""
    return LocalLauncher(tmp_path / "work", forks if request.param == "fork" else NodeProcesses())


@pytest.fixture(scope="session")
def trainer(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """Compares layouts with a single process, which trains once per model and number format."""
    return Trainer(fork_server, tmp_path_factory.mktemp("trainings"))


@pytest.fixture(scope="module")
def once(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Once:
    folder, numbers = tmp_path_factory.mktemp("once"), count()
    return cache(lambda spec: fork_server.run(spec, folder / str(next(numbers))))


@pytest.fixture(scope="module")
def alone() -> Iterator[dist.ProcessGroup]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    group = dist.group.WORLD
    assert group is not None
    yield group
    dist.destroy_process_group()

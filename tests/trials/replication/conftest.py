"""A process group of one rank, for what a replicator does by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # exported, but not by name


@pytest.fixture(scope="module")
def alone() -> Iterator[dist.ProcessGroup]:
    """The one replica of a job."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    group = dist.group.WORLD
    assert group is not None
    yield group
    dist.destroy_process_group()

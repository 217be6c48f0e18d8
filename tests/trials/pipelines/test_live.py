"""Short stories of bench.controller_live, lived through by four real ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.oracle  # twenty seconds of stages that sleep
@pytest.mark.parametrize("story", ["two links", "dies"])
def test_ranks_find_what_befalls_their_links_and_go_on_as_they_should(story: str) -> None:
    """Each process is new: ranks are forks, and of one that has no threads."""
    command = [sys.executable, "-m", "bench.controller_live", story]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    assert told.rstrip().endswith("as it should be"), told

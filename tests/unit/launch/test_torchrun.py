from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotuner.launch.ranks import Death
from autotuner.launch.torchrun import dead_ranks


@pytest.fixture
def deaths(tmp_path: Path) -> Path:
    return tmp_path / "deaths.json"


def test_ranks_come_in_the_order_in_which_the_agent_found_them_dead(deaths: Path) -> None:
    deaths.write_text(json.dumps([[1, -9], [0, 1]]))
    assert dead_ranks(deaths) == [Death(rank=1, exit_code=-9), Death(rank=0, exit_code=1)]


def test_a_rank_that_the_agent_ended_because_of_another_did_not_die_of_itself(deaths: Path) -> None:
    deaths.write_text(json.dumps([[0, 1], [1, -15]]))
    assert dead_ranks(deaths) == [Death(rank=0, exit_code=1)]


def test_an_agent_that_wrote_nothing_found_nobody_dead(deaths: Path) -> None:
    assert dead_ranks(deaths) == ()

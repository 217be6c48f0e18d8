# ruff: noqa: F401  # its tests run here
"""Nodes that are processes keep the contract of engines; that of launchers is kept by what all engines share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.engine_contract import (
    EngineSubject,
    test_a_hang_comes_back_as_a_timeout_that_names_the_rank,
    test_a_job_is_found_again_by_its_stored_handle_and_not_started_twice,
    test_a_job_whose_handle_was_never_stored_is_found_by_its_name,
    test_a_node_that_is_lost_says_nothing_of_the_trial,
    test_a_rank_that_is_killed_comes_back_as_a_crash_that_names_it,
    test_a_trial_cancelled_while_it_waits_never_runs,
    test_steps_arrive_while_the_trial_runs,
    test_the_engine_says_who_it_is,
    test_waiting_for_nodes_is_no_trial_time,
)
from tests.contracts.held import PROCESSES

pytestmark = pytest.mark.engine


@pytest.fixture
def engine(tmp_path: Path) -> EngineSubject:
    """Two nodes of one rank each."""
    return EngineSubject(PROCESSES, tmp_path)

from __future__ import annotations

from autotuner.launch.ranks import Death
from autotuner.launch.torchrun import dead_ranks

SUMMARY = """Failures:
[1]:
  time      : 2026-11-20_21:07:06
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 77)  (SIGKILL)
  error_file: <N/A>
"""
FIRST = "E1120 api.py:984] failed (exitcode: 1) local_rank: 0 (pid: 76) of binary: python\n"


def test_torchrun_names_the_first_rank_that_it_found_dead() -> None:
    assert dead_ranks(FIRST) == [Death(rank=0, exit_code=1)]


def test_a_killed_rank_is_found_though_torchrun_blames_the_peer_that_wrote_why_it_failed() -> None:
    assert dead_ranks(FIRST + SUMMARY) == [Death(rank=0, exit_code=1), Death(rank=1, exit_code=-9)]


def test_a_rank_that_torchrun_ended_because_of_another_did_not_die_of_itself() -> None:
    ended = SUMMARY.replace("-9", "-15").replace("SIGKILL", "SIGTERM")
    assert dead_ranks(FIRST + ended) == [Death(rank=0, exit_code=1)]


def test_an_agent_that_said_nothing_found_nobody_dead() -> None:
    assert dead_ranks("") == []

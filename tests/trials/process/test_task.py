"""What a task on forked ranks finds in its context."""

from __future__ import annotations

from pathlib import Path

from trials.process.task import TaskContext
from trials.runtime.rank import RankInfo


def test_what_a_rank_wrote_where_ranks_meet_stays_when_every_rank_closed_it(tmp_path: Path) -> None:
    context = TaskContext(folder=tmp_path, rank_info=RankInfo())
    context.store().set("address", "here")
    store = context.store()
    assert store.check(["address"])
    assert store.get("address") == b"here"

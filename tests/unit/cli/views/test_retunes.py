"""Retunes as the terminal prints them."""

from __future__ import annotations

import pytest

from autotuner.cli.views.retunes import history_view
from autotuner.domain.upkeep.retune import RetuneRun, RunState, Trigger
from autotuner.domain.wire import to_dict
from tests.unit.cli.views.printed import printed
from tests.unit.search.upkeep.builders import NIGHT


@pytest.mark.parametrize("trigger", Trigger)
def test_the_history_says_in_words_why_each_run_began(trigger: Trigger) -> None:
    run = RetuneRun(
        id="rr-1", retune="nightly", due_at=NIGHT, trigger=trigger, state=RunState.SKIPPED, started_at=NIGHT
    )
    text = printed(history_view([to_dict(run)], [], "UTC"), 100)
    why = {"cron": "due", "links": "new links", "environment": "new software", "manual": "asked for"}
    assert f"2026-03-02 02:00  {why.get(trigger, 'caught up')}  " in text

"""Planned pipelines on gloo ranks against one process that computes the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trials.pipelines.rank import expected_step, heard
from tests.trials.pipelines.tasks import SLOW_LINK_S
from tests.trials.zygote import Zygote

TASKS = "tests.trials.pipelines.tasks"


SEEN_SLOW_S = 0.9 * SLOW_LINK_S
"""Clocks of two ranks are known to each other to within half a round trip, which a busy machine makes longer."""


def done(zygote: Zygote, folder: Path, task: str, num_ranks: int) -> list[Any]:
    run = zygote.have_done(f"{TASKS}:{task}", folder, num_ranks)
    assert set(run.exit_codes) == {0}, run.logs
    return heard(folder, num_ranks)


@pytest.mark.parametrize(
    ("task", "num_ranks", "num_stages"),
    [("replans", 3, 3), ("turns_round", 2, 4), ("wraps", 2, 4), ("delegates", 3, 3), ("switches", 3, 3)],
)
def test_every_step_of_a_planned_pipeline_trains_as_one_process_does(
    task: str, num_ranks: int, num_stages: int, zygote: Zygote, tmp_path: Path
) -> None:
    loss, norms = expected_step(num_stages)
    for steps in zip(*done(zygote, tmp_path, task, num_ranks), strict=True):
        assert sum(of_rank for of_rank, _ in steps) == pytest.approx(loss, rel=1e-5)
        found = {int(stage): norm for _, of_rank in steps for stage, norm in of_rank.items()}
        assert found == pytest.approx(norms, rel=1e-5)


def test_transfers_tell_the_slow_link_from_the_others(zygote: Zygote, tmp_path: Path) -> None:
    healthy, slow = zip(*done(zygote, tmp_path, "delays", 3), strict=True)
    quick = [one or 0.0 for one in (healthy[0]["1"], healthy[1]["0"], slow[2]["1"])]  # None: it was there before
    assert max(quick) < SEEN_SLOW_S <= min(slow[0]["1"], slow[1]["0"])


def test_delegates_tell_how_long_messages_took_and_are_gone_with_their_pipeline(zygote: Zygote, tmp_path: Path) -> None:
    done(zygote, tmp_path, "delegates", 3)
    more = [json.loads((tmp_path / f"{rank}.more").read_text()) for rank in range(3)]
    assert all(all(of_rank["gone"]) for of_rank in more)
    transfers = [of_rank["transfers"] for of_rank in more]
    assert transfers[2]["1"] < SEEN_SLOW_S <= min(transfers[0]["1"], transfers[1]["0"])


@pytest.mark.parametrize(
    ("task", "dead"),
    [
        ("breaks", [[[], [], []], [[], [2], [2]], [[], [1], [1]]]),
        ("dies", [[[]] * 4, [[], [2], [2], []], [[], [1], [1], []]]),
    ],
)
def test_delegates_bridge_a_link_that_dies_within_a_step_which_trains_all_the_same(
    task: str, dead: list[Any], zygote: Zygote, tmp_path: Path
) -> None:
    loss, norms = expected_step(3)
    for steps in zip(*done(zygote, tmp_path, task, 3), strict=True):
        assert sum(of_rank for of_rank, _ in steps) == pytest.approx(loss, rel=1e-5)
        found = {int(stage): norm for _, of_rank in steps for stage, norm in of_rank.items()}
        assert found == pytest.approx(norms, rel=1e-5)
    assert [json.loads((tmp_path / f"{rank}.more").read_text()) for rank in range(3)] == dead

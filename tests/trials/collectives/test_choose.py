from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trials.collectives.tasks import CASES, NUM_RANKS
from tests.trials.zygote import Zygote

TASKS = "tests.trials.collectives.tasks"


@pytest.mark.parametrize("case", [0, *(pytest.param(case, marks=pytest.mark.oracle) for case in range(1, len(CASES)))])
def test_every_kind_sums_and_gathers_alike_however_ranks_lie_on_nodes(
    case: int, zygote: Zygote, tmp_path: Path
) -> None:
    (tmp_path / "case").write_text(str(case))
    run = zygote.have_done(f"{TASKS}:agree", tmp_path, NUM_RANKS)
    assert run.exit_codes == (0,) * NUM_RANKS, run.logs


def test_a_collective_that_fails_in_the_background_raises_where_it_is_waited_for(
    zygote: Zygote, tmp_path: Path
) -> None:
    run = zygote.have_done(f"{TASKS}:fail", tmp_path, 2)
    assert run.exit_codes == (0, 0), run.logs
    assert json.loads((tmp_path / "0.json").read_text())

"""Figures of plans in words."""

from __future__ import annotations

import pytest

from api.dashboard.views.plan_asked import USUAL
from autotuner.search.planning.goal import USUAL_GLOBAL_BATCH, USUAL_SEQ_LEN
from autotuner.search.planning.words import advice_in_words


@pytest.mark.parametrize(
    ("chance", "said"), [(0.97, "Take h100:64"), (0.5, "Take h100:64"), (0.1, "No clear choice: h100:64 leads")]
)
def test_a_cluster_that_is_likelier_not_the_best_is_said_to_lead_alone(chance: float, said: str) -> None:
    assert advice_in_words("h100:64", chance) == said


def test_page_and_command_line_plan_the_same_steps_where_nobody_names_them() -> None:
    assert (USUAL["seq_len"], USUAL["global_batch_size"]) == (str(USUAL_SEQ_LEN), str(USUAL_GLOBAL_BATCH))

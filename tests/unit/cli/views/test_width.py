from __future__ import annotations

import pytest

from api.examples.explanations import explanation
from api.examples.job_phases import phases_plan
from api.examples.layers import sweep_layers
from api.examples.plans import plan_view as example_plan
from api.examples.trials import ranking_page, trial_detail
from autotuner.cli.views.explanation import explanation_view, measurement_view
from autotuner.cli.views.job_phases import phases_view
from autotuner.cli.views.layers import layers_view
from autotuner.cli.views.plan import plan_view
from autotuner.cli.views.rankings import prediction_table, ranking_table
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.objective import Objective
from autotuner.domain.wire import to_dict
from tests.unit.cli.views.printed import predicted, predictions, printed


@pytest.mark.parametrize("width", [80, 160])
def test_no_number_and_no_word_of_a_layout_is_cut_off(width: int) -> None:
    views = (
        prediction_table(predictions(predicted(1), predicted(2, Layout())), title="all"),
        ranking_table(to_dict(ranking_page())["items"], Objective()),
        explanation_view(to_dict(explanation())),
        measurement_view(to_dict(trial_detail())["measured"]),
        plan_view(to_dict(example_plan()), limit=12),
        phases_view(to_dict(phases_plan()), title="phases"),
        layers_view(to_dict(sweep_layers())),
    )
    for view in views:
        text = printed(view, width)
        assert "…" not in text
        assert max(len(line) for line in text.splitlines()) <= width

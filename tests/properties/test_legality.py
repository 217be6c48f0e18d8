"""One rule, two readers: a layout and a column of layouts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autotuner.costmodel.columns import LayoutColumns
from autotuner.domain.layout import Layout
from autotuner.domain.legality import RULES, TRIAL_RULES, Job
from tests.properties.strategies import jobs, layouts


@given(st.lists(layouts, min_size=1, max_size=20), jobs)
def test_every_rule_judges_a_column_as_it_judges_each_layout(rows: list[Layout], job: Job) -> None:
    columns = LayoutColumns.from_layouts(rows)
    for rule in (*RULES, *TRIAL_RULES):
        verdict = np.broadcast_to(rule.broken(columns, job), (len(rows),))
        assert [bool(v) for v in verdict] == [bool(rule.broken(row, job)) for row in rows], rule.name


@given(st.lists(layouts, max_size=20))
def test_layouts_survive_the_journey_through_columns(rows: list[Layout]) -> None:
    columns = LayoutColumns.from_layouts(rows)
    assert [columns.row(index) for index in range(len(columns))] == rows

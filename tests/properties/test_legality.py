"""One rule, two readers: a layout and a column of layouts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.columns import LayoutColumns, broken_rows
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.rule import fields_read
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.exports.formats import FORMATS
from tests.properties.strategies import jobs, layouts

ALL_RULES = (*RULES, *TRIAL_RULES, *(rule for target in FORMATS.values() for rule in target.rules))


@given(st.lists(layouts, min_size=1, max_size=20), jobs)
def test_every_rule_judges_a_column_as_it_judges_each_layout(rows: list[Layout], job: Job) -> None:
    columns = LayoutColumns.from_layouts(rows)
    for rule in ALL_RULES:
        verdict = broken_rows(columns, job, [rule])
        assert verdict.tolist() == [bool(rule.broken(row, job)) for row in rows], rule.name


@given(layouts, jobs)
def test_a_rule_reads_the_same_fields_of_every_layout(layout: Layout, job: Job) -> None:
    for rule in ALL_RULES:
        read = fields_read(rule, job)
        others = {name: one.default for name, one in OPTIONS.items() if name not in read}
        assert rule.broken(replace(layout, **others), job) == rule.broken(layout, job), rule.name  # type: ignore[arg-type]


@given(st.lists(layouts, max_size=20))
def test_layouts_survive_the_journey_through_columns(rows: list[Layout]) -> None:
    columns = LayoutColumns.from_layouts(rows)
    assert [columns.row(index) for index in range(len(columns))] == rows

"""Pages of docs that are made of the code."""

from __future__ import annotations

from autotuner.export.formats import FORMATS
from research.pages import DESCRIPTIONS, EXPORTS, descriptions_page, limits


def test_every_format_has_its_place_on_the_page() -> None:
    written = EXPORTS.read_text(encoding="utf-8")
    assert [str(name) for name in FORMATS if f"* {name}: words of release" not in written] == []


def test_a_rule_is_shown_by_a_layout_that_breaks_it() -> None:
    for limit in limits(FORMATS[min(FORMATS)]):
        assert limit.example is None or limit.rule.broken(limit.example, limit.job)


def test_the_tables_of_described_fields_are_those_of_the_code() -> None:
    text = DESCRIPTIONS.read_text(encoding="utf-8")
    assert descriptions_page(text) == text, "python -m research.pages descriptions writes them"

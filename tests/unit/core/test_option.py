"""What is known of the fields of a layout."""

from __future__ import annotations

import pytest

from autotuner.core.choices import Choice
from autotuner.core.layout import OPTIONS, RANK_DEGREES, Layout
from autotuner.core.option import Kind


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_of_the_kind_that_its_default_is(name: str) -> None:
    one = OPTIONS[name]
    kinds = {bool: Kind.SWITCH, int: Kind.COUNT}
    own = Kind.CHOICE if isinstance(one.default, Choice) else kinds[type(one.default)]
    assert (Kind.COUNT if one.kind == Kind.DEGREE else one.kind) == own
    assert getattr(Layout(), name) == one.default


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_searched_by_default_is_legal_by_itself(name: str) -> None:
    one = OPTIONS[name]
    for value in one.searched or ():
        assert value >= one.lowest
        assert one.value_of(int(value)) == value


def test_no_two_options_share_a_label_or_a_word() -> None:
    labels = [one.label for one in OPTIONS.values()]
    words = [
        word for one in OPTIONS.values() for word in (map(one.word.format, one.values or (7,)) if one.word else ())
    ]
    named = {word for word in words if words.count(word) > 1}
    assert len(set(labels)) == len(labels)
    assert named <= {one.word for one in OPTIONS.values() if one.kind == Kind.SWITCH}


def test_the_degrees_that_share_the_ranks_are_all_degrees_but_the_borrowed_one() -> None:
    degrees = {name for name, one in OPTIONS.items() if one.kind == Kind.DEGREE}
    assert set(RANK_DEGREES) == degrees - {"expert_parallel_degree"}

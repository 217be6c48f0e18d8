"""Sums in a script are those of the shell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.export.shell.arithmetic import arithmetic


@pytest.mark.parametrize(
    ("expression", "value"),
    [("8", 8), ("2 + 3*4", 14), ("(2+3)*4", 20), ("-7/2", -3), ("-7 % 2", -1), ("10-2-3", 5), ("2*-3", -6)],
)
def test_sums_keep_the_shells_order_and_rounding(expression: str, value: int) -> None:
    assert arithmetic(expression) == value


@pytest.mark.parametrize("expression", ["", "1/0", "x+1", "2**3", "(1", "1)", "1 2", "1" * 200, "(" * 100, "0x10"])
def test_what_is_no_sum_has_no_value(expression: str) -> None:
    assert arithmetic(expression) is None


@given(st.text(alphabet="0123456789+-*/%() ", max_size=130))
def test_any_text_has_a_value_or_none(text: str) -> None:
    value = arithmetic(text)
    assert value is None or isinstance(value, int)

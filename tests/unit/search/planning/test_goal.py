from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.search.planning.goal import Failures, Goal


def test_interruptions_take_a_tenth_of_the_time_of_llama_3_405b() -> None:
    # the report says more than 90 %; the defaults are derived from exactly that
    assert Failures().goodput(16_384) == pytest.approx(0.9, abs=0.0005)


def test_fewer_accelerators_are_interrupted_less() -> None:
    assert 0.99 < Failures().goodput(1024) < 1
    assert Failures(lost_s=0.0).goodput(10**6) == 1


@pytest.mark.parametrize("field", ["num_tokens", "deadline_s", "price_limit"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_an_amount_that_is_none_is_refused_by_its_name(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=field):
        Goal(**({"num_tokens": 1e9} | {field: value}))

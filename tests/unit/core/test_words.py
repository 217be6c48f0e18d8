"""Numbers, errors and refusals as people read them."""

from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput, LeaseLost, NotFound
from autotuner.core.units import GIB, GIGA, format_bytes, format_count, format_rate, format_seconds


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (81_234_000_000, "81.2 GB"), (1.5e12, "1.5 TB"), (-2e6, "-2 MB")],
)
def test_bytes_are_decimal_with_three_digits(num_bytes: float, text: str) -> None:
    assert format_bytes(num_bytes) == text


def test_a_gibibyte_is_more_than_a_gigabyte() -> None:
    assert format_bytes(GIB) == "1.07 GB"
    assert format_bytes(GIGA) == "1 GB"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (950, "950"), (124_439_808, "124M"), (46_702_792_704, "46.7B"), (1.04e12, "1.04T")]
)
def test_a_count_of_parameters_is_written_as_papers_do(count: float, text: str) -> None:
    assert format_count(count) == text


def test_a_rate_carries_its_unit() -> None:
    assert format_rate(312e12, "FLOP/s") == "312 TFLOP/s"
    assert format_rate(1.979e15, "FLOP/s") == "1.98 PFLOP/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (12.345, "12.3 s"),
        (8072.4, "8,072 s"),
        (0.9998, "1,000 ms"),
        (0.0123, "12.3 ms"),
        (4.2e-6, "4.2 µs"),
    ],
)
def test_seconds_change_to_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_invalid_input_names_field_value_rule_and_nearest_below_the_path_of_its_owner() -> None:
    error = InvalidInput("num_nodes", 0, "must be above 0", nearest=1)
    assert str(error) == "num_nodes = 0: must be above 0; nearest legal value: 1"
    assert (error.field, error.value, error.rule, error.nearest) == ("num_nodes", 0, "must be above 0", 1)
    assert "nearest legal value: 0" in str(InvalidInput("latency_s", -1, "must be 0 or more", nearest=0))
    error = InvalidInput("num_nodes", 0, "must be above 0", nearest=1).under("job").under("request")
    assert error.field == "request.job.num_nodes"
    assert (error.value, error.rule, error.nearest) == (0, "must be above 0", 1)


def test_an_error_names_what_is_missing_or_lost() -> None:
    assert str(NotFound("model", "llama3", nearest="llama-3-8b")) == "no model 'llama3'; did you mean 'llama-3-8b'?"
    assert str(NotFound("sweep", "x")) == "no sweep 'x'"
    assert str(LeaseLost("sweep-1", "worker-2")) == "worker 'worker-2' no longer holds the lease on 'sweep-1'"


def test_half_of_a_surrogate_pair_is_spelt_out_so_that_the_words_can_be_sent() -> None:
    error = InvalidInput("job.\ud800", "\udfff", "is no field", nearest="x").under("request")
    assert error.field == "request.job.\\ud800"
    assert str(error).encode()

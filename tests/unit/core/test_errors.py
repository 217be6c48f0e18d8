"""What bad news tells the one who caused it."""

from __future__ import annotations

from autotuner.core.errors import InvalidInput, LeaseLost, NotFound


def test_invalid_input_names_field_value_rule_and_nearest() -> None:
    error = InvalidInput("num_nodes", 0, "must be above 0", nearest=1)
    assert str(error) == "num_nodes = 0: must be above 0; nearest legal value: 1"
    assert (error.field, error.value, error.rule, error.nearest) == ("num_nodes", 0, "must be above 0", 1)


def test_a_nearest_value_of_zero_is_still_named() -> None:
    assert "nearest legal value: 0" in str(InvalidInput("latency_s", -1, "must be 0 or more", nearest=0))


def test_invalid_input_gains_the_path_of_its_owner() -> None:
    error = InvalidInput("num_nodes", 0, "must be above 0", nearest=1).under("job").under("request")
    assert error.field == "request.job.num_nodes"
    assert (error.value, error.rule, error.nearest) == (0, "must be above 0", 1)


def test_not_found_suggests_the_nearest_name() -> None:
    assert str(NotFound("model", "llama3", nearest="llama-3-8b")) == "no model 'llama3'; did you mean 'llama-3-8b'?"
    assert str(NotFound("sweep", "x")) == "no sweep 'x'"


def test_a_lost_lease_names_worker_and_sweep() -> None:
    assert str(LeaseLost("sweep-1", "worker-2")) == "worker 'worker-2' no longer holds the lease on 'sweep-1'"


def test_half_of_a_surrogate_pair_is_spelt_out_so_that_the_words_can_be_sent() -> None:
    error = InvalidInput("job.\ud800", "\udfff", "is no field", nearest="x").under("request")
    assert error.field == "request.job.\\ud800"
    assert str(error).encode()

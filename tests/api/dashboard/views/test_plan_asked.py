from __future__ import annotations

from api.dashboard.views.plan import USUAL, PlanAsked


def asked(**texts: str) -> PlanAsked:
    return PlanAsked.of({"model": "llama-3-8b", "tokens": "1T", **texts})


def test_all_that_is_wrong_is_said_at_once_each_beside_its_input_with_the_value_and_the_nearest() -> None:
    found = asked(deadline="20", accelerators="h10", seq_len="8192.5")
    assert [*found.errors] == ["deadline", "seq_len", "accelerators"]
    assert found.errors["deadline"] == "'20': must be a number of hours, days or weeks; nearest: 20d"
    assert found.errors["seq_len"] == "'8192.5': must be a whole number; nearest: 8192"
    assert "h100" in found.errors["accelerators"]
    assert found.body is None


def test_what_was_typed_stays() -> None:
    found = asked(deadline="soon", prices="h100=cheap")
    assert (found.texts["deadline"], found.texts["prices"]) == ("soon", "h100=cheap")


def test_where_nothing_is_near_the_usual_is_named() -> None:
    assert (
        asked(global_batch_size="many").errors["global_batch_size"].endswith(f"nearest: {USUAL['global_batch_size']}")
    )


def test_a_question_without_a_fault_is_a_plan() -> None:
    found = asked(accelerators="h100, b200", sizes="64", deadline="20d")
    assert found.errors == {}
    assert found.body is not None
    assert found.body.accelerators == ("h100", "b200")

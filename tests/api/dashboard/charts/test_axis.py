from __future__ import annotations

from api.dashboard.charts.axis import byte_unit, in_percent, signed_percent, whole_marks


def test_percents_have_as_many_digits_as_tell_marks_apart() -> None:
    assert in_percent((0.3, 0.4)) == ("30", "40")
    assert in_percent((0.405, 0.41)) == ("40.5", "41.0")
    assert in_percent((0.4,)) == ("40.0",)
    assert in_percent(()) == ()


def test_gains_and_losses_have_a_sign_and_nothing_none() -> None:
    assert [signed_percent(share) for share in (0.05, -0.025, 0.0)] == ["+5 %", "−2.5 %", "0"]


def test_counts_begin_at_the_first_and_stay_apart() -> None:
    assert whole_marks(1, 40, 6) == (1, 10, 20, 30, 40)
    assert whole_marks(1, 3, 6) == (1, 2, 3)
    assert whole_marks(1, 1, 6) == (1,)
    assert whole_marks(1, 1000, 6) == (1, 200, 400, 600, 800, 1000)


def test_bytes_are_counted_in_the_largest_unit_that_fits() -> None:
    assert byte_unit(80e9) == (1e9, "GB")
    assert byte_unit(3e12) == (1e12, "TB")
    assert byte_unit(12) == (1.0, "B")

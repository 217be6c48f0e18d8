"""Settings of a command line are found by their flags."""

from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.export.flags import flags_of


def test_a_flag_has_the_words_behind_it_or_behind_its_sign() -> None:
    flags = flags_of(["--a-b", "1", "--c=2", "--modules", "x", "y", "--switch", "-m", "name"])
    assert flags.values == {"a_b": ("1",), "c": ("2",), "modules": ("x", "y"), "switch": (), "m": ("name",)}


def test_a_flag_is_found_by_dashes_or_underscores_and_the_last_counts() -> None:
    flags = flags_of(["--micro-batch-size", "1", "--micro_batch_size", "2"])
    assert flags.integer("--micro-batch-size") == flags.integer("micro_batch_size") == 2
    assert "--micro-batch-size" in flags


def test_a_negative_number_is_a_value() -> None:
    assert flags_of(["--shard", "-1"]).integer("shard") == -1


def test_whole_numbers_may_be_written_as_powers_of_ten() -> None:
    assert flags_of(["--bucket", "4e8"]).integer("bucket") == 400_000_000


@pytest.mark.parametrize("text", ["1.5", "many", "inf", "nan", "1e400", "", "9" * 30])
def test_what_is_no_whole_number_is_refused_by_the_flags_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="--bucket"):
        flags_of(["--bucket", text]).integer("--bucket")


def test_a_variable_that_nothing_sets_is_refused_as_such() -> None:
    with pytest.raises(InvalidInput, match="nothing in the text sets"):
        flags_of(["--tp", "$TP"]).integer("--tp")


def test_a_switch_is_on_unless_a_word_behind_it_says_no() -> None:
    flags = flags_of(["--a", "--b", "false", "--c=True"])
    assert [flags.switch(name) for name in "abcd"] == [True, False, True, None]


def test_what_is_not_there_is_none() -> None:
    flags = flags_of(["--b"])
    assert [flags.integer("a"), flags.number("a"), flags.text("a"), flags.text("b")] == [None] * 4

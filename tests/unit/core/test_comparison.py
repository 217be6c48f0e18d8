"""Tests of ``autotuner.core.comparison``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.comparison import RunGroup, SequentialTest, environment_changes
from autotuner.core.errors import InvalidInput
from autotuner.core.measuring import LINKS


@pytest.mark.parametrize("name", ["loss", "power", "false_alarms"])
def test_nothing_is_asked_for_that_no_number_of_runs_can_give(name: str) -> None:
    with pytest.raises(InvalidInput, match="nothing is that sure"):
        replace(SequentialTest(), **{name: 1.0})  # type: ignore[arg-type]  # some of its fields are whole numbers


def test_a_loss_to_find_is_more_than_what_is_accepted() -> None:
    with pytest.raises(InvalidInput, match="less than the loss to find"):
        SequentialTest(tolerance=0.05, loss=0.05)


def test_the_most_runs_are_no_fewer_than_the_fewest() -> None:
    with pytest.raises(InvalidInput, match="at least the fewest runs, 5"):
        SequentialTest(min_runs=5, max_runs=4)


def test_rates_of_runs_are_above_zero() -> None:
    with pytest.raises(InvalidInput, match="above 0"):
        RunGroup(rates=(1.0, 0.0), mfu=0.4, at=0.0)


NIGHT = {"torch": "2.12", "driver": "580.82", "kernel": "6.1", "host": "a", "sm_clock_mhz": "1980", "os": "Debian 12"}


def changes(then: dict[str, str], now: dict[str, str]) -> list[str]:
    return [str(change) for change in environment_changes(then, now)]


def test_what_is_the_same_is_no_change() -> None:
    assert changes(NIGHT, NIGHT) == []


def test_a_change_says_what_was_and_what_is() -> None:
    assert changes(NIGHT, {**NIGHT, "torch": "2.13"}) == ["torch was 2.12 and is 2.13"]


def test_a_variable_that_was_set_or_left_out_is_a_change() -> None:
    assert changes(NIGHT, {**NIGHT, "NCCL_ALGO": "Tree"}) == ["NCCL_ALGO is Tree and was not set"]
    assert changes({**NIGHT, "NCCL_ALGO": "Tree"}, NIGHT) == ["NCCL_ALGO was Tree and is not set"]


def test_what_explains_a_slower_step_comes_first() -> None:
    now = {
        "torch": "2.13",
        "driver": "590.1",
        "kernel": "6.2",
        "host": "b",
        "sm_clock_mhz": "1200",
        "OMP_NUM_THREADS": "4",
        "clocks_held_by": "heat",
        "os": "Debian 12",
    }
    names = [change.name for change in environment_changes(NIGHT, now)]
    assert names == ["clocks_held_by", "sm_clock_mhz", "OMP_NUM_THREADS", "torch", "driver", "kernel", "host"]


@pytest.mark.parametrize(
    ("name", "then", "now"),
    [
        ("sm_clock_mhz", "1980", "1965"),
        ("foreign_cpu_share", "0.01", "0.04"),
        ("CUDA_VISIBLE_DEVICES", "0", "3"),
    ],
)
def test_what_varies_by_itself_is_no_change(name: str, then: str, now: str) -> None:
    assert changes({**NIGHT, name: then}, {**NIGHT, name: now}) == []


def test_a_busy_neighbour_is_a_change() -> None:
    found = changes({**NIGHT, "foreign_cpu_share": "0.01"}, {**NIGHT, "foreign_cpu_share": "0.31"})
    assert found == ["foreign_cpu_share was 0.01 and is 0.31"]


def test_a_fact_that_an_older_release_did_not_record_is_no_change() -> None:
    assert changes(NIGHT, {**NIGHT, "libc": "glibc-2.36"}) == []


def test_of_nothing_that_was_recorded_no_difference_is_known() -> None:
    assert changes({}, NIGHT) == changes(NIGHT, {}) == []


def test_of_other_nodes_it_is_said_how_many() -> None:
    found = changes({**NIGHT, "nodes": "a,b,c"}, {**NIGHT, "nodes": "a,d,c"})
    assert found == ["nodes were 3 and are 3, of which 1 were not among them (d)"]


def test_links_that_became_slow_or_healthy_are_a_change_and_come_before_versions() -> None:
    late = {"torch": "2.12.0", LINKS: "nodes 2 and 3: 60 ms late"}
    slower, other = environment_changes({"torch": "2.13.0"}, late)
    assert str(slower) == "of links, all healthy became nodes 2 and 3: 60 ms late"
    assert other.name == "torch"
    (healed,) = environment_changes(late, {"torch": "2.12.0"})
    assert str(healed) == "of links, nodes 2 and 3: 60 ms late became all healthy"

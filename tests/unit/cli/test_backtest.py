"""``autotuner backtest`` as a user runs it on a table of their own."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.unit.cli.command_line import CommandLine

SHAPES = {"model": "small", "layers": 24, "hidden": 2048, "heads": 16, "vocab": 32000}
RUN = {**SHAPES, "seq_len": 2048, "gpu": "a100-80gb", "num_gpus": 16, "global_batch": 256}

ITERATION = {"testbed": "lab", "model": "14B", "pp": 4, "tp": 1, "dp": 1, "microbatches": 12, "hidden": ""}
SLOW = [
    {**ITERATION, "method": method, "slow_links": "2_3", "delay_ms": 60, "healthy_ms": 780, "last5_mean_ms": ms}
    for method, ms in (("zb", 1790), ("zb_cpu_delegated", 1135), ("pipemorph", 849))
]
"""Iterations under a slow link."""


def runs() -> list[dict[str, Any]]:
    """Nine layouts that ended, slower with every tensor rank and micro-batch, and one that ran out of memory."""
    ended = [
        {**RUN, "tp": tp, "pp": 1, "micro_batch": b, "step_time_s": 10 + tp + b, "oom": 0}
        for tp in (1, 2, 4)
        for b in (1, 2, 4)
    ]
    return [*ended, {**RUN, "tp": 1, "pp": 1, "micro_batch": 16, "step_time_s": "", "oom": 1}]


def backtest(cli: CommandLine, rows: Iterable[dict[str, Any]], *options: str, code: int = 0) -> str:
    """Run the command on a table of these rows."""
    rows = list(rows)
    path = cli.directory / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return cli.run("backtest", str(path), *options, code=code)


def test_the_text_fits_a_terminal_of_120_columns_and_names_the_sheet_and_every_sampler(cli: CommandLine) -> None:
    text = backtest(cli, runs(), "--seeds", "2")
    assert max(len(line) for line in text.splitlines()) <= 120
    for word in ("small", "median", "regret", "ours", "tpe", "random", "no row was left out"):
        assert word in text


def test_rows_that_cannot_be_judged_are_counted_with_their_reason_and_lose_no_other(cli: CommandLine) -> None:
    broken = [{**RUN, "tp": 3, "pp": 1, "micro_batch": 1, "step_time_s": 9, "oom": 0}] * 2
    document = json.loads(backtest(cli, [*runs(), *broken], "--json", "--seeds", "1"))
    assert document["all"]["rows_used"] == 10
    assert sum(document["all"]["rows_left_out"].values()) == 2
    (reason,) = document["all"]["rows_left_out"]
    assert reason in " ".join(backtest(cli, [*runs(), *broken], "--seeds", "1").split())


def test_layouts_that_the_model_learns_from_are_not_judged(cli: CommandLine) -> None:
    document = json.loads(backtest(cli, runs(), "--json", "--seeds", "5", "--calibrate", "3"))
    assert document["all"]["rows_used"] == 7
    assert document["all"]["rows_left_out"] == {"given to the calibration": 3}


def test_many_small_sheets_are_summed_up_in_the_text_and_complete_in_the_json(cli: CommandLine) -> None:
    small = [{**runs()[0], "global_batch": 256 * n} for n in range(1, 31)]
    assert len(json.loads(backtest(cli, small, "--json"))["sheets"]) == 30
    text = backtest(cli, small)
    assert "30 sheets of fewer than 8 measured runs" in text
    assert len(text.splitlines()) < 30


def test_a_table_of_which_nothing_can_be_judged_says_why_and_ends_with_6(cli: CommandLine) -> None:
    text = backtest(cli, [{**run, "gpu": "abacus"} for run in runs()], code=6)
    assert "10 rows were left out" in text
    assert "abacus" in text


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (runs(), ["--calibrate", "-1"], "--calibrate"),
        (runs(), ["--seeds", "0"], "--seeds"),
        ([{name: value for name, value in run.items() if name != "gpu"} for run in runs()], [], "gpu"),
        (SLOW, ["--calibrate", "3"], "calibrate"),  # iterations teach nothing beyond their healthy ones
    ],
)
def test_a_missing_column_or_an_option_that_cannot_be_is_named(
    cli: CommandLine, rows: list[dict[str, Any]], options: list[str], said: str
) -> None:
    backtest(cli, rows, *options, code=2)
    assert said in cli.error


def test_a_table_of_iterations_under_slow_links_is_known_by_its_columns(cli: CommandLine) -> None:
    document = json.loads(backtest(cli, SLOW, "--json"))
    assert document["all"]["max_abs_error"] < 0.05
    assert (document["all"]["orders_right"], document["all"]["num_orders"]) == (1, 1)
    assert [score["name"] for score in document["methods"]] == ["zb", "delegated", "adapted"]


def test_its_text_names_models_and_methods_and_what_was_left_out(cli: CommandLine) -> None:
    text = backtest(cli, [*SLOW, {**SLOW[0], "method": "magic"}])
    assert max(len(line) for line in text.splitlines()) <= 120
    for word in ("lab 14B, adapted", "delegated", "orders", "20 ms", "'magic' is not known"):
        assert word in text


def test_iterations_of_which_none_was_healthy_end_with_6(cli: CommandLine) -> None:
    assert "no iteration of this model without slow links" in backtest(
        cli, [{**row, "healthy_ms": ""} for row in SLOW], code=6
    )

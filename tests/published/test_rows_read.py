"""Which rows of the published tables are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.backtest.table import read_table
from bench.unread_rows import OTHER_RUNS, left_out, tables_of_runs

UNREAD = {
    "megatron_lm_tables": 10,  # tensor and pipeline degree are printed as their product, or no micro-batch is
    "nemo_megatron_bridge_perf": 8,  # the degrees do not multiply to the accelerators
}
"""Rows that say too little, or contradict themselves."""


@pytest.mark.parametrize("path", tables_of_runs(), ids=lambda path: path.stem)
def test_all_rows_are_read_but_those_that_contradict_themselves_and_runs_of_other_kinds(path: Path) -> None:
    reasons = left_out(read_table(path))
    unread = sum(count for reason, count in reasons.items() if not reason.startswith(OTHER_RUNS))
    assert unread == UNREAD.get(path.stem, 0), reasons

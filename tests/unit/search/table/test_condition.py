from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.search.table.condition import conditions_said
from tests.unit.search.table.rows import rows, trial, untried

ROWS = (
    *rows(
        trial(0, "tp4 pp2 1f1b fsdp8 mb1", mfu=0.44, peak_bytes=(70 * 10**9,)),
        trial(1, "tp8 zero8 mb2 sp recompute-full", mfu=0.40, peak_bytes=(60 * 10**9,)),
        trial(2, "tp4 pp2 v2 interleaved_1f1b mb4", mfu=0.30, peak_bytes=()),
    ),
    untried("tp2 mb1"),
)


def kept(text: str) -> list[str]:
    """Trials that meet the conditions, by number; ``-`` for what was not tried."""
    conditions = conditions_said(text)
    met = (row for row in ROWS if all(condition(row) for condition in conditions))
    return [str(row.trial.number) if row.trial else "-" for row in met]


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("", "0 1 2 -"),
        ("tp=4", "0 2"),
        ("tp=4,8", "0 1 2"),
        ("tp!=4,8", "-"),
        ("tp = 4   pp >1", "0 2"),
        ("tensor_parallel_degree=8", "1"),
        ("tp≥4 mb≤2", "0 1"),
        ("mfu>35", "0 1"),
        ("mfu>35%", "0 1"),
        ("memory<65", "1"),
        ("memory<65GB", "1"),
        ("peak_bytes<60000MB", ""),
        ("memory>1", "0 1"),
        ("recompute=full", "1"),
        ("recompute!=full", "0 2 -"),
        ("sp=on", "1"),
        ("sp=yes", "1"),
        ("sharding=zero-1", "1"),
        ("sharding=FSDP,zero-1", "0 1"),
        ("schedule=interleaved-1f1b v=2", "2"),
        ("tp4 mb1", "0"),
        ("recompute-full", "1"),
        ("fsdp8", "0"),
        ("sp", "1"),
        ("rank<=2", "0 1"),
        ("trial=2", "2"),
        ("predicted>30 step<600ms", "0 1 2"),
        ("tokens>1k", "0 1 2"),
    ],
)
def test_conditions_are_met_by_these_rows(text: str, met: str) -> None:
    assert " ".join(kept(text)) == met


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tpp=4", r"'tpp': is no column of the table; nearest legal value: tp$"),
        ("recompute=ful", r"must name one of full, selective, none; nearest legal value: recompute=full"),
        ("tp", r"'tp': is no condition: .* nearest legal value: tp>1"),
        ("hello", r"'hello': is no condition"),
        ("mfu=40", r"asks a figure to be exact; .* nearest legal value: mfu>=40"),
        ("mfu>fast", r"must compare mfu with a number, with % behind it or nothing; nearest legal value: mfu>1"),
        ("tp>4GB", r"must compare tp with a number; nearest legal value: tp>1"),
        ("tp>1,2", r"several values after = or != alone; nearest legal value: tp>1"),
        ("recompute>none", r"compares words, which are = or !=; nearest legal value: recompute=none"),
        ("layout=tp4", r"a word of a layout is a condition by itself; nearest legal value: tp4"),
        ("tp=,", r"must name a value; nearest legal value: tp=1"),
        ("tp=1 " * 31, r"must be 30 conditions or fewer"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_nearest_that_can(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        conditions_said(text)
    assert refused.value.field == "where"

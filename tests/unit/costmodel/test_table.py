"""Tables of columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats, Integers
from autotuner.costmodel.table import columns_of, mapped, write


@dataclass(frozen=True)
class Inner:
    seconds: Floats


@dataclass(frozen=True)
class Outer:
    inner: Inner
    counts: Integers
    shared: bool


def table(*counts: int) -> Outer:
    return Outer(inner=Inner(seconds=np.array(counts) / 2), counts=np.array(counts), shared=True)


def test_a_change_reaches_every_column_and_leaves_alone_what_rows_share() -> None:
    picked: Outer = mapped(lambda column: column[np.array([2, 0])], table(1, 2, 3))
    assert picked.counts.tolist() == [3, 1]
    assert picked.inner.seconds.tolist() == [1.5, 0.5]
    assert picked.shared is True


def test_a_table_is_written_into_its_rows_of_a_longer_one() -> None:
    longer = table(0, 0, 0, 0)
    write(table(5, 6), longer, slice(1, 3))
    assert longer.counts.tolist() == [0, 5, 6, 0]
    assert longer.inner.seconds.tolist() == [0.0, 2.5, 3.0, 0.0]


def test_columns_come_in_the_order_of_the_fields_and_without_what_rows_share() -> None:
    assert [column.tolist() for column in columns_of(table(2, 4))] == [[1.0, 2.0], [2, 4]]

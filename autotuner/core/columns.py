"""LayoutColumns: many layouts as numpy columns with the names of ``Layout``'s options.

A rule or a cost formula reads ``x.tensor_parallel_degree`` and works for one layout and for a million of them. This is
the only module of the core that imports numpy; ranks of a trial do not import it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Never, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from autotuner.core.choices import Precision
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout, LayoutOptions
from autotuner.core.option import Kind
from autotuner.core.rules.legality import illegal
from autotuner.core.rules.rule import Rule

Integers: TypeAlias = npt.NDArray[np.int64]
Choices: TypeAlias = npt.NDArray[np.int8]
Booleans: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]

_DTYPES: Mapping[Kind, type[np.generic]] = {
    Kind.DEGREE: np.int64,  # products of five degrees must not wrap
    Kind.COUNT: np.int64,
    Kind.SWITCH: np.bool_,
    Kind.CHOICE: np.int8,
}


class LayoutColumns(LayoutOptions):
    """Many layouts as a table of numpy columns, one column per option. A choice is stored as its integer.

    Some columns may be missing. Reading a missing column raises an error. So a result that is computed once per
    combination of a few options cannot depend on other options by mistake.

    Example:
        >>> x = LayoutColumns.from_layouts([Layout.parse("fsdp8"), Layout.parse("fsdp4 tp2")])
        >>> x.tensor_parallel_degree.tolist(), str(x.row(1))
        ([1, 2], 'fsdp4 tp2 mb1 flash bf16')
    """

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        object.__setattr__(self, "_columns", columns)
        for name, column in columns.items():
            object.__setattr__(self, name, column)

    if TYPE_CHECKING:  # set above
        _columns: Mapping[str, npt.NDArray[Any]]
    else:

        def __getattr__(self, name: str) -> Never:
            raise AttributeError(f"{name} is not one of the columns {', '.join(self.__dict__['_columns'])}")

    @classmethod
    def from_layouts(cls, layouts: Iterable[Layout]) -> LayoutColumns:
        """Return a table with one row per layout, in the order of the layouts."""
        rows = list(layouts)
        return cls.from_values({name: [getattr(row, name) for row in rows] for name in OPTIONS})

    @classmethod
    def from_values(cls, values: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> LayoutColumns:
        """Return a table made of one sequence of values per option, all of the same length.

        Args:
            values: A sequence for every option, by the option's name. No option may be missing.
        """
        return cls({name: as_column(name, values[name]) for name in OPTIONS})

    def __reduce__(self) -> tuple[Any, ...]:
        return LayoutColumns, (self._columns,)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def row(self, index: int) -> Layout:
        """Return the layout in the row with this index."""
        values = {name: spec.value_of(int(getattr(self, name)[index])) for name, spec in OPTIONS.items()}
        return Layout(**values)  # type: ignore[arg-type]  # each option has its own type

    def take(self, index: npt.NDArray[Any] | slice) -> LayoutColumns:
        """Return a table of the selected rows.

        Args:
            index: Row numbers, a mask with one boolean per row, or a slice.
        """
        return LayoutColumns({name: column[index] for name, column in self._columns.items()})

    def only(self, *names: str, **changed: npt.NDArray[Any]) -> LayoutColumns:
        """Return a table of the named columns only.

        Args:
            *names: Names of options or of derived columns such as ``world_size``.
            **changed: Columns that are added, or that replace columns of the same name.
        """
        return LayoutColumns({name: getattr(self, name) for name in names} | changed)

    def distinct(self, *names: str) -> tuple[LayoutColumns, Integers]:
        """Return the distinct combinations of values in the named columns, and the number of each row's combination.

        Returns:
            A table with one row per combination, and an array with one number per row of this table: the row of its
            combination in the new table.
        """
        if len(self) == 1:
            return self.only(*names), np.zeros(1, dtype=np.int64)
        columns = [getattr(self, name) for name in names]
        # numbers, most of which are degrees, change together and seldom: a space crosses them with all choices
        num_codes, code = _codes_of_runs([column for column in columns if column.dtype == np.int64], len(self))
        for column in columns:
            if column.dtype == np.int64 or not column.any():
                continue
            count = int(column.max()) + 1
            num_codes, code = num_codes * count, code * count + column
            if num_codes > len(self):  # so that counting them stays cheap
                num_codes, code = _ranks(code)
        num_different, which = _ranks(code)
        first = np.zeros(num_different, dtype=np.int64)
        first[which[::-1]] = np.arange(len(self) - 1, -1, -1)
        return self.only(*names).take(first), which

    # ---------------------------------------------------------------- derived, as in Layout
    @cached_property
    def data_parallel_degree(self) -> Integers:
        """Return for each layout the number of parts into which the batch is split."""
        return self.data_parallel_replicate_degree * self.data_parallel_shard_degree

    @cached_property
    def world_size(self) -> Integers:
        """Return the number of ranks of each layout."""
        inner = self.context_parallel_degree * self.tensor_parallel_degree * self.pipeline_parallel_degree
        return self.data_parallel_degree * inner

    @cached_property
    def pipeline_stride(self) -> Integers:
        """Return for each layout the difference between the numbers of neighbouring pipeline ranks."""
        inner = self.data_parallel_degree * self.context_parallel_degree * self.tensor_parallel_degree
        if not self.rank_order.any():
            return inner
        return np.where(self.rank_order > 0, inner // self.data_parallel_replicate_degree, inner)

    @cached_property
    def num_stages(self) -> Integers:
        """Return the number of pipeline stages of each layout."""
        return self.pipeline_parallel_degree * self.virtual_stages_per_rank

    @cached_property
    def element_bytes(self) -> Floats:
        """Return the bytes of one element of an activation for each layout: 4 in fp32, otherwise 2.

        Layouts with fp8 also have 2, because they store activations in bf16.
        """
        return np.where(self.precision == Precision.FP32, 4.0, 2.0)


def concatenate(tables: Sequence[LayoutColumns]) -> LayoutColumns:
    """Return one table with the rows of all tables, one table after the other."""
    return LayoutColumns({name: np.concatenate([getattr(table, name) for table in tables]) for name in OPTIONS})


def as_column(name: str, values: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values of one option as a numpy array with the data type of that option's column."""
    return np.asarray(values, dtype=_DTYPES[OPTIONS[name].kind])


def broken_rows(x: LayoutColumns, job: Job, rules: Iterable[Rule]) -> Booleans:
    """Return a mask over the layouts: True where the layout breaks at least one of the rules."""
    verdict = illegal(cast("Layout", x), job, rules)
    return np.broadcast_to(np.asarray(verdict, dtype=np.bool_), (len(x),))  # a rule of the job alone gives one answer


def is_one_of(column: Choices, members: Iterable[int]) -> Booleans:
    """Return a mask over the rows: True where the column has one of the given values."""
    return reduce(np.logical_or, (column == member for member in members))


_MAX_COUNTED = 1 << 24
"""Values below this limit are made unique by counting, which is faster than sorting."""


def _codes_of_runs(columns: list[Integers], size: int) -> tuple[int, Integers]:
    """Return the number of distinct rows, and a code per row; equal rows get equal codes.

    The columns are compared run by run: neighbouring rows are often equal.
    """
    ends = reduce(
        np.logical_or, (column[1:] != column[:-1] for column in columns), np.zeros(max(0, size - 1), np.bool_)
    )
    starts = np.concatenate([np.zeros(min(1, size), np.int64), np.flatnonzero(ends) + 1])
    num_codes, code = 1, np.zeros(len(starts), dtype=np.int64)
    for column in columns:
        count, ranks = _ranks(column[starts])
        num_codes, code = _ranks(code * count + ranks)
    return num_codes, np.repeat(code, np.diff(starts, append=size))


def _ranks(values: npt.NDArray[Any]) -> tuple[int, Integers]:
    """Return the number of distinct values, and the index of each value among the sorted distinct values.

    All values must be zero or more.
    """
    highest = int(values.max(initial=0))
    if highest >= _MAX_COUNTED:
        present, ranks = np.unique(values, return_inverse=True)
        return len(present), ranks.astype(np.int64)
    index = values.astype(np.intp, copy=False)
    occurs = np.zeros(highest + 1, dtype=np.bool_)
    occurs[index] = True
    number = np.cumsum(occurs) - 1
    return int(number[-1]) + 1, number[index]

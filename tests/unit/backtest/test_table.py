"""Tables: files, sheets, rows left out."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from autotuner.backtest.row import REQUIRED_COLUMNS
from autotuner.backtest.table import Table, read_table
from autotuner.core.errors import InvalidInput
from tests.unit.backtest.cells import row


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def read(path: Path, rows: Sequence[Mapping[str, str]]) -> Table:
    """The table of those rows, written and read again."""
    columns = list(dict.fromkeys(column for cells in rows for column in cells))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return read_table(path)


def test_rows_that_differ_in_the_layout_are_one_sheet(path: Path) -> None:
    (sheet,) = read(path, [row(), row(tp="4"), row(micro_batch="1", oom="1"), row(act_ckpt="full")]).sheets
    assert len(sheet) == 4
    assert sheet.layouts.tensor_parallel_degree.tolist() == [2, 4, 2, 2]
    assert sheet.step_time_s[[0, 1, 3]].tolist() == [1.5, 1.5, 1.5]
    assert sheet.out_of_memory.tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    "other",
    [
        {"source": "b"},
        {"model": "large"},
        {"gpu": "H100"},
        {"num_gpus": "16"},
        {"seq_len": "4096"},
        {"global_batch": "128"},
    ],
)
def test_rows_of_another_source_model_cluster_length_or_batch_are_another_sheet(
    path: Path, other: dict[str, str]
) -> None:
    sheets = read(path, [row(source="a"), row(source="a") | other, row(source="a")]).sheets
    assert [len(sheet) for sheet in sheets] == [2, 1]


def test_a_sheet_is_named_after_what_its_rows_share(path: Path) -> None:
    (sheet,) = read(path, [row(source="mine")]).sheets
    assert sheet.name == "mine: small, 8 x A100-80GB, 2048 tokens, batch 64"
    (sheet,) = read(path, [row(global_batch="", grad_accum="4")]).sheets
    assert sheet.name == "small, 8 x A100-80GB, 2048 tokens, batch ?"


def test_a_long_source_is_shortened_in_the_middle(path: Path) -> None:
    (sheet,) = read(path, [row(source="github someone/something " + 60 * "-" + "the/file/at/the/end.xlsx")]).sheets
    assert sheet.name.startswith("github someone/something ---...-----the/file/at/the/end.xlsx: small")


def test_sources_that_differ_only_where_they_are_shortened_stay_apart(path: Path) -> None:
    sources = [f"github someone/something/at/{middle}{60 * '-'}the/end.xlsx" for middle in ("bf16", "fp8")]
    first, second = read(path, [row(source=source) for source in sources]).sheets
    assert second.name == f"{first.name} (2)"


def test_several_jobs_under_one_name_are_sheets_of_their_own_with_a_number(path: Path) -> None:
    rows = [row(), row(vocab="64000"), row(), row(layers="")]
    first, second = read(path, rows).sheets
    assert (len(first), len(second)) == (2, 1)
    assert second.name == f"{first.name} (2)"
    assert (first.left_out, second.left_out) == ({"layers is not given": 1}, {})  # told once


def test_rows_left_out_are_counted_by_reason_in_their_sheet(path: Path) -> None:
    rows = [row(), row(tp="3"), row(tp="5"), row(act_ckpt="some")]
    (sheet,) = read(path, rows).sheets
    assert sheet.left_out == {
        "the degrees do not multiply to the accelerators": 2,
        "the recomputation has no name that is known": 1,
    }


def test_each_reason_comes_with_the_first_row_that_it_left_out(path: Path) -> None:
    table = read(path, [row(), row(tp="3"), row(gpu="TPU"), row(tp="5"), row(act_ckpt="some")])
    assert table.examples == {
        "the degrees do not multiply to the accelerators": "row 2: small, 8 x A100-80GB",
        "no accelerator 'TPU' in the catalog": "row 3: small, 8 x TPU",
        "the recomputation has no name that is known": "row 5: small, 8 x A100-80GB: some",
    }


def test_rows_of_no_sheet_are_counted_in_the_table(path: Path) -> None:
    table = read(path, [row(), row(gpu="TPU"), row(gpu="NPU")])
    assert [sheet.left_out for sheet in table.sheets] == [{}]
    assert table.left_out == {"no accelerator 'TPU' in the catalog": 1, "no accelerator 'NPU' in the catalog": 1}


def test_a_cell_may_hold_commas_quotes_and_line_breaks(path: Path) -> None:
    table = read(path, [row(notes='said "fast",\nthen "slow"'), row()])
    assert [len(sheet) for sheet in table.sheets] == [2]


def test_a_byte_order_mark_and_blanks_after_commas_are_no_part_of_the_cells(path: Path) -> None:
    cells = row()
    path.write_text(f"\ufeff{', '.join(cells)}\n{', '.join(cells.values())}\n", encoding="utf-8")
    assert [len(sheet) for sheet in read_table(path).sheets] == [1]


def test_what_is_told_above_the_header_is_no_part_of_the_table(path: Path) -> None:
    cells = row()
    told = "# Measured in May, by hand\n# on one cluster\n\n"
    path.write_text(f"{told}{','.join(cells)}\n{','.join(cells.values())}\n", encoding="utf-8")
    assert [len(sheet) for sheet in read_table(path).sheets] == [1]


def test_a_row_that_ends_early_has_blank_cells(path: Path) -> None:
    path.write_text(f"{','.join(REQUIRED_COLUMNS)}\nsmall,16\n", encoding="utf-8")
    assert sum(read_table(path).left_out.values()) == 1


def test_a_table_without_rows_has_no_sheets(path: Path) -> None:
    path.write_text(",".join(REQUIRED_COLUMNS), encoding="utf-8")
    assert read_table(path).sheets == ()


@pytest.mark.parametrize("column", REQUIRED_COLUMNS)
def test_a_table_that_lacks_a_column_is_refused_with_its_name(path: Path, column: str) -> None:
    others = [name for name in REQUIRED_COLUMNS if name != column]
    path.write_text(",".join(others), encoding="utf-8")
    with pytest.raises(InvalidInput, match=rf"lacks the column\(s\) {column}; it has {', '.join(others)}"):
        read_table(path)


def test_a_file_that_is_not_there_or_no_text_is_refused(path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_table(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_table(path)


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must have 20,000,000 characters or fewer"):
        read_table(Path("/dev/zero"))


def test_text_that_is_no_csv_is_refused_with_the_line(path: Path) -> None:
    huge = 200_000 * "x"  # longer than Python's reader allows a cell to be
    path.write_text(f"{','.join(REQUIRED_COLUMNS)}\n{huge}\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="is no CSV at line"):
        read_table(path)

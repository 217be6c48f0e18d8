from __future__ import annotations

import pytest

from autotuner.cli.console import console, plain_table


def widest_line(capsys: pytest.CaptureFixture[str]) -> int:
    table = plain_table("layout", "why")
    table.add_row("fsdp8", "word " * 60)
    console().print(table)
    return max(len(line) for line in capsys.readouterr().out.splitlines())


def test_what_is_piped_is_as_wide_as_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert 300 < widest_line(capsys) < 320


def test_what_is_piped_keeps_to_the_columns_that_the_environment_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert widest_line(capsys) == 72

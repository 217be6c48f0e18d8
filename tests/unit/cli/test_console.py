from __future__ import annotations

import pytest

from autotuner.cli.console import console, plain_table, status


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


def test_control_characters_of_a_name_are_spelt_out_and_colours_stay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal then
    table = plain_table("name")
    table.add_row("a\x1b]0;owned\x9b31m\u202eb")
    console().print(table, style="red")
    printed = capsys.readouterr().out
    assert r"a\x1b]0;owned\x9b31m\u202eb" in printed
    assert "\x1b[31m" in printed


def test_a_status_is_seen_on_a_terminal_with_its_brackets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal then
    with status("starting") as say:
        say("[1] of 2 runs done")
    printed = capsys.readouterr()
    assert "[1] of 2 runs done" in printed.err
    assert printed.out == ""


def test_a_status_is_not_seen_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with status("starting") as say:
        say("1 of 2 runs done")
    assert "".join(capsys.readouterr()) == ""

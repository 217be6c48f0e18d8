"""What a trainer prints, line by line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from autotuner.launch.trainers.output import Output


def heard(write: Callable[[int], object], hear: Callable[[str, float], None] | None = None) -> tuple[list[str], str]:
    """The lines that were heard, and the text that was kept."""
    lines: list[str] = []
    reading, writing = os.pipe()
    output = Output(os.fdopen(reading, "rb", buffering=0), hear or (lambda line, at_s: lines.append(line)))
    write(writing)
    os.close(writing)
    output.finish(5.0)
    return lines, output.text


def test_lines_are_heard_whole_however_they_come() -> None:
    def write(pipe: int) -> None:
        os.write(pipe, b"one\ntw")
        time.sleep(0.02)
        os.write(pipe, b"o\nthree")

    assert heard(write) == (["one", "two", "three"], "one\ntwo\nthree")


def test_a_progress_bar_ends_its_lines_by_returns() -> None:
    assert heard(lambda pipe: os.write(pipe, b" 5%| 1/20\r      \r{'loss': '6.25'}\n"))[0] == [
        " 5%| 1/20",
        "{'loss': '6.25'}",
    ]


def test_what_is_no_text_is_replaced() -> None:
    assert heard(lambda pipe: os.write(pipe, b"\xff\n"))[0] == ["\ufffd"]


def test_only_the_last_lines_are_kept_and_no_line_is_endless() -> None:
    def write(pipe: int) -> None:
        for number in range(1000):
            os.write(pipe, b"%d\n" % number)
        for _ in range(50):
            os.write(pipe, b"x" * 10_000)

    lines, text = heard(write)
    assert lines[:2] == ["0", "1"]
    assert len(text) < 20_000
    assert max(map(len, text.splitlines())) == 2000


def test_a_reader_that_breaks_does_not_keep_a_trainer_waiting() -> None:
    def broken(line: str, at_s: float) -> None:
        raise ValueError(line, at_s)

    _, text = heard(lambda pipe: [os.write(pipe, b"x" * 60_000 + b"\n") for _ in range(10)], broken)
    assert len(text.splitlines()) == 10

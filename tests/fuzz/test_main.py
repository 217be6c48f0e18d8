from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.__main__ import fed
from tests.fuzz.target import Target


def _fails(data: bytes) -> None:
    assert b"(" not in data, "brackets are not understood"


TARGETS = (Target(name="at_brackets", check=_fails, seeds=(b"a",), words=("(",)),)


@pytest.mark.oracle
def test_an_input_that_fails_is_reported_with_its_traceback_and_kept(tmp_path: Path) -> None:
    found = fed("test_main.at_brackets", 30, 1, tmp_path)
    (kept,) = tmp_path.iterdir()
    assert b"(" in kept.read_bytes()
    assert "brackets are not understood" in found.failure
    assert str(kept) in found.failure
    assert str(found).endswith("FAILED")


@pytest.mark.oracle
def test_a_parser_that_does_not_fail_is_reported_with_its_number_of_inputs(tmp_path: Path) -> None:
    found = fed("words.tokens", 1, 1, tmp_path)
    assert not found.failure
    assert found.executions > 0
    assert found.edges > 0
    assert list(tmp_path.iterdir()) == []

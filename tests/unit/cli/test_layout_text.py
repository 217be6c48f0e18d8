from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotuner.cli.layout_text import read_layout
from autotuner.core.errors import InvalidInput

FIELDS = {"tensor_parallel_degree": 2, "recompute": "full"}


def test_a_layout_is_given_as_words_as_json_or_as_a_file_of_json(tmp_path: Path) -> None:
    file = tmp_path / "layout.json"
    file.write_text(json.dumps(FIELDS))
    for text in ("tp2 recompute-full", json.dumps(FIELDS), str(file)):
        assert read_layout(text) == FIELDS


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "must be words or JSON"), ('{"a":' * 5_000, "must be words or JSON"), ("none.json", "cannot be read")],
)
def test_what_is_no_json_or_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_layout(text)


def test_a_number_without_end_is_told_with_a_line_of_it() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_layout("tp" + "9" * 5_000)
    assert len(str(caught.value)) < 500


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "layout.json"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_layout(str(file))

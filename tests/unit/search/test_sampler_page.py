"""The example of docs/sampler.md runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import optuna
import pytest

PAGE = Path(__file__).parents[3] / "docs/sampler.md"


def test_the_example_of_the_page_finds_a_layout_and_stops_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, PAGE.name, "exec"), names)  # our own page
    study: optuna.Study = names["study"]
    assert len(study.trials) < 50
    assert names["sampler"].remaining_gain(study) < 0.01
    assert capsys.readouterr().out.startswith(f"{len(study.trials)} trials, ")

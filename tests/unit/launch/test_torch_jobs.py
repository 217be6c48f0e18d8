from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.launch.torch_jobs import ask_torch
from tests.patience import PATIENCE_S


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> str:
    """The name of a module that a new process finds."""
    (folder / "answering.py").write_text("\n".join(("import sys", *lines)))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "answering"


def test_the_last_line_is_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "print('noise')", "print(sys.stdin.read().upper())")
    assert ask_torch(name, "question", timeout_s=PATIENCE_S) == "QUESTION"


def test_progress_is_what_it_says_on_standard_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    lines = ("print('1 of 2\\n2 of 2', file=sys.stderr)", "print('done')")
    name = module(tmp_path, monkeypatch, *lines)
    assert ask_torch(name, "", timeout_s=PATIENCE_S, progress=told.append) == "done"
    assert told == ["1 of 2", "2 of 2"]


def test_a_refusal_is_the_callers_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "sys.stderr.write('too large')", "sys.exit(2)")
    with pytest.raises(InvalidInput, match="too large"):
        ask_torch(name, "", timeout_s=PATIENCE_S)


def test_a_missing_torch_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "raise ModuleNotFoundError(\"No module named 'torch'\")")
    with pytest.raises(InvalidInput, match="is not installed here"):
        ask_torch(name, "", timeout_s=PATIENCE_S)


def test_a_process_that_breaks_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "raise ValueError('odd shapes')")
    with pytest.raises(AutotunerError, match="odd shapes"):
        ask_torch(name, "", timeout_s=PATIENCE_S)


def test_a_process_that_never_answers_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "import time", "time.sleep(60)")
    with pytest.raises(AutotunerError, match="no answer after 1 s"):
        ask_torch(name, "", timeout_s=1.0)

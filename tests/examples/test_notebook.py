"""The notebook of examples/ runs from its first cell to its last, as Jupyter runs it."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.patience import PATIENCE_S

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def test_every_cell_of_the_notebook_runs_and_shows_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", f"sqlite:///{tmp_path / 'notebook.db'}")
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert not [cell for cell in notebook.cells if cell.get("outputs")], "the notebook is stored without its outputs"
    nbclient.NotebookClient(
        notebook, timeout=int(PATIENCE_S), resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    data = [output.get("data", {}) for output in shown]
    assert sum("text/html" in one for one in data) == 6  # four answers, a frame and a ranking
    assert any("image/png" in one for one in data)

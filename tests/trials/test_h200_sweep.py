from __future__ import annotations

import csv
from pathlib import Path

import pytest

from autotuner.backtest.table import read_table
from autotuner.domain.jobs.profile import DeviceProfile
from autotuner.domain.wire import loads
from bench.h200_sweep import main


@pytest.mark.oracle  # a sweep and a profile
def test_one_call_leaves_a_table_of_runs_and_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--device", "cpu", "--output", str(tmp_path)])
    rows = list(csv.DictReader((tmp_path / "own_h200.csv").read_text().splitlines()))
    assert len(rows) == 3
    assert all(float(row["step_time_s"]) > 0 and row["torch"] and row["date"] for row in rows)
    assert loads(DeviceProfile, (tmp_path / "profile.json").read_text()).device
    printed = capsys.readouterr().out
    assert "by the profile" in printed
    assert "best MFU" in printed
    table = read_table(tmp_path / "own_h200.csv")
    assert sum(len(sheet) for sheet in table.sheets) == 3  # backtest can judge every row

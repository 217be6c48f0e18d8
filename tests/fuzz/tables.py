"""Tables of measured runs: of the backtest, and those that a command is given."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np

from autotuner.backtests.measured_table import read_table
from autotuner.cli.files import read_text
from autotuner.core.requests import PredictionRequest
from autotuner.core.text import inputs_of, to_document
from tests.fuzz.operators import file_reader
from tests.fuzz.target import Target

_PUBLISHED = Path(__file__).parents[1] / "published"
_SHEETS = ("dgxc_benchmarking", "nanotron_ultrascale_sweep", "torchtitan", "repo_reports_misc", "llm_foundry_mpt")


def _beginning(name: str) -> bytes:
    """The header and three rows of a published table."""
    with (_PUBLISHED / f"{name}.csv").open("rb") as file:
        lines = [line for line in file if line.strip() and not line.startswith(b"# ")]
    return b"".join(itertools.islice(lines, 4))


def _backtest(path: Path) -> None:
    """A row that is judged has a time, or ran out of memory."""
    for sheet in read_table(path).sheets:
        times = sheet.step_time_s
        assert np.all(np.isnan(times) | (times > 0))
        assert not np.any(np.isinf(times))


def _measured(path: Path) -> None:
    texts = {"seq_len": "4096", "global_batch_size": "64", "measured": str(path)}
    for run in to_document(inputs_of(PredictionRequest), texts, read_file=read_text)["measured"]:
        assert all(math.isfinite(run[name]) for name in ("step_time_s", "tokens_per_s") if name in run), run


TARGETS = (
    Target(name="backtest", check=file_reader(_backtest, ".csv"), seeds=tuple(map(_beginning, _SHEETS))),
    Target(
        name="measured_csv",
        check=file_reader(_measured, ".csv"),
        seeds=(b"layout,step_time_s,tokens_per_s,model,cluster,seq_len,global_batch_size\ntp8 mb1,8.5,,,,8192,\n",),
        words=("layout", "step_time_s", "tokens_per_s", "is_simulated", "nan", "inf", "1e400", '"', "\0", "{", "\r"),
    ),
    Target(
        name="measured_json",
        check=file_reader(_measured, ".json"),
        seeds=(b'[{"layout": "tp8 mb1", "step_time_s": 8.5, "seq_len": 8192, "model": "llama-3-70b"}]', b"[" * 3000),
        is_json=True,
    ),
)

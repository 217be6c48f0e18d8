"""What the fit found of the clusters that published tables were measured on."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from autotuner.backtest.cells import Row, text
from autotuner.core.job import Calibration
from autotuner.core.wire import from_dict


def calibration_of(row: Row, accelerator: str) -> Calibration | None:
    """How fast the row's cluster is beside a typical one; None where the fit saw no run of its source and device.

    Constants are in ``clusters.toml``, which ``bench/fit_stacks.py`` writes.
    """
    source = text(row, "source")
    fitting = (known for begins, known in _clusters().items() if source.startswith(begins))
    return next(fitting, {}).get(accelerator)


@cache
def _clusters() -> Mapping[str, Mapping[str, Calibration]]:
    """By what a source begins with, then by accelerator."""
    document = tomllib.loads(files("autotuner.backtest").joinpath("clusters.toml").read_text(encoding="utf-8"))
    return {
        source: {device: from_dict(Calibration, one, f"{source}.{device}") for device, one in devices.items()}
        for source, devices in document.items()
    }

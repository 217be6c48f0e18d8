"""Fits what a stack holds beyond the arithmetic to the runs of a layout sweep that ran out of memory, or did not.

``python -m research.fit_memory`` prints the constants of aleph-alpha for ``catalog/stacks.toml``. The likelihood of an
outcome is logistic in log(predicted peak / memory); a refused layout weighs as much as eight let through, since the
best layouts lie at the edge of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from autotuner.backtest.table import Sheet
from autotuner.core.codec import from_plain, to_plain
from autotuner.core.columns import Floats
from autotuner.core.job import Job
from autotuner.core.stack import Stack
from autotuner.costmodel.memory.peak import memory
from research.fit_stacks import sheets_of

_FIELDS = ("unfused_norm_bytes", "scores_alive", "logits_copies", "activation_overhead", "allowance_bytes")
_START = np.array([5.0, 2.0, 2.5, 0.2, 1.5e9])
_WIDTH = 0.03
_REFUSED_WEIGHT = 8.0


def with_memory(job: Job, values: Floats) -> Job:
    """The job with the stack's memory constants replaced."""
    named: dict[str, float] = dict(zip(_FIELDS, map(float, values), strict=True))
    named["allowance_bytes"] = int(named["allowance_bytes"])
    return replace(job, stack=from_plain(Stack, to_plain(job.stack) | named))


def excess(sheet: Sheet, values: Floats) -> Floats:
    """log(predicted peak / memory) of every row."""
    job = with_memory(sheet.job, values)
    ratio: Floats = np.log(memory(sheet.layouts, job).total_bytes / job.cluster.accelerator.memory_bytes)
    return ratio


def fitted_memory(sheets: Sequence[Sheet]) -> Floats:
    """The constants under which the outcomes are most likely, near where they start."""
    ran_out = np.concatenate([sheet.out_of_memory for sheet in sheets])
    weight = np.where(ran_out, 1.0, _REFUSED_WEIGHT)

    def loss(change: Floats) -> float:
        above = np.concatenate([excess(sheet, _START * np.exp(change)) for sheet in sheets]) / _WIDTH
        return float(np.mean(weight * np.logaddexp(0, np.where(ran_out, -above, above))) + 0.002 * (change**2).sum())

    corners = np.vstack([np.zeros(len(_START)), 0.4 * np.eye(len(_START))])
    found = minimize(
        loss,
        corners[0],
        method="Nelder-Mead",
        options={"initial_simplex": corners, "maxiter": 300, "xatol": 1e-2, "fatol": 1e-4},
    )
    return np.asarray(_START * np.exp(found.x))


def main() -> None:
    """Print the constants and the shares of wrong verdicts."""
    sheets = sheets_of("aleph_alpha_layouts_sweep")
    values = fitted_memory(sheets)
    above = np.concatenate([excess(sheet, values) for sheet in sheets]) > 0
    ran_out = np.concatenate([sheet.out_of_memory for sheet in sheets])
    for name, value in zip(_FIELDS, values, strict=True):
        print(f"{name} = {value:.3g}")  # noqa: T201
    print(f"# let through {np.mean(~above[ran_out]):.3f}, refused {np.mean(above[~ran_out]):.3f}")  # noqa: T201


if __name__ == "__main__":
    main()
